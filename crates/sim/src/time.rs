//! Virtual time in whole picoseconds, and rates of bytes.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A time or a duration in picoseconds. 64 bits last 213 days.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Ps(pub u64);

impl Ps {
    /// No time.
    pub const ZERO: Ps = Ps(0);

    /// So many nanoseconds, rounded; negative ones are 0.
    #[must_use]
    pub fn from_ns(ns: f64) -> Ps {
        Ps((ns * 1e3).round() as u64)
    }

    /// So many whole nanoseconds.
    #[must_use]
    pub const fn from_whole_ns(ns: u64) -> Ps {
        Ps(ns.saturating_mul(1000))
    }

    /// In nanoseconds.
    #[must_use]
    pub fn ns(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Whole nanoseconds, rounded down.
    #[must_use]
    pub const fn whole_ns(self) -> u64 {
        self.0 / 1000
    }
}

impl Add for Ps {
    type Output = Ps;
    fn add(self, other: Ps) -> Ps {
        Ps(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Ps {
    fn add_assign(&mut self, other: Ps) {
        *self = *self + other;
    }
}

/// The difference; 0 if `other` is later.
impl Sub for Ps {
    type Output = Ps;
    fn sub(self, other: Ps) -> Ps {
        Ps(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Ps {
    type Output = Ps;
    fn mul(self, count: u64) -> Ps {
        Ps(self.0.saturating_mul(count))
    }
}

impl fmt::Display for Ps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.ns())
    }
}

/// The time that bytes take; the default is none at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Time of 2^20 bytes.
    ps_per_mib: u64,
}

impl Rate {
    /// A rate in 10^6 bytes per second; 0 stands for a rate without limit.
    #[must_use]
    pub fn from_mb_per_s(mb_per_s: f64) -> Rate {
        if mb_per_s <= 0.0 {
            return Rate::default();
        }
        Rate { ps_per_mib: ((1 << 20) as f64 * 1e6 / mb_per_s).round() as u64 }
    }

    /// In 10^6 bytes per second; 0 without a limit.
    #[must_use]
    pub fn mb_per_s(self) -> f64 {
        if self.ps_per_mib == 0 { 0.0 } else { (1 << 20) as f64 * 1e6 / self.ps_per_mib as f64 }
    }

    /// The time of so many bytes.
    #[must_use]
    pub fn time(self, bytes: u64) -> Ps {
        Ps(((u128::from(bytes) * u128::from(self.ps_per_mib)) >> 20) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_and_large_ones_do_not_overflow() {
        let rate = Rate::from_mb_per_s(1000.0);
        assert_eq!(rate.time(1 << 20), Ps::from_whole_ns(1 << 20));
        assert_eq!(Rate::from_mb_per_s(1.0).time(1 << 31), Ps::from_whole_ns(1000 << 31));
        assert_eq!(Rate::from_mb_per_s(0.0).time(u64::MAX), Ps::ZERO);
        assert!((rate.mb_per_s() - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn a_negative_difference_is_none() {
        assert_eq!(Ps(1) - Ps(2), Ps::ZERO);
        assert_eq!((Ps::from_ns(1.5), Ps::from_ns(-1.0)), (Ps(1500), Ps::ZERO));
    }
}
