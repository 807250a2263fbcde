//! A checked configuration: which nodes there are, and what each path takes from where.

use std::collections::BTreeMap;

use rdmalab_config::{At, ConfigError, Notice, Position, Value};
use rdmalab_measure::text::count_of;
use rdmalab_sample::{Hook, Signal};

use crate::config::{Gateway, PathConfig};
use crate::hooks::{Chain, HookChoice};
use crate::inherit::inherited;
use crate::keys::VALUES_MAX;
use crate::live::{Live, LivePath};
use crate::mapping::{Part, What};
use crate::node::{Node, Observer};
use crate::nodes::NodeConfig;
use crate::path::Taken;

/// A checked configuration.
pub struct Plan {
    pub(crate) nodes: Vec<PlannedNode>,
    pub(crate) paths: Vec<PlannedPath>,
    pub(crate) gateway: Settings,
    needs_device: bool,
    /// Keys that have no effect.
    pub notices: Vec<Notice>,
}

/// What concerns the whole gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub affinity: Option<u64>,
    /// The processor of all paths, in place of any affinity.
    pub processor: Option<usize>,
    pub priority: Option<u8>,
    pub locks_memory: bool,
    pub timer: crate::timer::TimerKind,
}

pub(crate) struct PlannedNode {
    pub name: String,
    pub node: Box<dyn Node>,
    pub is_builtin: bool,
    cannot_read: Option<&'static str>,
    cannot_write: Option<&'static str>,
    has_memory: bool,
    /// The signals that it gives, behind the hooks of its reading half.
    pub signals: Vec<Signal>,
    pub hooks_in: Chain,
    /// What counts its samples for other nodes.
    pub observers: Vec<Observer>,
    hooks_out: Vec<At<HookChoice>>,
}

pub(crate) struct PlannedPath {
    pub name: String,
    pub config: PathConfig,
    /// Where it stands.
    at: Position,
    /// The nodes that it reads, each once.
    pub sources: Vec<usize>,
    /// Which of them make samples.
    pub triggers: Vec<bool>,
    /// Where it writes.
    pub destinations: Vec<Destination>,
    /// Empty if its samples are those of its only source.
    pub taken: Vec<Taken>,
    /// The signals before its hooks.
    pub signals: Vec<Signal>,
    pub hooks: Chain,
    pub live: LivePath,
}

/// Where a path writes.
pub(crate) struct Destination {
    pub node: usize,
    pub hooks: Chain,
    /// The signals behind all hooks.
    pub signals: Vec<Signal>,
}

/// The nodes of a configuration by name.
struct Names<'a> {
    by_name: BTreeMap<&'a str, usize>,
}

impl Names<'_> {
    fn find(&self, name: &str, at: &At<String>) -> Result<usize, ConfigError> {
        self.by_name.get(name).copied().ok_or_else(|| {
            let known: Vec<&str> = self.by_name.keys().copied().collect();
            ConfigError::new(&at.at, format!("there is no node {name:?}"))
                .right(format!("the nodes are {}", known.join(", ")))
        })
    }
}

impl Plan {
    /// Checks a configuration. Opens nothing.
    ///
    /// # Errors
    /// Everything that is wrong, and where.
    pub fn check(tree: &Value) -> Result<Self, Vec<ConfigError>> {
        let (gateway, notices) = rdmalab_config::read::<Gateway>(&inherited(tree))?;
        let (mut errors, mut needs_device) = (Vec::new(), false);
        let mut nodes: Vec<PlannedNode> = Vec::new();
        for (name, config) in gateway.nodes.0 {
            if let Err(error) = check_name(&name) {
                errors.push(error);
            }
            if !config.is_enabled() {
                continue;
            }
            needs_device |= matches!(config, NodeConfig::Infiniband(_));
            match planned_node(name, config) {
                Ok(node) => nodes.push(node),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let by_name = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at));
        let names = Names { by_name: by_name.collect() };
        let mut paths = Vec::new();
        for config in gateway.paths.into_iter().filter(|path| path.enabled) {
            match planned(&names, &nodes, config) {
                Ok(path) => paths.extend(path),
                Err(error) => errors.push(error),
            }
        }
        errors.extend(written_twice(&nodes, &paths));
        let observed = observed(&names, &nodes, &paths);
        if errors.is_empty() && paths.is_empty() {
            errors.push(ConfigError::new(&tree.at, "there is no path"));
        }
        let observed = match observed {
            Ok(observed) if errors.is_empty() => observed,
            Ok(_) => return Err(errors),
            Err(error) => {
                errors.push(error);
                return Err(errors);
            }
        };
        for (node, observer) in observed {
            nodes[node].observers.push(observer);
        }
        let settings = Settings {
            affinity: gateway.affinity,
            processor: None,
            priority: gateway.priority,
            locks_memory: gateway.hugepages > 0
                || gateway.priority.is_some_and(|priority| priority > 0),
            timer: gateway.timer,
        };
        Ok(Self { nodes, paths, gateway: settings, needs_device, notices })
    }

