//! `skip_first`: nothing of what comes first.

use serde::{Deserialize, Serialize};

use crate::hook::{Hook, HookError, Verdict};
use crate::option_error::OptionError;
use crate::sample::SampleMut;
use crate::timestamp::Timestamp;

/// The options of `skip_first`: one of them.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How many samples are dropped, by their sequence numbers if they have any.
    pub samples: Option<u64>,
    /// For how many seconds samples are dropped, by their origins.
    pub seconds: Option<f64>,
}

/// Up to where samples are dropped.
#[derive(Clone, Copy, Debug)]
enum Skip {
    Samples(u64),
    Nanoseconds(i128),
}

/// `skip_first`: drops what comes first.
#[derive(Clone, Copy, Debug)]
pub struct SkipFirst {
    skip: Skip,
    /// Sequence number and origin of the first sample.
    first: Option<(u64, Timestamp)>,
    /// Samples so far.
    count: u64,
}

impl SkipFirst {
    /// The hook with these options.
    ///
    /// # Errors
    /// If not exactly one of them is given, or the seconds are negative.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        let skip = match (options.samples, options.seconds) {
            (Some(samples), None) => Skip::Samples(samples),
            (None, Some(seconds)) if seconds >= 0.0 => {
                Skip::Nanoseconds((seconds * 1e9).round() as i128)
            }
            (None, Some(_)) => return Err(OptionError::new("seconds", "must not be negative")),
            _ => {
                return Err(OptionError::new(
                    "samples",
                    "or `seconds` must be given, and one only",
                ));
            }
        };
        Ok(Self { skip, first: None, count: 0 })
    }
}

impl Hook for SkipFirst {
    fn name(&self) -> &'static str {
        "skip_first"
    }

    fn process(
        &mut self,
        sample: &mut SampleMut<'_>,
        now: &dyn Fn() -> Timestamp,
    ) -> Result<Verdict, HookError> {
        let sample = sample.as_ref();
        let sequence = sample.sequence().unwrap_or(self.count);
        let origin = sample.origin().unwrap_or_else(now);
        self.count += 1;
        let (first, start) = *self.first.get_or_insert((sequence, origin));
        let is_skipped = match self.skip {
            Skip::Samples(samples) => sequence < first.saturating_add(samples),
            Skip::Nanoseconds(ns) => origin.ns_since(start) < ns,
        };
        Ok(if is_skipped { Verdict::Drop } else { Verdict::Pass })
    }

    fn restart(&mut self) {
        (self.first, self.count) = (None, 0);
    }
}
