//! `rdmalab.binary`: everything that a sample has, bit by bit. A frame for each sample, in messages
//! and files alike, so that files can be joined. All numbers are in little-endian order.
//!
//! | byte | |
//! |---|---|
//! | 0 | `R`, `S` |
//! | 2 | version, 1 |
//! | 3 | flags |
//! | 4 | u16: number *n* of values |
//! | 6 | u16: 0 |
//! | 8 | u64: sequence number |
//! | 16 | i64, i64: seconds and nanoseconds of the origin |
//! | 32 | i64, i64: seconds and nanoseconds of the arrival |
//! | 48 | kinds of the values |
//! | then | values, 8 bytes each: f64, i64, 0 or 1, or two f32 |
//!
//! Flags are 1 origin, 2 received, 4 sequence, 8 data, 16 new frame, 32 new simulation. A kind has
//! two bits, from the lowest on (0 float, 1 integer, 2 boolean, 3 complex). Zeros fill the last 8
//! bytes of kinds. What a flag says is not known is 0. A reader refuses another version, flags that
//! it does not know, and kinds that are not those of its signals.

use crate::flags::Flags;
use crate::format::{DecodeError, EncodeError, Form, Format, Sink, write_all};
use crate::kind::Kind;
use crate::sample::{SampleMut, SampleRef};
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::{Complex, Value};

const MAGIC: [u8; 2] = *b"RS";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 48;

/// The flags, from bit 0 on.
const FLAGS: [Flags; 6] = [
    Flags::ORIGIN,
    Flags::RECEIVED,
    Flags::SEQUENCE,
    Flags::DATA,
    Flags::NEW_FRAME,
    Flags::NEW_SIMULATION,
];

/// The format `rdmalab.binary`. It has no options.
#[derive(Clone, Copy, Default, Debug)]
pub struct RdmalabBinary;

impl Format for RdmalabBinary {
    fn name(&self) -> &'static str {
        "rdmalab.binary"
    }

    fn encode(
        &self,
        _: Form,
        signals: &[Signal],
        samples: &[SampleRef<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        write_all(signals, samples, out, |sample, out| {
            let values = u16::try_from(sample.len());
            let values = values.map_err(|_| EncodeError::new("more than 65535 values"))?;
            let is_set = |(bit, flag): (usize, &Flags)| u8::from(sample.flags().has(*flag)) << bit;
            let flags = FLAGS.iter().enumerate().map(is_set).sum();
            out.extend_from_slice(&[MAGIC[0], MAGIC[1], VERSION, flags]);
            out.extend_from_slice(&values.to_le_bytes());
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(&sample.sequence().unwrap_or_default().to_le_bytes());
            for stamp in [sample.origin(), sample.received()] {
                let Timestamp { seconds, nanoseconds } = stamp.unwrap_or_default();
                out.extend_from_slice(&seconds.to_le_bytes());
                out.extend_from_slice(&nanoseconds.to_le_bytes());
            }
            for signals in signals[..sample.len()].chunks(KINDS_PER_WORD) {
                out.extend_from_slice(&kinds(signals).to_le_bytes());
            }
            for (value, signal) in sample.values().zip(signals) {
                out.extend_from_slice(&write_value(value, signal.kind));
            }
            Ok(())
        })
    }

    fn decode(
        &self,
        form: Form,
        bytes: &[u8],
        signals: &[Signal],
        sink: &mut dyn Sink,
    ) -> Result<usize, DecodeError> {
        let mut at = 0;
        while at < bytes.len() {
            let frame = Frame::split(&bytes[at..]).map_err(|what| DecodeError::new(at, what))?;
            let Some(frame) = frame else {
                let cut = DecodeError::new(at, "the last frame is cut");
                return if form.is_message() { Err(cut) } else { Ok(at) };
            };
            let next = at + frame.bytes;
            let Some(mut sample) = sink.sample() else { return Ok(at) };
            let read = frame.read(signals, &mut sample);
            read.map_err(|what| DecodeError::new(at, what).resume_at(next))?;
            sink.done();
            at = next;
        }
        Ok(at)
    }
}

/// How many kinds a word of 8 bytes holds.
const KINDS_PER_WORD: usize = 32;

/// The kinds of up to 32 signals as a word.
fn kinds(signals: &[Signal]) -> u64 {
    let bits = |(i, signal): (usize, &Signal)| kind_bits(signal.kind) << (2 * i);
    signals.iter().enumerate().map(bits).sum()
}

