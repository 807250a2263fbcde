//! Compares streams of samples.

use std::fmt;

use crate::flags::Flags;
use crate::kind::Kind;
use crate::sample::SampleRef;
use crate::signal::Signal;
use crate::timestamp::Timestamp;
use crate::value::{Complex, Value};

/// What is compared, and how exactly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompareOptions {
    /// By how much floats, parts of complex numbers and seconds may differ.
    pub epsilon: f64,
    /// Whether values and their number are compared.
    pub values: bool,
    /// Whether times of origin are compared.
    pub timestamps: bool,
    /// Whether sequence numbers are compared.
    pub sequence: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self { epsilon: 1e-6, values: true, timestamps: true, sequence: true }
    }
}

/// The first difference between two streams. Its text is that of VILLASnode's `compare`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Difference {
    /// One stream has fewer samples.
    Length,
    /// A part of the sample is known in one stream only: what is known of what is compared.
    Flags {
        /// Of the first stream.
        a: Flags,
        /// Of the other stream.
        b: Flags,
        /// All that is compared.
        wanted: Flags,
    },
    /// Sequence numbers.
    Sequence(u64, u64),
    /// Times of origin.
    Timestamp(Timestamp, Timestamp),
    /// Numbers of values.
    Count(usize, usize),
    /// Values of one kind.
    Data {
        /// The number of the value.
        index: usize,
        /// Its kind.
        kind: Kind,
        /// In the first stream.
        a: Value,
        /// In the other stream.
        b: Value,
    },
}

impl Difference {
    /// The exit code of VILLASnode's `compare`.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Length => 1,
            Self::Sequence(..) => 2,
            Self::Timestamp(..) => 3,
            Self::Count(..) => 4,
            Self::Data { .. } => 5,
            Self::Flags { .. } => 255,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("length unequal"),
            Self::Flags { a, b, wanted } => {
                let hex = |flags: &Flags| match flags.bits() {
                    0 => "0".to_owned(),
                    bits => format!("{bits:#x}"),
                };
                write!(f, "flags: a={}, b={}, wanted={}", hex(a), hex(b), hex(wanted))
            }
            Self::Sequence(a, b) => write!(f, "sequence no: {a} != {b}"),
            Self::Timestamp(a, b) => {
                let seconds = |time: &Timestamp| time.total_ns() as f64 / 1e9;
                write!(f, "ts.origin: {:.6} != {:.6}", seconds(a), seconds(b))
            }
            Self::Count(a, b) => write!(f, "length: {a} != {b}"),
            Self::Data { index, kind, a, b } => match kind {
                Kind::Float => write!(f, "data[{index}].f: {:.6} != {:.6}", a.float(), b.float()),
                Kind::Integer => write!(f, "data[{index}].i: {} != {}", a.integer(), b.integer()),
                Kind::Boolean => write!(f, "data[{index}].b: {} != {}", a.boolean(), b.boolean()),
                Kind::Complex => {
                    let (a, b) = (a.complex(), b.complex());
                    write!(f, "data[{index}].z: {:.6}{:+.6}i", a.real, a.imaginary)?;
                    write!(f, " != {:.6}{:+.6}i", b.real, b.imaginary)
                }
            },
        }
    }
}

/// Compares streams of samples with the first of them, sample by sample, and gives the first
/// difference.
///
/// As in VILLASnode, a time of origin differs if it is *later* by more than epsilon, an earlier one
/// does not; and not-a-number equals everything.
///
/// # Errors
/// The first difference.
pub fn compare(
    signals: &[Signal],
    streams: &[&[SampleRef<'_>]],
    options: CompareOptions,
) -> Result<(), Difference> {
    let Some((first, others)) = streams.split_first() else { return Ok(()) };
    for (i, a) in first.iter().enumerate() {
        for other in others {
            let b = other.get(i).ok_or(Difference::Length)?;
            compare_samples(signals, a, b, options)?;
        }
    }
    let is_longer = others.iter().any(|other| other.len() > first.len());
    if is_longer { Err(Difference::Length) } else { Ok(()) }
}

fn compare_samples(
    signals: &[Signal],
    a: &SampleRef<'_>,
    b: &SampleRef<'_>,
    options: CompareOptions,
) -> Result<(), Difference> {
    let compared = [
        (options.timestamps, Flags::ORIGIN),
        (options.sequence, Flags::SEQUENCE),
        (options.values, Flags::DATA),
    ];
    let wanted = compared.iter().filter(|(is_compared, _)| *is_compared);
    let wanted = wanted.fold(Flags::NONE, |flags, (_, flag)| flags | *flag);
    let (flags_a, flags_b) = (a.flags().and(wanted), b.flags().and(wanted));
    if flags_a != flags_b {
        return Err(Difference::Flags { a: flags_a, b: flags_b, wanted });
    }
    match (a.sequence(), b.sequence()) {
        (Some(a), Some(b)) if options.sequence && a != b => return Err(Difference::Sequence(a, b)),
        _ => {}
    }
    match (a.origin(), b.origin()) {
        (Some(a), Some(b)) if options.timestamps && is_later(b, a, options.epsilon) => {
            return Err(Difference::Timestamp(a, b));
        }
        _ => {}
    }
    if !options.values {
        return Ok(());
    }
    if a.len() != b.len() {
        return Err(Difference::Count(a.len(), b.len()));
    }
    for (index, ((a, b), signal)) in a.values().zip(b.values()).zip(signals).enumerate() {
        if differ(a, b, signal.kind, options.epsilon) {
            return Err(Difference::Data { index, kind: signal.kind, a, b });
        }
    }
    Ok(())
}

/// Whether `time` is later than `other` by more than `seconds`.
fn is_later(time: Timestamp, other: Timestamp, seconds: f64) -> bool {
    time.ns_since(other) as f64 * 1e-9 > seconds
}

fn differ(a: Value, b: Value, kind: Kind, epsilon: f64) -> bool {
    match kind {
        Kind::Float => (a.float() - b.float()).abs() > epsilon,
        Kind::Integer => a.integer() != b.integer(),
        Kind::Boolean => a.boolean() != b.boolean(),
        Kind::Complex => {
            let (Complex { real, imaginary }, b) = (a.complex(), b.complex());
            f64::from((real - b.real).hypot(imaginary - b.imaginary)) > epsilon
        }
    }
}
