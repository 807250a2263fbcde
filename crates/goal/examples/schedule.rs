//! Prints the shipped schedules for any number of ranks, one after the other as often as wanted:
//!
//! ```sh
//! cargo run --release -p rdmalab-goal --example schedule -- dissemination 1024 100 > barriers.goal
//! ```
//!
//! LogGOPSim reads the same file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// The operations of a rank in one repetition: their lines, the first ones, and those that the next
/// repetition waits for. Names begin with `prefix`.
struct Part {
    lines: String,
    first: Vec<String>,
    last: Vec<String>,
}

/// In round k each rank tells the one 2^k further on.
fn dissemination(rank: usize, ranks: usize, prefix: &str) -> Part {
    let mut part = Part { lines: String::new(), first: Vec::new(), last: Vec::new() };
    let mut round = 0;
    while 1 << round < ranks {
        let far = 1 << round;
        let (to, from) = ((rank + far) % ranks, (rank + ranks - far) % ranks);
        let (send, recv) = (format!("{prefix}s{round}"), format!("{prefix}r{round}"));
        let _ = writeln!(part.lines, "{send}: send 1b to {to} tag {round}");
        let _ = writeln!(part.lines, "{recv}: recv 1b from {from} tag {round}");
        for before in &part.last {
            let _ = writeln!(part.lines, "{send} requires {before}");
        }
        if round == 0 {
            part.first = vec![send.clone()];
        }
        part.last = vec![send, recv];
        round += 1;
    }
    part
}

/// Rank 0 tells all along a binomial tree, each the half of its own tree first.
fn binomial(rank: usize, ranks: usize, prefix: &str) -> Part {
    let mut part = Part { lines: String::new(), first: Vec::new(), last: Vec::new() };
    let lowest = if rank == 0 { ranks.next_power_of_two() } else { rank & rank.wrapping_neg() };
    let recv = format!("{prefix}r");
    if rank > 0 {
        let _ = writeln!(part.lines, "{recv}: recv 8b from {} tag 1", rank - lowest);
        part.first.push(recv.clone());
        part.last.push(recv.clone());
    }
    let mut far = lowest / 2;
    let mut sent = 0;
    while far > 0 {
        if rank + far < ranks {
            let send = format!("{prefix}s{sent}");
            let _ = writeln!(part.lines, "{send}: send 8b to {} tag 1", rank + far);
            match rank {
                0 => part.first.push(send.clone()),
                _ => {
                    let _ = writeln!(part.lines, "{send} requires {recv}");
                }
            }
            part.last.push(send);
            sent += 1;
        }
        far /= 2;
    }
    part
}

/// A whole schedule; `None` if there is none of this name.
fn schedule(name: &str, ranks: usize, repetitions: usize) -> Option<String> {
    let of = match name {
        "dissemination" => dissemination,
        "binomial" => binomial,
        _ => return None,
    };
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        let _ = writeln!(text, "rank {rank} {{");
        let mut before: Vec<String> = Vec::new();
        for repetition in 0..repetitions {
            let prefix = if repetition == 0 { String::new() } else { format!("i{repetition}") };
            let part = of(rank, ranks, &prefix);
            text += &part.lines;
            for first in &part.first {
                for last in &before {
                    let _ = writeln!(text, "{first} requires {last}");
                }
            }
            before = part.last;
        }
        text += "}\n";
    }
    Some(text)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let found = match &words[..] {
        [name, ranks, repetitions] => {
            let numbers = ranks.parse().ok().zip(repetitions.parse().ok());
            numbers.and_then(|(ranks, repetitions)| schedule(name, ranks, repetitions))
        }
        _ => None,
    };
    match found {
        Some(text) => {
            // Whoever reads it may have enough, as `head`.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("schedule dissemination|binomial RANKS REPETITIONS");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_goal::{Schedule, check};

    use super::schedule;

    /// The lines without the comment, in the order of the file.
    fn lines(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with("//")).collect()
    }

    #[test]
    fn eight_ranks_are_the_shipped_schedules() {
        for (name, shipped) in [
            ("dissemination", include_str!("../schedules/dissemination_barrier.goal")),
            ("binomial", include_str!("../schedules/binomial_broadcast.goal")),
        ] {
            assert_eq!(lines(&schedule(name, 8, 1).unwrap()), lines(shipped), "{name}");
        }
    }

    #[test]
    fn any_number_of_ranks_and_repetitions_is_possible() {
        for (name, messages) in [("dissemination", 13 * 4 * 3), ("binomial", 12 * 3)] {
            let read = Schedule::parse(&schedule(name, 13, 3).unwrap()).unwrap();
            check(&read, 8192).unwrap();
            let ops = read.ranks.iter().map(Vec::len).sum::<usize>();
            assert_eq!(ops, 2 * messages, "{name}");
        }
        assert!(schedule("ring", 8, 1).is_none());
    }
}
