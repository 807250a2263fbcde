//! Checks that each message has two ends, and that nothing waits for itself.

use std::collections::{BTreeMap, VecDeque};

use crate::schedule::{Kind, Op, Schedule, ScheduleError};

/// The send of each receive: ranks and indices of operations.
pub type Pairs = BTreeMap<(usize, usize), (usize, usize)>;

/// Checks a schedule, in which messages of more than `eager_bytes` wait for their receive; returns
/// the send of each receive. Of several messages from one rank to another with the same tag, the
/// first in the file is taken to be the first.
///
/// # Errors
/// A message without a receive, a receive without a message, two ends of different lengths, or
/// operations that wait for each other.
pub fn check(schedule: &Schedule, eager_bytes: u64) -> Result<Pairs, ScheduleError> {
    let pairs = pairs(schedule)?;
    match cycle(schedule, &pairs, eager_bytes) {
        None => Ok(pairs),
        Some(lines) => {
            let all: Vec<String> = lines.iter().map(usize::to_string).collect();
            let what = match all.len() {
                1 => "this operation requires itself".to_owned(),
                _ => format!("the operations in lines {} wait for each other", all.join(", ")),
            };
            Err(ScheduleError::new(lines[0], what))
        }
    }
}

/// The sends and the receives of messages between two ranks with the same tag.
type Ends = (Vec<usize>, Vec<usize>);

fn pairs(schedule: &Schedule) -> Result<Pairs, ScheduleError> {
    let mut all: BTreeMap<(usize, usize, u32), Ends> = BTreeMap::new();
    for (rank, ops) in schedule.ranks.iter().enumerate() {
        for (index, op) in ops.iter().enumerate() {
            match op.kind {
                Kind::Calc(_) => {}
                Kind::Send(m) => all.entry((rank, m.peer, m.tag)).or_default().0.push(index),
                Kind::Recv(m) => all.entry((m.peer, rank, m.tag)).or_default().1.push(index),
            }
        }
    }
    let mut pairs = Pairs::new();
    for ((from, to, _), (sends, receives)) in all {
        let (sender, receiver) = (&schedule.ranks[from], &schedule.ranks[to]);
        if let Some(index) = sends.get(receives.len()) {
            let op = &sender[*index];
            let what = format!("{op}: rank {to} has no receive for it");
            return Err(ScheduleError::new(op.line, what));
        }
        if let Some(index) = receives.get(sends.len()) {
            let op = &receiver[*index];
            let what = format!("{op}: rank {from} sends no such message");
            return Err(ScheduleError::new(op.line, what));
        }
        for (send, receive) in sends.into_iter().zip(receives) {
            let (a, b) = (&sender[send], &receiver[receive]);
            if a.message().map(|m| m.bytes) != b.message().map(|m| m.bytes) {
                let what = format!(
                    "{b}: it would receive the message of line {}, {a}, whose size differs",
                    a.line
                );
                return Err(ScheduleError::new(b.line, what));
            }
            pairs.insert((to, receive), (from, send));
        }
    }
    Ok(pairs)
}

/// The lines of operations that wait for each other, in the order of waiting.
///
/// Each operation has two moments, its begin and its end. A moment waits for others.
fn cycle(schedule: &Schedule, pairs: &Pairs, eager_bytes: u64) -> Option<Vec<usize>> {
    let mut first = Vec::new();
    let mut ops: Vec<&Op> = Vec::new();
    for rank in &schedule.ranks {
        first.push(ops.len());
        ops.extend(rank);
    }
    let begin = |rank: usize, op: usize| 2 * (first[rank] + op);
    let mut waits: Vec<Vec<usize>> = vec![Vec::new(); 2 * ops.len()];
    for (rank, own) in schedule.ranks.iter().enumerate() {
        for (index, op) in own.iter().enumerate() {
            let at = begin(rank, index);
            waits[at + 1].push(at);
            waits[at].extend(op.after_end.iter().map(|other| begin(rank, *other) + 1));
            waits[at].extend(op.after_begin.iter().map(|other| begin(rank, *other)));
        }
    }
    for ((to, receive), (from, send)) in pairs {
        let (send, receive) = (begin(*from, *send), begin(*to, *receive));
        waits[receive + 1].push(send);
        if ops[send / 2].message().is_some_and(|message| message.bytes > eager_bytes) {
            waits[send + 1].push(receive);
        }
    }
    let stuck = stuck(&waits);
    // Whoever is stuck waits for one that is stuck: so the walk comes back.
    let mut walk = vec![stuck.iter().position(|is_stuck| *is_stuck)?];
    loop {
        let next = *waits[*walk.last()?].iter().find(|other| stuck[**other])?;
        if let Some(at) = walk.iter().position(|seen| *seen == next) {
            let mut lines: Vec<usize> = walk[at..].iter().map(|m| ops[m / 2].line).collect();
            lines.dedup();
            if lines.len() > 1 && lines.first() == lines.last() {
                lines.pop();
            }
            return Some(lines);
        }
        walk.push(next);
    }
}

