//! `json`: an object for each sample, `{"ts": {"origin": [s, ns]}, "sequence": 0, "data": [1.0]}`;
//! an array of them in a message, and one a line in a file.
//!
//! Floats have a point or an exponent and integers have none, also when they are read. Not-a-number
//! and infinities cannot be written: like VILLASnode, we leave them out, and the array gets
//! shorter.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::lines;
use crate::decimal;
use crate::flags::Flags;
use crate::format::{DecodeError, EncodeError, Form, Format, Sink, write_all};
use crate::kind::Kind;
use crate::option_error::OptionError;
use crate::sample::{SampleMut, SampleRef};
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::{Complex, Value};

/// The options of `json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Significant digits of floats, 1 to 31; 0 stands for 17.
    pub real_precision: u8,
    /// Whether to write the time of origin.
    pub ts_origin: bool,
    /// Whether to write the time of arrival.
    pub ts_received: bool,
    /// Whether to write the sequence number.
    pub sequence: bool,
    /// Whether to write values.
    pub data: bool,
    /// No blanks behind commas and colons.
    pub compact: bool,
    /// Blanks of each level before an element, which stands on a line of its own; 0 for one line.
    pub indent: u8,
    /// Whether the keys of an object are in the order of the alphabet.
    pub sort_keys: bool,
    /// Whether to write ASCII only. Nothing else is ever written.
    pub ensure_ascii: bool,
    /// Whether to escape slashes in strings. There are none.
    pub escape_slash: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            real_precision: lines::DEFAULT_PRECISION,
            ts_origin: true,
            ts_received: false,
            sequence: true,
            data: true,
            compact: false,
            indent: 0,
            sort_keys: false,
            ensure_ascii: false,
            escape_slash: false,
        }
    }
}

/// The format `json`.
#[derive(Debug)]
pub struct JsonFormat {
    options: Options,
    digits: usize,
}

/// The most blanks of a level.
const MAX_INDENT: u8 = 31;

