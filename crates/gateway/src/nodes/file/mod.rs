//! `file`: samples in files, of any format.
//!
//! - `config`: its keys.
//! - `read`: replays a file.

mod config;
mod read;

use std::path::PathBuf;

use rdmalab_config::{At, ConfigError};
use rdmalab_sample::Signal;

use crate::keys::signals_or_default;
use crate::node::{Node, NodeCounts, Sink, Source, World, wall_time};
use crate::{strftime, writer};
pub use config::Config;

/// The node.
struct File {
    config: Config,
    signals: Vec<Signal>,
    counts: NodeCounts,
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, at: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        if let Err(why) = strftime::expand(&self.uri, wall_time()) {
            return Err(ConfigError::new(&at.at, format!("{}: {why}", self.uri)));
        }
        let signals = signals_or_default(self.r#in.as_ref().map(|half| &half.common));
        Ok(Box::new(File { config: self, signals, counts: NodeCounts::default() }))
    }
}

impl File {
    fn path(&self) -> Result<PathBuf, String> {
        let uri = self.config.uri.strip_prefix("file://").unwrap_or(&self.config.uri);
        strftime::expand(uri, wall_time()).map(PathBuf::from)
    }
}

impl Node for File {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let (path, format) = (self.path()?, self.config.format.build());
        let half = self.config.r#in.clone().or_else(rdmalab_config::absent);
        let half = half.ok_or("in has keys without defaults")?;
        let counts = self.counts.clone();
        read::open(path, format, &self.signals, &half, world, counts)
    }

    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String> {
        let (path, format) = (self.path()?, self.config.format.build());
        let (flush, bytes) =
            self.config.out.as_ref().map_or((false, 0), |half| (half.flush, half.buffer_size));
        writer::open(path, format, signals, flush, bytes, world)
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}
