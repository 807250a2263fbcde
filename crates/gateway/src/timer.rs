//! Ticks of a fixed rate. Ticks have numbers from 0; a tick that is over when nobody waited for it
//! is missed, and its number is skipped.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rdmalab_config::one_of;
use rdmalab_measure::{Clock, Stamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

one_of! {
    /// How a timer waits.
    pub enum TimerKind {
        /// In the kernel (timerfd_create(2), CLOCK_MONOTONIC).
        Timerfd = "timerfd";
        /// By reading the processor's counter again and again, which takes a processor.
        Tsc = "tsc";
    }
}

/// A running timer.
#[derive(Debug)]
pub struct Timer {
    ticking: Ticking,
    /// The number of the next tick.
    next: u64,
}

#[derive(Debug)]
enum Ticking {
    Timerfd { fd: OwnedFd, period_ns: f64 },
    Tsc { clock: Clock, series: Series },
}

impl Timer {
    /// A timer whose tick 0 comes one period from now. The clock is the one that `tsc` reads; it is
    /// calibrated against CLOCK_MONOTONIC_RAW.
    ///
    /// # Errors
    /// For a rate that is no positive number or above a tick each nanosecond, or when the kernel
    /// gives no timer.
    pub fn start(kind: TimerKind, rate_hz: f64, clock: &Clock) -> Result<Self, String> {
        let period_ns = 1e9 / rate_hz;
        if !(1.0..1e18).contains(&period_ns) {
            return Err(format!("a rate of {rate_hz} Hz is impossible"));
        }
        let ticking = match kind {
            TimerKind::Timerfd => {
                let failed = |error| format!("timerfd: {}", std::io::Error::from(error));
                let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
                let fd = fd.map_err(failed)?;
                let period = timespec(period_ns.round() as u64);
                let spec = Itimerspec { it_interval: period, it_value: period };
                timerfd_settime(&fd, TimerfdTimerFlags::empty(), &spec).map_err(failed)?;
                Ticking::Timerfd { fd, period_ns }
            }
            TimerKind::Tsc => {
                let period_ticks = period_ns / clock.ns_per_tick();
                let series = Series { start: clock.now().0, period_ticks };
                Ticking::Tsc { clock: *clock, series }
            }
        };
        Ok(Self { ticking, next: 0 })
    }

    /// Waits for the next tick, at most about `patience`, and returns its number: that of the
    /// latest tick, if several are over. `None` when none has come yet.
    ///
    /// # Errors
    /// When the kernel's timer fails.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<u64>, String> {
        let patience_ns = patience.as_nanos() as f64;
        match &self.ticking {
            Ticking::Timerfd { fd, period_ns } => {
                // Within the patience, one system call waits and counts.
                if *period_ns > patience_ns {
                    let mut fds = [PollFd::new(fd, PollFlags::IN)];
                    let limit = timespec(patience_ns as u64);
                    if poll(&mut fds, Some(&limit)).unwrap_or(0) == 0 {
                        return Ok(None);
                    }
                }
                let mut count = [0; 8];
                match rustix::io::read(fd, &mut count) {
                    Ok(_) => Ok(self.advance(u64::from_ne_bytes(count))),
                    Err(rustix::io::Errno::INTR) => Ok(None),
                    Err(error) => Err(format!("timerfd: {}", std::io::Error::from(error))),
                }
            }
            Ticking::Tsc { clock, series } => {
                let (deadline, begin) = (series.deadline(self.next + 1), clock.now());
                let limit = clock.after_ns(begin, patience_ns).0;
                loop {
                    let Stamp(now) = clock.now();
                    if now >= deadline {
                        let due = series.due(now);
                        return Ok(self.advance(due - self.next));
                    }
                    if now >= limit {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn advance(&mut self, ticks: u64) -> Option<u64> {
        self.next += ticks;
        (ticks > 0).then(|| self.next - 1)
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Equal periods of a counter, from `start` on.
#[derive(Clone, Copy, Debug)]
struct Series {
    start: u64,
    period_ticks: f64,
}

impl Series {
    /// When period `n` is over.
    fn deadline(&self, n: u64) -> u64 {
        self.start + (n as f64 * self.period_ticks) as u64
    }

    /// How many periods are over: the largest `n` with `deadline(n) <= now`, so that a period is
    /// over when `now` equals its deadline.
    fn due(&self, now: u64) -> u64 {
        let mut n = (now.saturating_sub(self.start) as f64 / self.period_ticks) as u64;
        while self.deadline(n + 1) <= now {
            n += 1;
        }
        while n > 0 && self.deadline(n) > now {
            n -= 1;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_over_at_its_deadline_and_not_before() {
        for period_ticks in [1.0, 2.6, 26_000.5, 1e9 / 3.0, 2.6e9] {
            let series = Series { start: 1 << 50, period_ticks };
            for n in [1, 2, 3, 10, 999_999, 123_456_789] {
                let deadline = series.deadline(n);
                assert_eq!(series.due(deadline), n, "{period_ticks} {n}");
                assert!(series.due(deadline - 1) < n, "{period_ticks} {n}");
            }
            assert_eq!(series.due(series.start), 0);
        }
    }

    #[test]
    fn numbers_of_ticks_rise_and_none_comes_twice() {
        let clock = Clock::new();
        for kind in [TimerKind::Timerfd, TimerKind::Tsc] {
            let mut timer = Timer::start(kind, 10_000.0, &clock).unwrap();
            let mut last = None;
            while last < Some(200) {
                if let Some(tick) = timer.wait(Duration::from_millis(50)).unwrap() {
                    assert!(last < Some(tick), "{kind:?}: {tick} after {last:?}");
                    last = Some(tick);
                }
            }
        }
    }

    #[test]
    fn impossible_rates_are_refused() {
        let clock = Clock::monotonic_raw();
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
            assert!(Timer::start(TimerKind::Tsc, rate, &clock).is_err(), "{rate}");
        }
    }
}
