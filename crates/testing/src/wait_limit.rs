//! The limit of a wait.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The most time that counts between two looks. Virtual machines stand still for a minute and more,
/// and then what is waited for had no time either.
const COUNTED: Duration = Duration::from_millis(100);
/// Time between two looks that cost little.
const LOOK: Duration = Duration::from_millis(5);

/// How long a wait may last that looks again and again. Between two looks at most 100 ms count.
#[derive(Debug)]
pub struct WaitLimit {
    left: Duration,
    looked: Instant,
}

impl WaitLimit {
    /// From now on.
    #[must_use]
    pub fn of(limit: Duration) -> Self {
        Self { left: limit, looked: Instant::now() }
    }

    /// Whether time is left; to be asked at each look.
    pub fn is_left(&mut self) -> bool {
        self.passed(Instant::now());
        !self.left.is_zero()
    }

    fn passed(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.looked);
        self.left = self.left.saturating_sub(since.min(COUNTED));
        self.looked = now;
    }

    /// Looks until there is something, with a short sleep after each look.
    pub fn until<T>(mut self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            let found = look();
            if found.is_some() || !self.is_left() {
                return found;
            }
            sleep(LOOK);
        }
    }

    /// Waits by calls that wait for as long as they are told.
    pub fn in_slices<T>(mut self, mut wait: impl FnMut(Duration) -> Option<T>) -> Option<T> {
        loop {
            let found = wait(COUNTED);
            if found.is_some() || !self.is_left() {
                return found;
            }
        }
    }

    /// Waits for a message of another thread.
    ///
    /// # Errors
    /// When it did not come, or the thread has ended.
    pub fn receive<T>(self, from: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        let wait = |slice| match from.recv_timeout(slice) {
            Err(RecvTimeoutError::Timeout) => None,
            ended => Some(ended),
        };
        self.in_slices(wait).unwrap_or(Err(RecvTimeoutError::Timeout))
    }

    /// Sleeps until it is over.
    pub fn sleep_out(self) {
        self.in_slices(|slice| {
            sleep(slice);
            None::<()>
        });
    }
}

/// Until a moment, as far as it is away now.
impl From<Instant> for WaitLimit {
    fn from(until: Instant) -> Self {
        let looked = Instant::now();
        Self { left: until.saturating_duration_since(looked), looked }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::LIMIT;

    #[test]
    fn a_standstill_counts_as_one_look() {
        let mut wait_limit = WaitLimit::of(Duration::from_secs(1));
        let mut now = wait_limit.looked;
        for _ in 0..9 {
            now += Duration::from_secs(3600);
            wait_limit.passed(now);
            assert!(!wait_limit.left.is_zero());
        }
        wait_limit.passed(now + Duration::from_millis(99));
        assert_eq!(wait_limit.left, Duration::from_millis(1));
        wait_limit.passed(now + Duration::from_millis(101));
        assert!(wait_limit.left.is_zero() && !wait_limit.is_left());
    }

    #[test]
    fn waits_end() {
        let (short, long) = (|| WaitLimit::of(Duration::from_millis(20)), || WaitLimit::of(LIMIT));
        let mut looks = 0;
        assert_eq!(short().until(|| None::<()>), None);
        assert_eq!(short().in_slices(|_| None::<()>), None);
        let third = long().until(|| {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(third, Some(3));
        let (to, from) = mpsc::channel();
        assert_eq!(short().receive(&from), Err(RecvTimeoutError::Timeout));
        to.send(7).unwrap();
        drop(to);
        assert_eq!(long().receive(&from), Ok(7));
        assert_eq!(long().receive(&from), Err(RecvTimeoutError::Disconnected));
    }
}
