//! `raw` and `gtnet`: values of a fixed width and nothing else, one sample a message. With `fake`,
//! the sequence number, seconds and nanoseconds of the origin stand before them, each as an integer
//! of that width.
//!
//! Integers are cut to the width and read with their sign, and booleans are 0 or 1. Floats and the
//! two parts of complex numbers need 32 or 64 bits; in less, each is written as -1, as VILLASnode
//! does. In a file, a sample has a value for each signal.

use serde::{Deserialize, Serialize};

use crate::flags::Flags;
use crate::format::{DecodeError, EncodeError, Form, Format, Sink, write_all};
use crate::kind::Kind;
use crate::option_error::OptionError;
use crate::sample::{SampleMut, SampleRef};
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::{Complex, Value};

/// The order of the bytes of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Endianness {
    /// The most significant byte first.
    Big,
    /// The least significant byte first.
    Little,
}

/// The options of `raw` and `gtnet`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Bits of a value: 8, 16, 32 or 64.
    pub bits: u8,
    /// The order of bytes: little in `raw` and big in `gtnet` unless given. Values of 8 bits have
    /// none. The key is spelled as VILLASnode does.
    pub endianess: Option<Endianness>,
    /// Whether sequence number and origin stand before the values.
    pub fake: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { bits: 32, endianess: None, fake: false }
    }
}

/// The format `raw` or `gtnet`.
#[derive(Debug)]
pub struct Raw {
    name: &'static str,
    bytes: usize,
    endianness: Endianness,
    is_fake: bool,
}

/// Words before the values with `fake`.
const HEADER_WORDS: usize = 3;

