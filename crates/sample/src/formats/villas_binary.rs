//! `villas.binary`: messages in network byte order, one for each sample. A message is a header of
//! 16 bytes and 4 bytes a value: floats in single precision, integers cut to 32 bits. The origin
//! has 32 bits of seconds, and the time of arrival is not sent.
//!
//! | byte | |
//! |---|---|
//! | 0 | version (2) in bits 7 to 4, type (0: data) in bits 3 and 2, the others 0 |
//! | 1 | index of the source |
//! | 2 | number of values |
//! | 4 | sequence number |
//! | 8 | seconds and, from 12 on, nanoseconds of the origin |
//! | 16 | values |

use serde::{Deserialize, Serialize};

use crate::flags::Flags;
use crate::format::{DecodeError, EncodeError, Form, Format, Sink, write_all};
use crate::kind::Kind;
use crate::sample::{SampleMut, SampleRef};
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::Value;

const HEADER_BYTES: usize = 16;
const VERSION: u8 = 2;

/// The options of `villas.binary`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The index of the source that is sent.
    pub source_index: u8,
    /// Whether messages with another index are skipped.
    pub validate_source_index: bool,
}

/// The format `villas.binary`.
#[derive(Debug)]
pub struct VillasBinary {
    options: Options,
}

impl VillasBinary {
    /// The format with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Format for VillasBinary {
    fn name(&self) -> &'static str {
        "villas.binary"
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
            let origin = sample.origin().unwrap_or_default();
            out.extend_from_slice(&[VERSION << 4, self.options.source_index]);
            out.extend_from_slice(&values.to_be_bytes());
            let words = [
                sample.sequence().unwrap_or_default() as u32,
                origin.seconds as u32,
                origin.nanoseconds as u32,
            ];
            words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
            for (value, signal) in sample.values().zip(signals) {
                let word = match signal.kind {
                    Kind::Float => (value.float() as f32).to_bits(),
                    Kind::Integer => value.integer() as u32,
                    Kind::Boolean | Kind::Complex => return Err(no_kind(signal)),
                };
                out.extend_from_slice(&word.to_be_bytes());
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
            let Some(header) = bytes[at..].first_chunk() else {
                return rest(form, at, "a message of less than 16 bytes");
            };
            let header = Header::read(header).map_err(|what| DecodeError::new(at, what))?;
            let start = at + HEADER_BYTES;
            let Some(values) = bytes.get(start..start + 4 * header.values) else {
                return rest(form, at, "a message of fewer values than its header says");
            };
            let next = start + values.len();
            let is_ours = header.source_index == self.options.source_index;
            if is_ours || !self.options.validate_source_index {
                let Some(mut sample) = sink.sample() else { return Ok(at) };
                let read = header.sample(values, signals, &mut sample);
                read.map_err(|what| DecodeError::new(at, what).resume_at(next))?;
                sink.done();
            }
            at = next;
        }
        Ok(at)
    }
}

/// What to do with an incomplete message at byte `at`: of a file, more may follow.
fn rest(form: Form, at: usize, what: &str) -> Result<usize, DecodeError> {
    if form.is_message() { Err(DecodeError::new(at, what)) } else { Ok(at) }
}

fn no_kind(signal: &Signal) -> EncodeError {
    let Signal { name, kind, .. } = signal;
    EncodeError::new(format!(
        "villas.binary has no {kind} values, as of the signal `{name}`: cast it, or choose another \
         format"
    ))
}

struct Header {
    source_index: u8,
    values: usize,
    sequence: u32,
    origin: Timestamp,
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (version, kind, reserved) = (bytes[0] >> 4, bytes[0] >> 2 & 3, bytes[0] & 3);
        if version != VERSION {
            return Err(format!("version {version} of villas.binary, but only 2 is known"));
        }
        if kind != 0 || reserved != 0 {
            return Err(format!(
                "a message of type {kind}, reserved bits {reserved}, but not data"
            ));
        }
        Ok(Self {
            source_index: bytes[1],
            values: usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
            sequence: word(4),
            origin: Timestamp::new(i64::from(word(8)), i64::from(word(12))),
        })
    }

    fn sample(
        &self,
        values: &[u8],
        signals: &[Signal],
        sample: &mut SampleMut<'_>,
    ) -> Result<(), String> {
        sample.set_sequence(u64::from(self.sequence));
        sample.set_origin(self.origin);
        sample.add_flags(Flags::DATA);
        let (values, _) = values.as_chunks();
        if values.len() > signals.len() {
            let (values, signals) = (values.len(), signals.len());
            return Err(format!("{values} values, but there are {signals} signals"));
        }
        for (value, signal) in values.iter().zip(signals) {
            let word = u32::from_be_bytes(*value);
            let value = match signal.kind {
                Kind::Float => Value::from_float(f64::from(f32::from_bits(word))),
                Kind::Integer => Value::from_integer(i64::from(word)),
                Kind::Boolean | Kind::Complex => {
                    let Signal { name, kind, .. } = signal;
                    return Err(format!("villas.binary has no {kind} values for `{name}`"));
                }
            };
            if !sample.push(value) {
                return Err(format!("samples have room for {} values only", sample.capacity()));
            }
        }
        Ok(())
    }
}
