//! Ranks that stay up for a whole run and measure it point by point.

use rdmalab_experiments::{Limits, PlainPoint, Point};
use rdmalab_measure::{Outcome as Measured, at_rank};
use rdmalab_rank::process::{Cause, LaunchMethod, TeamEvent, WorkerCommand, WorkerGroup};

use super::ends::Ends;
use super::job::{Job, JobResult, PATIENCE};
use crate::bench::task::{Task, Timings};
use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::simulated::{self, Setup, Simulated, Wanted};
use crate::team::Team;

/// The ranks of a run.
pub struct Session {
    ranks: Ranks,
    interrupt: Interrupt,
    device: String,
    /// A warning about the places of the ranks.
    shared_core: Option<String>,
}

/// Where the ranks are.
enum Ranks {
    /// They are processes.
    Processes(Team),
    /// They are in virtual time, in this process.
    Simulated(Box<Simulated>),
}

/// A point that was cut short or failed.
pub struct Cut {
    /// The results that it has nevertheless.
    pub partial: Option<Measured>,
    /// The reason.
    pub failure: Failure,
}

/// Starts the processes of these places, or takes those that a study has started.
///
/// # Errors
/// What cannot be started, and what to do.
pub fn gather(
    interrupt: &Interrupt,
    ends: &Ends,
    workers: Option<[WorkerCommand; 2]>,
) -> Outcome<Team> {
    if let Some(team) = ends.team() {
        return Ok(team);
    }
    let (mut specs, listener) = ends.specs()?;
    for (spec, worker) in specs.iter_mut().zip(workers.into_iter().flatten()) {
        spec.place = LaunchMethod::Local(worker);
    }
    let workers = WorkerGroup::gather(&specs, listener.as_ref(), &interrupt.flag());
    workers.map(Team::new).map_err(|error| failed(error.what))
}

/// The command that starts this program as a worker.
///
/// # Errors
/// The path of this program is unknown.
pub fn worker() -> Outcome<WorkerCommand> {
    WorkerCommand::this_program(["worker"]).map_err(failed)
}

impl Session {
    /// Starts all ranks; none opens the device yet.
    ///
    /// # Errors
    /// What cannot be started, and what to do.
    pub fn open(interrupt: &Interrupt, device: &str, ends: &Ends) -> Outcome<Self> {
        match simulated::profile(device)? {
            None => Self::of_processes(interrupt, device, ends, None),
            Some(profile) => {
                let setup = Setup::new(profile, ends.simulated()?, ends.link(), interrupt);
                let team = ends.is_spread().then(|| gather(interrupt, ends, None)).transpose()?;
                let ranks = Simulated::new(setup, ends.captures(), team);
                let ranks = Ranks::Simulated(Box::new(ranks));
                let device = device.to_owned();
                Ok(Self { ranks, interrupt: interrupt.clone(), device, shared_core: None })
            }
        }
    }

    /// Starts both ends on this machine with these commands.
    ///
    /// # Errors
    /// What cannot be started, and what to do.
    pub fn open_with(
        interrupt: &Interrupt,
        device: &str,
        ends: &Ends,
        workers: [WorkerCommand; 2],
    ) -> Outcome<Self> {
        Self::of_processes(interrupt, device, ends, Some(workers))
    }

    fn of_processes(
        interrupt: &Interrupt,
        device: &str,
        ends: &Ends,
        workers: Option<[WorkerCommand; 2]>,
    ) -> Outcome<Self> {
        let ranks = Ranks::Processes(gather(interrupt, ends, workers)?);
        let (interrupt, device) = (interrupt.clone(), device.to_owned());
        Ok(Self { ranks, interrupt, device, shared_core: ends.shared_core() })
    }

    /// The processes of both ends; none if they are simulated.
    pub fn pids(&self) -> Vec<u32> {
        match &self.ranks {
            Ranks::Processes(team) => team.lock().infos().map(|info| info.pid).collect(),
            Ranks::Simulated(_) => Vec::new(),
        }
    }

