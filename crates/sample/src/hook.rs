//! What every hook promises.

use std::fmt;

use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// Something that each sample passes on its way: it may change the sample, drop it, or watch it.
pub trait Hook: Send {
    /// The name in a configuration.
    fn name(&self) -> &'static str;

    /// Lets a sample pass. `now` tells the time, for hooks that need it. Nothing is allocated,
    /// except by hooks that write text.
    ///
    /// # Errors
    /// If the sample cannot be treated. It may have been changed then.
    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        now: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError>;

    /// The source starts again: its numbers may start anew.
    fn restart(&mut self) {}

    /// Text that the hook has written since the last call, which takes it out. `end` asks for the
    /// text of the end, such as statistics.
    fn take_text(&mut self, end: bool) -> Vec<u8> {
        let _ = end;
        Vec::new()
    }
}

/// What becomes of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It ends here.
    Drop,
}

/// Why a sample cannot be treated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookError(&'static str);

impl HookError {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self(what)
    }
}

impl fmt::Display for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for HookError {}
