//! Cores: which there are, and staying on one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limit::Unsupported;

/// Words of a CPU mask: 1024 CPUs, as glibc's `cpu_set_t` has.
const WORDS: usize = 16;

type Mask = [u64; WORDS];

/// How long one end waits for the other before it gives up. On a loaded machine the other end may
/// have no processor for seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Looks between two looks at the time.
const LOOKS: u32 = 1 << 16;

/// The cores that the calling thread may run on, ascending. After [`pin_to`] that is one.
///
/// # Errors
/// Those of `sched_getaffinity`: EINVAL on machines of more than 1024 CPUs.
pub fn available_cores() -> io::Result<Vec<usize>> {
    let mask = affinity()?;
    let is_set = |core: &usize| mask[core / 64] >> (core % 64) & 1 == 1;
    Ok((0..WORDS * 64).filter(is_set).collect())
}

/// Whether the calling thread has one core only, so that spinning keeps the other end from
/// answering. Also when the cores cannot be told.
#[must_use]
pub fn one_cpu() -> bool {
    available_cores().map_or(true, |cores| cores.len() < 2)
}

/// The first two cores of [`available_cores`]; twice the same where there is one, and core 0 twice
/// where they cannot be told.
#[must_use]
pub fn two_cores() -> (usize, usize) {
    let cores = available_cores().unwrap_or_default();
    let first = cores.first().copied().unwrap_or(0);
    (first, cores.get(1).copied().unwrap_or(first))
}

/// Keeps the calling thread on `core` until the [`Pin`] is dropped.
///
/// # Errors
/// Those of `sched_setaffinity`: EINVAL when the core does not exist or is not allowed.
pub fn pin_to(core: usize) -> io::Result<Pin> {
    let before = affinity()?;
    let mut mask = [0; WORDS];
    let word = mask.get_mut(core / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    *word = 1 << (core % 64);
    set_affinity(&mask)?;
    Ok(Pin { before, not_send: std::marker::PhantomData })
}

/// Gives the thread its former cores back when dropped.
#[must_use = "the thread is pinned for as long as this lives"]
#[derive(Debug)]
pub struct Pin {
    before: Mask,
    /// The mask is that of the thread which made it.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Pin {
    /// Stays pinned for good.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // The cores were allowed a moment ago; if they no longer are, staying put is all there is.
        let _ = set_affinity(&self.before);
    }
}

fn affinity() -> io::Result<Mask> {
    let mut mask: Mask = [0; WORDS];
    let (size, to) = (size_of::<Mask>(), mask.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `size` bytes to `to`, which is that large; a CPU mask is an
    // array of unsigned longs for it, so that any alignment of u64 does. Pid 0 is this thread.
    let failed = unsafe { libc::sched_getaffinity(0, size, to) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(mask)
}

fn set_affinity(mask: &Mask) -> io::Result<()> {
    let (size, from) = (size_of::<Mask>(), mask.as_ptr().cast());
    // SAFETY: the kernel reads `size` bytes, all of them the mask's.
    let failed = unsafe { libc::sched_setaffinity(0, size, from) } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets another thread of this core run.
fn yield_core() {
    // SAFETY: takes nothing and cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

/// What a spinning end does between two looks at a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpinHint {
    /// Nothing: on some processors PAUSE takes longer than the hand-over that is waited for.
    Bare,
    /// PAUSE (YIELD on aarch64): on others it is the faster way, as fewer looks ask for the line
    /// while the other end is about to write it.
    Paused,
}

/// How an end waits for the other one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spin {
    /// Both ends have one core, so that only yielding lets the other one act.
    pub yielding: bool,
    /// A PAUSE between two looks (see [`SpinHint`]).
    pub pausing: bool,
}

impl Spin {
    /// For ends that stay on these two cores.
    pub fn between(cores: (usize, usize)) -> Self {
        Self { yielding: cores.0 == cores.1, pausing: false }
    }

    /// The same, looking as asked for.
    pub fn with_hint(self, hint: SpinHint) -> Self {
        Self { pausing: hint == SpinHint::Paused, ..self }
    }

    /// The instruction between two looks.
    #[inline(always)]
    pub fn rest(self) {
        if self.yielding {
            yield_core();
        } else if self.pausing {
            std::hint::spin_loop();
        }
    }

    /// Looks again and again, until `look` gives something; `None` when it has not within
    /// [`PATIENCE`].
    #[inline(always)]
    pub fn until<T>(self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return Some(found);
            }
            self.rest();
        }
        // Nearly always it has ended by now, and the time was not read.
        self.until_late(look)
    }

    #[cold]
    fn until_late<T>(self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            for _ in 0..LOOKS {
                if let Some(found) = look() {
                    return Some(found);
                }
                self.rest();
            }
        }
        None
    }

    /// Waits until the word has the value.
    #[inline(always)]
    pub fn until_equal(self, word: &AtomicU64, value: u64) -> Result<(), Unsupported> {
        self.until(|| (word.load(Ordering::Acquire) == value).then_some(())).ok_or_else(no_answer)
    }
}

/// The other end is dead, stopped, or does not get its core.
pub(super) fn no_answer() -> Unsupported {
    Unsupported(format!("the other end did not answer within {} s", PATIENCE.as_secs()))
}