impl JsonFormat {
    /// The format with these options.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        if options.indent > MAX_INDENT {
            return Err(OptionError::new("indent", "must be from 0 to 31"));
        }
        let digits = match lines::precision(options.real_precision)? {
            0 => usize::from(lines::DEFAULT_PRECISION),
            digits => digits,
        };
        Ok(Self { options, digits })
    }

    fn write_sample(
        &self,
        depth: usize,
        signals: &[Signal],
        sample: &SampleRef<'_>,
        out: &mut Vec<u8>,
    ) {
        type Write = fn(&JsonFormat, usize, &[Signal], &SampleRef<'_>, &mut Vec<u8>);
        let options = &self.options;
        let origin = sample.origin().filter(|_| options.ts_origin);
        let received = sample.received().filter(|_| options.ts_received);
        let has_flags =
            sample.flags().has(Flags::NEW_FRAME) || sample.flags().has(Flags::NEW_SIMULATION);
        let has_sequence = options.sequence && sample.sequence().is_some();
        let mut members: [(&str, bool, Write); 4] = [
            ("ts", origin.or(received).is_some(), Self::write_stamps),
            ("flags", has_flags, Self::write_flags),
            ("sequence", has_sequence, |_, _, _, sample, out| {
                let sequence = sample.sequence().unwrap_or_default();
                decimal::integer(out, sequence.cast_signed());
            }),
            ("data", options.data, Self::write_values),
        ];
        if options.sort_keys {
            members.sort_unstable_by_key(|(key, ..)| *key);
        }
        let mut list = self.open(out, b'{', depth);
        for (key, _, write) in members.into_iter().filter(|(_, is_written, _)| *is_written) {
            self.key(&mut list, out, key);
            write(self, depth + 1, signals, sample, out);
        }
        self.close(list, out, b'}');
    }

    fn write_stamps(&self, depth: usize, _: &[Signal], sample: &SampleRef<'_>, out: &mut Vec<u8>) {
        let origin = sample.origin().filter(|_| self.options.ts_origin);
        let received = sample.received().filter(|_| self.options.ts_received);
        let mut list = self.open(out, b'{', depth);
        for (key, stamp) in [("origin", origin), ("received", received)] {
            let Some(stamp) = stamp else { continue };
            self.key(&mut list, out, key);
            let mut pair = self.open(out, b'[', depth + 1);
            for number in [stamp.seconds, stamp.nanoseconds] {
                self.item(&mut pair, out);
                decimal::integer(out, number);
            }
            self.close(pair, out, b']');
        }
        self.close(list, out, b'}');
    }

    fn write_flags(&self, depth: usize, _: &[Signal], sample: &SampleRef<'_>, out: &mut Vec<u8>) {
        let mut list = self.open(out, b'[', depth);
        for (name, _) in FLAGS.iter().filter(|(_, flag)| sample.flags().has(*flag)) {
            self.item(&mut list, out);
            write_string(out, name);
        }
        self.close(list, out, b']');
    }

    fn write_values(
        &self,
        depth: usize,
        signals: &[Signal],
        sample: &SampleRef<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut list = self.open(out, b'[', depth);
        for (value, signal) in sample.values().zip(signals) {
            match signal.kind {
                Kind::Float if value.float().is_finite() => {
                    self.item(&mut list, out);
                    decimal::significant(out, value.float(), self.digits);
                }
                Kind::Integer => {
                    self.item(&mut list, out);
                    decimal::integer(out, value.integer());
                }
                Kind::Boolean => {
                    self.item(&mut list, out);
                    out.extend_from_slice(if value.boolean() { b"true" } else { b"false" });
                }
                Kind::Complex => {
                    let Complex { real, imaginary } = value.complex();
                    if real.is_finite() && imaginary.is_finite() {
                        self.item(&mut list, out);
                        self.write_complex(depth + 1, value.complex(), out);
                    }
                }
                Kind::Float => {}
            }
        }
        self.close(list, out, b']');
    }

    fn write_complex(&self, depth: usize, value: Complex, out: &mut Vec<u8>) {
        let mut members = [("real", value.real), ("imag", value.imaginary)];
        if self.options.sort_keys {
            members.reverse();
        }
        let mut list = self.open(out, b'{', depth);
        for (key, number) in members {
            self.key(&mut list, out, key);
            decimal::significant(out, f64::from(number), self.digits);
        }
        self.close(list, out, b'}');
    }

    /// Begins an object or array, whose elements are at level `depth` + 1.
    fn open(&self, out: &mut Vec<u8>, bracket: u8, depth: usize) -> List {
        out.push(bracket);
        List { depth, is_empty: true }
    }

    /// Begins the next element of an array.
    fn item(&self, list: &mut List, out: &mut Vec<u8>) {
        if !list.is_empty {
            out.push(b',');
        }
        if self.options.indent > 0 {
            self.indent(list.depth + 1, out);
        } else if !list.is_empty && !self.options.compact {
            out.push(b' ');
        }
        list.is_empty = false;
    }

    /// Begins the next member of an object.
    fn key(&self, list: &mut List, out: &mut Vec<u8>, key: &str) {
        self.item(list, out);
        write_string(out, key);
        out.extend_from_slice(if self.options.compact { b":" } else { b": " });
    }

    /// Ends an object or array.
    fn close(&self, list: List, out: &mut Vec<u8>, bracket: u8) {
        if self.options.indent > 0 && !list.is_empty {
            self.indent(list.depth, out);
        }
        out.push(bracket);
    }

    fn indent(&self, depth: usize, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + depth * usize::from(self.options.indent), b' ');
    }
}

/// An object or array that is being written.
struct List {
    depth: usize,
    is_empty: bool,
}

/// The flags that have a name.
const FLAGS: [(&str, Flags); 2] =
    [("new_frame", Flags::NEW_FRAME), ("new_simulation", Flags::NEW_SIMULATION)];

/// Appends a string that needs no escapes.
fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

