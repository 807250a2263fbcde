//! Simulated devices, `sim:PROFILE`: ranks and adapters in virtual time, all of a point in one
//! process.

mod ahead;
mod captures;
mod effects;
mod job;
mod loggp;
mod parameters;
mod repeats;
mod spent;
mod spread;
mod timeline;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rdmalab_experiments::{Limits, Point};
use rdmalab_measure::Outcome as Measured;
use rdmalab_rank::process::{RankInfo, TeamEvent};
use rdmalab_sim::{Profile, RawLoop, Report, SHIPPED, Simulation, name_of_device};
use rdmalab_verbs::Device;

use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;
use crate::team::Team;
use ahead::Ahead;
use captures::Captures;
use effects::Effects;
use job::Done;
pub use job::{Setup, device_of, simulate_errand};
pub use parameters::{ablated, described, list_parameters};
use repeats::Repeats;
pub use spent::{Spent, warn_of_debug_build};
use spread::Spread;
pub use timeline::Wanted;

/// The ranks of a run in virtual time.
pub struct Simulated {
    setup: Setup,
    /// The processes that share the points; `None`: this one alone.
    team: Option<Team>,
    ahead: Source,
    captures: Option<Captures>,
    repeats: Repeats,
    spent: Spent,
    effects: Effects,
    /// The longest loop of a rank that is slow to simulate.
    raw_loop: Option<RawLoop>,
    /// What the last point took, with the steps of the wanted message.
    last: Report,
}

/// Where the results of points come from.
enum Source {
    /// Each point is simulated when it is asked for.
    Asked,
    /// Threads of this process.
    Threads(Ahead),
    /// Other processes.
    Processes(Box<Spread>),
}

/// The profile of a simulated device; `None` for another kind of device.
///
/// # Errors
/// There is no such profile, or it is wrong.
pub fn profile(device: &str) -> Outcome<Option<Profile>> {
    let found = name_of_device(device).map(rdmalab_sim::find).transpose();
    found.map_err(|error| usage(format!("--device {error}")))
}

/// The names of the devices of the shipped profiles.
pub fn names() -> Vec<String> {
    SHIPPED.iter().map(|(name, _)| format!("sim:{name}")).collect()
}

/// The names of the devices of the shipped profiles, with what each is.
pub fn titles() -> BTreeMap<String, String> {
    let title = |(name, _): &(&str, &str)| {
        let title = rdmalab_sim::find(name).map_or_else(|error| error.to_string(), |it| it.title);
        (format!("sim:{name}"), title)
    };
    SHIPPED.iter().map(title).collect()
}

/// A simulated device on its own, to be queried.
///
/// # Errors
/// The device cannot be listed.
pub fn device(profile: &Profile) -> Outcome<Device> {
    job::device_of(&Simulation::new(profile, 1, Default::default()))
}

/// A point on an adapter, with the number of its ranks.
pub type Task = (Arc<Profile>, usize, Point);

/// Simulates points, each on a profile of its own; returns what the ranks measured, or why a point
/// failed, in the order of the tasks. What that takes is added to `spent`.
///
/// # Errors
/// The user wants to stop.
pub fn simulate(
    tasks: Vec<Task>,
    interrupt: &Interrupt,
    spent: &mut Spent,
) -> Outcome<Vec<Result<Measured, String>>> {
    let setup = |(profile, ranks, point): Task| {
        let link = LinkArgs::default();
        (Arc::new(Setup::new(Profile::clone(&profile), ranks, &link, interrupt)), point)
    };
    let tasks: Vec<(Arc<Setup>, Point)> = tasks.into_iter().map(setup).collect();
    let ahead = Ahead::new(tasks.clone());
    let mut found = Vec::with_capacity(tasks.len());
    for (setup, point) in &tasks {
        let done = ahead.take(point).unwrap_or_else(|| setup.simulate(point, None));
        if interrupt.is_set() {
            return Err(failed("interrupted"));
        }
        spent.add(&done.report);
        let mut all = Measured::default();
        for (_, one) in done.measured {
            all.push_all(one.series);
            all.figures.extend(one.figures);
        }
        found.push(done.why.map_or(Ok(all), Err));
    }
    Ok(found)
}

/// Checks the models of points on a profile.
///
/// # Errors
/// What is wrong with one of them.
pub fn check(profile: Profile, points: &[Point]) -> Outcome {
    Setup::unmeasured(profile).check(points)
}

impl Simulated {
    /// The ranks of a run; their packets are captured in these files, by rank, if there are some.
    /// A team shares the points.
    pub fn new(setup: Setup, captures: Vec<PathBuf>, team: Option<Team>) -> Simulated {
        Simulated {
            setup,
            team,
            ahead: Source::Asked,
            captures: (!captures.is_empty()).then(|| Captures::new(captures)),
            repeats: Repeats::default(),
            spent: Spent::begin(),
            effects: Effects::default(),
            raw_loop: None,
            last: Report::default(),
        }
    }

