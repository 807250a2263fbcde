//! Adds steps to the timeline of a message.

use crate::kernel::World;
use crate::timeline::Step;

impl World {
    /// A rank begins a post.
    pub(crate) fn note_post(&mut self, node: usize) {
        if let Some(timeline) = self.timeline.as_mut().filter(|_| node == 0) {
            timeline.posts += 1;
        }
        self.note(node, || "the post begins".to_owned());
    }

    /// Adds a step, if it belongs to the message that is wanted.
    pub(crate) fn note(&mut self, node: usize, what: impl FnOnce() -> String) {
        if let Some(timeline) = self.timeline.as_mut().filter(|timeline| timeline.is_open()) {
            timeline.steps.push(Step { at: self.now, rank: node, what: what() });
        }
    }
}
