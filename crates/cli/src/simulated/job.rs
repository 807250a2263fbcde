//! One point in virtual time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rdmalab_experiments::{PlainPoint, Point};
use rdmalab_measure::{Outcome as Measured, at_rank};
use rdmalab_provider::table::instance_table;
use rdmalab_provider::{Devices, diag, exports};
use rdmalab_rank::Stopped;
use rdmalab_sim::{Profile, Report, SimBackend, Simulation};
use rdmalab_verbs::{Device, Instance, Kind, Library};
use serde::{Deserialize, Serialize};

use super::captures::Captures;
use super::timeline::Wanted;
use crate::device_counts::{push_packets, push_pages};
use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;

/// The device that the ranks of a simulation see.
///
/// # Errors
/// The device cannot be listed.
pub fn device_of(simulation: &Simulation) -> Outcome<Device> {
    let devices = Devices::new(simulation.backend());
    let instance = Instance {
        devices: Box::new(move || devices.list()),
        wait_event: exports::wait_cq_event::<SimBackend>,
        wait_async_event: exports::wait_async_event::<SimBackend>,
        last_error: diag::last_error,
    };
    let library = Library::of_instance(instance_table::<SimBackend>(), Kind::Sim, instance);
    let mut found = library.devices().map_err(failed)?;
    found.pop().ok_or_else(|| failed("the simulation has no device"))
}

/// What all points of a run have in common.
#[derive(Clone)]
pub struct Setup {
    pub profile: Profile,
    pub ranks: usize,
    /// Set when the user wants to stop.
    pub asked: Arc<AtomicBool>,
    /// The message whose steps are wanted.
    pub timeline: Option<Wanted>,
    /// Fault rules of each adapter.
    faults: Option<String>,
}

/// What became of a point.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Done {
    /// The results of the ranks that have some.
    pub measured: Vec<(usize, Measured)>,
    /// Why it failed or ended early.
    pub why: Option<String>,
    pub report: Report,
}

/// A point for another process to simulate. It has the values of the model, since the file of a
/// profile may not exist there.
#[derive(Serialize, Deserialize)]
struct Errand {
    profile: Profile,
    ranks: usize,
    timeline: Option<Wanted>,
    faults: Option<String>,
    point: PlainPoint,
}

/// Simulates a point for another process, until `asked` is set.
///
/// # Errors
/// The bytes are no such point, or the result cannot be sent.
pub fn simulate_errand(bytes: &[u8], asked: &Arc<AtomicBool>) -> Result<Vec<u8>, String> {
    let other = |why: String| format!("{why}: start all processes with the same program");
    let errand: Errand = postcard::from_bytes(bytes).map_err(|e| other(e.to_string()))?;
    let Errand { profile, ranks, timeline, faults, point } = errand;
    let point = Point::try_from(point).map_err(|why| other(why.to_string()))?;
    let setup = Setup { profile, ranks, asked: asked.clone(), timeline, faults };
    let done = setup.simulate(&point, None);
    postcard::to_stdvec(&done).map_err(|e| format!("the result cannot be sent: {e}"))
}

impl Setup {
    /// A run of this many ranks, on adapters as the profile says.
    pub fn new(profile: Profile, ranks: usize, link: &LinkArgs, interrupt: &Interrupt) -> Setup {
        let (asked, faults) = (interrupt.flag(), link.faults.clone());
        Setup { profile, ranks, asked, timeline: None, faults }
    }

    /// A profile alone, of which nothing is measured.
    pub fn unmeasured(profile: Profile) -> Setup {
        Setup { profile, ranks: 1, asked: Arc::default(), timeline: None, faults: None }
    }

    /// A point as a job for another process.
    ///
    /// # Errors
    /// It cannot be sent.
    pub fn job(&self, point: &Point) -> Result<Vec<u8>, String> {
        let Setup { profile, ranks, timeline, faults, .. } = self.clone();
        let errand = Errand { profile, ranks, timeline, faults, point: PlainPoint::from(point) };
        postcard::to_stdvec(&errand).map_err(|e| format!("the point cannot be sent: {e}"))
    }

    /// The model of a point: the profile with the changes of its `--link` and `--sim`.
    ///
    /// # Errors
    /// There is no such parameter, or its value is out of range.
    pub fn model_of(&self, point: &Point) -> Outcome<Profile> {
        let mut model = self.profile.clone();
        // There are none for `profile`, which changes nothing.
        let link = rdmalab_sim::link_values(point.common.model.link.name());
        for (name, value) in link.into_iter().flatten() {
            model.parameters.set(name, value).map_err(failed)?;
        }
        for (name, value) in point.common.model.changes() {
            let set = model.parameters.set(name, value);
            set.map_err(|why| usage(format!("--sim {why}")))?;
        }
        Ok(model)
    }

    /// Whether something is drawn at random for each repetition of a point.
    pub fn is_drawn(&self, point: &Point) -> bool {
        let is_noisy = self.model_of(point).is_ok_and(|model| {
            let parameters = model.parameters;
            parameters.has_noise() || (point.pages_on_demand() && parameters.has_paging_noise())
        });
        is_noisy || self.faults.is_some() || point.common.rate_per_s > 0
    }

