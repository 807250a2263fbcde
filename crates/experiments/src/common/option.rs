//! An option: its name, help text and unit for command lines and records, and the conversion of its
//! value from and to text.

use std::fmt;

use rdmalab_measure::unit;

use crate::common::number::{self, Kind};
use crate::common::params::Common;

/// An option. An option of the same name means the same in every experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// Its name, as in `--size`.
    pub name: &'static str,
    /// perftest's letter for it, as in `-s`.
    pub letter: Option<char>,
    /// The placeholder for its value in a help text.
    pub value_name: &'static str,
    /// Unit of the value; empty for words and plain counts.
    pub unit: &'static str,
    /// What it does, in a sentence without a full stop.
    pub help: &'static str,
    /// Whether it takes numbers, so that a range makes sense.
    pub is_number: bool,
    /// The words that it takes, beside numbers or instead of them.
    pub words: &'static [&'static str],
    /// What its letter means when given without a value (`-e`).
    pub bare: Option<&'static str>,
}

/// An option does not take a value, or does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// The option, as it was given.
    pub option: String,
    /// What is wrong and what to do.
    pub reason: String,
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}: {}", self.option, self.reason)
    }
}

impl std::error::Error for OptionError {}

impl Opt {
    /// The values of a list `a,b,c` of words, numbers and ranges, each as text for one value.
    ///
    /// # Errors
    /// What is wrong with the list.
    pub fn values(&self, text: &str) -> Result<Vec<String>, OptionError> {
        if self.splits_itself() {
            return Ok(text.split('/').map(str::to_owned).collect());
        }
        let mut found = Vec::new();
        let mut name = "";
        for part in text.split(',').map(str::trim) {
            // The values of NAME=A,B are NAME=A and NAME=B.
            let is_change = !self.is_number && part.contains('=');
            if is_change {
                name = &part[..=part.rfind('=').unwrap_or(0)];
            }
            if is_change || (!name.is_empty() && !self.words.contains(&part)) {
                let value = part.rsplit('=').next().unwrap_or(part);
                if value.contains("..") {
                    // The name ends with the unit.
                    let unit = unit::of_name(name.trim_end_matches('=')).unwrap_or_default();
                    let numbers = number::range(value, Kind::of(unit))
                        .map_err(|reason| self.error(reason))?;
                    found.extend(numbers.iter().map(|number| format!("{name}{number}")));
                } else {
                    found.push(format!("{name}{value}"));
                }
                continue;
            }
            if self.is_number && part.contains("..") {
                let numbers = number::range(part, Kind::of(self.unit))
                    .map_err(|reason| self.error(reason))?;
                found.extend(numbers.iter().map(u64::to_string));
            } else {
                found.push(part.to_owned());
            }
        }
        Ok(found)
    }

    /// Whether its value is itself a list, so that a list of its values is separated by `/`.
    #[must_use]
    pub fn splits_itself(&self) -> bool {
        self.words.iter().any(|word| word.contains(','))
    }

    /// What the letter of an option that is yes or no means without a value.
    #[must_use]
    pub const fn bare_yes(letter: Option<char>) -> Option<&'static str> {
        if letter.is_some() { Some("yes") } else { None }
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> OptionError {
        OptionError { option: self.name.to_owned(), reason: reason.into() }
    }
}

/// An option, and the access to its value in a struct of options.
pub struct Field<T> {
    /// The option.
    pub opt: Opt,
    /// The value, as text that `set` takes.
    pub get: fn(&T) -> String,
    /// Changes the value, or says what is wrong with the text.
    pub set: fn(&mut T, &str) -> Result<(), String>,
}

