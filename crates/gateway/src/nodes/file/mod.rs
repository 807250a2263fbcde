//! `file`: samples in files, of any format.
//!
//! - `read`: replays a file. `write`: a thread of its own writes, so that no path waits for a disk.
//! - `name`: names of files with the time in them.

mod name;
mod read;
mod write;

use std::path::PathBuf;

use rdmalab_config::{At, ConfigError, group, one_of};
use rdmalab_sample::Signal;

use crate::config::{InCommon, NodeCommon, OutCommon, signals_or_default};
use crate::format::FormatChoice;
use crate::node::{Node, NodeCounts, Sink, Source, World, wall_time};

one_of! {
    /// When the samples of a file are due.
    pub enum EpochMode {
        /// The first one at once, after `epoch`; the others with their distance to it.
        Direct = "direct";
        /// Each one its own time, as a time after now and `epoch`.
        Wait = "wait";
        /// Each one at its time and `epoch`.
        Relative = "relative";
        /// The first one at `epoch`, the others with their distance to it.
        Absolute = "absolute";
        /// All at once, with their times as they are.
        Original = "original";
    }
}

one_of! {
    /// What happens at the end of a file.
    pub enum Eof {
        /// The node ends.
        Stop = "stop" | "exit";
        /// It begins anew.
        Rewind = "rewind";
        /// It waits for more.
        Wait = "wait" | "suspend";
    }
}

group! {
    /// The reading half.
    pub struct In with (common: InCommon) {
        /// When samples are due.
        epoch_mode: EpochMode = EpochMode::Direct;
        /// A time for the mode [s].
        epoch: f64 = 0.0;
        /// One sample each period of this rate [Hz] instead; 0 goes by their times.
        rate: f64 = 0.0, in 0.0..=1e9;
        /// What happens at the end.
        eof: Eof = Eof::Stop;
        /// Bytes that are read at a time; 0 lets the node choose.
        buffer_size: u64 = 0, in 0.0..=1e12;
        /// Samples that are left out at the beginning.
        skip: u64 = 0, in 0.0..=1e15;
    }
}

group! {
    /// The writing half.
    pub struct Out with (common: OutCommon) {
        /// Writes each sample to the file at once.
        flush: bool = false;
        /// Bytes of samples that wait for the writer at most; 0 lets the node choose.
        buffer_size: u64 = 0, in 0.0..=1e12;
    }
}

group! {
    /// A file.
    pub struct Config with (common: NodeCommon) {
        /// Its path; %F, %T and others stand for the time at which it is opened, in UTC.
        uri: String;
        /// Its format.
        format: FormatChoice = FormatChoice::named("villas.human");
        /// The reading half.
        r#in: Option<In>;
        /// The writing half.
        out: Option<Out>;
    }
}

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
        if let Err(why) = name::expand(&self.uri, wall_time()) {
            return Err(ConfigError::new(&at.at, format!("{}: {why}", self.uri)));
        }
        let signals = self.r#in.as_ref().map_or_else(
            || Signal::numbered(64, rdmalab_sample::Kind::Float),
            |half| signals_or_default(&half.common),
        );
        Ok(Box::new(File { config: self, signals, counts: NodeCounts::default() }))
    }
}

impl File {
    fn path(&self) -> Result<PathBuf, String> {
        let uri = self.config.uri.strip_prefix("file://").unwrap_or(&self.config.uri);
        name::expand(uri, wall_time()).map(PathBuf::from)
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
        write::open(path, format, signals, flush, bytes, &world.log)
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}
