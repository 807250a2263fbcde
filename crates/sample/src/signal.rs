use crate::kind::{Kind, UnknownKind};
use crate::value::Value;

/// One of the signals of which a sample holds a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signal {
    /// The name, which may be empty.
    pub name: String,
    /// The unit, which may be empty.
    pub unit: String,
    /// The type of its values.
    pub kind: Kind,
    /// The value until one is known.
    pub init: Value,
}

/// The most signals of a list of types: as many values as a frame of any format can count.
const MAX_SIGNALS: usize = 65_535;

impl Signal {
    /// A signal without unit, whose first value is 0.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), unit: String::new(), kind, init: Value::default() }
    }

    /// `count` signals of one kind, named `signal0`, `signal1` and so on.
    #[must_use]
    pub fn numbered(count: usize, kind: Kind) -> Vec<Self> {
        (0..count).map(|i| Self::new(format!("signal{i}"), kind)).collect()
    }

    /// The signals of a list of types, such as `2f3ib`: two floats, three integers, one boolean.
    /// They are named as by [`Signal::numbered`].
    ///
    /// # Errors
    /// An empty list, an unknown letter, a number without a letter, or more than 65 535 signals.
    pub fn list(types: &str) -> Result<Vec<Self>, UnknownKind> {
        let wrong = |what: &str| UnknownKind(format!("`{types}` {what}"));
        let (mut signals, mut rest) = (Vec::new(), types);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, tail) = rest.split_at(digits);
            let mut letters = tail.chars();
            let letter = letters.next().ok_or_else(|| wrong("ends with a number"))?;
            let kind = Kind::ALL.into_iter().find(|kind| kind.letter() == letter);
            let kind = kind.ok_or_else(|| wrong(&format!("has the unknown type `{letter}`")))?;
            let count = if number.is_empty() { Some(1) } else { number.parse().ok() };
            let count = count.filter(|n| signals.len().saturating_add(*n) <= MAX_SIGNALS);
            let count = count.ok_or_else(|| wrong("has more than 65535 signals"))?;
            let first = signals.len();
            signals.extend((first..first + count).map(|i| Self::new(format!("signal{i}"), kind)));
            rest = letters.as_str();
        }
        if signals.is_empty() { Err(wrong("has no signal")) } else { Ok(signals) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_types_counts_and_names() {
        let signals = Signal::list("2f3ibc").unwrap();
        let letters: String = signals.iter().map(|s| s.kind.letter()).collect();
        assert_eq!((letters.as_str(), signals[6].name.as_str()), ("ffiiibc", "signal6"));
        assert_eq!(Signal::list("65535f").unwrap().len(), 65_535);
    }

    #[test]
    fn a_wrong_list_says_what_is_wrong() {
        for (types, what) in [
            ("3x", "unknown type `x`"),
            ("2", "ends with a number"),
            ("", "has no signal"),
            ("65536f", "more than"),
            ("99999999999999999999f", "more than"),
        ] {
            let error = Signal::list(types).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("complex (c)"), "{error}");
        }
        assert_eq!("boolean".parse(), Ok(Kind::Boolean));
        assert!("bool".parse::<Kind>().is_err());
    }
}
