//! Two ranks that stay up for a whole run, and what they measure point by point.

use std::time::Duration;

use rdmalab_experiments::{Limits, Point};
use rdmalab_measure::Outcome as Measured;
use rdmalab_measure::limits::{available_cores, one_cpu, two_cores};
use rdmalab_rank::process::{Cause, Place, Spec, Team, TeamEvent, WorkerCommand};

use super::job::{Home, Job};
use crate::bench::work::{Found, Order};
use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::interrupt::Interrupt;

/// How long a rank waits for the other one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the two ends are.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// The other end, or `None` for this machine.
    pub host: Option<String>,
    /// What `--cores` said.
    pub cores: Option<String>,
}

/// A team of two.
pub struct Session {
    team: Team,
    interrupt: Interrupt,
    device: String,
}

/// A point that did not end as it should.
pub struct Cut {
    /// What was measured of it nevertheless.
    pub partial: Option<Measured>,
    /// Why.
    pub failure: Failure,
}

impl Session {
    /// Starts both ends and opens the device in neither yet.
    ///
    /// # Errors
    /// What cannot be started, and what to do.
    pub fn open(interrupt: &Interrupt, device: &str, ends: &Ends) -> Outcome<Self> {
        let worker = WorkerCommand::this_program(["worker"]).map_err(failed)?;
        let place = match &ends.host {
            None => Place::Local(worker.clone()),
            Some(host) => Place::Remote(host.clone()),
        };
        let cores = ends.cores()?;
        let spec = |place, core: Option<usize>| Spec {
            place,
            cores: core.into_iter().collect(),
            yielding: None,
        };
        let specs = [spec(Place::Local(worker), cores[0]), spec(place, cores[1])];
        let team = Team::start(&specs).map_err(|error| failed(error.what))?;
        Ok(Self { team, interrupt: interrupt.clone(), device: device.to_owned() })
    }

    /// What the device can at each end.
    ///
    /// # Errors
    /// What a rank says.
    pub fn limits(&mut self, port: u8) -> Outcome<Vec<Limits>> {
        let homes = self.run(&Job::Limits { device: self.device.clone(), port }, &mut |_| ());
        let homes = homes.map_err(|cut| cut.failure)?;
        Ok(homes.into_iter().filter_map(Home::into_limits).collect())
    }

    /// Measures a point.
    ///
    /// # Errors
    /// Why it did not end as it should, with what was measured.
    pub fn measure(
        &mut self,
        point: &Point,
        on_event: &mut dyn FnMut(TeamEvent),
    ) -> Result<Measured, Box<Cut>> {
        let point = Box::new(point.clone());
        let homes = self.run(&Job::Measure { device: self.device.clone(), point }, on_event)?;
        let measured = homes.into_iter().filter_map(Home::into_outcome);
        Ok(joined(measured).unwrap_or_default())
    }

    /// Has both ends do something for `bench self`; what each found, by rank.
    ///
    /// # Errors
    /// The first failure.
    pub fn bench(&mut self, order: Order) -> Outcome<Vec<Found>> {
        if self.interrupt.is_set() {
            return Err(failed("interrupted"));
        }
        let job = Job::Bench { device: self.device.clone(), order };
        let homes = self.run(&job, &mut |_| ()).map_err(|cut| cut.failure)?;
        Ok(homes.into_iter().filter_map(Home::into_bench).collect())
    }

    fn run(
        &mut self,
        job: &Job,
        on_event: &mut dyn FnMut(TeamEvent),
    ) -> Result<Vec<Home>, Box<Cut>> {
        let cut = |failure, partial| Box::new(Cut { failure, partial });
        let bytes = postcard::to_stdvec(job).map_err(|e| cut(failed(e), None))?;
        let jobs = vec![bytes; self.team.infos().count()];
        let flag = self.interrupt.flag();
        match self.team.run(&jobs, PATIENCE, &flag, on_event) {
            Ok(all) => {
                let decoded = all.iter().map(|bytes| postcard::from_bytes(bytes));
                let decoded: Result<Vec<Home>, _> = decoded.collect();
                decoded.map_err(|e| cut(failed(format!("a rank's result: {e}")), None))
            }
            Err(error) => {
                let some = error.partial.iter().flatten();
                let homes = some.filter_map(|bytes| postcard::from_bytes::<Home>(bytes).ok());
                let partial = joined(homes.filter_map(Home::into_outcome));
                let what = match error.cause {
                    Cause::Interrupted => "interrupted".to_owned(),
                    _ => error.what,
                };
                Err(cut(failed(what), partial))
            }
        }
    }
}

