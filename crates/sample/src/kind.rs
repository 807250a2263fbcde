use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The type of a signal's values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A double-precision number, `float` in a configuration.
    #[default]
    Float,
    /// A signed number of 64 bits, `integer`.
    Integer,
    /// `boolean`.
    Boolean,
    /// Two single-precision numbers, `complex`.
    Complex,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Float, Self::Integer, Self::Boolean, Self::Complex];

    /// The name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Complex => "complex",
        }
    }

    /// The letter in a list of types such as `2f3ib`.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Float => 'f',
            Self::Integer => 'i',
            Self::Boolean => 'b',
            Self::Complex => 'c',
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownKind(format!("`{name}` is no type of a signal")))
    }
}

/// A name or list that gives no types of signals; its text says which do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownKind(pub(crate) String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; float (f), integer (i), boolean (b) and complex (c) are", self.0)
    }
}

impl std::error::Error for UnknownKind {}
