//! Disconnecting the connections of a process that ends without closing them.
//!
//! When a process ends, the kernel destroys its ids, which sends a DREQ to each peer. Our ids
//! vanish with the process. Peers on this host see its sockets close. Peers on other hosts would
//! see nothing, and no process might answer their DREQs. So an exiting process sends DREQs itself.

use std::sync::{MutexGuard, TryLockError};
use std::time::Duration;

use rdmalab_engine::cm::Output;

use crate::os::now_ns;
use crate::process::{self, CmProcess};
use crate::state::CmState;

/// How long to wait for the lock, ns. It may never be released: a cancelled thread may hold it, or
/// this thread, if a signal handler called `exit`.
const LOCK_NS: u64 = 100_000_000;
/// How long sending may take, ns. Peers that get no DREQ notice the end by a time-out.
const SEND_NS: u64 = 200_000_000;

/// Runs late in `exit`: after the `atexit` handlers, and after the destructors of the libraries
/// that depend on this one, because both may still use connections. The device can still send.
/// Captures have been closed by then; the DREQs are appended to them.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = {
    extern "C" fn end() {
        crate::guard::guard((), || {
            // A forked child that made no call has none: its parent's connections live on.
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
    /// Destroys every connection. Sends each peer one DREQ, and waits for no DREP.
    fn disconnect_all(&mut self, until_ns: u64) {
        self.detach_all();
        while let Some(output) = self.manager.output() {
            // Events are dropped: no thread fetches them any more.
            if let Output::Send { to, mad } = output {
                self.transport.send(to, *mad);
            }
            if now_ns() >= until_ns {
                return;
            }
        }
    }
}
