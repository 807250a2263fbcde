//! Reads a schedule: one statement a line.

use std::collections::BTreeMap;

use crate::schedule::{Kind, MAX_BYTES, MAX_RANKS, MAX_TAG, Message, Op, Schedule, ScheduleError};

type Result<T> = std::result::Result<T, ScheduleError>;

impl Schedule {
    /// Reads a schedule in GOAL's text form. Comments are `//`, `#` to the end of a line, and
    /// `/* */`.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Schedule> {
        let text = without_comments(text)?;
        let (mut schedule, mut open, mut last) = (None::<Reading>, None::<RankBlock>, 0);
        for (index, line) in text.lines().enumerate() {
            let at = index + 1;
            let line = line.trim().trim_end_matches(';');
            let line = line.replace('{', " { ").replace('}', " } ");
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            last = at;
            match (&mut schedule, &mut open, &words[..]) {
                (None, _, ["num_ranks", count]) => schedule = Some(Reading::of(at, count)?),
                (None, ..) => return Err(wrong(at, "the schedule must begin with `num_ranks N`")),
                (Some(all), None, ["rank", rank, "{"]) => open = Some(all.begin(at, rank)?),
                (Some(_), None, _) => return Err(wrong(at, "expected `rank N {`")),
                (Some(all), Some(_), ["}"]) => all.end(open.take())?,
                (Some(all), Some(block), words) => block.read(at, words, all.count)?,
            }
        }
        match (schedule, open) {
            (_, Some(block)) => {
                Err(wrong(block.line, "the block of this rank is not closed: `}` is missing"))
            }
            (None, None) => {
                Err(wrong(1, "the schedule is empty: it must begin with `num_ranks N`"))
            }
            (Some(all), None) => all.whole(last),
        }
    }
}

fn wrong(line: usize, what: impl Into<String>) -> ScheduleError {
    ScheduleError::new(line, what)
}

