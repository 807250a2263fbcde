//! Bytes of peers as samples. A message may have more samples than a read takes.

use rdmalab_sample::{Collector, DecodeError, Form, Format, Handle, Pool, Signal, Timestamp};

use crate::keys::VECTORIZE_MAX;
use crate::node::{stamp_at, wall_time};

/// Decodes by a format, and keeps what a read does not take of a message.
pub struct Decoder {
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    /// The last message of which a read took a part, and its first byte that is not taken.
    long: Vec<u8>,
    at: usize,
    /// When that message arrived.
    arrived: Timestamp,
}

impl Decoder {
    /// A decoder for samples of these signals.
    pub fn new(format: Box<dyn Format>, signals: &[Signal]) -> Self {
        let (signals, arrived) = (signals.to_vec(), Timestamp::default());
        Self { format, signals, long: Vec::new(), at: 0, arrived }
    }

    /// Whether a message has further samples: [`Decoder::rest`] takes them, before another message.
    pub fn has_rest(&self) -> bool {
        self.at < self.long.len()
    }

    /// Takes the samples of a message that arrives now, or none if one of them is wrong. Of many,
    /// it takes as many as a read may.
    ///
    /// # Errors
    /// Those of [`Format::decode`].
    pub fn message(
        &mut self,
        bytes: &[u8],
        pool: &mut Pool,
        to: &mut Vec<Handle>,
    ) -> Result<(), DecodeError> {
        let mut into = Collector::new(pool, to, VECTORIZE_MAX);
        let used = into.message(&*self.format, Form::Message, bytes, &self.signals)?;
        if used < bytes.len() {
            self.long.clear();
            self.long.extend_from_slice(bytes);
            (self.at, self.arrived) = (used, wall_time());
        }
        Ok(())
    }

    /// Takes further samples of the last message, as many as a read may, into an empty list, and
    /// stamps them with its arrival. If one of those is wrong, the rest of the message is given up.
    ///
    /// # Errors
    /// Those of [`Format::decode`].
    pub fn rest(&mut self, pool: &mut Pool, to: &mut Vec<Handle>) -> Result<(), DecodeError> {
        if !self.has_rest() {
            return Ok(());
        }
        let mut into = Collector::new(pool, to, VECTORIZE_MAX);
        let rest = &self.long[self.at..];
        let used = into.message(&*self.format, Form::MessageRest, rest, &self.signals);
        drop(into);
        self.at = used.as_ref().map_or(self.long.len(), |used| self.at + used);
        stamp_at(self.arrived, pool, to);
        used.map(drop)
    }

    /// Takes samples of a stream. Returns how many bytes they have.
    ///
    /// # Errors
    /// Those of [`Format::decode`].
    pub fn stream(
        &self,
        bytes: &[u8],
        pool: &mut Pool,
        to: &mut Vec<Handle>,
    ) -> Result<usize, DecodeError> {
        let mut into = Collector::new(pool, to, VECTORIZE_MAX);
        self.format.decode(Form::File, bytes, &self.signals, &mut into)
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_sample::{Kind, Value};

    use super::*;
    use crate::format::FormatChoice;

    /// The numbers of the samples that are taken of a message, read by read, and whether the rest
    /// of it was wrong.
    fn reads(decoder: &mut Decoder, bytes: &[u8]) -> (Vec<Vec<u64>>, bool) {
        let mut pool = Pool::new(VECTORIZE_MAX + 1, 1);
        let (mut reads, mut to) = (Vec::new(), Vec::new());
        let mut taken = decoder.message(bytes, &mut pool, &mut to);
        loop {
            let stamps: Vec<_> = to.iter().map(|one| pool.get(one).received()).collect();
            // Those of the first read are left to the caller.
            let is_stamped = stamps.iter().all(|stamp| *stamp == stamps[0] && stamp.is_some());
            assert_eq!(is_stamped, !reads.is_empty() || to.is_empty(), "{stamps:?}");
            let numbers = to.iter().filter_map(|one| pool.get(one).sequence()).collect();
            reads.push(numbers);
            to.drain(..).for_each(|one| pool.give(one));
            if taken.is_err() || !decoder.has_rest() {
                return (reads, taken.is_err());
            }
            taken = decoder.rest(&mut pool, &mut to);
        }
    }

    #[test]
    fn a_long_message_comes_in_several_reads() {
        let signals = Signal::numbered(1, Kind::Float);
        let count = 2 * VECTORIZE_MAX as u64 + 7;
        let mut pool = Pool::new(count as usize, 1);
        let samples: Vec<Handle> = (0..count)
            .map(|number| {
                let mut one = pool.take().unwrap();
                let mut sample = pool.get_mut(&mut one);
                sample.set_sequence(number);
                assert!(sample.push(Value::from_float(0.5)));
                one
            })
            .collect();
        let views: Vec<_> = samples.iter().map(|one| pool.get(one)).collect();
        for name in ["rdmalab.binary", "villas.binary", "villas.human", "csv", "json"] {
            let format = FormatChoice::named(name).build();
            let mut bytes = Vec::new();
            format.encode(Form::Message, &signals, &views, &mut bytes).unwrap();
            let mut decoder = Decoder::new(format, &signals);
            // The same for the message after it.
            for _ in 0..2 {
                let (reads, is_wrong) = reads(&mut decoder, &bytes);
                let lengths: Vec<usize> = reads.iter().map(Vec::len).collect();
                assert_eq!(lengths, [VECTORIZE_MAX, VECTORIZE_MAX, 7], "{name}");
                assert!(reads.concat().into_iter().eq(0..count) && !is_wrong, "{name}");
            }
            let mut cut = bytes.clone();
            cut.truncate(bytes.len() - 3);
            if name.ends_with("binary") {
                let (reads, is_wrong) = reads(&mut decoder, &cut);
                assert!(is_wrong && !decoder.has_rest(), "{name}");
                assert_eq!(reads.len(), 3, "{name}");
                assert!(reads[2].is_empty(), "{name}: none of the last part");
            }
        }
    }
}