    /// The limits of the device at each rank.
    ///
    /// # Errors
    /// The error of the device.
    pub fn limits(&self, port: u8) -> Outcome<Vec<Limits>> {
        let Setup { profile, ranks, .. } = &self.setup;
        let context = device(profile)?.open().map_err(failed)?;
        let limits = Limits::query(&context, port).map_err(failed)?;
        let does = format!("{} (model {:016x})", profile.title, profile.hash());
        let profile = Some((profile.name.clone(), does));
        Ok(vec![Limits { profile, ..limits }; *ranks])
    }

    /// Checks the models of all points.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn check(&self, points: &[Point]) -> Outcome {
        self.setup.check(points)
    }

    /// Begins to simulate points, which will be asked for in this order. Those that are captured
    /// begin one after the other, since they go to the same files.
    pub fn begin(&mut self, points: Vec<Point>) {
        warn_of_debug_build();
        // First the earlier ones end.
        self.ahead = Source::Asked;
        if self.captures.is_some() {
            return;
        }
        let setup = self.setup.clone();
        let points = self.repeats.begin(points, &setup);
        self.ahead = match &self.team {
            None => {
                let setup = Arc::new(setup);
                let task = |point| (setup.clone(), point);
                Source::Threads(Ahead::new(points.into_iter().map(task).collect()))
            }
            Some(team) => Source::Processes(Box::new(Spread::new(setup, team.clone(), points))),
        };
    }

    /// Measures a point; returns the results by rank, and the reason if it failed.
    pub fn measure(
        &mut self,
        point: &Point,
        on_event: &mut dyn FnMut(TeamEvent),
    ) -> (Vec<(usize, Measured)>, Option<String>) {
        let done = self.repeats.take(point).unwrap_or_else(|| {
            let done: Option<Done> = match &mut self.ahead {
                Source::Asked => None,
                Source::Threads(ahead) => ahead.take(point),
                Source::Processes(spread) => spread.take(point, on_event),
            };
            let simulate = || self.setup.simulate(point, self.captures.as_mut());
            let done = done.unwrap_or_else(simulate);
            self.repeats.keep(point, &done);
            done
        });
        self.spent.add(&done.report);
        let loops = self.raw_loop.take().into_iter().chain(done.report.raw_loops.clone());
        self.raw_loop = loops.max_by_key(|one| one.calls);
        self.last = done.report;
        self.effects.note(point, &done.measured);
        (done.measured, done.why)
    }

    /// Keeps the steps of a message of each point.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn keep_timeline(&mut self, wanted: Option<Wanted>) -> Outcome {
        self.setup.timeline = wanted;
        wanted.map_or(Ok(()), |wanted| wanted.check(self.setup.ranks))
    }

    /// Prints the steps of the wanted message of the last point, and where the time of all its
    /// messages went.
    ///
    /// # Errors
    /// The rank has not posted so many.
    pub fn print_timeline(&self, is_table: bool) -> Outcome {
        let Some(wanted) = self.setup.timeline else { return Ok(()) };
        let text = wanted.text(&self.last)?;
        match is_table {
            true => outln!("{text}"),
            false => errln!("{text}"),
        }
        Ok(())
    }

    /// What the simulations took, and what changed nothing, for people.
    pub fn spent(&self) -> Vec<String> {
        let mut lines = vec![self.spent.text()];
        match self.repeats.spared {
            0 => {}
            1 => lines
                .push("one repetition was not simulated: it would give the same result".to_owned()),
            n => lines.push(format!(
                "{n} repetitions were not simulated: they would give the same results"
            )),
        }
        if let Some(team) = &self.team {
            let team = team.lock();
            let one = |(rank, info): (usize, &RankInfo)| {
                format!("{} by process {rank} on {}", info.alone, info.host)
            };
            let shares: Vec<String> = team.infos().enumerate().map(one).collect();
            lines.push(format!("points simulated: {}", shares.join(", ")));
        }
        lines.extend(self.raw_loop.as_ref().map(slow_loop));
        let idle = self.effects.idle();
        if !idle.is_empty() {
            lines.push(format!("no result changes with --sim {}", idle.join(", ")));
        }
        lines
    }
}

/// What a loop costs that an experiment makes itself, for people.
fn slow_loop(RawLoop { rank, call, calls }: &RawLoop) -> String {
    format!(
        "rank {rank} called {call} {calls} times in a row: its own polling loop gives correct \
         results, but is slow to simulate; `Rank::spin` and `Rank::busy_until` are fast"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_loop_is_named_with_its_rank_and_call() {
        let one = RawLoop { rank: 3, call: "`now`".to_owned(), calls: 70_000 };
        assert!(slow_loop(&one).starts_with("rank 3 called `now` 70000 times in a row: "));
    }
}