const fn kind_bits(kind: Kind) -> u64 {
    match kind {
        Kind::Float => 0,
        Kind::Integer => 1,
        Kind::Boolean => 2,
        Kind::Complex => 3,
    }
}

fn write_value(value: Value, kind: Kind) -> [u8; 8] {
    match kind {
        Kind::Float | Kind::Integer => value.bits(),
        Kind::Boolean => u64::from(value.boolean()),
        Kind::Complex => {
            let Complex { real, imaginary } = value.complex();
            u64::from(real.to_bits()) | u64::from(imaginary.to_bits()) << 32
        }
    }
    .to_le_bytes()
}

fn read_value(bytes: [u8; 8], kind: Kind) -> Value {
    let word = u64::from_le_bytes(bytes);
    match kind {
        Kind::Float | Kind::Integer => Value::from_bits(word),
        Kind::Boolean => Value::from_boolean(word != 0),
        Kind::Complex => Value::from_complex(Complex {
            real: f32::from_bits(word as u32),
            imaginary: f32::from_bits((word >> 32) as u32),
        }),
    }
}

/// A frame whose bytes are all there.
struct Frame<'a> {
    header: &'a [u8; HEADER_BYTES],
    /// Kinds and values.
    words: &'a [[u8; 8]],
    values: usize,
    bytes: usize,
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`, or `None` if it is not complete.
    fn split(bytes: &'a [u8]) -> Result<Option<Self>, String> {
        let start = bytes.len().min(MAGIC.len());
        if bytes[..start] != MAGIC[..start] {
            return Err("no frame of rdmalab.binary: it starts with `RS`".to_owned());
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        if header[2] != VERSION {
            let version = header[2];
            return Err(format!("version {version} of rdmalab.binary, but only 1 is known"));
        }
        if header[3] >> FLAGS.len() != 0 || header[6..8] != [0; 2] {
            return Err("a reserved bit of rdmalab.binary is set".to_owned());
        }
        let values = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let (words, _) = rest.as_chunks();
        let Some(words) = words.get(..values.div_ceil(KINDS_PER_WORD) + values) else {
            return Ok(None);
        };
        Ok(Some(Self { header, words, values, bytes: HEADER_BYTES + 8 * words.len() }))
    }

    /// Word number `i` of the header, counted from its byte 8.
    fn word(&self, i: usize) -> u64 {
        let (words, _) = self.header.as_chunks();
        u64::from_le_bytes(words[1 + i])
    }

    fn read(&self, signals: &[Signal], sample: &mut SampleMut<'_>) -> Result<(), String> {
        let (kinds, values) = self.words.split_at(self.words.len() - self.values);
        if self.values > signals.len() {
            let signals = signals.len();
            return Err(format!("{} values, but there are {signals} signals", self.values));
        }
        if self.values > sample.capacity() {
            return Err(format!("samples have room for {} values only", sample.capacity()));
        }
        for (i, signal) in signals[..self.values].iter().enumerate() {
            let word = u64::from_le_bytes(kinds[i / KINDS_PER_WORD]);
            let bits = word >> (2 * (i % KINDS_PER_WORD)) & 3;
            if bits != kind_bits(signal.kind) {
                let found = Kind::ALL.into_iter().find(|kind| kind_bits(*kind) == bits);
                let found = found.map_or("unknown", Kind::name);
                let Signal { name, kind, .. } = signal;
                return Err(format!("value {i} is {found}, but the signal `{name}` is {kind}"));
            }
            // There is room for all of them.
            let _ = sample.push(read_value(values[i], signal.kind));
        }
        let is_set = |flag: Flags| {
            let bit = FLAGS.iter().position(|known| *known == flag);
            bit.is_some_and(|bit| self.header[3] >> bit & 1 == 1)
        };
        let stamp =
            |i: usize| Timestamp::new(self.word(i).cast_signed(), self.word(i + 1).cast_signed());
        if is_set(Flags::SEQUENCE) {
            sample.set_sequence(self.word(0));
        }
        if is_set(Flags::ORIGIN) {
            sample.set_origin(stamp(1));
        }
        if is_set(Flags::RECEIVED) {
            sample.set_received(stamp(3));
        }
        sample.remove_flags(Flags::DATA);
        for flag in [Flags::DATA, Flags::NEW_FRAME, Flags::NEW_SIMULATION] {
            if is_set(flag) {
                sample.add_flags(flag);
            }
        }
        Ok(())
    }
}
