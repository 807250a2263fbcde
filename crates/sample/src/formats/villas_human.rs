//! `villas.human`: a line for each sample, `seconds.nanoseconds+offset(sequence)F` and its values
//! behind tabs. The offset is that from origin to arrival, in seconds; `F` is the start of a frame.
//! All parts but the seconds are optional.

pub use super::lines::Options;
use super::lines::{self, Syntax, Wrong};
use crate::decimal;
use crate::flags::Flags;
use crate::format::{DecodeError, EncodeError, Form, Format, Sink};
use crate::option_error::OptionError;
use crate::sample::{SampleMut, SampleRef};
use crate::scan::Scanner;
use crate::signal::Signal;
use crate::timestamp::Timestamp;

/// The format `villas.human`.
#[derive(Debug)]
pub struct VillasHuman {
    options: Options,
    decimals: usize,
    syntax: Syntax,
}

impl VillasHuman {
    /// The format with these options.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        if options.separator.is_some() {
            return Err(OptionError::new("separator", "is a tab in this format"));
        }
        let decimals = lines::precision(options.real_precision)?;
        let syntax = options.syntax()?;
        Ok(Self { options, decimals, syntax })
    }

    fn write_header(&self, signals: &[Signal], out: &mut Vec<u8>) {
        if !self.options.header {
            return;
        }
        let parts = [
            (self.options.ts_origin, "seconds.nanoseconds"),
            (self.options.offset, "+offset"),
            (self.options.sequence, "(sequence)"),
        ];
        out.extend_from_slice(b"# ");
        let written = parts.iter().filter(|(is_written, _)| *is_written);
        written.for_each(|(_, name)| out.extend_from_slice(name.as_bytes()));
        if self.options.data {
            for (i, signal) in signals.iter().enumerate() {
                out.push(b'\t');
                lines::write_name(out, i, signal);
            }
        }
        out.push(self.syntax.delimiter);
    }

    fn write_line(&self, signals: &[Signal], sample: &SampleRef<'_>, out: &mut Vec<u8>) {
        let options = &self.options;
        if options.ts_origin {
            match sample.origin() {
                Some(origin) => {
                    decimal::integer(out, origin.seconds);
                    out.push(b'.');
                    lines::write_nanoseconds(out, origin.nanoseconds);
                }
                None => out.extend_from_slice(b"0.0"),
            }
        }
        if let Some(offset_ns) = sample.offset_ns().filter(|_| options.offset) {
            decimal::signed_exponent(out, offset_ns as f64 / 1e9);
        }
        if let Some(sequence) = sample.sequence().filter(|_| options.sequence) {
            out.push(b'(');
            decimal::unsigned(out, sequence);
            out.push(b')');
        }
        if sample.flags().has(Flags::NEW_FRAME) {
            out.push(b'F');
        }
        if options.data {
            for (value, signal) in sample.values().zip(signals) {
                out.push(b'\t');
                lines::write_value(out, value, signal.kind, self.decimals);
            }
        }
        out.push(self.syntax.delimiter);
    }
}

impl Format for VillasHuman {
    fn name(&self) -> &'static str {
        "villas.human"
    }

    fn encode(
        &self,
        form: Form,
        signals: &[Signal],
        samples: &[SampleRef<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let header = |out: &mut Vec<u8>| self.write_header(signals, out);
        let line = |sample: &SampleRef<'_>, out: &mut Vec<u8>| {
            self.write_line(signals, sample, out);
        };
        lines::encode(form, signals, samples, out, header, line)
    }

    fn decode(
        &self,
        form: Form,
        bytes: &[u8],
        signals: &[Signal],
        sink: &mut dyn Sink,
    ) -> Result<usize, DecodeError> {
        let read = |line: &[u8], sample: &mut SampleMut<'_>| read_line(line, signals, sample);
        lines::decode(self.syntax, form, bytes, sink, &read)
    }
}

/// Reads a line. Values end at the first field that is none, as in VILLASnode.
fn read_line(line: &[u8], signals: &[Signal], sample: &mut SampleMut<'_>) -> Result<(), Wrong> {
    let mut scanner = Scanner::new(line);
    read_stamps(&mut scanner, sample)?;
    let mut signals_left = signals.iter();
    while let Some(byte) = scanner.peek() {
        if !lines::is_separator(byte, b'\t') {
            let what = format!("`{}` where a tab should be", byte.escape_ascii());
            return Err(Wrong::new(scanner.at(), what));
        }
        let Some(signal) = signals_left.next() else {
            return Err(lines::too_many(scanner.at(), line, signals));
        };
        scanner.skip(1);
        if !lines::read_value(&mut scanner, signal.kind, sample)? {
            break;
        }
    }
    Ok(())
}

/// Reads what stands before the values. Seconds and nanoseconds have 32 bits, as in VILLASnode.
fn read_stamps(scanner: &mut Scanner<'_>, sample: &mut SampleMut<'_>) -> Result<(), Wrong> {
    let missing = |scanner: &Scanner<'_>, what: &str| Wrong::new(scanner.at(), what);
    let Some(seconds) = scanner.unsigned() else {
        return Err(missing(scanner, "a sample starts with its seconds, such as 1.000000000(0)"));
    };
    let mut origin = Timestamp::new(i64::from(seconds as u32), 0);
    if scanner.eat(b'.') {
        let nanoseconds = scanner.unsigned();
        let nanoseconds = nanoseconds.ok_or_else(|| missing(scanner, "no nanoseconds behind `.`"));
        origin.nanoseconds = i64::from(nanoseconds? as u32);
    }
    sample.set_origin(origin);
    if matches!(scanner.peek(), Some(b'+' | b'-')) {
        let offset_s =
            scanner.single().ok_or_else(|| missing(scanner, "no number in the offset"))?;
        // VILLASnode cuts a single-precision number to nanoseconds.
        sample.set_received(origin.plus_ns((f64::from(offset_s) * 1e9) as i128));
    }
    if scanner.eat(b'(') {
        let sequence = scanner.unsigned();
        sample.set_sequence(sequence.ok_or_else(|| missing(scanner, "no number in `()`"))?);
        if !scanner.eat(b')') {
            return Err(missing(scanner, "no `)` behind the sequence number"));
        }
    }
    if scanner.eat(b'F') {
        sample.add_flags(Flags::NEW_FRAME);
    }
    Ok(())
}
