//! What formats of lines have in common.

use serde::{Deserialize, Serialize};

use crate::decimal;
use crate::format::{DecodeError, EncodeError, Form, Sink, write_all};
use crate::kind::Kind;
use crate::sample::{SampleMut, SampleRef};
use crate::scan::{Scanner, blanks};
use crate::signal::Signal;
use crate::value::Value;

use crate::option_error::OptionError;

/// Decimals of a float unless an option says otherwise.
pub(super) const DEFAULT_PRECISION: u8 = 17;

/// The most decimals that an option may ask for.
const MAX_PRECISION: u8 = 31;

/// The options of formats of lines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Decimals of floats, 0 to 31.
    pub real_precision: u8,
    /// Whether lines have the time of origin.
    pub ts_origin: bool,
    /// Whether lines have the offset.
    pub offset: bool,
    /// Whether lines have the sequence number.
    pub sequence: bool,
    /// Whether lines have values.
    pub data: bool,
    /// Whether a file starts with a line of names.
    pub header: bool,
    /// Whether the first line of a file is no sample.
    pub skip_first_line: bool,
    /// What ends a line.
    pub delimiter: char,
    /// What starts a comment that is read besides `#`, and the line of names in `csv` and `tsv`.
    pub comment_prefix: char,
    /// What stands between two columns: a comma in `csv` and a tab in `tsv` unless given. In
    /// `villas.human` it is always a tab.
    pub separator: Option<char>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            real_precision: DEFAULT_PRECISION,
            ts_origin: true,
            offset: true,
            sequence: true,
            data: true,
            header: true,
            skip_first_line: false,
            delimiter: '\n',
            comment_prefix: '#',
            separator: None,
        }
    }
}

impl Options {
    /// What ends a line and starts a comment.
    pub(super) fn syntax(&self) -> Result<Syntax, OptionError> {
        Ok(Syntax {
            delimiter: ascii("delimiter", self.delimiter)?,
            comment: ascii("comment_prefix", self.comment_prefix)?,
            skip_first_line: self.skip_first_line,
        })
    }
}

/// What ends a line and starts a comment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Syntax {
    /// The byte that ends a line.
    pub(super) delimiter: u8,
    /// The byte that starts a comment, besides `#`.
    pub(super) comment: u8,
    /// Whether the first line of a file is no sample.
    pub(super) skip_first_line: bool,
}

/// The byte of the option `key`, which must be one ASCII character.
pub(super) fn ascii(key: &str, value: char) -> Result<u8, OptionError> {
    let byte = u8::try_from(value).ok().filter(u8::is_ascii);
    byte.ok_or_else(|| OptionError::new(key, "must be one ASCII character"))
}

/// The decimals of the option `real_precision`.
pub(super) fn precision(value: u8) -> Result<usize, OptionError> {
    if value > MAX_PRECISION {
        return Err(OptionError::new("real_precision", "must be from 0 to 31"));
    }
    Ok(usize::from(value))
}

/// What is wrong with a line, and at which of its bytes.
pub(super) struct Wrong {
    at: usize,
    what: String,
}

impl Wrong {
    pub(super) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into() }
    }
}

