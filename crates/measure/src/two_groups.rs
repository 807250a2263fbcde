//! Whether numbers lie in two groups with a gap between, as the times of a program do that
//! sometimes waits for a time-out.

/// Fewer numbers never count as two groups.
pub const MIN_NUMBERS: usize = 10;
/// Fewer numbers are outliers, and no group.
pub const MIN_GROUP: usize = 3;
/// A group has at least this share of all numbers.
pub const MIN_SHARE: f64 = 0.1;
/// By how much the gap exceeds the range of the larger group.
pub const MIN_GAP: f64 = 3.0;

/// Two groups of sorted numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoGroups {
    /// How many numbers are in the lower group.
    pub lower: usize,
    /// The largest number of the lower group, and the smallest of the upper one.
    pub gap: (f64, f64),
}

/// The two groups of these sorted numbers; `None` if there is one, or more than this rule sees.
///
/// There are two groups if the gap between them is longer than [`MIN_GAP`] times the range of the
/// larger group, and each has [`MIN_GROUP`] numbers and [`MIN_SHARE`] of all; the widest such gap
/// counts. The smaller group may be wide: who waits, waits once or several times. Of ten numbers
/// from a uniform, a normal and an exponential distribution the rule takes 0.6, 0.2 and 2 % for
/// two groups, of twenty hardly any (drawn 4000 times each); of a log-normal one with a sigma of 2
/// 21 % and 6 %, since its tail has such gaps.
#[must_use]
pub fn two_groups(sorted: &[f64]) -> Option<TwoGroups> {
    let n = sorted.len();
    let least = MIN_GROUP.max((n as f64 * MIN_SHARE).ceil() as usize);
    if n < MIN_NUMBERS {
        return None;
    }
    let gap = |lower: usize| sorted[lower] - sorted[lower - 1];
    let is_wide = |lower: &usize| {
        let (below, above) = sorted.split_at(*lower);
        let larger = if below.len() >= above.len() { below } else { above };
        gap(*lower) > MIN_GAP * (larger[larger.len() - 1] - larger[0])
    };
    let widest = (least..=n - least).filter(is_wide).max_by(|a, b| gap(*a).total_cmp(&gap(*b)));
    widest.map(|lower| TwoGroups { lower, gap: (sorted[lower - 1], sorted[lower]) })
}

#[cfg(test)]
mod tests {
    use rdmalab_random::Random;

    use super::*;

    #[test]
    fn a_gap_makes_two_groups_and_an_outlier_none() {
        let times = |slow: &[f64]| {
            let fast = (0..12).map(|i| 1.0 + f64::from(i) / 100.0);
            let mut all: Vec<f64> = fast.chain(slow.iter().copied()).collect();
            all.sort_by(f64::total_cmp);
            two_groups(&all)
        };
        let found = times(&[1.6, 2.1, 3.7]).unwrap();
        assert_eq!((found.lower, found.gap), (12, (1.11, 1.6)));
        assert_eq!(times(&[]), None);
        assert_eq!(times(&[3.6, 3.7]), None, "two of 14 are outliers");
        assert_eq!(times(&[1.2, 1.3, 1.4]), None, "a tail");
        let lower = times(&[0.1, 0.2, 0.3]).map(|found| found.lower);
        assert_eq!(lower, Some(3), "the small group may be the lower one");
        assert_eq!(two_groups(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0]), None, "too few");
        assert_eq!(two_groups(&[]), None);
        let same = [vec![1.0; 8], vec![2.0; 8]].concat();
        assert_eq!(two_groups(&same).map(|found| found.lower), Some(8));
        assert_eq!(two_groups(&[1.0; 20]), None);
    }

    #[test]
    fn one_group_is_seldom_taken_for_two() {
        let mut random = Random::new(1);
        let mut share = |draw: fn(f64) -> f64, n: usize| {
            let mut seen = 0;
            for _ in 0..1000 {
                let mut all: Vec<f64> = (0..n)
                    .map(|_| draw((random.below(1 << 40) as f64 + 0.5) / 2f64.powi(40)))
                    .collect();
                all.sort_by(f64::total_cmp);
                seen += u32::from(two_groups(&all).is_some());
            }
            seen
        };
        assert!(share(|u| u, 10) < 20);
        assert!(share(|u| -u.ln(), 10) < 50);
        assert!(share(|u| -u.ln(), 20) < 10);
    }
}