    /// How many nodes and paths there are.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}, {}", count_of(self.nodes.len(), "node"), count_of(self.paths.len(), "path"))
    }

    /// What its paths have done so far, while it runs.
    #[must_use]
    pub fn live(&self) -> Live {
        Live::of(self.paths.iter().map(|path| path.live.clone()).collect())
    }

    /// Binds all paths to this processor.
    pub fn pin(&mut self, processor: usize) {
        self.gateway.processor = Some(processor);
    }

    /// Lets a hook see the samples of a path, by its number from 0, behind the path's own hooks. A
    /// path that is reversed counts twice.
    pub fn watch(&mut self, path: usize, hook: Box<dyn Hook>) {
        if let Some(path) = self.paths.get_mut(path) {
            path.hooks.push(hook);
        }
    }

    /// Whether a node uses a device of RDMA.
    #[must_use]
    pub fn needs_device(&self) -> bool {
        self.needs_device
    }
}

fn planned_node(name: At<String>, config: NodeConfig) -> Result<PlannedNode, ConfigError> {
    let [reads, hooks_out] = config.hooks();
    let (cannot_read, cannot_write) = (config.cannot_read(), config.cannot_write());
    let (is_builtin, has_memory) = (config.is_builtin(), config.has_memory());
    let node = config.node(&name)?;
    let mut signals = node.signals().to_vec();
    let hooks_in = Chain::build(&reads, &mut signals)?;
    Ok(PlannedNode {
        name: name.value,
        node,
        is_builtin,
        cannot_read,
        cannot_write,
        has_memory,
        signals,
        hooks_in,
        observers: Vec::new(),
        hooks_out,
    })
}

/// That a node cannot be what a path wants of it.
fn usable(
    node: &PlannedNode,
    cannot: Option<&str>,
    what: &str,
    at: &At<String>,
) -> Result<(), ConfigError> {
    cannot.map_or(Ok(()), |why| {
        Err(ConfigError::new(&at.at, format!("{} is no {what}: {why}", node.name)))
    })
}

fn check_name(name: &At<String>) -> Result<(), ConfigError> {
    let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=32).contains(&name.value.len()) && name.value.chars().all(is_known) {
        return Ok(());
    }
    let right = "1 to 32 letters, digits, - and _";
    Err(ConfigError::new(&name.at, format!("{:?} is no name of a node", name.value)).right(right))
}

