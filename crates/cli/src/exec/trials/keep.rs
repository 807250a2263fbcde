//! The records of the trials: one for each condition.

use std::path::Path;

use rdmalab_engine::odp;
use rdmalab_measure::outcome::{Count, Fact};
use rdmalab_measure::{Clock, Outcome as Measured, Quantity};
use rdmalab_record::{
    ClockFacts, Device, DeviceKind, Environment, Header, Object, PointId, Record, Writer,
};

use super::process::{Termination, Trial};
use super::vary::Condition;
use crate::exec::paths::Memory;
use crate::exec::program::{ProgramArgs, profile_of};
use crate::failure::{Outcome, run as failed};

/// The experiment's name in records.
const EXPERIMENT: &str = "trials";
/// The name of the fact that says where large buffers of the program were.
pub const MEMORY: &str = "memory";
/// The name of the fact with the length of the intervals in which pages are counted, ns.
pub const PAGE_INTERVAL: &str = "page_interval_ns";
/// The name of the series with the page faults of each interval.
pub const PAGE_FAULTS: &str = "page faults";

/// What is kept of a trial besides its time.
pub fn of_trial(trial: &Trial, memory: Memory) -> Measured {
    let mut measured = Measured {
        facts: vec![
            Fact { name: "status".to_owned(), value: trial.end.text() },
            Fact { name: MEMORY.to_owned(), value: memory.word().to_owned() },
        ],
        warnings: trial.counters.doubts(),
        cut_short: failure(trial),
        ..Measured::default()
    };
    let count = |name: &str, value| Count { name: name.to_owned(), value };
    measured.counts.push(count("processes", trial.counters.processes));
    measured.counts.extend(trial.counters.sums.iter().cloned());
    if trial.counters.unfinished > 0 {
        measured.counts.push(count("processes_without_end", trial.counters.unfinished));
    }
    if trial.left_behind > 0 {
        measured.counts.push(count("processes_left_behind", trial.left_behind as u64));
        measured.warnings.push(format!(
            "{} processes outlived the program, and were killed before the next trial",
            trial.left_behind
        ));
    }
    push_timeline(trial, &mut measured);
    measured
}

/// Adds how many pages were missing, taken away and prefetched in each interval of the trial.
fn push_timeline(trial: &Trial, measured: &mut Measured) {
    let (interval_ns, all) = trial.counters.pages.clone().from(trial.began_ns);
    for (i, (name, _)) in odp::Counters::default().named().iter().enumerate() {
        let counts: Vec<f64> = all.iter().map(|one| one.named()[i].1 as f64).collect();
        if counts.iter().any(|count| *count > 0.0) {
            measured.push_series(Quantity::IntervalPages, &name.replace('_', " "), 0, counts);
        }
    }
    if !all.is_empty() {
        measured.push_fact(PAGE_INTERVAL, interval_ns);
    }
}

/// The record of a condition that is being written.
pub struct Keep {
    writer: Writer,
    parameters: Object,
    memory: Memory,
}

/// The reason why a trial failed; `None` if it did not.
pub fn failure(trial: &Trial) -> Option<String> {
    let end = match &trial.end {
        Termination::Exited(0) => return None,
        other => other.text(),
    };
    Some(match &trial.last_words {
        Some(words) => format!("{end}: {words}"),
        None => end,
    })
}

impl Keep {
    /// Begins the record of a condition, the `number`th one, in a directory below `parent`; `args`
    /// are the options under the condition. So many trials are planned, in the order of this seed.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn new(
        parent: &Path,
        (number, condition): (usize, &Condition),
        args: &ProgramArgs,
        (planned, seed): (u32, u64),
    ) -> Outcome<Self> {
        let profile = profile_of(&args.link);
        let name = profile.as_ref().map(|profile| profile.name.clone());
        // The program chooses among the soft devices.
        let device = Device { profile: name, ..Device::new("soft", DeviceKind::Soft) };
        let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let mut header = Header::new(EXPERIMENT, command.collect(), device);
        (header.planned_points, header.seed) = (u64::from(planned), seed);
        header.condition = Some(condition.name());
        let clock = ClockFacts::of(&Clock::new());
        let mut environment = Environment::here(&header.device.name, Some(clock));
        // The profile's file may change later, so the record keeps its effect as text.
        environment.device.extend(profile.map(|p| ("profile".to_owned(), p.does())));
        let dir = parent.join(condition.directory(number));
        let writer = Writer::create_at(&dir, header, &environment).map_err(failed)?;
        let program = args.program.first().map(|name| Path::new(name).file_name());
        let program = program.flatten().unwrap_or_default().to_string_lossy().into_owned();
        let program = [("program".to_owned(), program)];
        let parameters = program.into_iter().chain(condition.values.iter().cloned());
        let parameters = parameters.map(|(name, value)| (name, value.into())).collect();
        Ok(Self { writer, parameters, memory: args.memory })
    }

    /// Keeps a trial, the `order`th of all, also one that failed.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&mut self, trial: &Trial, order: usize, repetition: usize) -> Outcome {
        let id = PointId {
            parameters: self.parameters.clone(),
            repetition: u32::try_from(repetition).unwrap_or(u32::MAX),
            order_index: order as u64,
            started: trial.started,
            elapsed: trial.elapsed,
        };
        let mut measured = of_trial(trial, self.memory);
        let value = trial.elapsed.as_nanos() as f64;
        measured.push_figure(Quantity::ExecutionTime, "", value);
        self.writer.append(&id, &measured).map(drop).map_err(failed)
    }

    /// The record as it is now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> Outcome<Record> {
        Record::open(self.writer.dir()).map_err(failed)
    }
}
