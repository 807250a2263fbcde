//! The packets of several captures of one run.

use std::path::PathBuf;

use crate::file::ReadError;
use crate::packet::Seen;
use crate::stream::{Packets, Tally};

/// A file, and its next packet.
struct Source {
    packets: Packets,
    head: Option<Seen>,
}

/// The packets of all files in order of time, each with the number of its file, from 1.
pub struct Merged {
    sources: Vec<Source>,
}

impl Merged {
    /// Opens the files.
    ///
    /// # Errors
    /// One is no capture.
    pub fn open(files: &[PathBuf]) -> Result<Self, ReadError> {
        let open = |file: &PathBuf| {
            let mut packets = Packets::open(file)?;
            let head = packets.next();
            Ok(Source { packets, head })
        };
        Ok(Self { sources: files.iter().map(open).collect::<Result<_, ReadError>>()? })
    }

    /// What was counted of each file so far: complete after the last packet.
    #[must_use]
    pub fn tallies(&self) -> Vec<Tally> {
        self.sources.iter().map(|source| source.packets.tally().clone()).collect()
    }
}

impl Iterator for Merged {
    type Item = (usize, Seen);

    fn next(&mut self) -> Option<(usize, Seen)> {
        let heads = self.sources.iter().enumerate();
        let heads = heads.filter_map(|(i, source)| Some((source.head.as_ref()?.at_ns, i)));
        let (_, i) = heads.min()?;
        let source = &mut self.sources[i];
        let next = source.packets.next();
        Some((i + 1, std::mem::replace(&mut source.head, next)?))
    }
}
