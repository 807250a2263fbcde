//! The key `hooks` of nodes and paths: a list of groups with the `type` of a hook and its options.

use rdmalab_config::{At, ConfigError, Entry, Findings, FromValue, Kind, Value};
use rdmalab_sample::{Hook, HookOptions, SampleMut, Signal, Verdict};
use serde_json::json;

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
        let mut json = value.to_json();
        let mut take = |key: &str| json.as_object_mut().and_then(|keys| keys.remove(key));
        let (enabled, priority) = (take("enabled"), take("priority"));
        let options = serde_json::from_value(json).map_err(|why| format!("{key}: {why}"));
        let checked = options.and_then(|options| {
            let is_enabled = enabled.map_or(Ok(true), |is| is.as_bool().ok_or("enabled"));
            let priority = priority.map_or(Ok(PRIORITY), |n| n.as_i64().ok_or("priority"));
            let wrong = |key| format!("`{key}` of a hook is of the wrong type");
            let (is_enabled, priority) = (is_enabled.map_err(wrong)?, priority.map_err(wrong)?);
            Ok(Self { options, priority, is_enabled })
        });
        let told = |why: String| {
            // The key that the message names, if it names one.
            let named = |entry: &&Entry| why.contains(&format!("`{}`", entry.key));
            let entry = match &value.kind {
                Kind::Group(entries) => entries.iter().find(named),
                _ => None,
            };
            let at = entry.map_or(&value.at, |entry| &entry.key_at);
            findings.error(ConfigError::new(at, why));
        };
        checked.map_err(told).ok()
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
