//! Simulated devices, `sim:PROFILE`: ranks and adapters in virtual time, all in this process.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdmalab_experiments::{Limits, Point};
use rdmalab_measure::Outcome as Measured;
use rdmalab_provider::table::instance_table;
use rdmalab_provider::{Devices, diag, exports};
use rdmalab_rank::Stopped;
use rdmalab_sim::{Parameters, Profile, SHIPPED, SimBackend, SimRank, Simulation, name_of_device};
use rdmalab_verbs::{Device, Instance, Kind, Library};

use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::table::Rows;

/// The ranks of a run in virtual time.
pub struct Simulated {
    profile: Profile,
    ranks: usize,
    interrupt: Interrupt,
    spent: Cell<Spent>,
}

/// What all simulations of a run took.
#[derive(Clone, Copy, Default)]
struct Spent {
    events: u64,
    virtual_s: f64,
    real: Duration,
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

/// The device that the ranks of a simulation see.
///
/// # Errors
/// The device cannot be listed.
fn device_of(simulation: &Simulation) -> Outcome<Device> {
    let devices = Devices::new(simulation.backend());
    let instance = Instance {
        devices: Box::new(move || devices.list()),
        wait_event: exports::wait_cq_event::<SimBackend>,
        last_error: diag::last_error,
    };
    let library = Library::of_instance(instance_table::<SimBackend>(), Kind::Sim, instance);
    let mut found = library.devices().map_err(failed)?;
    found.pop().ok_or_else(|| failed("the simulation has no device"))
}

/// A simulated device on its own, to be queried.
///
/// # Errors
/// The device cannot be listed.
pub fn device(profile: &Profile) -> Outcome<Device> {
    device_of(&Simulation::new(profile, 1, Arc::default()))
}

impl Simulated {
    /// Ranks of this number, on adapters as the profile says.
    pub fn new(profile: Profile, ranks: usize, interrupt: &Interrupt) -> Simulated {
        if cfg!(debug_assertions) {
            errln!("this is a debug build: simulations take much longer than in a release build");
        }
        Simulated { profile, ranks, interrupt: interrupt.clone(), spent: Cell::default() }
    }

    /// The limits of the device at each rank.
    ///
    /// # Errors
    /// The error of the device.
    pub fn limits(&self, port: u8) -> Outcome<Vec<Limits>> {
        let context = device(&self.profile)?.open().map_err(failed)?;
        let limits = Limits::query(&context, port).map_err(failed)?;
        let does = format!("{} (model {:016x})", self.profile.title, self.profile.hash());
        let profile = Some((self.profile.name.clone(), does));
        Ok(vec![Limits { profile, ..limits }; self.ranks])
    }

    /// The model of a point: the profile with the changes of its `--sim`.
    ///
    /// # Errors
    /// There is no such parameter, or its value is out of range.
    fn profile_of(&self, point: &Point) -> Outcome<Profile> {
        let mut profile = self.profile.clone();
        for (name, value) in point.common.model.changes() {
            profile
                .set(name, value)
                .map_err(|why| usage(format!("--sim {name}={value}: {why}")))?;
        }
        Ok(profile)
    }

    /// Checks the models of all points.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn check(&self, points: &[Point]) -> Outcome {
        points.iter().try_for_each(|point| self.profile_of(point).map(drop))
    }

    /// Measures a point; returns the results by rank, or the reason why one of them failed.
    pub fn measure(&self, point: &Point) -> (Vec<(usize, Measured)>, Option<String>) {
        if point.common.share_qp && point.common.threads > 1 {
            return (
                Vec::new(),
                Some("--share-qp: threads that share queue pairs are not simulated yet".to_owned()),
            );
        }
        let profile = match self.profile_of(point) {
            Ok(profile) => profile,
            Err(failure) => return (Vec::new(), Some(failure.to_string())),
        };
        let began = Instant::now();
        let simulation = Simulation::new(&profile, self.ranks, self.interrupt.flag());
        let device = match device_of(&simulation) {
            Ok(device) => device,
            Err(failure) => return (Vec::new(), Some(failure.to_string())),
        };
        let one = |rank: &SimRank| {
            rdmalab_experiments::run(rank, &device, point)
                .map(|outcome| labelled(&profile, outcome))
        };
        let (results, report) = simulation.run(one);
        let mut spent = self.spent.get();
        spent.events += report.events;
        spent.virtual_s += report.time.ns() / 1e9;
        spent.real += began.elapsed();
        self.spent.set(spent);
        // The first failure of a rank's own is the reason; the others only tell that it failed.
        let own = |result: &&Result<Measured, Stopped>| {
            matches!(result, Err(Stopped::Failed(_) | Stopped::TimedOut(_)))
        };
        let failed = results.iter().find(own).or_else(|| results.iter().find(|r| r.is_err()));
        let why = failed.and_then(|result| result.as_ref().err()).map(Stopped::to_string);
        let numbered = results.into_iter().enumerate();
        (numbered.filter_map(|(rank, result)| Some((rank, result.ok()?))).collect(), why)
    }

    /// What the simulations took, for people.
    pub fn spent(&self) -> String {
        let Spent { events, virtual_s, real } = self.spent.get();
        let real_s = real.as_secs_f64().max(1e-9);
        format!(
            "simulated {virtual_s:.6} s in {real_s:.2} s: {events} events, {:.2} million a second, \
             {:.3} virtual seconds a second",
            events as f64 / real_s / 1e6,
            virtual_s / real_s
        )
    }
}

/// Adds to results which model they are of.
fn labelled(profile: &Profile, mut outcome: Measured) -> Measured {
    outcome.push_fact("model", format!("{} {:016x}", profile.name, profile.hash()));
    outcome
}

/// Prints the parameters of a simulated device: value, how well it is known, and meaning.
///
/// # Errors
/// There is no such profile.
pub fn list_parameters(device: &str, is_json: bool) -> Outcome {
    let Some(found) = profile(device)? else {
        let names = names().join(", ");
        return Err(usage(format!(
            "--parameters {device}: it is not simulated; there are {names}"
        )));
    };
    // Rates are kept in whole picoseconds for 2^20 bytes.
    let value = |name| (found.parameters.get(name).unwrap_or(0.0) * 1e3).round() / 1e3;
    let mark = |name| found.entries.get(name).map(|entry| entry.mark.name());
    if is_json {
        let each = Parameters::ALL.iter().map(|parameter| {
            serde_json::json!({
                "name": parameter.name,
                "value": value(parameter.name),
                "min": parameter.min,
                "max": parameter.max,
                "mark": mark(parameter.name),
                "from": found.entries.get(parameter.name).map(|entry| &entry.from),
                "meaning": parameter.meaning.trim(),
            })
        });
        let all: Vec<_> = each.collect();
        let value = serde_json::json!({
            "profile": found.name, "title": found.title, "lacks": found.lacks, "parameters": all,
        });
        outln!("{value:#}");
        return Ok(());
    }
    outln!("{}: {}", found.name, found.title);
    outln!("It lacks {}.\n", found.lacks);
    let mut rows = Rows::new(&["parameter", "value", "known", "meaning"], 4);
    for parameter in Parameters::ALL {
        rows.push(&[
            parameter.name.to_owned(),
            value(parameter.name).to_string(),
            mark(parameter.name).unwrap_or("default").to_owned(),
            parameter.meaning.trim().to_owned(),
        ]);
    }
    out!("{}", rows.text());
    Ok(())
}
