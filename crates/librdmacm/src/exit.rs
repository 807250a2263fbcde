//! What peers are told when this process ends and has not said goodbye.
//!
//! A kernel destroys the ids of a process that ends, which tells each peer. Ours end with the
//! process: others of this host see its sockets close, and those on other hosts saw nothing, and
//! asked a host for the end of a connection where perhaps nobody was left to answer.

use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;

use rdmalab_engine::cm::Output;

use crate::state::{self, CmProcess, CmState, now_ns};

/// How long it is waited for a thread that has the lock, ns. It may be the one that ends, in a
/// handler of a signal, or one that was cancelled.
const LOCK_NS: u64 = 100_000_000;
/// How long telling may take, ns: who has not been told by then finds out without us.
const TELL_NS: u64 = 200_000_000;

/// Runs last when the process ends by `exit`: after its handlers and the destructors of whatever
/// was linked to this library, which may still use connections. The device sends for as long as
/// the process lives. A capture ends before, and is added to.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        crate::guard::guard((), || {
            // None in a forked child that opened nothing: its parent's connections live on.
            if let Some(mut cm) = state::existing().and_then(try_lock) {
                cm.disconnect_all(now_ns() + TELL_NS);
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
    /// Lets go of every connection, and tells the peers, each once: no answer is waited for.
    fn disconnect_all(&mut self, until_ns: u64) {
        self.detach_all();
        while let Some(output) = self.manager.output() {
            // Events are nobody's any more.
            if let Output::Send { to, mad } = output {
                self.transport.send(to, *mad);
            }
            if now_ns() >= until_ns {
                return;
            }
        }
    }
}
