//! What every format promises.

use std::fmt;

use crate::sample::{SampleMut, SampleRef};
use crate::signal::Signal;

/// A representation of samples as bytes. A format keeps no state: the same samples give the same
/// bytes.
pub trait Format: Send + Sync {
    /// The name in a configuration.
    fn name(&self) -> &'static str;

    /// Appends `samples` to `out`. Value number `i` of each is one of `signals[i]`. A text format
    /// at [`Form::FileStart`] begins with a header line, unless there is no sample.
    ///
    /// # Errors
    /// If a sample has more values than there are signals, or a value that the format cannot
    /// represent. Then `out` is as it was.
    fn encode(
        &self,
        form: Form,
        signals: &[Signal],
        samples: &[SampleRef<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError>;

    /// Reads samples of `signals` from `bytes` into `sink` until the bytes end or the sink is full,
    /// and tells how many bytes it has used. Of a message all bytes are used unless the sink is
    /// full: those that are left are a [`Form::MessageRest`]. Of a file, those of the last sample
    /// are left if it is not complete: they belong before the next bytes of the file.
    ///
    /// # Errors
    /// At the first bytes that are no sample. Samples before them are in the sink already.
    fn decode(
        &self,
        form: Form,
        bytes: &[u8],
        signals: &[Signal],
        sink: &mut dyn Sink,
    ) -> Result<usize, DecodeError>;
}

/// What the bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A whole message, such as a datagram.
    Message,
    /// The bytes of a message that were left, because the sink was full.
    MessageRest,
    /// A piece of a file that is not its start.
    File,
    /// The start of a file, perhaps all of it.
    FileStart,
}

impl Form {
    /// Whether the bytes are a message, or its rest.
    #[must_use]
    pub const fn is_message(self) -> bool {
        matches!(self, Self::Message | Self::MessageRest)
    }
}

/// Where a decoder puts samples.
pub trait Sink {
    /// The sample to fill next, empty, or `None` if there is no room for another one. The same one
    /// again, emptied, unless [`Sink::done`] was called.
    fn sample(&mut self) -> Option<SampleMut<'_>>;

    /// The sample that [`Sink::sample`] gave is complete.
    fn done(&mut self);
}

/// Why samples cannot be represented.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodeError(String);

impl EncodeError {
    /// An error with this text.
    #[must_use]
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

/// Why bytes are no samples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    what: String,
    at: usize,
    resume: Option<usize>,
}

impl DecodeError {
    /// The error `what` at byte `at`, after which nothing can be read.
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { what: what.into(), at, resume: None }
    }

    /// The same error, after which reading may go on at byte `resume`.
    pub(crate) fn resume_at(self, resume: usize) -> Self {
        Self { resume: Some(resume), ..self }
    }

    /// The byte at which the error is.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The byte from which on the following samples of a file can be read, if that is known. It is
    /// behind [`DecodeError::at`] and may be the end.
    #[must_use]
    pub const fn resume(&self) -> Option<usize> {
        self.resume
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for DecodeError {}

/// Calls `write` with each of `samples`.
///
/// # Errors
/// If a sample has more values than there are signals, or a call fails. Then `out` is as it was.
pub(crate) fn write_all<'a>(
    signals: &[Signal],
    samples: &[SampleRef<'a>],
    out: &mut Vec<u8>,
    mut write: impl FnMut(&SampleRef<'a>, &mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let before = out.len();
    for sample in samples {
        let written = if sample.len() > signals.len() {
            let (values, signals) = (sample.len(), signals.len());
            Err(EncodeError(format!(
                "a sample of {values} values, but there are {signals} signals"
            )))
        } else {
            write(sample, out)
        };
        if let Err(error) = written {
            out.truncate(before);
            return Err(error);
        }
    }
    Ok(())
}
