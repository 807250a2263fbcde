//! `record.json`: what the user asked for, and the device.

use std::fmt;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// What the numbers of a device describe. Reports never show numbers of one kind as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// An adapter, or a driver of the kernel, through the system's libibverbs.
    System,
    /// The soft RNIC: numbers of this host, not of an adapter.
    Soft,
    /// The simulator: numbers of a model, not of an adapter.
    Sim,
}

impl DeviceKind {
    /// The word in `record.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Soft => "soft",
            Self::Sim => "sim",
        }
    }

    /// What a reader has to know about the numbers; `None` for those of a real adapter or driver.
    #[must_use]
    pub const fn caution(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Soft => Some("numbers of this host, not of an adapter"),
            Self::Sim => Some("numbers of a model, not of an adapter"),
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The device that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name, such as `mlx5_0` or `soft0`.
    pub name: String,
    /// What its numbers describe.
    pub kind: DeviceKind,
    /// The device's profile; `None`: no profile. Since version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

impl Device {
    /// A device without a profile.
    #[must_use]
    pub fn new(name: &str, kind: DeviceKind) -> Self {
        Self { name: name.to_owned(), kind, profile: None }
    }

    /// The name with the profile, for titles: `soft0 under late-ack`.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.profile {
            None => self.name.clone(),
            Some(profile) => format!("{} under {profile}", self.name),
        }
    }

    /// The text in brackets behind the device's name: `soft, profile late-ack: numbers of this
    /// host, not of an adapter`.
    #[must_use]
    pub fn described(&self) -> String {
        let profile = self.profile.as_ref().map(|profile| format!(", profile {profile}"));
        let caution = self.kind.caution().map(|caution| format!(": {caution}"));
        format!("{}{}{}", self.kind, profile.unwrap_or_default(), caution.unwrap_or_default())
    }
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// The version of the schema.
    pub schema_version: u32,
    /// The version of the program that wrote it.
    pub program_version: String,
    /// The experiment.
    pub experiment: String,
    /// The command, argument by argument, as it was given.
    pub command: Vec<String>,
    /// The device.
    pub device: Device,
    /// The seed of the points' order and of all random choices.
    pub seed: u64,
    /// Number of planned points, repetitions included.
    pub planned_points: u64,
    /// When it began, as RFC 3339 in UTC.
    pub started_utc: String,
    /// The user's label for the conditions of the run. Comparisons and studies set records side by
    /// side by their labels. Since version 2.
    #[serde(default)]
    pub condition: Option<String>,
    /// The limit of the exit latency of the processor's idle states during the run; `None`: no
    /// limit was set. Since version 2.
    #[serde(default)]
    pub held_dma_latency_us: Option<u32>,
}

impl Header {
    /// The host of the other end: what follows the name of the experiment, as in `run ping HOST`.
    #[must_use]
    pub fn other_end(&self) -> Option<&str> {
        let host = self.command.iter().skip_while(|word| *word != "run").nth(2);
        host.map(String::as_str).filter(|word| !word.starts_with('-'))
    }

    /// The value of an option of the command: of `--NAME VALUE` or `--NAME=VALUE`.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let of = |(at, word): (usize, &'_ String)| {
            let is_it = |rest: &str| rest.strip_prefix(name).map(str::len);
            let left = is_it(word.strip_prefix("--")?)?;
            match &word[word.len() - left..] {
                "" => self.command.get(at + 1).map(String::as_str),
                _ => self.command[at][word.len() - left..].strip_prefix('='),
            }
        };
        self.command.iter().enumerate().find_map(of)
    }

    /// A header of this version for a run that begins now.
    #[must_use]
    pub fn new(experiment: &str, command: Vec<String>, device: Device) -> Self {
        Self {
            schema: crate::SCHEMA.to_owned(),
            schema_version: crate::SCHEMA_VERSION,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: experiment.to_owned(),
            command,
            device,
            seed: 0,
            planned_points: 0,
            started_utc: utc(SystemTime::now()),
            condition: None,
            held_dma_latency_us: None,
        }
    }
}

/// A time as RFC 3339 in UTC, to the millisecond.
#[must_use]
pub fn utc(time: SystemTime) -> String {
    // RFC 3339 has no form for times before 1970; a clock that shows one is wrong anyway.
    humantime::format_rfc3339_millis(time.max(SystemTime::UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_a_part_of_the_device() {
        let plain = Device::new("soft0", DeviceKind::Soft);
        let under = Device { profile: Some("late-ack".to_owned()), ..plain.clone() };
        assert_ne!(plain, under);
        assert_eq!((plain.title(), under.title()), ("soft0".into(), "soft0 under late-ack".into()));
        let said = "soft, profile late-ack: numbers of this host, not of an adapter";
        assert_eq!(under.described(), said);
        assert_eq!(Device::new("mlx5_0", DeviceKind::System).described(), "system");
        // Older records have no profile, and a new record without a profile looks like them.
        let text = r#"{"name":"soft0","kind":"soft"}"#;
        assert_eq!(serde_json::from_str::<Device>(text).unwrap(), plain);
        assert_eq!(serde_json::to_string(&plain).unwrap(), text);
    }

    #[test]
    fn where_it_ran_is_read_from_the_command() {
        let header = |text: &str| {
            let command = text.split(' ').map(str::to_owned).collect();
            let device = Device { name: "soft0".to_owned(), kind: DeviceKind::Soft, profile: None };
            Header::new("ping", command, device)
        };
        let one = header("/bin/rdmalab run ping far:99 --cores 1,2 --hosts=a,b --interface eth0");
        assert_eq!(one.other_end(), Some("far:99"));
        let of = |name| one.option(name);
        assert_eq!(
            [of("cores"), of("hosts"), of("interface")],
            [Some("1,2"), Some("a,b"), Some("eth0")]
        );
        assert_eq!((of("ranks"), of("host")), (None, None));
        for other in ["rdmalab run ping", "rdmalab run ping --size 8", "rdmalab run", "x --cores"] {
            let other = header(other);
            assert_eq!((other.other_end(), other.option("cores")), (None, None));
        }
    }
}