/// Puts a blank in place of each comment, and keeps the ends of lines.
fn without_comments(text: &str) -> Result<String> {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = ["//", "#", "/*"].iter().filter_map(|mark| rest.find(mark)).min() {
        kept.push_str(&rest[..at]);
        kept.push(' ');
        rest = &rest[at..];
        let Some(comment) = rest.strip_prefix("/*") else {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            continue;
        };
        let line = kept.matches('\n').count() + 1;
        let (comment, after) = comment
            .split_once("*/")
            .ok_or_else(|| wrong(line, "this comment is not closed: `*/` is missing"))?;
        kept.extend(comment.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    Ok(kept + rest)
}

/// The ranks that were read.
struct Reading {
    count: usize,
    ranks: BTreeMap<usize, Vec<Op>>,
}

impl Reading {
    fn of(at: usize, count: &str) -> Result<Reading> {
        let count = number(at, "num_ranks", count, MAX_RANKS as u64)? as usize;
        match count {
            0 => Err(wrong(at, "num_ranks 0: a schedule needs at least one rank")),
            _ => Ok(Reading { count, ranks: BTreeMap::new() }),
        }
    }

    fn begin(&self, at: usize, rank: &str) -> Result<RankBlock> {
        let rank = rank_of(at, rank, self.count)?;
        if self.ranks.contains_key(&rank) {
            return Err(wrong(at, format!("rank {rank} is defined twice")));
        }
        Ok(RankBlock { rank, line: at, ..RankBlock::default() })
    }

    fn end(&mut self, block: Option<RankBlock>) -> Result<()> {
        if let Some(block) = block {
            self.ranks.insert(block.rank, block.whole()?);
        }
        Ok(())
    }

    fn whole(mut self, last: usize) -> Result<Schedule> {
        let missing = (0..self.count).find(|rank| !self.ranks.contains_key(rank));
        if let Some(rank) = missing {
            return Err(wrong(
                last,
                format!("rank {rank} is missing, of num_ranks {}", self.count),
            ));
        }
        let ranks = (0..self.count).filter_map(|rank| self.ranks.remove(&rank)).collect();
        Ok(Schedule { ranks })
    }
}

/// The block of a rank, while it is read.
#[derive(Default)]
struct RankBlock {
    rank: usize,
    line: usize,
    ops: Vec<Op>,
    labels: BTreeMap<String, usize>,
    /// Line, the operation that waits, the one that it waits for, and whether for its end.
    waits: Vec<(usize, String, String, bool)>,
}

impl RankBlock {
    fn read(&mut self, at: usize, words: &[&str], ranks: usize) -> Result<()> {
        match words {
            [op, "requires", other] => {
                self.waits.push((at, (*op).to_owned(), (*other).to_owned(), true));
            }
            [op, "irequires", other] => {
                self.waits.push((at, (*op).to_owned(), (*other).to_owned(), false));
            }
            [label, rest @ ..] if label.ends_with(':') => {
                let label = label.trim_end_matches(':').to_owned();
                if self.labels.contains_key(&label) {
                    return Err(wrong(at, format!("label {label} is defined twice in this rank")));
                }
                self.labels.insert(label, self.ops.len());
                self.push(at, rest, ranks)?;
            }
            words => self.push(at, words, ranks)?,
        }
        Ok(())
    }

    fn push(&mut self, at: usize, words: &[&str], ranks: usize) -> Result<()> {
        let kind = match words {
            ["calc", ns, rest @ ..] => {
                options(at, rest)?;
                Kind::Calc(number(at, "calc", ns, u64::from(u32::MAX) * 1000)?)
            }
            ["send", bytes, "to", peer, rest @ ..] => {
                Kind::Send(self.message(at, bytes, peer, rest, ranks)?)
            }
            ["recv", bytes, "from", peer, rest @ ..] => {
                Kind::Recv(self.message(at, bytes, peer, rest, ranks)?)
            }
            _ => {
                let what = "write `calc NS`, `send NUMBERb to RANK tag T`, `recv NUMBERb from \
                            RANK tag T`, `A requires B` or `A irequires B`";
                return Err(wrong(at, format!("{:?}: {what}", words.join(" "))));
            }
        };
        self.ops.push(Op { kind, line: at, after_end: Vec::new(), after_begin: Vec::new() });
        Ok(())
    }

    fn message(
        &self,
        at: usize,
        bytes: &str,
        peer: &str,
        rest: &[&str],
        ranks: usize,
    ) -> Result<Message> {
        let digits = bytes.strip_suffix('b').ok_or_else(|| {
            wrong(at, format!("{bytes:?}: write the length of a message as 8b, in bytes"))
        })?;
        let bytes = number(at, "the length of a message", digits, MAX_BYTES)?;
        let peer = rank_of(at, peer, ranks)?;
        if peer == self.rank {
            return Err(wrong(at, format!("rank {peer} cannot exchange a message with itself")));
        }
        Ok(Message { bytes, peer, tag: options(at, rest)? })
    }

    /// The operations, with what each of them waits for.
    fn whole(mut self) -> Result<Vec<Op>> {
        for (at, op, other, is_end) in std::mem::take(&mut self.waits) {
            let find = |label: &str| {
                let known = self.labels.get(label).copied();
                known.ok_or_else(|| wrong(at, format!("rank {} has no label {label}", self.rank)))
            };
            let (op, other) = (find(&op)?, find(&other)?);
            match is_end {
                true => self.ops[op].after_end.push(other),
                false => self.ops[op].after_begin.push(other),
            }
        }
        Ok(self.ops)
    }
}

/// Reads what follows an operation; returns the tag.
fn options(at: usize, words: &[&str]) -> Result<u32> {
    let mut tag = 0;
    for pair in words.chunks(2) {
        match pair {
            ["tag", value] => tag = number(at, "tag", value, MAX_TAG.into())? as u32,
            ["cpu" | "nic", "0"] => {}
            [name @ ("cpu" | "nic"), value] => {
                return Err(wrong(
                    at,
                    format!("{name} {value}: here each rank has one processor and one adapter, 0"),
                ));
            }
            other => {
                let other = other.join(" ");
                return Err(wrong(
                    at,
                    format!("{other:?} is not allowed here: only `tag T`, `cpu 0` and `nic 0` are"),
                ));
            }
        }
    }
    Ok(tag)
}

fn number(at: usize, what: &str, text: &str, most: u64) -> Result<u64> {
    let found = text.parse::<u64>().ok().filter(|number| *number <= most);
    found.ok_or_else(|| wrong(at, format!("{what} {text}: use a whole number of at most {most}")))
}

fn rank_of(at: usize, text: &str, ranks: usize) -> Result<usize> {
    let found = text.parse::<usize>().ok().filter(|rank| *rank < ranks);
    found.ok_or_else(|| {
        wrong(at, format!("rank {text} does not exist: the ranks are 0 to {}", ranks - 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_become_operations_and_dependencies() {
        let text = "/* two\n lines */ num_ranks 2 // all\nrank 1 {\nrecv 8b from 0 # any\n}\n\
                    rank 0 {\na: calc 5 cpu 0\nb: send 8b to 1 tag 3;\nc: send 0b to 1 cpu 0 nic \
                    0\nb requires a\nc irequires b\n}\n";
        let schedule = Schedule::parse(text).unwrap();
        let [zero, one] = &schedule.ranks[..] else { panic!("{schedule:?}") };
        let message = |bytes, peer, tag| Message { bytes, peer, tag };
        let kinds: Vec<Kind> = zero.iter().map(|op| op.kind).collect();
        let expected = [Kind::Calc(5), Kind::Send(message(8, 1, 3)), Kind::Send(message(0, 1, 0))];
        assert_eq!(kinds, expected);
        assert_eq!((&zero[1].after_end[..], &zero[2].after_begin[..]), (&[0][..], &[1][..]));
        assert_eq!((one[0].kind, one[0].line), (Kind::Recv(message(8, 0, 0)), 4));
    }

    #[test]
    fn what_is_wrong_has_a_line_and_a_remedy() {
        let rank = |inside: &str| format!("num_ranks 2\nrank 0 {{\n{inside}\n}}\nrank 1 {{\n}}\n");
        for (text, line, says) in [
            (String::new(), 1, "num_ranks N"),
            ("rank 0 {\n}\n".to_owned(), 1, "begin with"),
            ("num_ranks 0\n".to_owned(), 1, "at least one rank"),
            ("num_ranks 5000\n".to_owned(), 1, "at most 1024"),
            ("num_ranks 2\nrank 0 {\n}\n".to_owned(), 3, "rank 1 is missing"),
            ("num_ranks 1\nrank 0 {\n".to_owned(), 2, "`}` is missing"),
            ("num_ranks 1\nrank 1 {\n}\n".to_owned(), 2, "ranks are 0 to 0"),
            (rank("l: calc"), 3, "write `calc NS`"),
            (rank("l: calc 1\nl: calc 2"), 4, "label l is defined twice"),
            (rank("l: calc 1\nl requires m"), 4, "has no label m"),
            (rank("send 8 to 1"), 3, "write the length"),
            (rank("send 8b to 2"), 3, "ranks are 0 to 1"),
            (rank("send 8b to 0"), 3, "with itself"),
            (rank("send 8b to 1 tag 2000000000"), 3, "at most 1073741823"),
            (rank("calc 1 cpu 1"), 3, "one processor"),
            (rank("calc 1 at 2"), 3, "only `tag T`"),
            (rank("calc 1 /* two"), 3, "`*/` is missing"),
            (rank("// from schedules/*.goal\ncalc"), 4, "write `calc NS`"),
            (rank("cal/* */c 1"), 3, "cal c"),
        ] {
            let error = Schedule::parse(&text).unwrap_err();
            assert!(error.line == line && error.what.contains(says), "{text}: {error}");
        }
    }
}
