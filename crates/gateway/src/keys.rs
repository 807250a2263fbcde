//! Keys that nodes have in common, and signals.

use rdmalab_config::{At, ConfigError, Findings, FromValue, Kind as Form, Value as Tree, group};
use rdmalab_sample::{Kind, Signal, Value};
use serde_json::json;

use crate::hooks::HookChoice;

/// The most values of a sample.
pub const VALUES_MAX: usize = 512;
/// The most samples that a node reads or writes at a time.
pub const VECTORIZE_MAX: usize = 64;

group! {
    /// Keys that every node has.
    pub struct NodeCommon {
        /// Whether there is such a node.
        enabled: bool = true;
        /// Stamps and numbers samples that lack it.
        builtin: bool = true;
    }
    ignored {
        uuid: "nothing refers to it";
        tags: "nothing refers to it";
        location: "nothing refers to it";
        initial_sequenceno: "samples without a number are numbered from 0";
    }
}

group! {
    /// Keys of a node that reads.
    pub struct Half {
        /// Whether the node reads.
        enabled: bool = true;
        /// The hooks that its samples go through.
        hooks: Vec<At<HookChoice>> = Vec::new();
        /// Stamps and numbers samples that lack it.
        builtin: bool = true;
    }
    ignored {
        vectorize: "samples are handed over as they come";
    }
}

group! {
    /// Keys of a node that reads samples of configured signals.
    pub struct InCommon with (half: Half) {
        /// The signals of its samples.
        signals: Option<Signals>;
    }
}

group! {
    /// Keys of a node that writes.
    pub struct OutCommon {
        /// Whether the node writes.
        enabled: bool = true;
        /// The hooks that its samples go through.
        hooks: Vec<At<HookChoice>> = Vec::new();
    }
    ignored {
        signals: "those of written samples follow from the path";
        vectorize: "samples are written one at a time";
        builtin: "samples are stamped and numbered where they are read";
        fwmark: "packets are not marked";
    }
    refused {
        netem: "use tc-netem(8) on the interface";
    }
}

group! {
    /// One signal.
    struct OneSignal {
        /// Its name.
        name: String = String::new();
        /// Its unit.
        unit: String = String::new();
        /// Its type.
        r#type: KindName = KindName(Kind::Float);
        /// Its value until one comes.
        init: f64 = 0.0;
        /// Whether it is there.
        enabled: bool = true;
    }
}

group! {
    /// Signals that are alike.
    struct Alike {
        /// How many.
        count: usize, in 1..=512;
        /// Their type.
        r#type: KindName = KindName(Kind::Float);
        /// Their unit.
        unit: String = String::new();
        /// Their value until one comes.
        init: f64 = 0.0;
    }
}

/// The type of a signal in a configuration.
#[derive(Clone, Copy, Debug)]
struct KindName(Kind);

impl FromValue for KindName {
    fn from_value(value: &Tree, key: &str, findings: &mut Findings) -> Option<Self> {
        let names = Kind::ALL.map(|kind| (kind.name(), Self(kind)));
        rdmalab_config::choice(value, key, &names, findings)
    }

    fn expected() -> String {
        "\"float\", \"integer\", \"boolean\" or \"complex\"".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({ "enum": Kind::ALL.map(Kind::name) })
    }

    fn shown(&self) -> serde_json::Value {
        self.0.name().into()
    }
}

/// The signals of a node: a list, `{ count = 8, type = "float" }`, or types such as `"2f3i"`.
#[derive(Clone, Debug)]
pub struct Signals(pub Vec<Signal>);

impl FromValue for Signals {
    fn from_value(value: &Tree, key: &str, findings: &mut Findings) -> Option<Self> {
        let signals = match &value.kind {
            Form::Text(types) => match Signal::list(types) {
                Ok(signals) => signals,
                Err(why) => {
                    findings.error(ConfigError::new(&value.at, why.to_string()));
                    return None;
                }
            },
            Form::Group(_) => {
                let alike = Alike::from_value(value, key, findings)?;
                let mut signals = Signal::numbered(alike.count, alike.r#type.0);
                for signal in &mut signals {
                    signal.unit.clone_from(&alike.unit);
                    signal.init = initial(signal.kind, alike.init);
                }
                signals
            }
            _ => {
                let listed = Vec::<OneSignal>::from_value(value, key, findings)?;
                let enabled = listed.into_iter().filter(|one| one.enabled).enumerate();
                let signal = |(at, one): (usize, OneSignal)| {
                    let name = if one.name.is_empty() { format!("signal{at}") } else { one.name };
                    let kind = one.r#type.0;
                    Signal {
                        unit: one.unit,
                        init: initial(kind, one.init),
                        ..Signal::new(name, kind)
                    }
                };
                enabled.map(signal).collect()
            }
        };
        if signals.len() > VALUES_MAX {
            let what = format!("{key} has {} signals", signals.len());
            findings
                .error(ConfigError::new(&value.at, what).right(format!("at most {VALUES_MAX}")));
            return None;
        }
        Some(Self(signals))
    }

    fn expected() -> String {
        "a list of signals, { count, type }, or types such as \"2f3i\"".to_owned()
    }

    fn schema() -> serde_json::Value {
        json!({ "anyOf": [
            Vec::<OneSignal>::schema(), Alike::schema(), { "type": "string" },
        ] })
    }
}

/// A number of a configuration as the first value of a signal.
fn initial(kind: Kind, number: f64) -> Value {
    Value::from_float(number).cast(Kind::Float, kind)
}

/// Signals as configured; else 64 floats, as VILLASnode has them.
#[must_use]
pub fn signals_or_default(configured: Option<&InCommon>) -> Vec<Signal> {
    let signals = configured.and_then(|half| half.signals.as_ref()).map(|all| all.0.clone());
    signals.unwrap_or_else(|| Signal::numbered(64, Kind::Float))
}
