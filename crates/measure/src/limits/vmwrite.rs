//! `process_vm_writev`: the kernel copies into another process, which takes no part in it.

use std::sync::atomic::Ordering;

use super::cpu::Spin;
use super::limit::{Limit, Unsupported, median_ns_per_call};
use super::peer::{Child, Line, Map, pin};
use crate::clock::Clock;
use crate::quantity::Quantity;

/// Bytes that one run writes at most; small sizes are bounded by calls.
const RUN_BYTES: usize = 64 << 20;
const CALLS_PER_RUN: usize = 6400;
const CALLS_PER_BATCH: usize = 32;

/// Writes into private memory of a sleeping child, pages touched. Lives on the thread that made
/// it: the child dies with that thread.
pub struct VmWrite {
    clock: Clock,
    quantity: Quantity,
    core: usize,
    source: Vec<u8>,
    /// The child's memory has this address in the child.
    target: Map,
    child: Child,
}

impl VmWrite {
    /// The time of one call that writes `size_bytes`, made on the first core; the child, which
    /// sleeps, belongs to the second.
    ///
    /// # Errors
    /// When the kernel refuses (no ptrace right by Yama or seccomp, no such call), and says so.
    pub fn call_cost(
        clock: Clock,
        cores: (usize, usize),
        size_bytes: usize,
    ) -> Result<Self, Unsupported> {
        Self::new(clock, cores, size_bytes, Quantity::CallCost)
    }

    /// Bytes per second by calls that write `size_bytes` each.
    ///
    /// # Errors
    /// As for [`VmWrite::call_cost`].
    pub fn bandwidth(
        clock: Clock,
        cores: (usize, usize),
        size_bytes: usize,
    ) -> Result<Self, Unsupported> {
        Self::new(clock, cores, size_bytes, Quantity::Bandwidth)
    }

    fn new(
        clock: Clock,
        cores: (usize, usize),
        size_bytes: usize,
        quantity: Quantity,
    ) -> Result<Self, Unsupported> {
        let size_bytes = size_bytes.max(1);
        let target = Map::private(size_bytes)?;
        let ready_map = Map::shared(size_of::<Line>())?;
        let ready = &ready_map.lines()[0].0;
        let memory = target.base();
        let sleep = || {
            // SAFETY: the mapping has `size_bytes` bytes, and this copy of it is the child's alone.
            unsafe { std::ptr::write_bytes(memory, 0xEE, size_bytes) };
            ready.store(1, Ordering::Release);
            loop {
                // SAFETY: takes nothing; returns after a signal handler, and then sleeps again.
                unsafe { libc::pause() };
            }
        };
        // SAFETY: the child writes memory and sleeps, no more.
        let child = unsafe { Child::fork(cores.1, sleep) }?;
        // The child may have to wait for the core that we are on.
        Spin::between((0, 0)).until_equal(ready, 1)?;
        let source = (0..size_bytes).map(|i| i as u8 | 1).collect();
        let limit = Self { clock, quantity, core: cores.0, source, target, child };
        limit.write()?;
        limit.check()?;
        Ok(limit)
    }

    /// One call.
    #[inline]
    fn write(&self) -> Result<(), Unsupported> {
        let local = span(self.source.as_ptr().cast_mut(), self.source.len());
        let remote = span(self.target.base(), self.source.len());
        let pid = self.child.pid();
        // SAFETY: `local` is ours to read for the whole call. `remote` is an address of the child,
        // which the kernel checks there; nothing of this process is written.
        let written = unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) };
        if written == self.source.len() as isize {
            return Ok(());
        }
        Err(refused("process_vm_writev", written))
    }

    /// Whether what was written is there.
    fn check(&self) -> Result<(), Unsupported> {
        let mut back = vec![0; self.source.len()];
        let local = span(back.as_mut_ptr(), back.len());
        let remote = span(self.target.base(), back.len());
        // SAFETY: `local` is ours to write for the whole call; `remote` the kernel checks.
        let read = unsafe { libc::process_vm_readv(self.child.pid(), &local, 1, &remote, 1, 0) };
        if read != back.len() as isize {
            return Err(refused("process_vm_readv", read));
        }
        match back == self.source {
            true => Ok(()),
            false => Err(Unsupported("the child's memory differs from what was written".into())),
        }
    }
}

fn span(base: *mut u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: base.cast(), iov_len: bytes }
}

#[cold]
fn refused(call: &str, transferred: isize) -> Unsupported {
    let error = std::io::Error::last_os_error();
    if transferred >= 0 {
        return Unsupported(format!("{call} stopped after {transferred} bytes"));
    }
    refusal(call, &error)
}

fn refusal(call: &str, error: &std::io::Error) -> Unsupported {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM) => "; no ptrace right over a child: seccomp, or Yama's ptrace_scope",
        Some(libc::ENOSYS) => "; the kernel, or a sandbox, has no such call",
        _ => "",
    };
    Unsupported(format!("{call} is refused: {error}{hint}"))
}

impl Limit for VmWrite {
    fn name(&self) -> String {
        format!("process_vm_writev, {} B", self.source.len())
    }

    fn quantity(&self) -> Quantity {
        self.quantity
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        let _pin = pin(self.core)?;
        let calls = (RUN_BYTES / self.source.len()).clamp(16, CALLS_PER_RUN);
        let per_batch = (calls / 16).clamp(1, CALLS_PER_BATCH);
        self.write()?;
        let write = || self.write();
        let ns = median_ns_per_call(&self.clock, calls / per_batch, per_batch, write)?;
        Ok(match self.quantity {
            Quantity::Bandwidth => self.source.len() as f64 * 1e9 / ns,
            _ => ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_likely_cause() {
        for (errno, cause) in [(libc::EPERM, "Yama"), (libc::ENOSYS, "sandbox")] {
            let reason = refusal("process_vm_writev", &std::io::Error::from_raw_os_error(errno));
            assert!(reason.0.starts_with("process_vm_writev is refused: "), "{reason}");
            assert!(reason.0.contains(cause), "{reason}");
        }
        let gone = refusal("process_vm_writev", &std::io::Error::from_raw_os_error(libc::ESRCH));
        assert!(!gone.0.contains(';'), "{gone}");
        assert!(refused("process_vm_writev", 7).0.ends_with("stopped after 7 bytes"));
    }

    #[test]
    fn a_child_that_died_is_an_error_and_not_a_number() {
        let Ok(mut limit) = VmWrite::call_cost(Clock::new(), (0, 0), 32) else {
            let reason = "process_vm_writev is not allowed here";
            return rdmalab_testing::skipped("a_child_that_died", reason);
        };
        // SAFETY: the pid is that of our child, which is reaped only when the limit is dropped.
        unsafe { libc::kill(limit.child.pid(), libc::SIGKILL) };
        let error = Spin::between((0, 0)).until(|| limit.write().err());
        assert!(error.is_some() && limit.run().is_err());
    }
}
