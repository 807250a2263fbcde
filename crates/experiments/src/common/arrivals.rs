//! What was sent against what arrived.

/// A message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Its number, from 0.
    pub number: u64,
    /// The receiver's stamp.
    pub recv: u64,
    /// The stamp that it carried; 0 where none.
    pub send: u64,
}

/// The arrivals by number, and what went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    /// The first arrival of each message; `None`: lost.
    pub first: Vec<Option<Arrival>>,
    pub lost: u64,
    pub duplicated: u64,
    /// Messages that arrived after one that was sent later.
    pub reordered: u64,
    /// Arrivals with a number that was never sent.
    pub strays: u64,
}

/// Joins `arrivals`, in the order in which they came, with the `sent` messages.
pub(crate) fn join(sent: usize, arrivals: &[Arrival]) -> Joined {
    let mut joined = Joined { first: vec![None; sent], ..Joined::default() };
    let mut latest = None;
    for arrival in arrivals {
        let place = usize::try_from(arrival.number).ok().and_then(|n| joined.first.get_mut(n));
        match place {
            None => joined.strays += 1,
            Some(Some(_)) => joined.duplicated += 1,
            Some(place) => {
                *place = Some(*arrival);
                joined.reordered += u64::from(latest > Some(arrival.number));
                latest = latest.max(Some(arrival.number));
            }
        }
    }
    joined.lost = joined.first.iter().filter(|a| a.is_none()).count() as u64;
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(number: u64) -> Arrival {
        Arrival { number, recv: 100 + number, send: 0 }
    }

    fn counts(sent: usize, numbers: &[u64]) -> [u64; 4] {
        let arrivals: Vec<Arrival> = numbers.iter().map(|n| at(*n)).collect();
        let j = join(sent, &arrivals);
        [j.lost, j.duplicated, j.reordered, j.strays]
    }

    #[test]
    fn each_fate_is_counted_once() {
        assert_eq!(counts(4, &[0, 1, 2, 3]), [0, 0, 0, 0]);
        assert_eq!(counts(4, &[0, 3]), [2, 0, 0, 0]);
        assert_eq!(counts(4, &[0, 1, 1, 2, 3, 0]), [0, 2, 0, 0]);
        assert_eq!(counts(4, &[0, 2, 1, 3]), [0, 0, 1, 0]);
        assert_eq!(counts(4, &[3, 0, 1, 2]), [0, 0, 3, 0]);
        assert_eq!(counts(2, &[0, 1, 2, 9]), [0, 0, 0, 2]);
        assert_eq!(counts(3, &[]), [3, 0, 0, 0]);
        assert_eq!(counts(0, &[]), [0, 0, 0, 0]);
    }

    #[test]
    fn the_first_arrival_counts() {
        let late = Arrival { recv: 999, ..at(1) };
        let joined = join(3, &[at(1), late]);
        assert_eq!(joined.first, [None, Some(at(1)), None]);
    }

    proptest! {
        #[test]
        fn losses_and_duplicates_come_out_as_they_went_in(
            fates in prop::collection::vec(0u8..4, 0..200),
        ) {
            // 0 copies: lost; more than 1: duplicates.
            let arrivals: Vec<Arrival> = fates.iter().enumerate()
                .flat_map(|(n, copies)| (0..*copies).map(move |_| at(n as u64))).collect();
            let joined = join(fates.len(), &arrivals);
            let lost = fates.iter().filter(|f| **f == 0).count() as u64;
            let more: u64 = fates.iter().map(|f| u64::from(f.saturating_sub(1))).sum();
            prop_assert_eq!((joined.lost, joined.duplicated), (lost, more));
            prop_assert_eq!((joined.reordered, joined.strays), (0, 0));
        }
    }
}
