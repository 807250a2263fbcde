use crate::format::{DecodeError, Form, Format, Sink};
use crate::pool::{Handle, Pool};
use crate::sample::SampleMut;
use crate::signal::Signal;

/// A sink that takes samples from a pool and appends their handles to a list.
pub struct Collector<'a> {
    pool: &'a mut Pool,
    samples: &'a mut Vec<Handle>,
    room: usize,
    /// The sample that is being filled.
    next: Option<Handle>,
}

impl<'a> Collector<'a> {
    /// A sink for at most `room` samples, as far as `pool` has them. A list with that capacity left
    /// is not reallocated.
    #[must_use]
    pub fn new(pool: &'a mut Pool, samples: &'a mut Vec<Handle>, room: usize) -> Self {
        Self { pool, samples, room, next: None }
    }

    /// Decodes `bytes` as a message or its rest, all or nothing: after an error, the samples that
    /// were read before it are back in the pool.
    ///
    /// # Errors
    /// Those of [`Format::decode`].
    pub fn message(
        &mut self,
        format: &dyn Format,
        form: Form,
        bytes: &[u8],
        signals: &[Signal],
    ) -> Result<usize, DecodeError> {
        let before = self.samples.len();
        let used = format.decode(form, bytes, signals, self);
        if used.is_err() {
            self.room += self.samples.len() - before;
            self.samples.drain(before..).for_each(|sample| self.pool.give(sample));
        }
        used
    }
}

impl Sink for Collector<'_> {
    fn sample(&mut self) -> Option<SampleMut<'_>> {
        if self.room == 0 {
            return None;
        }
        if self.next.is_none() {
            self.next = self.pool.take();
        }
        let mut sample = self.pool.get_mut(self.next.as_mut()?);
        sample.clear();
        Some(sample)
    }

    fn done(&mut self) {
        if let Some(sample) = self.next.take() {
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