impl Format for JsonFormat {
    fn name(&self) -> &'static str {
        "json"
    }

    fn encode(
        &self,
        form: Form,
        signals: &[Signal],
        samples: &[SampleRef<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        if !form.is_message() {
            return write_all(signals, samples, out, |sample, out| {
                self.write_sample(0, signals, sample, out);
                out.push(b'\n');
                Ok(())
            });
        }
        let before = out.len();
        let mut list = self.open(out, b'[', 0);
        let written = write_all(signals, samples, out, |sample, out| {
            self.item(&mut list, out);
            self.write_sample(1, signals, sample, out);
            Ok(())
        });
        self.close(list, out, b']');
        written.inspect_err(|_| out.truncate(before))
    }

    fn decode(
        &self,
        form: Form,
        bytes: &[u8],
        signals: &[Signal],
        sink: &mut dyn Sink,
    ) -> Result<usize, DecodeError> {
        if form.is_message() {
            return decode_message(form == Form::MessageRest, bytes, signals, sink);
        }
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Json>();
        loop {
            let at = values.byte_offset();
            let value = match values.next() {
                None => return Ok(bytes.len()),
                Some(Err(error)) if error.is_eof() => return Ok(at),
                Some(Err(error)) => return Err(DecodeError::new(at, error.to_string())),
                Some(Ok(value)) => value,
            };
            let Some(mut sample) = sink.sample() else { return Ok(at) };
            let read = read_sample(&value, signals, &mut sample);
            read.map_err(|what| DecodeError::new(at, what).resume_at(values.byte_offset()))?;
            sink.done();
        }
    }
}

/// Reads a message one sample after the other. A rest begins with the comma before its first one.
fn decode_message(
    is_rest: bool,
    bytes: &[u8],
    signals: &[Signal],
    sink: &mut dyn Sink,
) -> Result<usize, DecodeError> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let is_blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let past_blanks =
        |at: usize| at + bytes.get(at..).unwrap_or_default().iter().take_while(is_blank).count();
    let wrong = |at| DecodeError::new(at, "a message is an array of samples: [{\"data\": [1.0]}]");
    let mut at = past_blanks(0);
    if !(bytes.get(at) == Some(&b'[') || is_rest && bytes.get(at) == Some(&b',')) {
        return Err(wrong(at));
    }
    let first = past_blanks(at + 1);
    if bytes[at] == b'[' && bytes.get(first) == Some(&b']') {
        at = first;
    }
    while bytes.get(at) != Some(&b']') {
        if !matches!(bytes.get(at), Some(b',' | b'[')) {
            return Err(wrong(at));
        }
        let begin = past_blanks(at + 1);
        let rest = bytes.get(begin..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Json>();
        let value = values.next().ok_or_else(|| wrong(begin))?;
        let value = value.map_err(|error| DecodeError::new(begin, error.to_string()))?;
        let Some(mut sample) = sink.sample() else { return Ok(at) };
        let read = read_sample(&value, signals, &mut sample);
        read.map_err(|what| DecodeError::new(begin, what))?;
        sink.done();
        at = past_blanks(begin + values.byte_offset());
        if bytes.get(at) == Some(&b'[') {
            return Err(wrong(at));
        }
    }
    if past_blanks(at + 1) < bytes.len() {
        return Err(DecodeError::new(at + 1, "something follows the array of samples"));
    }
    Ok(bytes.len())
}

