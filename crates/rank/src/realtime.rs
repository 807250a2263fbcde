//! What a thread asks of the scheduler, and a process of memory, to be on time. Nothing
//! system-wide changes. A wish that is not granted is no failure: each function returns a sentence
//! that says what is missing, and the program goes on without it.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, CpuSet, sched_setaffinity};

/// The priorities of `SCHED_FIFO`, from the least urgent one.
pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

/// `SCHED_FIFO` with this priority for the calling thread: it runs until it waits, or until a more
/// urgent thread wants its processor.
///
/// # Errors
/// A sentence that says what is missing.
pub fn run_first(priority: u8) -> Result<(), String> {
    if !PRIORITIES.contains(&priority) {
        return Err(format!("priority {priority}: SCHED_FIFO has the priorities 1 to 99"));
    }
    let param = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: reads a live structure; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::EPERM) => format!(
            "priority {priority}: no right to SCHED_FIFO; CAP_SYS_NICE or a limit of RLIMIT_RTPRIO \
             of at least {priority} (`ulimit -r`) gives it"
        ),
        _ => format!("priority {priority}: SCHED_FIFO: {error}"),
    })
}

/// Lets the calling thread run on these processors only, by the bits of `mask`.
///
/// # Errors
/// A sentence that says what is missing.
pub fn run_on(mask: u64) -> Result<(), String> {
    let mut set = CpuSet::new();
    (0..64).filter(|cpu| mask >> cpu & 1 == 1).for_each(|cpu| set.set(cpu));
    sched_setaffinity(None, &set).map_err(|error| match error {
        rustix::io::Errno::INVAL => {
            format!("affinity {mask:#x}: this process may run on none of these processors")
        }
        error => format!("affinity {mask:#x}: {}", io::Error::from(error)),
    })
}

/// Keeps the memory that this process has, and what it touches later, from being paged out.
///
/// # Errors
/// A sentence that says what is missing. With a limit on locked memory nothing is locked, because
/// allocations would fail later, at the limit.
pub fn lock_memory() -> Result<(), String> {
    if let Some(bytes) = getrlimit(Resource::Memlock).current.filter(|_| !has_ipc_lock()) {
        return Err(format!(
            "memory is not locked: RLIMIT_MEMLOCK is {bytes} bytes; `ulimit -l unlimited` or \
             CAP_IPC_LOCK allows it"
        ));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(flags).map_err(|error| format!("memory is not locked: {}", io::Error::from(error)))
}

/// Whether this process has CAP_IPC_LOCK, which no limit binds.
fn has_ipc_lock() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let why = run_first(0).unwrap_err();
        assert!(why.contains("1 to 99"), "{why}");
        let why = run_on(0).unwrap_err();
        assert!(why.contains("affinity 0x0"), "{why}");
    }

    #[test]
    fn a_thread_keeps_to_its_processors() {
        let cpu = rustix::thread::sched_getcpu();
        if cpu < 64 {
            let here = std::thread::spawn(move || {
                run_on(1 << cpu).unwrap();
                rustix::thread::sched_getcpu()
            });
            assert_eq!(here.join().unwrap(), cpu);
        }
    }
}
