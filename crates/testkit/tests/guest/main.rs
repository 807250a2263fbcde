//! The Linux kernel as a peer: Debian's kernel with `rdma_rxe` in a guest, our library on the host,
//! a tap device between them.
//!
//! ```sh
//! RDMALAB_GUEST=1 cargo test -p rdmalab-testkit --test guest -- --nocapture
//! ```
//!
//! Needs root (a network namespace and a tap device), QEMU and some packages of Debian, which
//! `.ci/run` installs; without them the tests skip themselves and say what is missing. Without
//! `RDMALAB_GUEST` too: the first run downloads a kernel of 70 MB. The emulation is slow: nothing
//! here measures.

mod guest;
mod peers;
mod system;

use guest::{Guest, Unable};
use rdmalab_testkit::programs::skipped;

/// A guest, or `None` after saying why not.
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
