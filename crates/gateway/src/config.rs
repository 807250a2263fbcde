//! The configuration of a gateway: VILLASnode's keys, with its defaults.

use rdmalab_config::{
    At, ConfigError, Findings, FromValue, Kind as Form, Named, OneOrMany, Value as Tree, group,
    one_of,
};
use rdmalab_sample::{Kind, Signal, Value};
use serde_json::json;

use crate::nodes::NodeConfig;
use crate::queue::Overflow;

/// The most values of a sample.
pub const VALUES_MAX: usize = 512;
/// The most samples that a node reads or writes at a time.
pub const VECTORIZE_MAX: usize = 64;

group! {
    /// A gateway: its nodes, and the paths between them.
    pub struct Gateway {
        /// The nodes by their names.
        nodes: Named<NodeConfig>;
        /// The paths, each with a thread of its own.
        paths: Vec<PathConfig>;
        /// The processors that threads may run on, as bits.
        affinity: Option<u64>;
        /// The priority of threads under SCHED_FIFO.
        priority: Option<u8>, in 1..=99;
        /// More than 0 locks the memory of the process. No page is taken from the system's pool.
        hugepages: u64 = 0;
        /// How timers wait, unless the node says so itself.
        timer: Timers = Timers::Timerfd;
    }
    ignored {
        http: "there is no web server; `--metrics` shows numbers";
        logging: "messages go to standard error";
        stats: "the summary has all statistics";
        uuid: "nothing refers to it";
        name: "nothing refers to it";
        description: "it is for people";
        idle_stop: "the gateway ends when all sources have ended";
    }
}

one_of! {
    /// How timers wait.
    pub enum Timers {
        /// In the kernel.
        Timerfd = "timerfd";
        /// By reading the processor's counter, which takes a processor.
        Tsc = "tsc";
    }
}

one_of! {
    /// When a path with several sources makes a sample.
    pub enum Mode {
        /// When any source has one.
        Any = "any";
        /// When all sources have one.
        All = "all";
    }
}

group! {
    /// A path from sources to destinations.
    pub struct PathConfig {
        /// The sources, or expressions of mapping such as `a.data[0-2]`.
        r#in: OneOrMany<At<String>>;
        /// The destinations.
        out: Option<OneOrMany<At<String>>>;
        /// The hooks, in their order.
        hooks: Vec<Tree> = Vec::new();
        /// When several sources make a sample.
        mode: Mode = Mode::Any;
        /// The sources whose samples count for the mode.
        mask: Option<Vec<At<String>>>;
        /// Sends the last sample again at this rate [Hz], and only then.
        rate: f64 = 0.0, in 0.0..=1e9;
        /// Waits for all sources at a time, also if there is only one.
        poll: Option<bool>;
        /// Samples that wait at most where threads meet.
        queuelen: usize = 1024, in 1..=16_777_216;
        /// Which sample a full queue drops.
        overflow: Overflow = Overflow::Newest;
        /// Keeps the numbers of the source; the default if there is one source.
        original_sequence_no: Option<bool>;
        /// Makes the path in the other direction too.
        reverse: bool = false;
        /// Waits so long for destinations to be connected before the first sample [s].
        connect_wait: f64 = 1.0, in 0.0..=1e6;
        /// Stamps and numbers samples that lack it.
        builtin: bool = true;
        /// Whether there is such a path.
        enabled: bool = true;
        /// The processors that its thread may run on, as bits.
        affinity: Option<u64>;
        /// The priority of its thread under SCHED_FIFO.
        priority: Option<u8>, in 1..=99;
    }
    ignored {
        uuid: "nothing refers to it";
    }
}

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
    }
}

group! {
    /// Keys of a node that reads.
    pub struct InCommon {
        /// The signals of its samples.
        signals: Option<Signals>;
        /// The hooks that its samples go through.
        hooks: Vec<Tree> = Vec::new();
        /// Samples that are read at a time.
        vectorize: usize = 1, in 1..=64;
        /// Stamps and numbers samples that lack it.
        builtin: bool = true;
    }
}

group! {
    /// Keys of a node that writes.
    pub struct OutCommon {
        /// The signals of its samples, which follow from the path.
        signals: Option<Signals>;
        /// The hooks that its samples go through.
        hooks: Vec<Tree> = Vec::new();
        /// Samples that are written at a time.
        vectorize: usize = 1, in 1..=64;
        /// As for reading.
        builtin: bool = true;
    }
    ignored {
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
pub fn signals_or_default(configured: &InCommon) -> Vec<Signal> {
    let signals = configured.signals.as_ref().map(|signals| signals.0.clone());
    signals.unwrap_or_else(|| Signal::numbered(64, Kind::Float))
}
