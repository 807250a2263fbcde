//! The byte by which a message of `ping` is known, and which message a byte stands for.

/// Marks of messages; above them are those that say that a part is over.
const MARKS: u64 = 250;
/// From this number on, a message says that a part is over: no point has so many.
const OVER: u64 = u32::MAX as u64 - 1;

/// The byte by which the `i`-th message is known: never 0, and another one each time.
pub(super) const fn mark(i: u64) -> u8 {
    if i < OVER { (i % MARKS) as u8 + 1 } else { MARKS as u8 + 1 + (i - OVER) as u8 }
}

/// The number of the message that says that a part is over: another one than the part before has,
/// since it is said several times.
pub(super) const fn done(part: usize) -> u64 {
    OVER + (part % 2) as u64
}

/// The number of a message with that mark, where `expected` is expected: fewer than half of the
/// marks were lost. `None` where it is none, or of an earlier one that came late, or twice.
pub(super) fn next_number(expected: u64, found: u8) -> Option<u64> {
    let found = u64::from(found).checked_sub(1).filter(|found| *found < MARKS)?;
    let ahead = (found + MARKS - expected % MARKS) % MARKS;
    (ahead < MARKS / 2).then_some(expected + ahead)
}

/// The number of an earlier message than `i` with that mark, of fewer than half of the marks
/// before.
pub(super) fn earlier_number(i: u64, found: u8) -> Option<u64> {
    let found = u64::from(found).checked_sub(1).filter(|found| *found < MARKS)?;
    let behind = (i % MARKS + MARKS - found) % MARKS;
    (1..MARKS / 2).contains(&behind).then(|| i.checked_sub(behind)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_never_the_one_before_nor_zero() {
        for i in 0..1000 {
            assert!(mark(i) != 0 && mark(i) != mark(i + 1));
        }
    }

    #[test]
    fn what_is_late_or_over_has_no_number() {
        assert_eq!(next_number(1000, mark(999)), None);
        assert_eq!((next_number(5, 0), next_number(5, mark(done(0)))), (None, None));
        assert!(mark(done(0)) != mark(done(1)) && done(1) <= u32::MAX.into());
        assert_eq!(mark(done(1)), MARKS as u8 + 2);
    }

    #[test]
    fn a_late_answer_is_told_by_its_mark() {
        for i in [1, 60, 249, 250, 251, 1000] {
            for behind in [1, 60, 124] {
                let number = (i >= behind).then(|| i - behind);
                let found = number.map(mark).or_else(|| Some(mark(i + MARKS - behind)));
                assert_eq!(found.and_then(|mark| earlier_number(i, mark)), number, "{i} {behind}");
            }
            assert_eq!(earlier_number(i, mark(i)), None, "no earlier one");
            assert_eq!(earlier_number(i, mark(i + 1)), None, "not asked yet");
        }
        assert_eq!((earlier_number(5, 0), earlier_number(5, mark(done(0)))), (None, None));
    }

    #[test]
    fn a_number_is_found_behind_lost_ones() {
        for expected in [0, 1, 254, 255, 1000] {
            for lost in [0, 1, 100, 124] {
                assert_eq!(next_number(expected, mark(expected + lost)), Some(expected + lost));
            }
        }
    }
}