impl Ends {
    /// The CPU of each end.
    fn cores(&self) -> Outcome<[Option<usize>; 2]> {
        // A server on this machine takes a core of this machine.
        let remote = self.host.as_deref().is_some_and(|host| !is_here(host));
        let Some(text) = &self.cores else {
            let (first, second) = two_cores();
            return Ok(match (one_cpu(), remote) {
                (true, _) => [None, None],
                (false, true) => [Some(first), None],
                (false, false) => [Some(first), Some(second)],
            });
        };
        if text == "none" {
            return Ok([None, None]);
        }
        let wrong = |why: String| usage(format!("--cores {text}: {why}"));
        let numbers: Option<Vec<usize>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
        let Some(&[a, b]) = numbers.as_deref() else {
            return Err(wrong("it takes two numbers, as 0,1, or none".to_owned()));
        };
        let allowed = available_cores().map_err(failed)?;
        let ours = if remote { vec![a] } else { vec![a, b] };
        match ours.into_iter().find(|core| !allowed.contains(core)) {
            None => Ok([Some(a), Some(b)]),
            Some(core) => Err(wrong(format!(
                "this process may not run on core {core}; it may on {allowed:?}"
            ))),
        }
    }
}

/// Whether a host is this machine, by one of the names that say so themselves.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None if host.matches(':').count() > 1 => host,
        None => host.split(':').next().unwrap_or(host),
    };
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// What the ranks brought home as one: series and figures of all, what they agree on once.
fn joined(all: impl Iterator<Item = Measured>) -> Option<Measured> {
    let mut sum: Option<Measured> = None;
    for one in all {
        let Some(sum) = &mut sum else {
            sum = Some(one);
            continue;
        };
        sum.series.extend(one.series);
        sum.figures.extend(one.figures);
        for count in one.counts {
            if !sum.counts.contains(&count) {
                sum.counts.push(count);
            }
        }
        for mut fact in one.facts {
            match sum.fact(&fact.name) {
                None => sum.facts.push(fact),
                // Each end has its own; the one of the end that takes the stamps is enough.
                Some(_) if fact.name == "stamp_cost_ns" => {}
                Some(first) if first == fact.value => {}
                Some(_) => {
                    fact.name.push_str("_at_rank_1");
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
        let both = joined([first, second].into_iter()).unwrap();
        assert_eq!((both.figures.len(), both.facts.len(), both.warnings.len()), (2, 4, 1));
        assert_eq!((both.fact("device"), both.fact("device_at_rank_1")), (Some("a"), Some("b")));
        assert_eq!(both.fact("stamp_cost_ns"), Some("20"));
        assert!(joined(std::iter::empty()).is_none());
    }

    #[test]
    fn names_of_this_machine_are_known() {
        for here in ["localhost", "localhost:99", "127.0.0.1:18515", "::1", "[::1]:7", "127.1.2.3"]
        {
            assert!(is_here(here), "{here}");
        }
        for there in ["host", "host:99", "10.0.0.1", "[fe80::1]:7", "localhost.example.org"] {
            assert!(!is_here(there), "{there}");
        }
    }

    #[test]
    fn cores_are_two_numbers_that_there_are() {
        let cores = |text: &str, host: Option<&str>| {
            let ends = Ends { host: host.map(str::to_owned), cores: Some(text.to_owned()) };
            ends.cores().map_err(|failure| failure.to_string())
        };
        assert_eq!(cores("none", None), Ok([None, None]));
        let first = available_cores().unwrap()[0];
        assert_eq!(cores(&format!("{first},{first}"), None), Ok([Some(first), Some(first)]));
        // Whether the other machine has such a core is for that machine to say.
        assert_eq!(cores(&format!("{first},9999"), Some("h")), Ok([Some(first), Some(9999)]));
        for wrong in ["0", "0,1,2", "a,b", "", "0,-1"] {
            let said = cores(wrong, None).unwrap_err();
            assert!(said.contains("two numbers"), "{said}");
        }
        assert!(cores("9999,0", None).unwrap_err().contains("core 9999"));
    }
}