impl Raw {
    /// The format `raw` with these options.
    ///
    /// # Errors
    /// If `bits` is another number, or `endianess` is given for 8 bits.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        Self::named("raw", Endianness::Little, options)
    }

    /// The format `gtnet` with these options.
    ///
    /// # Errors
    /// If `bits` is another number, or `endianess` is given for 8 bits.
    pub fn gtnet(options: Options) -> Result<Self, OptionError> {
        Self::named("gtnet", Endianness::Big, options)
    }

    fn named(
        name: &'static str,
        default: Endianness,
        options: Options,
    ) -> Result<Self, OptionError> {
        if !matches!(options.bits, 8 | 16 | 32 | 64) {
            return Err(OptionError::new("bits", "must be 8, 16, 32 or 64"));
        }
        if options.bits == 8 && options.endianess.is_some() {
            return Err(OptionError::new("endianess", "has no meaning for values of 8 bits"));
        }
        let endianness = options.endianess.unwrap_or(default);
        let bytes = usize::from(options.bits / 8);
        Ok(Self { name, bytes, endianness, is_fake: options.fake })
    }

    fn write(&self, out: &mut Vec<u8>, word: u64) {
        match self.endianness {
            Endianness::Little => out.extend_from_slice(&word.to_le_bytes()[..self.bytes]),
            Endianness::Big => out.extend_from_slice(&word.to_be_bytes()[8 - self.bytes..]),
        }
    }

    /// The word in `bytes`, without sign.
    fn read(&self, bytes: &[u8]) -> u64 {
        let append = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
        match self.endianness {
            Endianness::Little => bytes.iter().rev().fold(0, append),
            Endianness::Big => bytes.iter().fold(0, append),
        }
    }

    fn write_real(&self, out: &mut Vec<u8>, value: f64) {
        self.write(
            out,
            match self.bytes {
                8 => value.to_bits(),
                4 => u64::from((value as f32).to_bits()),
                _ => u64::MAX,
            },
        );
    }

    fn read_real(&self, bytes: &[u8]) -> f64 {
        match self.bytes {
            8 => f64::from_bits(self.read(bytes)),
            4 => f64::from(f32::from_bits(self.read(bytes) as u32)),
            _ => -1.0,
        }
    }

    fn write_value(&self, out: &mut Vec<u8>, value: Value, kind: Kind) {
        match kind {
            Kind::Float => self.write_real(out, value.float()),
            Kind::Integer => self.write(out, value.integer().cast_unsigned()),
            Kind::Boolean => self.write(out, u64::from(value.boolean())),
            Kind::Complex => {
                self.write_real(out, f64::from(value.complex().real));
                self.write_real(out, f64::from(value.complex().imaginary));
            }
        }
    }

    fn read_value(&self, bytes: &[u8], kind: Kind) -> Value {
        let unused_bits = 64 - 8 * self.bytes as u32;
        match kind {
            Kind::Float => Value::from_float(self.read_real(bytes)),
            Kind::Integer => {
                let word = self.read(bytes) << unused_bits;
                Value::from_integer(word.cast_signed() >> unused_bits)
            }
            Kind::Boolean => Value::from_boolean(self.read(bytes) != 0),
            Kind::Complex => {
                let (real, imaginary) = bytes.split_at(self.bytes);
                let part = |bytes| self.read_real(bytes) as f32;
                let (real, imaginary) = (part(real), part(imaginary));
                Value::from_complex(Complex { real, imaginary })
            }
        }
    }

    /// Bytes of a value of this kind.
    fn bytes_of(&self, kind: Kind) -> usize {
        self.bytes * if kind == Kind::Complex { 2 } else { 1 }
    }

    fn header_bytes(&self) -> usize {
        if self.is_fake { HEADER_WORDS * self.bytes } else { 0 }
    }

    fn read_sample(
        &self,
        bytes: &[u8],
        signals: &[Signal],
        sample: &mut SampleMut<'_>,
    ) -> Result<(), DecodeError> {
        let error = |at: usize, what: String| DecodeError::new(at, what);
        let mut at = self.header_bytes();
        if at > bytes.len() {
            let needed = format!("a header of {at} bytes, but there are {}", bytes.len());
            return Err(error(0, needed));
        }
        if self.is_fake {
            let mut words = bytes.chunks_exact(self.bytes).map(|bytes| self.read(bytes));
            let mut word = || words.next().unwrap_or_default();
            sample.set_sequence(word());
            let (seconds, nanoseconds) = (word().cast_signed(), word().cast_signed());
            sample.set_origin(Timestamp::new(seconds, nanoseconds));
        }
        let mut signals_left = signals.iter();
        while at < bytes.len() {
            let Some(signal) = signals_left.next() else {
                let (rest, signals) = (bytes.len() - at, signals.len());
                return Err(error(
                    at,
                    format!("{rest} bytes behind the values of {signals} signals"),
                ));
            };
            let end = at + self.bytes_of(signal.kind);
            let Some(value) = bytes.get(at..end) else {
                let (name, needed, rest) = (&signal.name, end - at, bytes.len() - at);
                return Err(error(at, format!("`{name}` takes {needed} bytes of the last {rest}")));
            };
            if !sample.push(self.read_value(value, signal.kind)) {
                let room = sample.capacity();
                return Err(error(at, format!("samples have room for {room} values only")));
            }
            at = end;
        }
        // A message does not say that it has data.
        sample.remove_flags(Flags::DATA);
        Ok(())
    }
}

impl Format for Raw {
    fn name(&self) -> &'static str {
        self.name
    }

    fn encode(
        &self,
        _: Form,
        signals: &[Signal],
        samples: &[SampleRef<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        write_all(signals, samples, out, |sample, out| {
            if self.is_fake {
                let origin = sample.origin().unwrap_or_default();
                self.write(out, sample.sequence().unwrap_or_default());
                self.write(out, origin.seconds.cast_unsigned());
                self.write(out, origin.nanoseconds.cast_unsigned());
            }
            for (value, signal) in sample.values().zip(signals) {
                self.write_value(out, value, signal.kind);
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
        if form.is_message() {
            let Some(mut sample) = sink.sample() else { return Ok(0) };
            self.read_sample(bytes, signals, &mut sample)?;
            sink.done();
            return Ok(bytes.len());
        }
        let values: usize = signals.iter().map(|signal| self.bytes_of(signal.kind)).sum();
        let size = self.header_bytes() + values;
        if size == 0 {
            return Err(DecodeError::new(0, "a file of raw samples needs signals"));
        }
        let mut used = 0;
        for bytes in bytes.chunks_exact(size) {
            let Some(mut sample) = sink.sample() else { break };
            self.read_sample(bytes, signals, &mut sample)?;
            sink.done();
            used += size;
        }
        Ok(used)
    }
}