/// The path, and the one in the other direction if it is asked for.
fn planned(
    names: &Names<'_>,
    nodes: &[PlannedNode],
    At { value: config, at }: At<PathConfig>,
) -> Result<Vec<PlannedPath>, ConfigError> {
    let there = one_way(names, nodes, &config, &at)?;
    if !config.reverse {
        return Ok(vec![there]);
    }
    let first = &config.r#in.0[0];
    let Some(out) = config.out.clone() else {
        return Err(ConfigError::new(&first.at, "a path without out cannot be reversed"));
    };
    if !there.taken.is_empty() || out.0.len() != 1 {
        let what = "a path is reversed between one node and another one only";
        return Err(ConfigError::new(&first.at, what).right("write the other path by hand"));
    }
    let back = PathConfig { r#in: out, out: Some(config.r#in.clone()), mask: None, ..config };
    Ok(vec![there, one_way(names, nodes, &back, &at)?])
}

fn one_way(
    names: &Names<'_>,
    nodes: &[PlannedNode],
    config: &PathConfig,
    at: &Position,
) -> Result<PlannedPath, ConfigError> {
    let (mut sources, mut taken, mut signals) = (Vec::new(), Vec::new(), Vec::new());
    for text in &config.r#in.0 {
        let wrong = |why: String| ConfigError::new(&text.at, why);
        let part = Part::parse(&text.value).map_err(wrong)?;
        let node = names.find(&part.node, text)?;
        let of = &nodes[node].signals;
        usable(&nodes[node], nodes[node].cannot_read, "source", text)?;
        let (own, values) = (part.signals(of).map_err(wrong)?, part.values(of).map_err(wrong)?);
        let needs_own = |&other: &usize| other != node && nodes[other].has_memory;
        if nodes[node].has_memory
            && let Some(&other) = sources.iter().find(|other| needs_own(other))
        {
            let (one, other) = (&nodes[node].name, &nodes[other].name);
            let what = format!("{one} and {other} cannot be sources of one path");
            let right = "give each a path of its own, to a loopback node";
            return Err(ConfigError::new(&text.at, what).right(right));
        }
        let input = sources.iter().position(|&source| source == node).unwrap_or_else(|| {
            sources.push(node);
            sources.len() - 1
        });
        taken.push(Taken { input, part, values, at: signals.len() });
        signals.extend(own);
    }
    let Some(first) = config.r#in.0.first() else {
        return Err(ConfigError::new(at, "the path has no source"));
    };
    if signals.len() > VALUES_MAX {
        let what = format!("a sample of this path has {} values", signals.len());
        return Err(ConfigError::new(&first.at, what).right(format!("at most {VALUES_MAX}")));
    }
    if taken.len() == 1 && taken[0].part.what == What::All {
        taken.clear();
    }
    let composed = signals.clone();
    let hooks = Chain::build(&config.hooks, &mut signals)?;
    let mut destinations = Vec::new();
    for name in config.out.iter().flat_map(|out| &out.0) {
        let node = names.find(&name.value, name)?;
        usable(&nodes[node], nodes[node].cannot_write, "destination", name)?;
        let mut signals = signals.clone();
        let hooks = Chain::build(&nodes[node].hooks_out, &mut signals)?;
        destinations.push(Destination { node, hooks, signals });
    }
    let triggers = triggers(names, config, &sources)?;
    let list = |all: &mut dyn Iterator<Item = usize>| {
        all.map(|at| nodes[at].name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let to = list(&mut destinations.iter().map(|to| to.node));
    let name = format!("{} -> {to}", list(&mut sources.iter().copied()));
    let (config, at, signals) = (config.clone(), at.clone(), composed);
    Ok(PlannedPath {
        name,
        config,
        at,
        sources,
        triggers,
        destinations,
        taken,
        signals,
        hooks,
        live: LivePath::default(),
    })
}

fn triggers(
    names: &Names<'_>,
    config: &PathConfig,
    sources: &[usize],
) -> Result<Vec<bool>, ConfigError> {
    let Some(mask) = &config.mask else { return Ok(vec![true; sources.len()]) };
    let mut triggers = vec![false; sources.len()];
    for name in mask {
        let node = names.find(&name.value, name)?;
        let Some(at) = sources.iter().position(|&source| source == node) else {
            let what = format!("mask: {} is no source of this path", name.value);
            return Err(ConfigError::new(&name.at, what));
        };
        triggers[at] = true;
    }
    Ok(triggers)
}

/// What counts samples for other nodes, and of which node.
fn observed(
    names: &Names<'_>,
    nodes: &[PlannedNode],
    paths: &[PlannedPath],
) -> Result<Vec<(usize, Observer)>, ConfigError> {
    let read = |at: &usize| paths.iter().any(|path| path.sources.contains(at));
    let mut all = Vec::new();
    for (name, observer) in nodes.iter().flat_map(|node| node.node.observes()) {
        let node = names.find(&name.value, &name)?;
        if !read(&node) {
            let what = format!("{} has no statistics: no path reads it", name.value);
            return Err(ConfigError::new(&name.at, what));
        }
        all.push((node, observer));
    }
    Ok(all)
}

/// Nodes that several paths write.
fn written_twice(nodes: &[PlannedNode], paths: &[PlannedPath]) -> Vec<ConfigError> {
    let mut seen = BTreeMap::new();
    let mut errors = Vec::new();
    for path in paths {
        for to in path.destinations.iter().map(|to| to.node) {
            if let Some(before) = seen.insert(to, &path.name) {
                let what = format!(
                    "{} is a destination of two paths, {before} and {}",
                    nodes[to].name, path.name
                );
                errors.push(ConfigError::new(&path.at, what));
            }
        }
    }
    errors
}
