//! The conditions of a simulation that a plan gives: which adapter, link and topology stand for
//! those of the study.

use serde::Deserialize;

/// What `--device sim` takes; on other devices it has no effect. A plan, a figure and a sweep may
/// each have one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// The profile of the adapter.
    #[serde(default)]
    pub profile: Option<String>,
    /// The links, as values of `--link`; `None`: that of the profile.
    #[serde(default)]
    pub link: Option<String>,
    /// How the adapters are connected; `None`: as the profile says.
    #[serde(default)]
    pub topology: Option<Topology>,
    /// What differs in the processor of the hosts from the profile's, as a value of `--sim`.
    #[serde(default)]
    pub processor: Option<String>,
}

/// How simulated adapters are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Topology {
    /// A cable between two adapters; one switch between more.
    Cable,
    /// One switch, also between two adapters.
    Switch,
    /// Two levels of switches.
    FatTree {
        /// Adapters at each leaf switch.
        leaf_ports: u32,
        /// Links from each leaf switch up.
        leaf_uplinks: u32,
    },
}

impl Simulated {
    /// These conditions within outer ones, which give what these leave out. Link and topology are
    /// those of an adapter: one that these name takes none from outside.
    #[must_use]
    pub fn within(&self, outer: &Self) -> Self {
        let processor = self.processor.clone().or_else(|| outer.processor.clone());
        if self.profile.is_some() {
            return Self { processor, ..self.clone() };
        }
        Self {
            processor,
            profile: outer.profile.clone(),
            link: self.link.clone().or_else(|| outer.link.clone()),
            topology: self.topology.or(outer.topology),
        }
    }

    /// The conditions as options of `rdmalab run`: names and values.
    #[must_use]
    pub fn options(&self) -> Vec<(String, String)> {
        let link = self.link.iter().map(|link| ("link", link.clone()));
        let topology = self.topology.map(Topology::changes);
        let model: Vec<String> = topology.into_iter().chain(self.processor.clone()).collect();
        let model = (!model.is_empty()).then(|| ("sim", model.join(";")));
        link.chain(model).map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Whether it gives no condition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Topology {
    /// The parameters of a simulated fabric, as a value of `--sim`.
    #[must_use]
    pub fn changes(self) -> String {
        match self {
            Self::Cable => "leaf_ports=0;switch_between_two=0".to_owned(),
            Self::Switch => "leaf_ports=0;switch_between_two=1".to_owned(),
            Self::FatTree { leaf_ports, leaf_uplinks } => {
                format!("leaf_ports={leaf_ports};leaf_uplinks={leaf_uplinks}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Simulated {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn inner_conditions_come_first_and_an_adapter_brings_its_own() {
        let outer = of("profile='a'\nlink='edr'\ntopology='switch'");
        assert_eq!(of("").within(&outer), outer);
        let links = of("link='sdr,ddr'").within(&outer);
        assert_eq!(links, of("profile='a'\nlink='sdr,ddr'\ntopology='switch'"));
        assert_eq!(of("profile='b'").within(&outer), of("profile='b'"));
        let slow = of("profile='a'\nprocessor='post_ns=9'");
        assert_eq!(of("profile='b'").within(&slow), of("profile='b'\nprocessor='post_ns=9'"));
        assert_eq!(of("processor='post_ns=1'").within(&slow).processor.unwrap(), "post_ns=1");
        assert!(of("").is_empty() && !links.is_empty());
    }

    #[test]
    fn conditions_are_options() {
        let said = |text: &str| -> Vec<String> {
            of(text)
                .options()
                .into_iter()
                .map(|(name, value)| format!("--{name} {value}"))
                .collect()
        };
        assert_eq!(said("profile='a'"), [""; 0]);
        assert_eq!(said("link='sdr,ddr'"), ["--link sdr,ddr"]);
        assert_eq!(said("topology='switch'"), ["--sim leaf_ports=0;switch_between_two=1"]);
        assert_eq!(said("processor='post_ns=9'"), ["--sim post_ns=9"]);
        assert_eq!(
            said("topology='switch'\nprocessor='post_ns=9;poll_hit_ns=8'"),
            ["--sim leaf_ports=0;switch_between_two=1;post_ns=9;poll_hit_ns=8"]
        );
        let tree = "topology={fat_tree={leaf_ports=12,leaf_uplinks=4}}";
        assert_eq!(said(tree), ["--sim leaf_ports=12;leaf_uplinks=4"]);
    }
}
