//! The key `hooks` of nodes and paths: a list of groups with the `type` of a hook and its options.

use rdmalab_config::{At, ConfigError, Entry, Findings, FromValue, Kind, Position, Value};
use rdmalab_sample::{Hook, HookOptions, SampleMut, Signal, Verdict};
use serde_json::{Map, json};

use crate::node::{Log, wall_time};

/// The place of a hook that says none: hooks run by rising numbers.
const PRIORITY: i64 = 99;

/// A hook as configured.
#[derive(Clone, Debug)]
pub struct HookChoice {
    options: HookOptions,
    priority: i64,
    is_enabled: bool,
}

impl FromValue for HookChoice {
    fn from_value(value: &Value, key: &str, findings: &mut Findings) -> Option<Self> {
        let Kind::Group(entries) = &value.kind else {
            let error = ConfigError::new(&value.at, format!("{key} is {}", value.quoted()));
            findings.error(error.right(format!("it must be {}", Self::expected())));
            return None;
        };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        let (mut is_enabled, mut priority) = (Some(true), Some(PRIORITY));
        if let Some(entry) = find("enabled") {
            is_enabled = bool::from_value(&entry.value, "enabled", findings);
        }
        if let Some(entry) = find("priority") {
            priority = i64::from_value(&entry.value, "priority", findings);
        }
        let is_option = |entry: &&Entry| !["type", "enabled", "priority"].contains(&&*entry.key);
        let options: Vec<&Entry> = entries.iter().filter(is_option).collect();
        let name = find("type");
        let mut read = |some: &[&Entry], at: &Position| {
            let some = name.iter().chain(some);
            let keys: Map<_, _> = some.map(|e| (e.key.clone(), e.value.to_json())).collect();
            let read = serde_json::from_value::<HookOptions>(keys.into());
            let told = |why: serde_json::Error| {
                findings.error(ConfigError::new(at, format!("{key}: {why}")));
            };
            read.map_err(told).ok()
        };
        read(&[], name.map_or(&value.at, |name| &name.value.at))?;
        // Each option alone, so that an error belongs to its key.
        for option in &options {
            read(&[option], &option.key_at)?;
        }
        let options = read(&options, &value.at)?;
        Some(Self { options, priority: priority?, is_enabled: is_enabled? })
    }

    fn expected() -> String {
        format!("a group whose type is one of {}", HookOptions::NAMES.join(", "))
    }

    fn schema() -> serde_json::Value {
        json!({
            "type": "object",
            "properties": {
                "type": { "enum": HookOptions::NAMES },
                "enabled": { "type": "boolean", "default": true },
                "priority": { "type": "integer", "default": PRIORITY },
            },
            "required": ["type"],
        })
    }
}

/// Hooks in their order.
#[derive(Default)]
pub struct Chain {
    hooks: Vec<Box<dyn Hook>>,
    has_told: bool,
}

impl Chain {
    /// The hooks for samples of `signals`, which become what they are behind the last one.
    ///
    /// # Errors
    /// The first hook that does not fit the signals, and where it stands.
    pub fn build(
        choices: &[At<HookChoice>],
        signals: &mut Vec<Signal>,
    ) -> Result<Self, ConfigError> {
        let mut enabled: Vec<&At<HookChoice>> =
            choices.iter().filter(|choice| choice.value.is_enabled).collect();
        enabled.sort_by_key(|choice| choice.value.priority);
        let built = enabled.into_iter().map(|choice| {
            let hook = choice.value.options.clone().build(signals);
            hook.map_err(|why| ConfigError::new(&choice.at, why.to_string()))
        });
        Ok(Self { hooks: built.collect::<Result<_, _>>()?, has_told: false })
    }

    /// Adds a hook behind the others. It leaves the signals as they are.
    pub fn push(&mut self, hook: Box<dyn Hook>) {
        self.hooks.push(hook);
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Lets a sample pass; whether it goes on. One that a hook cannot treat does not, which is told
    /// once.
    pub fn pass(&mut self, sample: &mut SampleMut<'_>, log: &Log) -> bool {
        for hook in &mut self.hooks {
            match hook.process(sample, &wall_time) {
                Ok(Verdict::Pass) => {}
                Ok(Verdict::Drop) => return false,
                Err(why) => {
                    if !std::mem::replace(&mut self.has_told, true) {
                        log.say(format_args!("hook {}: {why}", hook.name()));
                    }
                    return false;
                }
            }
        }
        true
    }

    /// The source starts again.
    pub fn restart(&mut self) {
        self.hooks.iter_mut().for_each(|hook| hook.restart());
    }

    /// Tells what hooks have written.
    pub fn tell(&mut self, end: bool, log: &Log) {
        for hook in &mut self.hooks {
            let text = hook.take_text(end);
            for line in String::from_utf8_lossy(&text).lines() {
                log.say(line);
            }
        }
    }
}