    /// Checks what only the ranks know of the points: the models of simulated ones, and whether
    /// they can show the steps of a message.
    ///
    /// # Errors
    /// What is wrong with a point.
    pub fn check(&mut self, points: &[Point], timeline: Option<Wanted>) -> Outcome {
        match &mut self.ranks {
            Ranks::Processes(_) if timeline.is_some() => {
                let device = &self.device;
                let what = "the steps of a message exist on simulated devices only";
                Err(usage(format!("--timeline: {device} is not simulated, and {what}")))
            }
            Ranks::Processes(_) => Ok(()),
            Ranks::Simulated(ranks) => {
                ranks.keep_timeline(timeline)?;
                ranks.check(points)
            }
        }
    }

    /// Prints the steps of the message that `--timeline` names: with the results if these are
    /// tables, else beside them.
    ///
    /// # Errors
    /// There is no such message.
    pub fn print_timeline(&self, is_table: bool) -> Outcome {
        match &self.ranks {
            Ranks::Processes(_) => Ok(()),
            Ranks::Simulated(ranks) => ranks.print_timeline(is_table),
        }
    }

    /// What the simulations took so far, if the ranks are simulated.
    pub fn simulated(&self) -> Option<Vec<String>> {
        match &self.ranks {
            Ranks::Processes(_) => None,
            Ranks::Simulated(ranks) => Some(ranks.spent()),
        }
    }

    /// Tells which points will be measured, in their order: simulated ranks begin now.
    pub fn begin(&mut self, points: impl FnOnce() -> Vec<Point>) {
        if let Ranks::Simulated(ranks) = &mut self.ranks {
            ranks.begin(points());
        }
    }

    /// The limits of the device at each rank.
    ///
    /// # Errors
    /// The failure of a rank.
    pub fn limits(&mut self, port: u8) -> Outcome<Vec<Limits>> {
        if let Ranks::Simulated(ranks) = &self.ranks {
            return ranks.limits(port);
        }
        let results = self.run(&Job::Limits { device: self.device.clone(), port }, &mut |_| ());
        let results = results.map_err(|cut| cut.failure)?;
        Ok(results.into_iter().filter_map(JobResult::into_limits).collect())
    }

    /// Measures a point.
    ///
    /// # Errors
    /// Why the point was cut short or failed, with its partial results.
    pub fn measure(
        &mut self,
        point: &Point,
        on_event: &mut dyn FnMut(TeamEvent),
    ) -> Result<Measured, Box<Cut>> {
        if let Ranks::Simulated(ranks) = &mut self.ranks {
            let (measured, why) = ranks.measure(point, on_event);
            let found = joined(measured.into_iter());
            return match why {
                None => Ok(found.unwrap_or_default()),
                Some(why) => Err(Box::new(Cut { partial: found, failure: failed(why) })),
            };
        }
        let point = Box::new(PlainPoint::from(point));
        let results = self.run(&Job::Measure { device: self.device.clone(), point }, on_event)?;
        let results = results.into_iter().enumerate();
        let measured = results.filter_map(|(rank, result)| Some((rank, result.into_outcome()?)));
        let mut measured = joined(measured).unwrap_or_default();
        measured.warnings.extend(self.shared_core.clone());
        Ok(measured)
    }

    /// Makes both ends perform a task of `bench self`; returns their times, by rank.
    ///
    /// # Errors
    /// The first failure.
    pub fn bench(&mut self, task: Task) -> Outcome<Vec<Timings>> {
        if self.interrupt.is_set() {
            return Err(failed("interrupted"));
        }
        let job = Job::Bench { device: self.device.clone(), task };
        let results = self.run(&job, &mut |_| ()).map_err(|cut| cut.failure)?;
        Ok(results.into_iter().filter_map(JobResult::into_bench).collect())
    }

