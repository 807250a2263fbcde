//! The signals that a hook treats.

use serde::{Deserialize, Serialize};

use crate::option_error::OptionError;
use crate::signal::Signal;

/// A signal, by name or by number from 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SignalKey {
    /// The number of the signal.
    Index(usize),
    /// The name of the signal.
    Name(String),
}

/// The numbers of the signals that the keys `signal` and `signals` name.
pub(super) fn select(
    one: Option<SignalKey>,
    several: Vec<SignalKey>,
    signals: &[Signal],
) -> Result<Vec<usize>, OptionError> {
    let key = if several.is_empty() { "signal" } else { "signals" };
    let wanted: Vec<SignalKey> = one.into_iter().chain(several).collect();
    if wanted.is_empty() {
        return Err(OptionError::new("signals", "must name a signal"));
    }
    let index = |wanted: &SignalKey| match wanted {
        SignalKey::Index(index) if *index < signals.len() => Ok(*index),
        SignalKey::Index(index) => {
            Err(OptionError::new(key, format!("{index}: there are {} signals", signals.len())))
        }
        SignalKey::Name(name) => {
            signals.iter().position(|signal| signal.name == *name).ok_or_else(|| {
                let names: Vec<&str> = signals.iter().map(|signal| signal.name.as_str()).collect();
                OptionError::new(key, format!("`{name}` is none of {}", names.join(", ")))
            })
        }
    };
    wanted.iter().map(index).collect()
}