/// Appends lines: `header` at the start of a file, and a line for each sample with `line`.
///
/// # Errors
/// Those of [`write_all`]. Then `out` is as it was.
pub(super) fn encode(
    form: Form,
    signals: &[Signal],
    samples: &[SampleRef<'_>],
    out: &mut Vec<u8>,
    header: impl FnOnce(&mut Vec<u8>),
    line: impl Fn(&SampleRef<'_>, &mut Vec<u8>),
) -> Result<(), EncodeError> {
    let before = out.len();
    if form == Form::FileStart && !samples.is_empty() {
        header(out);
    }
    let written = write_all(signals, samples, out, |sample, out| {
        line(sample, out);
        Ok(())
    });
    written.inspect_err(|_| out.truncate(before))
}

/// Reads a line into a sample.
type ReadLine<'a> = dyn Fn(&[u8], &mut SampleMut<'_>) -> Result<(), Wrong> + 'a;

/// Reads lines into `sink` with `read`. Blank lines and comments are skipped.
pub(super) fn decode(
    syntax: Syntax,
    form: Form,
    bytes: &[u8],
    sink: &mut dyn Sink,
    read: &ReadLine<'_>,
) -> Result<usize, DecodeError> {
    let mut at = 0;
    let mut skip = syntax.skip_first_line && form == Form::FileStart;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let Some(length) = rest.iter().position(|byte| *byte == syntax.delimiter) else {
            if form.is_message() && !is_skipped(syntax, rest) {
                return Err(DecodeError::new(
                    bytes.len(),
                    "the last line is cut: its end is missing",
                ));
            }
            return Ok(if form.is_message() { bytes.len() } else { at });
        };
        let next = at + length + 1;
        let line = &rest[..length];
        if !skip && !is_skipped(syntax, line) {
            let Some(mut sample) = sink.sample() else { return Ok(at) };
            if let Err(wrong) = read(line, &mut sample) {
                return Err(DecodeError::new(at + wrong.at, wrong.what).resume_at(next));
            }
            sink.done();
        }
        skip = false;
        at = next;
    }
    Ok(at)
}

fn is_skipped(syntax: Syntax, line: &[u8]) -> bool {
    let first = line.get(blanks(line)).copied();
    first.is_none_or(|byte| byte == b'#' || byte == syntax.comment)
}

/// Whether `byte` may stand between two values: a blank, a mark, or the configured separator, but
/// nothing that a number could go on with.
pub(super) fn is_separator(byte: u8, configured: u8) -> bool {
    byte == configured
        || byte.is_ascii_whitespace()
        || matches!(byte, b',' | b';' | b':' | b'|' | b'/' | b'\x0b')
}

/// The error of a value for which there is no signal.
pub(super) fn too_many(at: usize, line: &[u8], signals: &[Signal]) -> Wrong {
    let hint = match line.get(at..).map(|rest| blanks(rest) == rest.len()) {
        Some(true) if line.ends_with(b"\r") => "a carriage return stands before the line's end",
        Some(true) => "blanks stand behind the last value",
        _ => "the line has more values",
    };
    Wrong::new(at, format!("{hint}, but there are {} signals", signals.len()))
}

/// Appends a value as text.
pub(super) fn write_value(out: &mut Vec<u8>, value: Value, kind: Kind, decimals: usize) {
    match kind {
        Kind::Float => decimal::fixed(out, value.float(), decimals),
        Kind::Integer => decimal::integer(out, value.integer()),
        Kind::Boolean => out.push(b'0' + u8::from(value.boolean())),
        Kind::Complex => {
            let value = value.complex();
            decimal::fixed(out, f64::from(value.real), decimals);
            if value.imaginary.is_sign_positive() {
                out.push(b'+');
            }
            decimal::fixed(out, f64::from(value.imaginary), decimals);
            out.push(b'i');
        }
    }
}

/// Appends the name of signal number `i` and its unit as `name[unit]`.
pub(super) fn write_name(out: &mut Vec<u8>, i: usize, signal: &Signal) {
    if signal.name.is_empty() {
        out.extend_from_slice(b"signal");
        decimal::unsigned(out, i as u64);
    } else {
        out.extend_from_slice(signal.name.as_bytes());
    }
    if !signal.unit.is_empty() {
        out.push(b'[');
        out.extend_from_slice(signal.unit.as_bytes());
        out.push(b']');
    }
}

/// Appends a number of nanoseconds with at least nine digits.
pub(super) fn write_nanoseconds(out: &mut Vec<u8>, nanoseconds: i64) {
    match u64::try_from(nanoseconds) {
        Ok(nanoseconds) => decimal::padded(out, nanoseconds, 9),
        Err(_) => decimal::integer(out, nanoseconds),
    }
}

/// Reads a value of `kind` and appends it to `sample`.
pub(super) fn read_value(
    scanner: &mut Scanner<'_>,
    kind: Kind,
    sample: &mut SampleMut<'_>,
) -> Result<bool, Wrong> {
    let at = scanner.at();
    let Some(value) = scanner.value(kind) else { return Ok(false) };
    if sample.push(value) {
        return Ok(true);
    }
    Err(Wrong::new(at, format!("samples have room for {} values only", sample.capacity())))
}