/// Reads a sample. Members that we do not know are ignored.
fn read_sample(value: &Json, signals: &[Signal], sample: &mut SampleMut<'_>) -> Result<(), String> {
    let object = value.as_object().ok_or("a sample is an object: {\"data\": [1.0]}")?;
    let stamps = object.get("ts");
    if let Some(stamps) = stamps {
        let stamps = stamps.as_object().ok_or("`ts` is an object: {\"origin\": [s, ns]}")?;
        if let Some(origin) = stamps.get("origin") {
            sample.set_origin(read_stamp(origin, "origin")?);
        }
        if let Some(received) = stamps.get("received") {
            sample.set_received(read_stamp(received, "received")?);
        }
    }
    if let Some(flags) = object.get("flags") {
        let flags = flags.as_array().ok_or("`flags` is an array of strings")?;
        for (name, flag) in FLAGS {
            if flags.iter().any(|value| value == name) {
                sample.add_flags(flag);
            }
        }
    }
    if let Some(sequence) = object.get("sequence") {
        let sequence = sequence.as_i64().ok_or("`sequence` is an integer below 2^63")?;
        if let Ok(sequence) = u64::try_from(sequence) {
            sample.set_sequence(sequence);
        }
    }
    let data = object.get("data").and_then(Json::as_array).ok_or("`data` is no array of values")?;
    if data.len() > signals.len() {
        return Err(format!("{} values, but there are {} signals", data.len(), signals.len()));
    }
    for (i, (value, signal)) in data.iter().zip(signals).enumerate() {
        let value = read_value(value, signal.kind).ok_or_else(|| {
            let (name, kind) = (&signal.name, signal.kind);
            format!("value {i} is `{value}`, but the signal `{name}` is {}", expected(kind))
        })?;
        if !sample.push(value) {
            return Err(format!("samples have room for {} values only", sample.capacity()));
        }
    }
    Ok(())
}

fn read_stamp(value: &Json, name: &str) -> Result<Timestamp, String> {
    let numbers = value.as_array().map(Vec::as_slice);
    if let Some([seconds, nanoseconds]) = numbers
        && let (Some(seconds), Some(nanoseconds)) = (seconds.as_i64(), nanoseconds.as_i64())
    {
        return Ok(Timestamp::new(seconds, nanoseconds));
    }
    Err(format!("`{name}` is an array of two integers: [seconds, nanoseconds]"))
}

fn read_value(value: &Json, kind: Kind) -> Option<Value> {
    match kind {
        Kind::Float => value.as_f64().filter(|_| value.is_f64()).map(Value::from_float),
        Kind::Integer => value.as_i64().map(Value::from_integer),
        Kind::Boolean => value.as_bool().map(Value::from_boolean),
        Kind::Complex => {
            let object = value.as_object()?;
            let part = |key| Some(object.get(key)?.as_f64()? as f32);
            let (real, imaginary) = (part("real")?, part("imag")?);
            Some(Value::from_complex(Complex { real, imaginary }))
        }
    }
}

/// How a value of this kind is written.
const fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Float => "a float: a number with a point or an exponent, such as 1.0",
        Kind::Integer => "an integer: a number without a point or an exponent",
        Kind::Boolean => "a boolean: true or false",
        Kind::Complex => "complex: {\"real\": 1.0, \"imag\": 0.0}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collector, Pool};

    #[test]
    fn a_message_is_one_array_and_its_rest_begins_with_a_comma() {
        let signals = Signal::numbered(1, Kind::Float);
        let decoded = |form, text: &str, room: usize| {
            let (mut pool, mut samples) = (Pool::new(9, 1), Vec::new());
            let mut into = Collector::new(&mut pool, &mut samples, room);
            let format = JsonFormat::new(Options::default()).unwrap();
            let used = format.decode(form, text.as_bytes(), &signals, &mut into);
            drop(into);
            (used.ok(), samples.len())
        };
        let three = r#" [ {"data":[1.5]} , {"data":[2.5]},{"data":[3.5]} ] "#;
        assert_eq!(decoded(Form::Message, three, 9), (Some(three.len()), 3));
        let (used, taken) = decoded(Form::Message, three, 1);
        assert_eq!(taken, 1);
        let rest = &three[used.unwrap()..];
        assert_eq!(decoded(Form::MessageRest, rest, 9), (Some(rest.len()), 2));
        assert_eq!(decoded(Form::Message, rest, 9).0, None);
        assert_eq!(decoded(Form::Message, "[]", 9), (Some(2), 0));
        let wrong =
            ["[", "[{}", "[{},", "[{},]", "[,{}]", "[{}{}]", "[{}[{}]", "[{}]x", "{}", "]", "[]]"];
        for text in wrong.map(|text| text.replace("{}", r#"{"data":[1.5]}"#)) {
            assert_eq!(decoded(Form::Message, &text, 9).0, None, "{text}");
        }
    }
}