    /// Checks the models of all points.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn check(&self, points: &[Point]) -> Outcome {
        points.iter().try_for_each(|point| self.model_of(point).map(drop))
    }

    /// Measures a point, and captures its packets if there are captures.
    pub fn simulate(&self, point: &Point, captures: Option<&mut Captures>) -> Done {
        self.simulate_until(point, captures, Arc::default())
    }

    /// The same, until nobody wants the result any more.
    pub fn simulate_until(
        &self,
        point: &Point,
        captures: Option<&mut Captures>,
        is_over: Arc<AtomicBool>,
    ) -> Done {
        self.try_simulate(point, captures, is_over)
            .unwrap_or_else(|failure| Done { why: Some(failure.to_string()), ..Done::default() })
    }

    fn try_simulate(
        &self,
        point: &Point,
        mut captures: Option<&mut Captures>,
        is_over: Arc<AtomicBool>,
    ) -> Outcome<Done> {
        let model = self.model_of(point)?;
        let simulation = Simulation::new(&model, self.ranks, self.asked.clone());
        let mut simulation = simulation.with_seed(point.common.stream_seed()).stopped_by(is_over);
        if let Some(Wanted { rank, message }) = self.timeline {
            simulation = simulation.with_timeline(rank, message);
        }
        if let Some(rules) = &self.faults {
            simulation = simulation.with_faults(rules, point.common.stream).map_err(usage)?;
        }
        if let Some(captures) = captures.as_deref_mut() {
            simulation = captures.of(simulation).map_err(failed)?;
        }
        let device = device_of(&simulation)?;
        let is_drawn = self.is_drawn(point);
        let (results, report) = simulation.run(|rank| {
            let mut measured = rdmalab_experiments::run(rank, &device, point)?;
            // Which model the results are of.
            measured.push_fact("model", format!("{} {:016x}", model.name, model.hash()));
            if is_drawn {
                // So another repetition gives other numbers.
                measured.push_fact("drawn", "yes");
            }
            Ok(measured)
        });
        // The first failure of a rank's own is the reason; the others only tell that it failed.
        let own = |result: &&Result<Measured, Stopped>| {
            matches!(result, Err(Stopped::Failed(_) | Stopped::TimedOut(_)))
        };
        let failed = results.iter().find(own).or_else(|| results.iter().find(|r| r.is_err()));
        let why = failed.and_then(|result| result.as_ref().err()).map(Stopped::to_string);
        let why = why.or_else(|| report.capture_error.clone());
        let capture = |rank| captures.as_ref().map(|captures| captures.name(rank));
        let numbered = results.into_iter().enumerate();
        let measured = numbered.filter_map(|(rank, result)| {
            let mut measured = self.labelled(result.ok()?, rank, report.disturbed[rank]);
            fn named((name, count): &(String, u64)) -> (&str, u64) {
                (name, *count)
            }
            push_pages(&mut measured, rank, report.pages[rank].iter().map(named));
            push_packets(&mut measured, rank, point, report.counted[rank].iter().map(named));
            if let Some(name) = capture(rank) {
                measured.push_fact(&at_rank("capture", rank), name);
            }
            if let Some(wanted) = self.timeline.filter(|wanted| wanted.rank == rank) {
                wanted.keep(&mut measured, &report.breakdown);
            }
            Some((rank, measured))
        });
        let measured = measured.collect();
        if let Some(captures) = captures {
            captures.pass(report.time);
        }
        Ok(Done { measured, why, report })
    }

    /// Adds which faults the results of a rank are under.
    fn labelled(&self, mut measured: Measured, rank: usize, disturbed: u64) -> Measured {
        if let Some(rules) = &self.faults {
            measured.push_fact(&at_rank("faults", rank), rules);
            measured.push_count(&at_rank("disturbed_packets", rank), disturbed);
            measured.warnings.push(format!(
                "packets were disturbed on purpose ({rules}): the numbers show these conditions, \
                 not the model without them"
            ));
        }
        measured
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::{Experiment, Limits, sweep};

    use super::*;

    /// Points are checked against the limits of a changed model, before there is a device of it.
    #[test]
    fn the_limits_of_a_changed_model_are_those_of_its_device() {
        let setup = Setup::unmeasured(rdmalab_sim::find("connectx4").unwrap());
        let limits = |profile: &Profile| {
            let simulation = Simulation::new(profile, 1, Arc::default());
            let context = device_of(&simulation).unwrap().open().unwrap();
            Limits::query(&context, 1).unwrap()
        };
        let base = limits(&setup.profile);
        for change in [
            "profile",
            "post_ns=1",
            "max_wr=100",
            "max_sge=3;max_inline_bytes=100",
            "max_inline_bytes=0",
            "max_rd_atomic=1",
            "mtu_bytes=256",
            "mtu_bytes=2048",
            "mtu_bytes=4096",
            "odp_resolve_ns=0",
            "ack_timeout_min_code=3",
        ] {
            let options = [("sim", change)];
            let point = sweep(Experiment::PING, &options).unwrap().remove(0);
            let model = setup.model_of(&point).unwrap();
            let expected = limits(&model);
            assert_eq!(*base.of_model(&point.common.model), expected, "{change}");
        }
    }
}
