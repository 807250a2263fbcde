/// Nanoseconds in a second.
const NS_PER_S: i128 = 1_000_000_000;

/// A point in time of `CLOCK_REALTIME`: seconds since 1970 and nanoseconds, as in C's `timespec`.
///
/// What came over a wire stands here as it came, so the nanoseconds may be more than a second.
/// Arithmetic and [`Timestamp::total_ns`] take that into account; `==` compares the two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds beyond them, usually less than 1 000 000 000.
    pub nanoseconds: i64,
}

impl Timestamp {
    /// The point in time `seconds` and `nanoseconds` after the start of 1970.
    #[must_use]
    pub const fn new(seconds: i64, nanoseconds: i64) -> Self {
        Self { seconds, nanoseconds }
    }

    /// The point in time `ns` nanoseconds after the start of 1970. What does not fit is cut to the
    /// first or last point that does.
    #[must_use]
    pub fn from_ns(ns: i128) -> Self {
        let seconds = ns.div_euclid(NS_PER_S);
        match i64::try_from(seconds) {
            Ok(seconds) => Self { seconds, nanoseconds: ns.rem_euclid(NS_PER_S) as i64 },
            Err(_) if ns < 0 => Self::new(i64::MIN, 0),
            Err(_) => Self::new(i64::MAX, 999_999_999),
        }
    }

    /// Nanoseconds since the start of 1970.
    #[inline]
    #[must_use]
    pub const fn total_ns(self) -> i128 {
        self.seconds as i128 * NS_PER_S + self.nanoseconds as i128
    }

    /// Nanoseconds from `earlier` to this point, negative if it is later.
    #[inline]
    #[must_use]
    pub const fn ns_since(self, earlier: Self) -> i128 {
        self.total_ns() - earlier.total_ns()
    }

    /// The point `ns` nanoseconds later.
    #[must_use]
    pub fn plus_ns(self, ns: i128) -> Self {
        Self::from_ns(self.total_ns().saturating_add(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_carry_into_seconds_in_both_directions() {
        let start = Timestamp::new(10, 999_999_999);
        assert_eq!(start.plus_ns(1), Timestamp::new(11, 0));
        assert_eq!(Timestamp::new(0, 0).plus_ns(-1), Timestamp::new(-1, 999_999_999));
        assert_eq!(start.ns_since(Timestamp::new(11, 0)), -1);
        assert_eq!(Timestamp::new(1, 1_000_000_001).plus_ns(0), Timestamp::new(2, 1));
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        assert_eq!(Timestamp::from_ns(i128::MAX).seconds, i64::MAX);
        assert_eq!(Timestamp::from_ns(i128::MIN).seconds, i64::MIN);
        let last = Timestamp::new(i64::MAX, i64::MAX);
        assert_eq!(last.plus_ns(i128::MAX).seconds, i64::MAX);
    }
}
