use std::fmt;

/// An option of a format or hook whose value is of the right type, but not possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    key: String,
    what: String,
}

impl OptionError {
    /// The error `what` of the option `key`.
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }

    /// The value of the option `key`, which has no default.
    pub(crate) fn given<T>(key: &str, value: Option<T>) -> Result<T, Self> {
        value.ok_or_else(|| Self::new(key, "must be given"))
    }

    /// The key of the option in a configuration.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.key, self.what)
    }
}

impl std::error::Error for OptionError {}
