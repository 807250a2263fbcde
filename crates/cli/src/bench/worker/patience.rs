//! Waiting by spinning, without waiting for ever.

use std::time::{Duration, Instant};

/// Why work stopped: a sentence with the likely causes.
pub type Stopped = String;

/// How long one wait may take. Longer than a queue pair's retries, so that their status is what
/// is reported.
const LIMIT: Duration = Duration::from_secs(10);

/// Looks between two looks at the time.
const LOOKS: u32 = 1 << 14;

/// How an end waits for the other.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    yielding: bool,
}

impl Patience {
    /// `yielding`: both ends share one core, so that only yielding lets the other one act.
    pub fn new(yielding: bool) -> Self {
        Self { yielding }
    }

    /// Looks until `look` has something. `check` is asked now and then whether there is still
    /// hope.
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
            self.rest();
        }
        self.until_late(look, check)
    }

    /// What stands between two looks.
    #[inline(always)]
    pub fn rest(self) {
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
                self.rest();
            }
        }
        Err(format!(
            "the other end did not answer within {} s: it is dead or stopped, or a message of an \
             unreliable transport was lost",
            LIMIT.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hope_ends_when_the_check_says_so() {
        let patience = Patience::new(false);
        let never = patience.until(|| None::<()>, || Err("dead".to_owned()));
        assert_eq!(never, Err("dead".to_owned()));
        let mut looks = 0;
        let late = patience.until(
            || {
                looks += 1;
                (looks > 3 * LOOKS).then_some(7)
            },
            || Ok(()),
        );
        assert_eq!(late, Ok(7));
    }
}
