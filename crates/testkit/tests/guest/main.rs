//! The Linux kernel as a peer: Debian's kernel with `rdma_rxe` in a guest, our library on the host,
//! and a tap device between them.
//!
//! ```sh
//! RDMALAB_GUEST=1 cargo test -p rdmalab-testkit --test guest -- --nocapture
//! ```
//!
//! Needs root (for a network namespace and a tap device), QEMU and some Debian packages, which
//! `.ci/run` installs. If anything is missing, the tests skip themselves and name it. They also
//! skip themselves without `RDMALAB_GUEST`, because the first run downloads a kernel of 70 MB. The
//! emulation is slow, so no test here measures time.

mod conformance;
mod guest;
mod peers;
mod system;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use guest::{Guest, Unable};
use rdmalab_testkit::programs::{Turn, skipped, turn};

/// The guest between two tests. To boot one takes as long as many of its pairs.
static IDLE: Mutex<Option<Guest>> = Mutex::new(None);
/// The tests that have the guest or wait for it.
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// The guest, which one test at a time has. It ends with the last test that waits for it.
struct Lent {
    guest: Option<Guest>,
    _turn: Turn,
}

impl Lent {
    fn wait() -> Self {
        WANTED.fetch_add(1, Ordering::Relaxed);
        let turn = turn();
        let guest = IDLE.lock().unwrap_or_else(PoisonError::into_inner).take();
        Self { guest, _turn: turn }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let is_wanted = WANTED.fetch_sub(1, Ordering::Relaxed) > 1;
        // A test that failed may leave anything behind.
        if is_wanted && !std::thread::panicking() {
            let guest = self.guest.take().map(Guest::undisturbed);
            *IDLE.lock().unwrap_or_else(PoisonError::into_inner) = guest;
        }
    }
}

impl Deref for Lent {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        self.guest.as_ref().expect("it was booted")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Guest {
        self.guest.as_mut().expect("it was booted")
    }
}

/// The guest, when it is this test's turn; `None`, after printing the reason, if none can run.
fn boot(name: &str) -> Option<Lent> {
    if std::env::var_os("RDMALAB_GUEST").is_none() {
        skipped(
            &format!("guest::{name}"),
            "set RDMALAB_GUEST=1 to boot a kernel (see CONTRIBUTING)",
        );
        return None;
    }
    let mut lent = Lent::wait();
    if lent.guest.is_none() {
        match Guest::boot() {
            Ok(guest) => lent.guest = Some(guest),
            Err(Unable(reason)) => {
                skipped(&format!("guest::{name}"), &reason);
                return None;
            }
        }
    }
    Some(lent)
}