/// Which moments never come.
fn stuck(waits: &[Vec<usize>]) -> Vec<bool> {
    let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); waits.len()];
    for (moment, others) in waits.iter().enumerate() {
        others.iter().for_each(|other| waiters[*other].push(moment));
    }
    let mut left: Vec<usize> = waits.iter().map(Vec::len).collect();
    let mut come: VecDeque<usize> = (0..waits.len()).filter(|at| left[*at] == 0).collect();
    let mut stuck = vec![true; waits.len()];
    while let Some(moment) = come.pop_front() {
        stuck[moment] = false;
        for waiter in &waiters[moment] {
            left[*waiter] -= 1;
            if left[*waiter] == 0 {
                come.push_back(*waiter);
            }
        }
    }
    stuck
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(zero: &str, one: &str, eager_bytes: u64) -> Result<Pairs, ScheduleError> {
        let text = format!("num_ranks 2\nrank 0 {{\n{zero}\n}}\nrank 1 {{\n{one}\n}}\n");
        check(&Schedule::parse(&text).unwrap(), eager_bytes)
    }

    #[test]
    fn ends_are_paired_by_rank_and_tag_in_their_order() {
        let pairs = checked(
            "send 8b to 1 tag 1\nsend 9b to 1 tag 2\nsend 7b to 1 tag 1",
            "recv 9b from 0 tag 2\nrecv 8b from 0 tag 1\nrecv 7b from 0 tag 1",
            0,
        );
        let expected = [((1, 0), (0, 1)), ((1, 1), (0, 0)), ((1, 2), (0, 2))];
        assert_eq!(pairs.unwrap(), Pairs::from(expected));
    }

    #[test]
    fn ends_that_do_not_fit_are_named() {
        for (zero, one, line, says) in [
            ("send 8b to 1", "", 3, "rank 1 has no receive"),
            ("send 8b to 1", "recv 8b from 0 tag 1", 3, "no receive"),
            ("", "recv 8b from 0", 6, "rank 0 sends no such message"),
            ("send 8b to 1", "recv 9b from 0", 6, "the message of line 3"),
        ] {
            let error = checked(zero, one, 0).unwrap_err();
            assert!(error.line == line && error.what.contains(says), "{zero}; {one}: {error}");
        }
    }

    #[test]
    fn what_waits_for_itself_is_found_across_ranks() {
        let own = checked("a: calc 1\nb: calc 1\na requires b\nb irequires a", "", 0).unwrap_err();
        assert_eq!(own.what, "the operations in lines 3, 4 wait for each other");
        assert!(checked("a: calc 1\na irequires a", "", 0).is_err());
        assert!(checked("a: calc 1\nb: calc 1\nb requires a\nb irequires a", "", 0).is_ok());
        // Each sends what it has received.
        let relay = |other| format!("r: recv 8b from {other}\ns: send 8b to {other}\ns requires r");
        let across = checked(&relay(1), &relay(0), 64).unwrap_err();
        assert!(across.what.contains("lines 3, ") || across.what.contains(", 3"), "{across}");
        // Each receives when it has sent: that is one only if sends wait for receives.
        let send = |other| format!("r: recv 8b from {other}\ns: send 8b to {other}\nr requires s");
        assert!(checked(&send(1), &send(0), 8).is_ok());
        assert!(checked(&send(1), &send(0), 7).is_err());
    }
}
