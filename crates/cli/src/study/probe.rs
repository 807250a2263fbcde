//! Short trials of some points of each sweep, which measure the time per message here, so that the
//! expected durations and `--max-time` fit this device.

use std::time::{Duration, Instant};

use rdmalab_experiments::{Experiment, Limits, Point, check};

use super::dir::Request;
use super::parts::{Part, What};
use super::shorten::evenly_spaced;
use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::run::args::HowArgs;
use crate::run::ends::Ends;
use crate::run::probe::each_ns;
use crate::run::session::Session;

/// Points of a sweep that are tried.
const POINTS: usize = 3;
/// After this duration, the remaining sweeps are estimated from those that were tried.
const LONGEST: Duration = Duration::from_secs(20);
/// A sweep with more ranks is not tried: they take too long to start.
const RANKS: usize = 8;

/// Tries the sweeps that can be measured, and sets [`Part::more_ns`]. A failed trial is ignored,
/// because the measurement reports the failure.
///
/// # Errors
/// The trials were interrupted.
pub fn all(
    parts: &mut [Part],
    request: &Request,
    limits: &Limits,
    interrupt: &Interrupt,
) -> Outcome {
    let mut ranks = Ranks { interrupt, open: None };
    let began = Instant::now();
    let mut known: Vec<(Experiment, f64)> = Vec::new();
    for part in parts {
        let What::Experiment(args, points) = &part.what else { continue };
        let possible: Vec<&Point> =
            points.iter().filter(|p| check(p, part.conditions.limits(limits)).is_ok()).collect();
        if !args.experiment.waits() || possible.is_empty() {
            continue;
        }
        if began.elapsed() > LONGEST {
            part.more_ns = usual(&known, args.experiment);
            continue;
        }
        let how = HowArgs { repeat: 1, ..part.how(args, request) };
        let session = match ranks.of(args.experiment, &how, &part.request(request).device) {
            Err(_) if !interrupt.is_set() => continue,
            Err(_) => return Err(failed("interrupted")),
            Ok(None) => continue,
            Ok(Some(session)) => session,
        };
        let found = more_ns(&possible, session);
        known.extend(found.map(|more_ns| (args.experiment, more_ns)));
        if found.is_none() {
            ranks.open = None;
        }
        part.more_ns = found;
        if interrupt.is_set() {
            return Err(failed("interrupted"));
        }
    }
    Ok(())
}

/// The ranks of the trials. Sweeps of the same experiment and options share them.
struct Ranks<'a> {
    interrupt: &'a Interrupt,
    open: Option<(String, Session)>,
}

impl Ranks<'_> {
    /// Ranks for an experiment; `None` if it needs too many ranks for a trial.
    ///
    /// # Errors
    /// They cannot be started; the measurement reports it.
    fn of(
        &mut self,
        experiment: Experiment,
        how: &HowArgs,
        device: &str,
    ) -> Outcome<Option<&mut Session>> {
        let kind = format!("{experiment:?} {how:?}");
        if self.open.as_ref().is_none_or(|(other, _)| *other != kind) {
            let ends = Ends::of(experiment, how)?;
            if ends.count() > RANKS {
                return Ok(None);
            }
            let session = Session::open(self.interrupt, device, &ends)?;
            self.open = Some((kind, session));
        }
        Ok(self.open.as_mut().map(|(_, session)| session))
    }
}

/// The median of the sweeps of an experiment.
fn usual(known: &[(Experiment, f64)], experiment: Experiment) -> Option<f64> {
    let alike = known.iter().filter(|(other, _)| *other == experiment);
    let mut found: Vec<f64> = alike.map(|(_, more_ns)| *more_ns).collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}

/// The mean over some of the points; `None` if one fails.
fn more_ns(points: &[&Point], session: &mut Session) -> Option<f64> {
    let indices: Vec<u64> = (0..points.len() as u64).collect();
    let tried = evenly_spaced(&indices, POINTS);
    let mut sum_ns = 0.0;
    for index in &tried {
        let point = points[*index as usize];
        let least = 2 * point.window();
        sum_ns += (each_ns(point, least, session)? - point.message_ns()).max(0.0);
    }
    Some(sum_ns / tried.len() as f64)
}
