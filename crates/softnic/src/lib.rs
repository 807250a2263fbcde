//! A real-time RNIC in user space: the engine of `rdmalab-engine`, driven over shared memory
//! between the processes of a host.
//!
//! [`SoftNic`] implements the engine's `Backend`. A host is (boot, network namespace, user). Each
//! process has one [mailbox](rdmalab_ring::mailbox), one shared segment with its QP words, key
//! table and lane, and one ring from each peer. Nothing lies in the file system.
//!
//! Other hosts are reached by RoCEv2 over UDP, where `RDMALAB_INTERFACE` names an interface
//! (`udp`).
//!
//! Two ways lead to a peer. The *ring* carries trains to the peer's responder, and needs somebody
//! there to make progress: a thread inside a verb, or the helper. The *lane* lets an initiator
//! execute WRITE, READ and atomics in the target's memory itself.
//!
//! Lock order: ring consumer (only ever tried) -> QP -> SRQ -> ring producer -> CQ producer. No
//! lock is held while code of the program runs, and none that a poller holds is needed to complete
//! something.

mod armed;
mod backend;
mod buffer;
mod cancel;
mod clock;
mod codec;
mod context;
mod copy;
mod cq;
mod datagram;
mod device;
mod fd;
mod helper;
mod interrupt;
mod lane;
mod layout;
mod lifecycle;
mod mail;
mod meeting;
mod mr;
mod multicast;
mod pd;
mod peer;
mod post;
mod process;
mod profile;
mod progress;
mod qp;
mod single;
mod srq;
mod transmit;
mod udp;
mod withdrawal;

use std::io::Write as _;

pub use armed::faults::check_faults;
pub use armed::tap::make_room_for_capture;
pub use armed::{ArmedState, armed, choose_armed};
pub use backend::{Channel, Context, Cq, Mr, Mw, Pd, SoftNic, SoftQp, Srq};
pub use buffer::{alloc_shared, free_shared};
pub use cancel::NoCancel;
pub use profile::{
    Optimum, Profile, SHIPPED, choose_profile, find_profile, is_profile_path, profile,
};
pub use udp::interface::choose_interface;
pub use udp::{management, management_c, set_packet_hook, wire_drops};

/// Prints a sentence that a person should know, once for each place that says it, and only when
/// `RDMALAB_DEBUG` asks for it: a library is silent.
fn say_once(sentence: &str) {
    static SAID: parking_lot::Mutex<Vec<String>> = parking_lot::Mutex::new(Vec::new());
    let mut said = SAID.lock();
    if said.iter().any(|known| known == sentence) {
        return;
    }
    said.push(sentence.to_string());
    drop(said);
    say(sentence);
}

/// Prints a sentence if `RDMALAB_DEBUG` asks for such.
fn say(sentence: &str) {
    if std::env::var_os("RDMALAB_DEBUG").is_some_and(|value| value == "1") {
        warn(sentence);
    }
}

/// Prints a sentence whether or not somebody asks: why nothing can work, where the program itself
/// would see time-outs only.
#[cold]
fn warn(sentence: &str) {
    // Standard error may be closed; that is no reason to panic in a C program.
    let _ = writeln!(std::io::stderr(), "rdmalab: {sentence}");
}
