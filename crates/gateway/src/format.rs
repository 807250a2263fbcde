//! The key `format` of a node: a name, or a group with `type` and options.

use rdmalab_config::{BySerde, ConfigError, Findings, FromValue, Value, group, serde_json, tagged};
use rdmalab_sample::formats::{csv, json, raw, villas_binary, villas_human};
use rdmalab_sample::{Format, FormatOptions};

/// Why formats of VILLASnode are missing.
const OTHERS: &str = "choose villas.binary, villas.human, csv, tsv, json, raw, gtnet or \
    rdmalab.binary";

group! {
    /// No options.
    pub struct NoOptions {}
}

tagged! {
    /// How samples are represented as bytes.
    pub enum FormatKeys by "type" {
        /// A header of 16 bytes, and 4 bytes for each value.
        VillasBinary(BySerde<villas_binary::Options>) = "villas.binary";
        /// A line for each sample, `seconds.nanoseconds+offset(sequence)` and the values.
        VillasHuman(BySerde<villas_human::Options>) = "villas.human";
        /// A line for each sample, with commas.
        Csv(BySerde<csv::Options>) = "csv";
        /// A line for each sample, with tabs.
        Tsv(BySerde<csv::Options>) = "tsv";
        /// An object for each sample.
        Json(BySerde<json::Options>) = "json";
        /// The values alone, each of a fixed width.
        Raw(BySerde<raw::Options>) = "raw";
        /// The same as RTDS sends it.
        Gtnet(BySerde<raw::Options>) = "gtnet";
        /// All that a sample has, without loss.
        RdmalabBinary(NoOptions) = "rdmalab.binary";
    }
    refused {
        "villas.web" => OTHERS;
        "json.kafka" => OTHERS;
        "json.reserve" => OTHERS;
        "json.edgeflex" => OTHERS;
        "iotagent_ul" => OTHERS;
        "opal.asyncip" => OTHERS;
        "protobuf" => OTHERS;
        "value" => OTHERS;
    }
}

impl FormatKeys {
    fn options(self) -> FormatOptions {
        match self {
            Self::VillasBinary(keys) => FormatOptions::VillasBinary(keys.0),
            Self::VillasHuman(keys) => FormatOptions::VillasHuman(keys.0),
            Self::Csv(keys) => FormatOptions::Csv(keys.0),
            Self::Tsv(keys) => FormatOptions::Tsv(keys.0),
            Self::Json(keys) => FormatOptions::Json(keys.0),
            Self::Raw(keys) => FormatOptions::Raw(keys.0),
            Self::Gtnet(keys) => FormatOptions::Gtnet(keys.0),
            Self::RdmalabBinary(_) => FormatOptions::RdmalabBinary {},
        }
    }
}

/// A format as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatChoice(pub FormatOptions);

impl FormatChoice {
    /// The format of this name, with its defaults.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(FormatOptions::named(name).unwrap_or_else(|| panic!("there is no format {name}")))
    }

    /// The format itself.
    ///
    /// # Panics
    /// Never: reading has checked it.
    #[must_use]
    pub fn build(&self) -> Box<dyn Format> {
        self.0.clone().build().unwrap_or_else(|why| panic!("a checked format: {why}"))
    }
}

impl FromValue for FormatChoice {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        let options = FormatKeys::from_value(value, key, findings)?.options();
        match options.clone().build() {
            Ok(_) => Some(Self(options)),
            Err(error) => {
                let at = &value.get(error.key()).unwrap_or(value).at;
                findings.error(ConfigError::new(at, error.to_string()));
                None
            }
        }
    }

    fn expected() -> String {
        FormatKeys::expected()
    }

    fn schema() -> serde_json::Value {
        FormatKeys::schema()
    }
}
