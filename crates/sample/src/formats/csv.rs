//! `csv` and `tsv`: a line for each sample, `seconds,nanoseconds,offset,sequence,values...`. The
//! offset is that from origin to arrival, in seconds. What is not known is `nan`.

pub use super::lines::Options;
use super::lines::{self, Syntax, Wrong};
use crate::decimal;
use crate::format::{DecodeError, EncodeError, Form, Format, Sink};
use crate::option_error::OptionError;
use crate::sample::{SampleMut, SampleRef};
use crate::scan::{Scanner, blanks};
use crate::signal::Signal;
use crate::timestamp::Timestamp;

/// Nanoseconds in a second.
const NS_PER_S: u128 = 1_000_000_000;

/// The format `csv` or `tsv`.
#[derive(Debug)]
pub struct Csv {
    name: &'static str,
    options: Options,
    decimals: usize,
    separator: u8,
    syntax: Syntax,
}

impl Csv {
    /// The format `csv` with these options.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        Self::named("csv", ',', options)
    }

    /// The format `tsv` with these options.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn tabs(options: Options) -> Result<Self, OptionError> {
        Self::named("tsv", '\t', options)
    }

    fn named(name: &'static str, separator: char, options: Options) -> Result<Self, OptionError> {
        let decimals = lines::precision(options.real_precision)?;
        let separator = lines::ascii("separator", options.separator.unwrap_or(separator))?;
        let syntax = options.syntax()?;
        Ok(Self { name, options, decimals, separator, syntax })
    }

    fn write_header(&self, signals: &[Signal], out: &mut Vec<u8>) {
        if !self.options.header {
            return;
        }
        let parts = [
            (self.options.ts_origin, "secs"),
            (self.options.ts_origin, "nsecs"),
            (self.options.offset, "offset"),
            (self.options.sequence, "sequence"),
        ];
        out.extend_from_slice(&[self.syntax.comment, b' ']);
        for (_, name) in parts.iter().filter(|(is_written, _)| *is_written) {
            out.extend_from_slice(name.as_bytes());
            out.push(self.separator);
        }
        let signals = if self.options.data { signals } else { &[] };
        for (i, signal) in signals.iter().enumerate() {
            if i > 0 {
                out.push(self.separator);
            }
            lines::write_name(out, i, signal);
        }
        out.push(self.syntax.delimiter);
    }

    fn write_line(&self, signals: &[Signal], sample: &SampleRef<'_>, out: &mut Vec<u8>) {
        let options = &self.options;
        let unknown = b"nan";
        if options.ts_origin {
            match sample.origin() {
                Some(origin) => {
                    decimal::integer(out, origin.seconds);
                    out.push(self.separator);
                    lines::write_nanoseconds(out, origin.nanoseconds);
                }
                None => {
                    out.extend_from_slice(unknown);
                    out.push(self.separator);
                    out.extend_from_slice(unknown);
                }
            }
        }
        if options.offset {
            out.push(self.separator);
            match sample.offset_ns() {
                Some(offset_ns) => write_seconds(out, offset_ns),
                None => out.extend_from_slice(unknown),
            }
        }
        if options.sequence {
            out.push(self.separator);
            match sample.sequence() {
                Some(sequence) => decimal::unsigned(out, sequence),
                None => out.extend_from_slice(unknown),
            }
        }
        if options.data {
            for (value, signal) in sample.values().zip(signals) {
                out.push(self.separator);
                lines::write_value(out, value, signal.kind, self.decimals);
            }
        }
        out.push(self.syntax.delimiter);
    }

    fn read_line(
        &self,
        line: &[u8],
        signals: &[Signal],
        sample: &mut SampleMut<'_>,
    ) -> Result<(), Wrong> {
        let mut scanner = Scanner::new(line);
        let options = &self.options;
        let mut origin = None;
        if options.ts_origin {
            let seconds = field(&mut scanner, "seconds", Scanner::integer)?;
            self.separator(&mut scanner, "nanoseconds")?;
            let nanoseconds = field(&mut scanner, "nanoseconds", Scanner::integer)?;
            origin = seconds.zip(nanoseconds).map(|(s, ns)| Timestamp::new(s, ns));
            origin.into_iter().for_each(|origin| sample.set_origin(origin));
        }
        if options.offset {
            self.separator(&mut scanner, "the offset")?;
            let offset_ns = field(&mut scanner, "the offset", read_seconds)?;
            let received = offset_ns.map(|ns| origin.unwrap_or_default().plus_ns(ns));
            received.into_iter().for_each(|received| sample.set_received(received));
        }
        if options.sequence {
            self.separator(&mut scanner, "the sequence number")?;
            let sequence = field(&mut scanner, "the sequence number", Scanner::unsigned)?;
            sequence.into_iter().for_each(|sequence| sample.set_sequence(sequence));
        }
        let mut signals_left = signals.iter();
        while scanner.peek().is_some() {
            let at = scanner.at();
            let Some(signal) = signals_left.next() else {
                return Err(lines::too_many(at, line, signals));
            };
            self.separator(&mut scanner, "a value")?;
            if !lines::read_value(&mut scanner, signal.kind, sample)? {
                let what = format!("no {} for the signal `{}`", signal.kind, signal.name);
                return Err(Wrong::new(scanner.at(), what));
            }
        }
        Ok(())
    }

    /// Skips what stands before the column `next`.
    fn separator(&self, scanner: &mut Scanner<'_>, next: &str) -> Result<(), Wrong> {
        let byte = scanner.peek();
        if byte.is_some_and(|byte| lines::is_separator(byte, self.separator)) {
            scanner.skip(1);
            return Ok(());
        }
        let found = byte.map_or("the line's end".to_owned(), |b| format!("`{}`", b.escape_ascii()));
        let separator = self.separator.escape_ascii();
        Err(Wrong::new(scanner.at(), format!("{found} where `{separator}` and {next} should be")))
    }
}

impl Format for Csv {
    fn name(&self) -> &'static str {
        self.name
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
        let read = |line: &[u8], sample: &mut SampleMut<'_>| self.read_line(line, signals, sample);
        lines::decode(self.syntax, form, bytes, sink, &read)
    }
}

/// Reads a column that may be `nan`.
fn field<'a, T>(
    scanner: &mut Scanner<'a>,
    name: &str,
    read: impl Fn(&mut Scanner<'a>) -> Option<T>,
) -> Result<Option<T>, Wrong> {
    let rest = scanner.rest();
    let start = blanks(rest);
    if rest[start..].get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"nan")) {
        scanner.skip(start + 3);
        return Ok(None);
    }
    let value = read(scanner);
    value.map(Some).ok_or_else(|| Wrong::new(scanner.at(), format!("no number for {name}")))
}

/// Appends nanoseconds as seconds with nine decimals.
fn write_seconds(out: &mut Vec<u8>, ns: i128) {
    if ns < 0 {
        out.push(b'-');
    }
    let magnitude = ns.unsigned_abs();
    decimal::unsigned(out, u64::try_from(magnitude / NS_PER_S).unwrap_or(u64::MAX));
    out.push(b'.');
    decimal::padded(out, (magnitude % NS_PER_S) as u64, 9);
}

/// Reads seconds and gives nanoseconds.
fn read_seconds(scanner: &mut Scanner<'_>) -> Option<i128> {
    scanner.float().map(|seconds| (seconds * 1e9).round() as i128)
}
