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

use guest::{Guest, Unable};
use rdmalab_testkit::programs::skipped;

/// A guest; `None`, after printing the reason, if it cannot run.
fn boot(name: &str, mtu: usize) -> Option<Guest> {
    if std::env::var_os("RDMALAB_GUEST").is_none() {
        skipped(
            &format!("guest::{name}"),
            "set RDMALAB_GUEST=1 to boot a kernel (see CONTRIBUTING)",
        );
        return None;
    }
    match Guest::boot(name, mtu) {
        Ok(guest) => Some(guest),
        Err(Unable(reason)) => {
            skipped(&format!("guest::{name}"), &reason);
            None
        }
    }
}
