//! Device profiles as data: the limits that a soft device enforces, the costs that it adds, and the
//! way of sending that is best on it for that reason. Some have the behaviour of an adapter around
//! time-outs and page faults instead ([`Adapter`]).
//!
//! A profile is a TOML file. The shipped ones are in `profiles/` at the root of the repository and
//! are compiled into the program; others are named by their path. No profile imitates an adapter as
//! a whole: it has one or two costs of adapters, and says which costs it leaves out.
#![forbid(unsafe_code)]

mod adapter;
mod find;
mod limits;
mod parse;
mod shipped;

pub use adapter::Adapter;
pub use find::{MAX_FILE_BYTES, find, is_path};
pub use limits::Limits;
pub use parse::{Error, MAX_RULES};
pub use shipped::{IDEAL, SHIPPED};

/// A device profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name. It is shown beside each number that is measured under the profile.
    pub name: String,
    /// What the profile is, in one line.
    pub title: String,
    /// The property of adapters that it imitates.
    pub imitates: String,
    /// The properties of adapters that it leaves out.
    pub lacks: String,
    /// The source for the imitated property; empty if the property is made up.
    pub source: String,
    /// The limits of a device under this profile.
    pub limits: Limits,
    /// The limits that the file sets: name and number.
    pub lowered: Vec<(&'static str, u32)>,
    /// What the device does around time-outs and page faults.
    pub adapter: Adapter,
    /// Fault rules, one in each string: the costs of packets.
    pub rules: Vec<String>,
    /// The ways of sending that are best under this profile, by construction.
    pub optima: Vec<Optimum>,
}

/// One way of sending that is best, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimum {
    /// The question, as `rdmalab advise --ask` names it.
    pub ask: String,
    /// The goal, as `rdmalab advise --for` names it.
    pub goal: String,
    /// The best way; empty if several are equally good.
    pub best: String,
    /// Ways that are worse.
    pub worse: Vec<String>,
    /// The reason.
    pub because: String,
}

impl Profile {
    /// Whether the profile changes nothing: results under it need no label.
    #[must_use]
    pub fn is_ideal(&self) -> bool {
        self.rules.is_empty() && self.lowered.is_empty() && self.adapter == Adapter::default()
    }

    /// The effect of the profile in one line: its limits, its rules, and its adapter.
    #[must_use]
    pub fn does(&self) -> String {
        let limits = self.lowered.iter().map(|(name, number)| format!("{name} {number}"));
        let usual = Adapter::default().values();
        let adapter =
            self.adapter.values().into_iter().zip(usual).filter(|(own, usual)| own != usual);
        let adapter = adapter.map(|((name, value), _)| format!("{name} {value}"));
        let all = limits.chain(self.rules.iter().cloned()).chain(adapter);
        all.collect::<Vec<_>>().join("; ")
    }
}
