//! The formats, each in a file.

pub mod csv;
pub mod json;
mod lines;
pub mod raw;
pub mod rdmalab_binary;
pub mod villas_binary;
pub mod villas_human;

use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::option_error::OptionError;

/// A format and its options, as the key `format` of a configuration names them: either a string
/// with the name, see [`FormatOptions::named`], or an object with the member `type` and the
/// options.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum FormatOptions {
    /// `villas.binary`
    #[serde(rename = "villas.binary")]
    VillasBinary(villas_binary::Options),
    /// `villas.human`
    #[serde(rename = "villas.human")]
    VillasHuman(villas_human::Options),
    /// `csv`
    #[serde(rename = "csv")]
    Csv(csv::Options),
    /// `tsv`
    #[serde(rename = "tsv")]
    Tsv(csv::Options),
    /// `json`
    #[serde(rename = "json")]
    Json(json::Options),
    /// `raw`
    #[serde(rename = "raw")]
    Raw(raw::Options),
    /// `gtnet`
    #[serde(rename = "gtnet")]
    Gtnet(raw::Options),
    /// `rdmalab.binary`
    #[serde(rename = "rdmalab.binary")]
    RdmalabBinary {},
}

/// The key `format` of a configuration: a name, or an object with `type` and options.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub struct FormatKey(pub FormatOptions);

impl TryFrom<serde_json::Value> for FormatKey {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        let Some(name) = value.as_str() else {
            return serde_json::from_value(value).map(Self).map_err(|error| error.to_string());
        };
        let names = FormatOptions::NAMES.join(", ");
        FormatOptions::named(name).map(Self).ok_or_else(|| format!("`{name}` is none of {names}"))
    }
}

impl FormatOptions {
    /// The names of all formats.
    pub const NAMES: [&str; 8] =
        ["villas.binary", "villas.human", "csv", "tsv", "json", "raw", "gtnet", "rdmalab.binary"];

    /// The format of this name with the options that it has unless others are given.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "villas.binary" => Self::VillasBinary(villas_binary::Options::default()),
            "villas.human" => Self::VillasHuman(villas_human::Options::default()),
            "csv" => Self::Csv(csv::Options::default()),
            "tsv" => Self::Tsv(csv::Options::default()),
            "json" => Self::Json(json::Options::default()),
            "raw" => Self::Raw(raw::Options::default()),
            "gtnet" => Self::Gtnet(raw::Options::default()),
            "rdmalab.binary" => Self::RdmalabBinary {},
            _ => return None,
        })
    }

    /// The format itself.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn build(self) -> Result<Box<dyn Format>, OptionError> {
        Ok(match self {
            Self::VillasBinary(options) => Box::new(villas_binary::VillasBinary::new(options)),
            Self::VillasHuman(options) => Box::new(villas_human::VillasHuman::new(options)?),
            Self::Csv(options) => Box::new(csv::Csv::new(options)?),
            Self::Tsv(options) => Box::new(csv::Csv::tabs(options)?),
            Self::Json(options) => Box::new(json::JsonFormat::new(options)?),
            Self::Raw(options) => Box::new(raw::Raw::new(options)?),
            Self::Gtnet(options) => Box::new(raw::Raw::gtnet(options)?),
            Self::RdmalabBinary {} => Box::new(rdmalab_binary::RdmalabBinary),
        })
    }
}
