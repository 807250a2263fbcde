//! Waiting by spinning, with a time limit.

use std::time::{Duration, Instant};

/// Why the work stopped: a sentence with the likely causes.
pub type Stopped = String;

/// The longest wait. It is longer than the retries of a queue pair, so that their status is
/// reported.
const LIMIT: Duration = Duration::from_secs(10);

/// Number of polls between two readings of the clock.
const LOOKS: u32 = 1 << 14;

/// How an end waits for the other one.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    yielding: bool,
}

impl Spin {
    /// With `yielding` both ends share a core: the other one runs only while this one yields.
    pub fn new(yielding: bool) -> Self {
        Self { yielding }
    }

    /// Calls `look` until it returns something. Sometimes calls `check`, whose error ends the wait.
    #[inline(always)]
    pub fn until<T>(
        self,
        mut look: impl FnMut() -> Option<T>,
        check: impl FnMut() -> Result<(), Stopped>,
    ) -> Result<T, Stopped> {
        for _ in 0..LOOKS {
            if let Some(found) = look() {
                return Ok(found);
            }
            self.pause();
        }
        self.until_late(look, check)
    }

    /// Called between two polls: yields the core if both ends share it.
    #[inline(always)]
    pub fn pause(self) {
        if self.yielding {
            std::thread::yield_now();
        }
    }

    #[cold]
    fn until_late<T>(
        self,
        mut look: impl FnMut() -> Option<T>,
        mut check: impl FnMut() -> Result<(), Stopped>,
    ) -> Result<T, Stopped> {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            check()?;
            for _ in 0..LOOKS {
                if let Some(found) = look() {
                    return Ok(found);
                }
                self.pause();
            }
        }
        Err(format!(
            "the other end did not answer within {} s: it has ended or is stopped, or an \
             unreliable transport lost a message",
            LIMIT.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_ends_the_wait() {
        let spin = Spin::new(false);
        let never = spin.until(|| None::<()>, || Err("dead".to_owned()));
        assert_eq!(never, Err("dead".to_owned()));
        let mut looks = 0;
        let late = spin.until(
            || {
                looks += 1;
                (looks > 3 * LOOKS).then_some(7)
            },
            || Ok(()),
        );
        assert_eq!(late, Ok(7));
    }
}