    fn run(
        &mut self,
        job: &Job,
        on_event: &mut dyn FnMut(TeamEvent),
    ) -> Result<Vec<JobResult>, Box<Cut>> {
        let cut = |failure, partial| Box::new(Cut { failure, partial });
        let Ranks::Processes(team) = &self.ranks else {
            return Err(cut(usage("simulated ranks measure points only"), None));
        };
        let mut workers = team.lock();
        let bytes = postcard::to_stdvec(job).map_err(|e| cut(failed(e), None))?;
        let jobs = vec![bytes; workers.infos().count()];
        let flag = self.interrupt.flag();
        match workers.run(&jobs, PATIENCE, &flag, on_event) {
            Ok(all) => {
                let decoded = all.iter().map(|bytes| postcard::from_bytes(bytes));
                let decoded: Result<Vec<JobResult>, _> = decoded.collect();
                decoded.map_err(|e| cut(failed(format!("a rank's result: {e}")), None))
            }
            Err(error) => {
                let partial = error.partial.iter().enumerate().filter_map(|(rank, bytes)| {
                    let result: JobResult = postcard::from_bytes(bytes.as_ref()?).ok()?;
                    Some((rank, result.into_outcome()?))
                });
                let partial = joined(partial);
                let what = match error.cause {
                    Cause::Interrupted => "interrupted".to_owned(),
                    _ => error.what,
                };
                Err(cut(failed(what), partial))
            }
        }
    }
}

/// Merges the results of the ranks: all series and figures, and equal facts only once.
fn joined(all: impl Iterator<Item = (usize, Measured)>) -> Option<Measured> {
    let mut sum: Option<Measured> = None;
    for (rank, mut one) in all {
        let Some(sum) = &mut sum else {
            sum = Some(one);
            continue;
        };
        // Without the fact `none`, readers would assume that this rank has the first rank's
        // profile.
        let profile = at_rank("profile", rank);
        if sum.fact("profile").is_some() && one.fact(&profile).is_none() {
            one.push_fact(&profile, "none");
        }
        sum.push_all(one.series);
        sum.figures.extend(one.figures);
        for count in one.counts {
            if !sum.counts.contains(&count) {
                sum.counts.push(count);
            }
        }
        for mut fact in one.facts {
            match sum.fact(&fact.name) {
                None => sum.facts.push(fact),
                // Each end has its own value; that of the end that takes the stamps is enough.
                Some(_) if fact.name == "stamp_cost_ns" => {}
                Some(first) if first == fact.value => {}
                Some(_) => {
                    fact.name = at_rank(&fact.name, rank);
                    sum.facts.push(fact);
                }
            }
        }
        for warning in one.warnings {
            if !sum.warnings.contains(&warning) {
                sum.warnings.push(warning);
            }
        }
        if sum.cut_short.is_none() {
            sum.cut_short = one.cut_short;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmalab_measure::Quantity;

    #[test]
    fn what_both_ends_say_is_said_once() {
        let one = |value: f64, warning: &str| {
            let mut outcome = Measured::default();
            outcome.push_figure(Quantity::CpuShare, "", value);
            outcome.push_fact("mtu_bytes", 4096);
            outcome.warnings.push(warning.to_owned());
            outcome
        };
        let (mut first, mut second) = (one(0.5, "same"), one(1.0, "same"));
        for (outcome, device, cost) in [(&mut first, "a", 20), (&mut second, "b", 25)] {
            outcome.push_fact("device", device);
            outcome.push_fact("stamp_cost_ns", cost);
        }
        let both = joined([first, second].into_iter().enumerate()).unwrap();
        assert_eq!((both.figures.len(), both.facts.len(), both.warnings.len()), (2, 4, 1));
        assert_eq!((both.fact("device"), both.fact("device_at_rank_1")), (Some("a"), Some("b")));
        assert_eq!(both.fact("stamp_cost_ns"), Some("20"));
        assert!(joined(std::iter::empty()).is_none());
    }

    #[test]
    fn an_end_without_the_profile_of_the_first_says_so() {
        let one = |facts: &[(&str, &str)]| {
            let mut outcome = Measured::default();
            facts.iter().for_each(|(name, value)| outcome.push_fact(name, value));
            outcome
        };
        let under = ("profile", "late-ack");
        let three = [one(&[under]), one(&[]), one(&[("profile_at_rank_2", "late-ack")])];
        let sum = joined(three.into_iter().enumerate()).unwrap();
        assert_eq!(sum.fact("profile_at_rank_1"), Some("none"));
        assert_eq!(sum.fact("profile_at_rank_2"), Some("late-ack"));
        let plain = joined([one(&[]), one(&[])].into_iter().enumerate()).unwrap();
        assert!(plain.facts.is_empty(), "{plain:?}");
    }
}
