//! Keeps results in a record during and after a run.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rdmalab_experiments::{Limits, Point};
use rdmalab_measure::{Clock, Outcome as Measured};
use rdmalab_record::{
    CAPTURE_MAX_BYTES, ClockFacts, Device, DeviceKind, Environment, Header, PointId, Record,
    Skipped, Writer,
};
use tempfile::TempDir;

use super::args::HowArgs;
use super::plan::{Plan, parameters};
use crate::failure::{Outcome, run as failed, usage};
use crate::records::RECORDS;

/// A record that is being written; it is temporary with `--no-record`.
pub struct Keep {
    writer: Writer,
    /// Points that were measured before, as places in the order of the plan.
    done: Vec<u64>,
    /// Points that could not be written, as on a full disk. They are shown and then gone.
    unsaved: Vec<rdmalab_record::Point>,
    /// Removed when dropped.
    passing: Option<TempDir>,
}

impl Keep {
    /// Creates a record for a plan.
    ///
    /// # Errors
    /// The record cannot be written; with what to do.
    pub fn new(plan: &Plan, how: &HowArgs, limits: &Limits, clock: &Clock) -> Outcome<Self> {
        let passing = how.no_record.then(tempfile::tempdir).transpose();
        let passing =
            passing.map_err(|e| failed(format!("cannot make a temporary record: {e}")))?;
        let parent = match (&passing, &how.out) {
            (Some(directory), _) => directory.path().to_owned(),
            (None, Some(out)) => out.clone(),
            (None, None) => PathBuf::from(RECORDS),
        };
        std::fs::create_dir_all(&parent).map_err(|e| {
            let hint = "choose another place with --out DIR, or --no-record";
            usage(format!("--out {}: {e}; {hint}", parent.display()))
        })?;
        if how.part.is_none() {
            for left in Writer::clear_begun(&parent) {
                errln!(
                    "removed {}, which a killed run had left without any measurement",
                    left.display()
                );
            }
        }
        let kind = match limits.kind.as_str() {
            "soft" => DeviceKind::Soft,
            "sim" => DeviceKind::Sim,
            _ => DeviceKind::System,
        };
        let profile = limits.profile.as_ref();
        let device = Device {
            profile: profile.map(|(name, _)| name.clone()),
            ..Device::new(&limits.device, kind)
        };
        let command: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut header = Header::new(plan.experiment.name(), command, device);
        header.seed = plan.seed;
        header.held_dma_latency_us = how.latency.hold_dma_latency;
        header.condition.clone_from(&how.condition);
        header.planned_points =
            (plan.turns.len() + plan.impossible.len() * plan.repeat as usize) as u64;
        let mut environment = Environment::here(&limits.device, Some(ClockFacts::of(clock)));
        // The profile's file may change later, so the record keeps its effect as text.
        let does = profile.map(|(_, does)| ("profile".to_owned(), does.clone()));
        environment.device.extend(does);
        if let Some(part) = &how.part {
            header.command.clone_from(&part.command);
            if let Some(keep) = Self::resumed(&part.dir, &header, plan)? {
                return Ok(keep);
            }
        }
        let writer = match &how.part {
            Some(part) => Writer::create_at(&part.dir, header, &environment),
            None => Writer::create(&parent, header, &environment),
        };
        let mut writer = writer.map_err(failed)?;
        for (point, reason) in &plan.impossible {
            skip(&mut writer, plan, point, &reason.to_string())?;
        }
        Ok(Self { writer, done: Vec::new(), unsaved: Vec::new(), passing })
    }

