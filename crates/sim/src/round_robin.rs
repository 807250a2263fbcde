//! Whose packet is next on a bus or a link that several flows share.

use std::collections::VecDeque;

use crate::line::{Count, Line};
use crate::time::Ps;

/// Whose packet is next. Each flow waits with its next packet since a time; who has waited longest
/// is next. So flows with packets that wait alternate.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundRobin {
    /// When the packet that passes has passed.
    pub(crate) until: Ps,
    /// Since when each line waits, and its index; who has waited longest is in front.
    waiting: VecDeque<(Ps, usize)>,
}

impl RoundRobin {
    pub(crate) fn wait(&mut self, since: Ps, line: usize) {
        let behind = self.waiting.iter().rev().take_while(|(other, _)| *other > since).count();
        self.waiting.insert(self.waiting.len() - behind, (since, line));
    }

    /// A line waits since a time, if it did not before; false if it did.
    pub(crate) fn wait_sooner(&mut self, since: Ps, line: usize) -> bool {
        if let Some(at) = self.waiting.iter().position(|(_, other)| *other == line) {
            if self.waiting[at].0 <= since {
                return false;
            }
            self.waiting.remove(at);
        }
        self.wait(since, line);
        true
    }

    /// Whether a line has packets left.
    pub(crate) fn waits(&self, line: usize) -> bool {
        self.waiting.iter().any(|(_, other)| *other == line)
    }

    /// Whether all packets have passed.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the next packet begins to pass.
    pub(crate) fn next(&self) -> Option<Ps> {
        self.waiting.front().map(|(since, _)| self.until.max(*since))
    }

    /// Lets the next packet pass, which begins at `begins`, and counts it; returns the indices of
    /// its line and train. `None` if it has become later, or has gone.
    pub(crate) fn take(
        &mut self,
        begins: Ps,
        lines: &mut [Line],
        of: Count,
    ) -> Option<(usize, usize)> {
        let (_, index) = self.waiting.pop_front()?;
        let line = &mut lines[index];
        let (at, comes) = line.next(of, begins)?;
        if comes > begins {
            self.wait(comes, index);
            return None;
        }
        self.until = begins + line.trains[at].take(of);
        if of == Count::Passed {
            line.served = self.until;
        }
        if let Some((_, comes)) = line.next(of, self.until) {
            self.wait(comes, index);
        }
        Some((index, at))
    }
}
