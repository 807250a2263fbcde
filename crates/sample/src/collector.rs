use crate::format::{DecodeError, Form, Format, Sink};
use crate::pool::{Handle, Pool};
use crate::sample::SampleMut;
use crate::signal::Signal;

/// A sink that takes samples from a pool and appends their handles to a list.
pub struct Collector<'a> {
    pool: &'a mut Pool,
    samples: &'a mut Vec<Handle>,
    room: usize,
    /// Samples that are read and not kept, before all others.
    skip: usize,
    is_short: bool,
    /// The sample that is being filled.
    next: Option<Handle>,
}

impl<'a> Collector<'a> {
    /// A sink for at most `room` samples, as far as `pool` has them. A list with that capacity left
    /// is not reallocated.
    #[must_use]
    pub fn new(pool: &'a mut Pool, samples: &'a mut Vec<Handle>, room: usize) -> Self {
        Self { pool, samples, room, skip: 0, is_short: false, next: None }
    }

    /// The same without the first `skip` samples.
    #[must_use]
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Whether there was a sample for which there was no room.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// Decodes `bytes` as a message, all or nothing: after an error, the samples that were read
    /// before it are back in the pool.
    ///
    /// # Errors
    /// Those of [`Format::decode`].
    pub fn message(
        &mut self,
        format: &dyn Format,
        bytes: &[u8],
        signals: &[Signal],
    ) -> Result<usize, DecodeError> {
        let before = self.samples.len();
        let used = format.decode(Form::Message, bytes, signals, self);
        if used.is_err() {
            self.room += self.samples.len() - before;
            self.samples.drain(before..).for_each(|sample| self.pool.give(sample));
        }
        used
    }
}

impl Sink for Collector<'_> {
    fn sample(&mut self) -> Option<SampleMut<'_>> {
        if self.next.is_none() && self.room > 0 {
            self.next = self.pool.take();
        }
        self.is_short |= self.next.is_none();
        let mut sample = self.pool.get_mut(self.next.as_mut()?);
        sample.clear();
        Some(sample)
    }

    fn done(&mut self) {
        if self.skip > 0 {
            self.skip -= 1;
        } else if let Some(sample) = self.next.take() {
            self.room -= 1;
            self.samples.push(sample);
        }
    }
}

impl Drop for Collector<'_> {
    fn drop(&mut self) {
        if let Some(sample) = self.next.take() {
            self.pool.give(sample);
        }
    }
}
