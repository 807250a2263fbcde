//! Calls of a task in a row that found nothing.

/// A call that finds nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IdleCall {
    /// A time stamp.
    Stamp,
    /// A poll that finds no completion.
    Poll,
    /// A look that may not be repeated.
    Look,
}

/// How many calls of each kind.
type Counts = [u64; 3];

/// What a task called since it last did something else.
#[derive(Debug, Default)]
pub(crate) struct Row {
    now: Counts,
    longest: Counts,
    /// Stamps in all.
    pub(crate) stamps: u64,
}

fn sum(counts: Counts) -> u64 {
    counts.iter().sum()
}

impl Row {
    /// A call found nothing.
    pub(crate) fn add(&mut self, call: IdleCall) {
        self.now[call as usize] += 1;
        self.stamps += u64::from(matches!(call, IdleCall::Stamp));
    }

    /// The task did something else, or waits.
    pub(crate) fn end(&mut self) {
        if sum(self.now) > sum(self.longest) {
            self.longest = self.now;
        }
        self.now = Counts::default();
    }

    /// Its last calls do not count: they were wanted.
    pub(crate) fn forget(&mut self) {
        self.now = Counts::default();
    }

    /// How many calls the longest row has, and what they are, for people.
    pub(crate) fn longest(&mut self) -> (u64, &'static str) {
        self.end();
        let [_, polls, looks] = self.longest;
        let call = match (polls, looks) {
            (0, 0) => "`now`",
            (0, _) => "`spin_for` without time",
            (_, _) => "a poll that found nothing",
        };
        (sum(self.longest), call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_row_is_kept_with_what_it_is_of() {
        let mut row = Row::default();
        let mut calls = |calls: &[IdleCall]| {
            calls.iter().for_each(|call| row.add(*call));
            row.end();
            (row.longest(), row.stamps)
        };
        assert_eq!(calls(&[]), ((0, "`now`"), 0));
        assert_eq!(calls(&[IdleCall::Stamp; 2]), ((2, "`now`"), 2));
        assert_eq!(calls(&[IdleCall::Poll]), ((2, "`now`"), 2));
        let polls = "a poll that found nothing";
        assert_eq!(calls(&[IdleCall::Stamp, IdleCall::Poll, IdleCall::Stamp]), ((3, polls), 4));
        row.add(IdleCall::Look);
        row.forget();
        assert_eq!(row.longest(), (3, polls));
    }
}
