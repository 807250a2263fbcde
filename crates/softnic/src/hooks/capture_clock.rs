//! Timestamps of captured packets: the wall clock, computed from the processor's counter if the
//! kernel relies on it. Asking the kernel each time took a seventh of the time of a capture.

/// How long one reading of the kernel's clock is used, ns. NTP (500 ppm at most) moves the clock by
/// 5 us at most in this time.
const TRUST_NS: u64 = 10_000_000;
/// The counter's rate is measured over at least this time, ns.
const LEARN_NS: u64 = 2_000_000;
/// Fractional bits of a rate.
const RATE_BITS: u32 = 32;
/// If two measurements of the rate differ by more than one part in this number, the clock was set.
const RATE_SLACK: u64 = 100;
/// Counter and clock are read together this often at most, until a reading takes [`TOOK_TICKS`].
const TRIES: u32 = 8;
/// Ticks that one reading may take: about a microsecond.
const TOOK_TICKS: u64 = 3_000;

/// Computes wall-clock time from the processor's counter.
#[derive(Debug)]
pub(super) struct CaptureClock {
    /// Every call asks the kernel, because there is no reliable counter.
    plain: bool,
    base_ticks: u64,
    base_ns: u64,
    /// Nanoseconds per tick, with [`RATE_BITS`] fractional bits; 0 while the rate is not known.
    rate: u64,
    /// The rate is used for this many ticks after the base.
    trusted_ticks: u64,
    last_ns: u64,
}

impl CaptureClock {
    pub(super) fn new() -> CaptureClock {
        CaptureClock::of(!kernel_uses_counter())
    }

    fn of(plain: bool) -> CaptureClock {
        let (base_ticks, base_ns) = both();
        CaptureClock { plain, base_ticks, base_ns, rate: 0, trusted_ticks: 0, last_ns: 0 }
    }

    /// Nanoseconds since 1970, UTC. The value never decreases, unless the clock was set back.
    #[inline(always)]
    pub(super) fn now_ns(&mut self) -> u64 {
        let passed = ticks().wrapping_sub(self.base_ticks);
        if passed < self.trusted_ticks {
            self.last_ns = self.last_ns.max(self.base_ns + scaled(passed, self.rate));
            return self.last_ns;
        }
        self.ask()
    }

    #[cold]
    fn ask(&mut self) -> u64 {
        let (ticks, now_ns) = both();
        let at_ns = match now_ns + TRUST_NS < self.last_ns {
            true => now_ns,
            false => now_ns.max(self.last_ns),
        };
        self.last_ns = at_ns;
        if !self.plain {
            self.learn(ticks, now_ns);
        }
        at_ns
    }

    /// Measures the rate since the base, and makes this reading the new base.
    fn learn(&mut self, ticks: u64, now_ns: u64) {
        let (passed, ns) =
            (ticks.wrapping_sub(self.base_ticks), now_ns.saturating_sub(self.base_ns));
        if ns < LEARN_NS && now_ns >= self.base_ns {
            return;
        }
        let rate = u64::try_from((u128::from(ns) << RATE_BITS) / u128::from(passed.max(1)));
        let rate = rate.unwrap_or(0);
        let agrees = self.rate.abs_diff(rate) <= self.rate / RATE_SLACK;
        // If the clock was set, the rate must be measured again.
        self.rate = if self.rate == 0 || agrees { rate } else { 0 };
        self.trusted_ticks = match self.rate {
            0 => 0,
            rate => ((u128::from(TRUST_NS) << RATE_BITS) / u128::from(rate)) as u64,
        };
        (self.base_ticks, self.base_ns) = (ticks, now_ns);
    }
}

fn scaled(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> RATE_BITS) as u64
}

pub(super) fn wall_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec on our stack.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reads counter and clock at the same moment, unless an interrupt delays each try.
fn both() -> (u64, u64) {
    let mut found = (0, 0);
    for _ in 0..TRIES {
        let before = ticks();
        let now_ns = wall_ns();
        let took = ticks().wrapping_sub(before);
        found = (before.wrapping_add(took / 2), now_ns);
        if took <= TOOK_TICKS {
            break;
        }
    }
    found
}

/// Whether the kernel's clock uses this counter, and so checks that the counter is reliable.
fn kernel_uses_counter() -> bool {
    let current = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(current).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: every x86-64 has it, and Linux lets user space read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The timestamps must lie between the wall clock's before and after, up to the rate's error.
    fn follow(mut stamps: CaptureClock) {
        let (mut last, begin) = (0, wall_ns());
        while wall_ns() < begin + 60_000_000 {
            let before = wall_ns();
            let at = stamps.now_ns();
            let after = wall_ns();
            assert!(at >= last);
            // The rate is measured over 2 ms between two readings that may be interrupted.
            let slack = TRUST_NS / RATE_SLACK;
            assert!((before - slack..=after + slack).contains(&at), "{before} {at} {after}");
            last = at;
        }
    }

    #[test]
    fn times_follow_the_wall_clock() {
        follow(CaptureClock::new());
        follow(CaptureClock::of(true));
    }

    #[test]
    fn a_clock_that_was_set_is_learnt_anew() {
        let mut stamps = CaptureClock::of(false);
        let (ticks, ns) = (stamps.base_ticks, stamps.base_ns);
        stamps.learn(ticks + 5_000_000, ns + 5_000_000);
        assert_eq!(stamps.rate, 1 << RATE_BITS);
        assert_eq!(stamps.trusted_ticks, TRUST_NS);
        // A second later by the counter, an hour earlier by the clock.
        stamps.learn(ticks + 1_000_000_000, ns - 3_600_000_000_000);
        assert_eq!((stamps.rate, stamps.trusted_ticks), (0, 0));
        let (ticks, ns) = (stamps.base_ticks, stamps.base_ns);
        stamps.learn(ticks + 8_000_000, ns + 4_000_000);
        assert_eq!(stamps.rate, 1 << (RATE_BITS - 1));
    }

    #[test]
    fn a_time_is_scaled() {
        assert_eq!(scaled(3_000, 1 << (RATE_BITS - 1)), 1_500);
        assert_eq!(scaled(u64::MAX >> 8, 1 << RATE_BITS), u64::MAX >> 8);
    }
}
