//! Entering the kernel and coming back.

use super::limit::{Limit, Unsupported, median_ns_per_call};
use crate::clock::Clock;
use crate::quantity::Quantity;

/// A system call that does next to nothing: `getppid`, which no library remembers.
pub struct NullSyscall {
    clock: Clock,
}

impl NullSyscall {
    /// On the core that the caller runs on.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock }
    }
}

impl Limit for NullSyscall {
    fn name(&self) -> String {
        "null system call (getppid)".to_owned()
    }

    fn quantity(&self) -> Quantity {
        Quantity::CallCost
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        median_ns_per_call(&self.clock, 500, 64, || {
            // SAFETY: takes nothing, changes nothing, cannot fail.
            std::hint::black_box(unsafe { libc::getppid() });
            Ok(())
        })
    }
}
