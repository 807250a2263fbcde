//! Disconnecting the connections of a process that ends without closing them.
//!
//! The kernel destroys the ids of a process that ends, which sends a DREQ to each peer. Our ids end
//! with the process. Peers on this host see its sockets close, but peers on other hosts would see
//! nothing, and their DREQs might find no process to answer.

use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;

use rdmalab_engine::cm::Output;

use crate::os::now_ns;
use crate::process::{self, CmProcess};
use crate::state::CmState;

/// How long to wait for the lock, ns. Its holder may be this thread, in a signal handler, or a thread
/// that was cancelled.
const LOCK_NS: u64 = 100_000_000;
/// How long sending may take, ns. Peers without a DREQ by then find out by a time-out.
const SEND_NS: u64 = 200_000_000;

/// Runs last when the process calls `exit`: after its handlers, and after the destructors of the
/// libraries that depend on this one, because both may still use connections. The device can send
/// until the process ends. A capture has ended by then, and is appended to.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        crate::guard::guard((), || {
            // None in a forked child that made no call: its parent's connections live on.
            if let Some(mut cm) = process::existing().and_then(try_lock) {
                cm.disconnect_all(now_ns() + SEND_NS);
            }
        });
    }
    end
};

fn try_lock(process: &CmProcess) -> Option<MutexGuard<'_, CmState>> {
    let give_up_ns = now_ns() + LOCK_NS;
    loop {
        match process.try_lock() {
            Ok(cm) => return Some(cm),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if now_ns() >= give_up_ns => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

impl CmState {
    /// Destroys every connection and sends a DREQ to each peer, once: no answer is awaited.
    fn disconnect_all(&mut self, until_ns: u64) {
        self.detach_all();
        while let Some(output) = self.manager.output() {
            // No thread fetches events any more.
            if let Output::Send { to, mad } = output {
                self.transport.send(to, *mad);
            }
            if now_ns() >= until_ns {
                return;
            }
        }
    }
}
