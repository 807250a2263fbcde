//! Replays a file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rdmalab_sample::{Collector, DecodeError, Form, Format, Handle, Pool, Signal, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::config::{Eof, EpochMode, In};
use crate::node::{NodeCounts, Source, SourceState, World, wall_time};
use crate::timer::{Timer, TimerKind};

/// Samples that are read ahead.
const AHEAD: usize = 64;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes without a sample after which they are garbage.
const UNDECODED_BYTES: usize = 1 << 20;

/// Opens the file.
///
/// # Errors
/// Why it cannot be opened, in one line.
pub fn open(
    path: PathBuf,
    format: Box<dyn Format>,
    signals: &[Signal],
    half: &In,
    world: &World,
    counts: NodeCounts,
) -> Result<Box<dyn Source>, String> {
    let failed = |error| format!("{}: {error}", path.display());
    let file = match path == Path::new("/dev/stdin") {
        // A socket could not be opened anew.
        true => std::io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => File::open(&path),
    };
    let file = file.map_err(failed)?;
    let may_block = file.metadata().is_ok_and(|data| !data.is_file());
    Ok(Box::new(Reading {
        path,
        file,
        may_block,
        format,
        signals: signals.to_vec(),
        half: half.clone(),
        bytes: Vec::new(),
        is_start: true,
        is_end: false,
        ready: VecDeque::with_capacity(AHEAD),
        skip: half.skip,
        offset_ns: None,
        timer: None,
        last_tick: None,
        world: world.clone(),
        counts,
    }))
}

struct Reading {
    path: PathBuf,
    file: File,
    /// Whether a read may wait for others.
    may_block: bool,
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    half: In,
    /// What was read and not decoded yet.
    bytes: Vec<u8>,
    is_start: bool,
    is_end: bool,
    ready: VecDeque<Handle>,
    skip: u64,
    /// From the time in the file to the time at which the sample is due.
    offset_ns: Option<i128>,
    timer: Option<Timer>,
    last_tick: Option<u64>,
    world: World,
    counts: NodeCounts,
}

