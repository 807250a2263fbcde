//! Simulated devices, `sim:PROFILE`: ranks and adapters in virtual time, all in this process.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdmalab_experiments::{Limits, Point};
use rdmalab_measure::Outcome as Measured;
use rdmalab_provider::table::instance_table;
use rdmalab_provider::{Devices, diag, exports};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_sim::{Profile, SimBackend, SimRank, Simulation, name_of_device};
use rdmalab_verbs::{Device, Instance, Kind, Library};

use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;

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

    /// Measures a point; returns the results by rank, or the reason why one of them failed.
    pub fn measure(&self, point: &Point) -> (Vec<Measured>, Option<String>) {
        if point.common.share_qp && point.common.threads > 1 {
            return (
                Vec::new(),
                Some("--share-qp: threads that share queue pairs are not simulated yet".to_owned()),
            );
        }
        let began = Instant::now();
        let simulation = Simulation::new(&self.profile, self.ranks, self.interrupt.flag());
        let device = match device_of(&simulation) {
            Ok(device) => device,
            Err(failure) => return (Vec::new(), Some(failure.to_string())),
        };
        let one = |rank: &SimRank| {
            rdmalab_experiments::run(rank, &device, point)
                .map(|outcome| self.labelled(rank, outcome))
        };
        let results = simulation.run(one);
        let report = simulation.report();
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
        (results.into_iter().filter_map(Result::ok).collect(), why)
    }

    /// Adds to the results of rank 0 that they are a model's, and which.
    fn labelled(&self, rank: &SimRank, mut outcome: Measured) -> Measured {
        if rank.index() == 0 {
            outcome
                .push_fact("model", format!("{} {:016x}", self.profile.name, self.profile.hash()));
        }
        outcome
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
