//! What a point changes of a simulated adapter: its link (`--link`) and parameters (`--sim`).

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::common::words::words;

/// The value that changes nothing.
const PROFILE: &str = "profile";
/// Between two changes.
const AND: char = ';';

/// Most bytes of the text of all changes.
const MAX_BYTES: usize = 120;

words! {
    /// The link of simulated adapters.
    Link, "link" {
        /// That of the profile.
        Profile = "profile",
        /// InfiniBand SDR, 4x: 8 Gb/s of data.
        Sdr = "sdr",
        /// InfiniBand DDR, 4x: 16 Gb/s.
        Ddr = "ddr",
        /// InfiniBand QDR, 4x: 32 Gb/s.
        Qdr = "qdr",
        /// InfiniBand FDR, 4x: 54.5 Gb/s.
        Fdr = "fdr",
        /// InfiniBand EDR, 4x: 100 Gb/s.
        Edr = "edr",
        /// InfiniBand HDR, 4x: 200 Gb/s.
        Hdr = "hdr",
        /// RoCE over Ethernet of 10 Gb/s.
        Roce10 = "roce10",
    }
}

/// Changes of a model: its link, and parameters as `bus_read_ns=500;blue_flame=0`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Its link.
    pub link: Link,
    text: [u8; MAX_BYTES],
    length: usize,
}

impl Model {
    /// The model as its profile has it.
    pub const OF_PROFILE: Model = Model { link: Link::Profile, text: [0; MAX_BYTES], length: 0 };

    /// The same with another link.
    #[must_use]
    pub const fn with_link(self, link: Link) -> Model {
        Model { link, ..self }
    }

    /// Whether it changes no parameter besides the link.
    #[must_use]
    pub const fn is_of_profile(self) -> bool {
        self.length == 0
    }

    /// The changes: names of parameters and values.
    pub fn changes(&self) -> impl Iterator<Item = (&str, f64)> {
        let change = |part| {
            let part: &str = part;
            let (name, number) = part.split_once('=')?;
            Some((name, number.parse().ok()?))
        };
        self.text().split(AND).filter_map(change)
    }

    fn text(&self) -> &str {
        // Only whole texts are stored.
        str::from_utf8(&self.text[..self.length]).unwrap_or_default()
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_of_profile() { PROFILE } else { self.text() })
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Model, String> {
        if text == PROFILE {
            return Ok(Model::OF_PROFILE);
        }
        let mut parts = Vec::new();
        for part in text.split(AND) {
            let wrong = || {
                format!("{part:?} does not change a parameter: write NAME=NUMBER, or ablate alone")
            };
            let (name, number) = part.split_once('=').ok_or_else(wrong)?;
            let number: f64 = number.trim().parse().map_err(|_| wrong())?;
            if name.trim().is_empty() || !number.is_finite() {
                return Err(wrong());
            }
            parts.push(format!("{}={number}", name.trim()));
        }
        let text = parts.join(";");
        let mut model = Model { length: text.len(), ..Model::OF_PROFILE };
        let place = model.text.get_mut(..text.len()).ok_or_else(|| {
            format!(
                "the changes take {} bytes; the limit is {MAX_BYTES}: write them into a profile",
                text.len()
            )
        })?;
        place.copy_from_slice(text.as_bytes());
        Ok(model)
    }
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.link, self.to_string()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Model, D::Error> {
        let (link, text) = <(Link, String)>::deserialize(deserializer)?;
        Ok(Model { link, ..text.parse().map_err(D::Error::custom)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_and_written() {
        let model: Model = "bus_read_ns=500; blue_flame = 0".parse().unwrap();
        assert_eq!(model.to_string(), "bus_read_ns=500;blue_flame=0");
        let all: Vec<_> = model.changes().collect();
        assert_eq!(all, [("bus_read_ns", 500.0), ("blue_flame", 0.0)]);
        assert_eq!(model.to_string().parse(), Ok(model));
        assert_eq!("profile".parse(), Ok(Model::OF_PROFILE));
        assert_eq!(Model::OF_PROFILE.to_string(), "profile");
        let long = format!("{}=1", "a".repeat(MAX_BYTES));
        assert!(long.parse::<Model>().unwrap_err().contains("limit is 120"));
        for wrong in ["", "a", "a=", "=1", "a=b", "a=inf", "a=1;"] {
            assert!(wrong.parse::<Model>().is_err(), "{wrong}");
        }
    }
}
