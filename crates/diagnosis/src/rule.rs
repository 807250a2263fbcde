//! What a rule is.

use crate::event::Step;
use crate::finding::Findings;

/// Recognizes one kind of trouble.
pub trait Rule {
    /// Sees an event. Returns whether it explains the event: later rules then know that it has its
    /// explanation.
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool;

    /// Sees the end of the capture, after the last event.
    fn end(&mut self, _found: &mut Findings) {}
}
