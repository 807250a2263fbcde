//! Which operations decided when the last one ended.

use std::collections::BTreeSet;

use crate::check::Pairs;
use crate::replay::Done;
use crate::schedule::Schedule;

/// From the operation that ended last back to one that nothing held up: ranks and indices of
/// operations, the first one first. Before each of them stands what ended, or for the send of a
/// message began, last of all that it had to wait for: operations that it requires, the message,
/// and what its processor did before.
#[must_use]
pub fn critical_path(schedule: &Schedule, pairs: &Pairs, done: &[Done]) -> Vec<(usize, usize)> {
    let times = |(rank, op): (usize, usize)| done[rank].times_ns[op];
    let all = done.iter().enumerate();
    let all = all.flat_map(|(rank, done)| (0..done.times_ns.len()).map(move |op| (rank, op)));
    let Some(mut at) = all.max_by(|a, b| times(*a).1.total_cmp(&times(*b).1)) else {
        return Vec::new();
    };
    // The operations of each rank in the order of their ends.
    let by_end = |done: &Done| {
        let mut all: Vec<usize> = (0..done.times_ns.len()).collect();
        all.sort_by(|a, b| done.times_ns[*a].1.total_cmp(&done.times_ns[*b].1));
        all
    };
    let by_end: Vec<Vec<usize>> = done.iter().map(by_end).collect();
    let (mut path, mut seen) = (vec![at], BTreeSet::from([at]));
    loop {
        let ((rank, index), (begin, end)) = (at, times(at));
        let op = &schedule.ranks[rank][index];
        let ended = |other: usize| ((rank, other), times((rank, other)).1);
        let began = |other: usize| ((rank, other), times((rank, other)).0);
        let required = op.after_end.iter().map(|other| ended(*other));
        let begun = op.after_begin.iter().map(|other| began(*other));
        // A message came when its receive had begun: the sender held it up.
        let message = pairs.get(&at).map(|send| (*send, times(*send).0));
        let ended_before = by_end[rank].partition_point(|other| ended(*other).1 <= begin);
        let is_new = |other: &&usize| !seen.contains(&(rank, **other));
        let before = by_end[rank][..ended_before].iter().rev().find(is_new).map(|at| ended(*at));
        let causes = required.chain(begun).chain(message.filter(|_| end > begin));
        let causes = causes.filter(|(other, _)| !seen.contains(other)).chain(before);
        let Some((next, _)) = causes.max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        seen.insert(next);
        path.push(next);
        at = next;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check;

    #[test]
    fn the_path_goes_through_the_message_that_came_late() {
        let text = "num_ranks 2\nrank 0 {\nc: calc 900\ns: send 8b to 1\ns requires c\n}\n\
                    rank 1 {\nx: calc 100\nr: recv 8b from 0\ny: calc 50\ny requires r\n}\n";
        let schedule = Schedule::parse(text).unwrap();
        let pairs = check(&schedule, 64).unwrap();
        let of = |times: &[(f64, f64)]| Done { times_ns: times.to_vec(), ..Done::default() };
        let done = [
            of(&[(0.0, 900.0), (900.0, 1000.0)]),
            of(&[(0.0, 100.0), (100.0, 2000.0), (2000.0, 2050.0)]),
        ];
        assert_eq!(critical_path(&schedule, &pairs, &done), [(0, 0), (0, 1), (1, 1), (1, 2)]);
        assert!(critical_path(&Schedule::default(), &pairs, &[]).is_empty());
    }
}