/// An option of an experiment, whose own options are a `W`.
pub enum Choice<W: 'static> {
    /// One that several experiments have.
    Common(&'static Field<Common>),
    /// One of its own.
    Own(&'static Field<W>),
}

impl<W> Choice<W> {
    pub(crate) fn own(&self) -> Option<&'static Field<W>> {
        match self {
            Self::Common(_) => None,
            Self::Own(field) => Some(field),
        }
    }

    pub(crate) fn opt(&self) -> &'static Opt {
        match self {
            Self::Common(field) => &field.opt,
            Self::Own(field) => &field.opt,
        }
    }

    pub(crate) fn get(&self, common: &Common, own: &W) -> String {
        match self {
            Self::Common(field) => (field.get)(common),
            Self::Own(field) => (field.get)(own),
        }
    }

    pub(crate) fn set(&self, common: &mut Common, own: &mut W, text: &str) -> Result<(), String> {
        match self {
            Self::Common(field) => (field.set)(common, text),
            Self::Own(field) => (field.set)(own, text),
        }
    }
}

/// The options of an experiment, in the order of its help text: groups of `Common [NAMES]`, from
/// [`crate::shared`], and of `Own [NAMES]`.
#[macro_export]
macro_rules! choices {
    ($($kind:ident [$($name:ident)+])+) => {
        &[$($($crate::Choice::$kind(&$name)),+),+]
    };
}

/// A field that is one of the words of an enumeration, as [`words!`](crate::words) declares it.
#[macro_export]
macro_rules! word_field {
    ($name:literal, $letter:expr, $kind:ident, $field:ident, $help:literal) => {
        $crate::Field {
            opt: $crate::Opt {
                name: $name,
                letter: $letter,
                value_name: "WORD",
                unit: "",
                help: $help,
                is_number: false,
                words: $kind::WORDS,
                bare: None,
            },
            get: |p| p.$field.to_string(),
            set: |p, text| text.parse().map(|value| p.$field = value),
        }
    };
}

/// A field that is a number from `$from` to `$to`.
#[macro_export]
macro_rules! number_field {
    (
        $name:literal, $letter:expr, $field:ident: $type:ty, $from:literal..=$to:expr,
        $value:literal, $unit:literal, $help:literal
    ) => {
        $crate::Field {
            opt: $crate::Opt {
                name: $name,
                letter: $letter,
                value_name: $value,
                unit: $unit,
                help: $help,
                is_number: true,
                words: &[],
                bare: None,
            },
            get: |p| p.$field.to_string(),
            set: |p, text| {
                let value = $crate::within(text, $unit, $from, u64::from($to))?;
                p.$field = <$type>::try_from(value).map_err(|e| e.to_string())?;
                Ok(())
            },
        }
    };
}

/// A field of type `bool`, written as yes or no.
#[macro_export]
macro_rules! yes_no_field {
    ($name:literal, $letter:expr, $field:ident, $help:literal) => {
        $crate::Field {
            opt: $crate::Opt {
                name: $name,
                letter: $letter,
                value_name: "YES|NO",
                unit: "",
                help: $help,
                is_number: false,
                words: &["yes", "no"],
                bare: $crate::Opt::bare_yes($letter),
            },
            get: |p| if p.$field { "yes" } else { "no" }.to_owned(),
            set: |p, text| {
                p.$field = match text {
                    "yes" | "on" => true,
                    "no" | "off" => false,
                    other => return Err($crate::no_such("answer", other, &["yes", "no"])),
                };
                Ok(())
            },
        }
    };
}

pub(crate) use {choices, number_field, word_field, yes_no_field};

/// Upper bound of every count; [`crate::check`] bounds the product of several counts.
pub(crate) const COUNT_MAX: u64 = 1 << 40;

/// A number within its bounds. Its unit decides which letters may follow its digits.
///
/// # Errors
/// What is wrong with the text, or the bounds.
pub fn within(text: &str, unit: &str, from: u64, to: u64) -> Result<u64, String> {
    let value = number::parse(text, Kind::of(unit))?;
    if (from..=to).contains(&value) {
        return Ok(value);
    }
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    Err(format!("{text} is out of range: from {from} to {to}{unit}"))
}

/// A number from 1 on that fits 32 bits, or `word` instead of 0.
pub(crate) fn count_or(text: &str, word: &str, most: u64) -> Result<u32, String> {
    if text == word {
        return Ok(0);
    }
    let count = within(text, "", 1, most).map_err(|e| format!("{e}; or {word}"))?;
    u32::try_from(count).map_err(|e| e.to_string())
}
