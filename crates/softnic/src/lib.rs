//! A real-time RNIC in user space: the engine of `rdmalab-engine`, driven over shared memory
//! between the processes of a host.
//!
//! [`SoftNic`] implements the engine's `Backend`. A host is (boot, network namespace, user). Each
//! process has one [control_socket](rdmalab_ring::control_socket), one shared segment with its QP
//! words, key table and lane, and one ring from each peer. There are no files.
//!
//! If `RDMALAB_INTERFACE` names an interface, other hosts are reached by RoCEv2 over UDP (`udp`).
//!
//! There are two ways to a peer. The *ring* carries trains to the peer's responder, which needs a
//! thread there that makes progress: a thread inside a verb, or the progress thread. Through the
//! *lane* an initiator executes WRITE, READ and atomics itself in the target's memory.
//!
//! Lock order: ring consumer (always by `try_lock`) -> QP -> SRQ -> ring producer -> CQ producer.
//! No lock is held while code of the program runs. No lock that a poller holds is needed to
//! complete a work request.

mod backend;
mod blocked;
mod buffer;
mod caller_wait;
mod cancel;
mod clock;
mod codec;
mod context;
mod control;
mod copiers;
mod copy;
mod counters;
mod counters_file;
mod cq;
mod datagram;
mod device;
mod error;
mod fd;
mod groups;
mod handles;
mod handshake;
mod hello_rounds;
mod hooks;
mod host;
mod idle_yield;
mod keys;
mod layout;
mod lifecycle;
mod limits;
mod memory_map;
mod memory_watch;
mod mr;
mod multicast;
mod paging;
mod pd;
mod peer;
mod peer_table;
mod poll;
mod process;
mod profile;
mod program_memory;
mod progress;
mod progress_loop;
mod progress_thread;
mod qp;
mod qp_table;
mod quota;
mod ring_path;
mod ring_push;
mod ring_stall;
mod shared_memory;
mod signals;
mod srq;
mod startup;
mod stream;
mod timers;
mod udp;
mod wakeup;

use std::io::Write as _;

pub use backend::SoftNic;
pub use cancel::NoCancel;
pub use counters_file::{tally, waits};
pub use handles::{Channel, Context, Cq, Mr, Mw, Pd, SoftQp, Srq};
pub use hooks::capture_file::make_room_for_capture;
pub use hooks::choice::{HooksState, choose_hooks, hooks};
pub use hooks::deferred::DelayCounts;
pub use hooks::faults::check_faults;
pub use mr::page_counters;
pub use profile::{
    Optimum, Profile, SHIPPED, choose_profile, find_profile, is_profile_path, profile,
};
pub use shared_memory::{alloc_shared, free_shared};
pub use udp::hook::{network_drops, set_packet_hook};
pub use udp::interface::choose_interface;
pub use udp::{management, management_c};

/// Prints a sentence if `RDMALAB_DEBUG` asks for it, and each sentence only once.
fn debug_once(sentence: &str) {
    static SAID: parking_lot::Mutex<Vec<String>> = parking_lot::Mutex::new(Vec::new());
    let mut said = SAID.lock();
    if said.iter().any(|known| known == sentence) {
        return;
    }
    said.push(sentence.to_string());
    drop(said);
    debug(sentence);
}

/// Prints a sentence if `RDMALAB_DEBUG` asks for it: otherwise the library prints nothing.
fn debug(sentence: &str) {
    if std::env::var_os("RDMALAB_DEBUG").is_some_and(|value| value == "1") {
        warn(sentence);
    }
}

/// Prints a sentence in any case: why the device cannot work, if the program only sees time-outs.
#[cold]
fn warn(sentence: &str) {
    // Standard error may be closed; that is no reason to panic in a C program.
    let _ = writeln!(std::io::stderr(), "rdmalab: {sentence}");
}