    /// Opens an existing record of the same plan, to continue it; `None` if there is no record.
    fn resumed(dir: &Path, header: &Header, plan: &Plan) -> Outcome<Option<Self>> {
        if !dir.join("record.json").is_file() {
            Writer::clear(dir).map_err(failed)?;
            return Ok(None);
        }
        let record = Record::open(dir).map_err(failed)?;
        let old = &record.header;
        let is_same = (&old.device, old.planned_points, old.seed)
            == (&header.device, header.planned_points, header.seed);
        if !is_same {
            return Err(usage(format!(
                "{} has another plan or device ({}, {} points): start a new run, without --resume",
                dir.display(),
                old.device.title(),
                old.planned_points
            )));
        }
        let done = record.whole_points().map(|p| p.order_index).collect();
        let writer = Writer::resume(&record).map_err(failed)?;
        let keep = Self { writer, done, unsaved: Vec::new(), passing: None };
        // A complete record gets no points; only the page is written again.
        if !(0..plan.turns.len()).all(|order| keep.has(order)) {
            keep.writer.may_grow().map_err(usage)?;
        }
        Ok(Some(keep))
    }

    /// Whether the point at this place in the order was measured before.
    pub fn has(&self, order: usize) -> bool {
        self.done.contains(&(order as u64))
    }

    /// Adds a point.
    ///
    /// # Errors
    /// The disk is full; earlier points stay, and this one can only be shown.
    pub fn add(
        &mut self,
        point: &Point,
        turn: (usize, usize),
        when: (SystemTime, Duration),
        measured: &Measured,
    ) -> Outcome {
        let (order, repetition) = turn;
        let (started, elapsed) = when;
        let id = PointId {
            parameters: parameters(point),
            repetition: repetition as u32,
            order_index: order as u64,
            started,
            elapsed,
        };
        self.writer.append(&id, measured).map(drop).map_err(|error| {
            let number = self.points();
            self.unsaved.push(Writer::unsaved(number, &id, measured));
            failed(error)
        })
    }

    /// Number of points that were measured.
    pub fn points(&self) -> u64 {
        self.writer.points() + self.unsaved.len() as u64
    }

    /// Number of points in the record.
    pub fn saved(&self) -> u64 {
        self.writer.points()
    }

    /// Keeps the capture of the first rank that has one, if it is short, and says so if it is not.
    ///
    /// # Errors
    /// It cannot be copied; the points stay.
    pub fn keep_capture(&self, captures: &[PathBuf]) -> Outcome {
        // A rank that sent nothing has no file.
        let Some(first) = captures.iter().find(|file| file.is_file()) else { return Ok(()) };
        let is_kept = self.writer.keep_capture(first).map_err(failed)?;
        if !is_kept && self.passing.is_none() {
            errln!(
                "{} is longer than the {} KiB that a record keeps: its page has no packets",
                first.display(),
                CAPTURE_MAX_BYTES >> 10
            );
        }
        Ok(())
    }

    /// Adds the findings over all points.
    ///
    /// # Errors
    /// The disk is full; the points stay.
    pub fn conclude(&mut self) -> Outcome {
        // For a record of an older version, and one that is not whole, the findings are computed
        // whenever it is read.
        if self.writer.may_grow().is_err() || !self.unsaved.is_empty() {
            return Ok(());
        }
        let found = rdmalab_findings::find(&self.read()?);
        self.writer.conclude(&found).map_err(failed)
    }

    /// The record as it is now, with the points that could not be written.
    ///
    /// # Errors
    /// The record cannot be read back.
    pub fn read(&self) -> Outcome<Record> {
        let mut record = Record::open(self.writer.dir()).map_err(failed)?;
        record.points.extend(self.unsaved.iter().cloned());
        Ok(record)
    }

    /// The directory of the record; `None` if the record is temporary, or was empty and is gone.
    pub fn directory(&self) -> Option<&Path> {
        (self.passing.is_none() && self.writer.dir().exists()).then(|| self.writer.dir())
    }

    /// Removes a record in which there is nothing.
    pub fn remove_if_empty(&self) {
        self.writer.remove_if_empty();
    }
}

fn skip(writer: &mut Writer, plan: &Plan, point: &Point, reason: &str) -> Outcome {
    for repetition in 0..plan.repeat {
        let skipped = Skipped {
            order_index: 0,
            repetition,
            parameters: parameters(point),
            reason: reason.to_owned(),
        };
        writer.skip(&skipped).map_err(failed)?;
    }
    Ok(())
}