impl Reading {
    /// Decodes some samples, if none is ready. Waits at most `patience` for others to write some.
    fn fill(&mut self, pool: &mut Pool, patience: Duration) -> Result<SourceState, String> {
        let mut decoded = Vec::with_capacity(AHEAD);
        while self.ready.is_empty() && !self.world.stop.is_set() {
            match self.decode(pool, &mut decoded) {
                Ok(0) if self.ready.is_empty() => {}
                Ok(_) => continue,
                Err(_) => {
                    self.counts.garbage.add(1);
                    continue;
                }
            }
            // More is read only when what is there has no whole sample.
            if self.bytes.len() >= UNDECODED_BYTES {
                self.counts.garbage.add(1);
                self.bytes.clear();
            }
            if self.may_block {
                let limit = Timespec::try_from(patience).unwrap_or_default();
                let ready = poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&limit));
                if ready.unwrap_or(0) == 0 {
                    return Ok(SourceState::Open);
                }
            }
            let had = self.bytes.len();
            self.bytes.resize(had + CHUNK_BYTES, 0);
            let read = self.file.read(&mut self.bytes[had..]);
            let read = read.map_err(|error| format!("{}: {error}", self.path.display()))?;
            self.bytes.truncate(had + read);
            if read > 0 {
                continue;
            }
            if let Some(state) = self.at_end(had)? {
                return Ok(state);
            }
        }
        Ok(SourceState::Open)
    }

    /// Decodes what was read, and keeps the samples that are not skipped. Gives the bytes used.
    ///
    /// # Errors
    /// Something is no sample. Its bytes are used.
    fn decode(&mut self, pool: &mut Pool, decoded: &mut Vec<Handle>) -> Result<usize, DecodeError> {
        let form = if self.is_start { Form::FileStart } else { Form::File };
        let mut into = Collector::new(pool, decoded, AHEAD);
        let result = self.format.decode(form, &self.bytes, &self.signals, &mut into);
        drop(into);
        let used = match &result {
            Ok(used) => *used,
            Err(why) => why.resume().unwrap_or(self.bytes.len()),
        };
        self.is_start &= used == 0;
        self.bytes.drain(..used);
        for sample in decoded.drain(..) {
            match self.skip {
                0 => self.ready.push_back(sample),
                _ => {
                    self.skip -= 1;
                    pool.give(sample);
                }
            }
        }
        result
    }

    /// The file ended, after `had` bytes that are no whole sample. Gives what the read has found,
    /// unless these bytes are to be decoded once more.
    fn at_end(&mut self, had: usize) -> Result<Option<SourceState>, String> {
        match self.half.eof {
            // A last line without its end is a line.
            _ if had > 0 && self.bytes.last() != Some(&b'\n') && self.half.eof != Eof::Wait => {
                self.bytes.push(b'\n');
                if self.is_end {
                    self.bytes.clear();
                    return Ok(Some(SourceState::Open));
                }
                self.is_end = true;
                Ok(None)
            }
            Eof::Stop => {
                self.is_end = true;
                Ok(Some(SourceState::Open))
            }
            Eof::Wait => Ok(Some(SourceState::Open)),
            Eof::Rewind => {
                let rewound = self.file.seek(SeekFrom::Start(0));
                rewound.map_err(|error| format!("{}: {error}", self.path.display()))?;
                (self.is_start, self.is_end, self.offset_ns) = (true, false, None);
                self.bytes.clear();
                Ok(Some(SourceState::Restarted))
            }
        }
    }

    /// How far the samples are moved, by the first one.
    fn offset(&self, first: Timestamp) -> i128 {
        let epoch_ns = (self.half.epoch * 1e9) as i128;
        let now = wall_time();
        match self.half.epoch_mode {
            EpochMode::Direct => now.ns_since(first) + epoch_ns,
            EpochMode::Wait => now.total_ns() + epoch_ns,
            EpochMode::Relative => epoch_ns,
            EpochMode::Absolute => epoch_ns - first.total_ns(),
            EpochMode::Original => 0,
        }
    }

    /// Whether the next sample is due; waits for it at most `patience`.
    fn is_due(&mut self, origin: Timestamp, patience: Duration) -> Result<bool, String> {
        if !self.is_paced() {
            return Ok(true);
        }
        if let Some(timer) = &mut self.timer {
            let Some(tick) = timer.wait(patience)? else { return Ok(false) };
            let missed = tick - self.last_tick.map_or(0, |last| last + 1);
            self.counts.missed.add(missed);
            self.last_tick = Some(tick);
            return Ok(true);
        }
        let left_ns = origin.ns_since(wall_time());
        let Ok(left_ns) = u64::try_from(left_ns) else { return Ok(true) };
        let left = Duration::from_nanos(left_ns);
        std::thread::sleep(left.min(patience));
        Ok(left <= patience)
    }
}

impl Source for Reading {
    fn keeps(&self) -> usize {
        AHEAD
    }

    fn is_paced(&self) -> bool {
        self.half.epoch_mode != EpochMode::Original
    }

    fn start(&mut self) -> Result<(), String> {
        if self.half.rate > 0.0 && self.is_paced() {
            let timer = Timer::start(TimerKind::Timerfd, self.half.rate, &self.world.clock)?;
            self.timer = Some(timer);
        }
        Ok(())
    }

    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        if self.world.stop.is_set() {
            return Ok(SourceState::Ended);
        }
        if self.ready.is_empty() && self.fill(pool, patience)? == SourceState::Restarted {
            return Ok(SourceState::Restarted);
        }
        let Some(mut next) = self.ready.pop_front() else {
            if self.is_end && self.half.eof == Eof::Stop {
                return Ok(SourceState::Ended);
            }
            std::thread::sleep(patience.min(Duration::from_millis(10)));
            return Ok(SourceState::Open);
        };
        let origin = pool.get(&next).origin().unwrap_or_default();
        let offset_ns = match self.offset_ns {
            Some(offset_ns) => offset_ns,
            None => self.offset(origin),
        };
        self.offset_ns = Some(offset_ns);
        let due = origin.plus_ns(offset_ns);
        if !self.is_due(due, patience)? {
            self.ready.push_front(next);
            return Ok(SourceState::Open);
        }
        let mut sample = pool.get_mut(&mut next);
        sample.remove_flags(rdmalab_sample::Flags::RECEIVED);
        if self.timer.is_some() {
            sample.set_origin(wall_time());
        } else if self.half.epoch_mode != EpochMode::Original {
            sample.set_origin(due);
        }
        to.push(next);
        Ok(SourceState::Open)
    }
}
