//! How long this machine needs for the sweeps of a study on a simulated device: an estimate from
//! short simulations of some of their points. `--max-time` counts in this time.

use std::time::{Duration, Instant};

use rdmalab_experiments::{Limits, Point};

use super::dir::Request;
use super::host_cost::{Cost, HostTime, interpolated};
use super::parts::Part;
use super::shorten::evenly_spaced;
use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;
use crate::simulated::{Setup, profile};

/// Points of a sweep that are tried. Those between are interpolated.
const POINTS: usize = 3;
/// Messages of the trials of a point.
const MESSAGES: [u64; 4] = [2, 8, 64, 256];
/// A point whose trial takes longer than this is not tried with more messages. There are two trials
/// at least: one alone does not tell messages from the setup of large memory.
const LONG: Duration = Duration::from_millis(100);
/// After this duration, the remaining sweeps are taken to be like those that were tried.
const LONGEST: Duration = Duration::from_secs(5);

/// Tries the sweeps that can be measured, and sets [`Part::host`], if the device is simulated. A
/// failed trial is ignored, because the measurement reports the failure.
///
/// # Errors
/// The trials were interrupted.
pub fn all(
    parts: &mut [Part],
    request: &Request,
    limits: &Limits,
    interrupt: &Interrupt,
) -> Outcome {
    let (began, mut last) = (Instant::now(), Cost { once_s: 0.0, message_s: 1e-5 });
    for part in parts {
        let Some(profile) = profile(&part.request(request).device)? else { return Ok(()) };
        let ranks = part.ranks().unwrap_or(2);
        let setup = Setup::new(profile, ranks, &LinkArgs::default(), interrupt);
        let points = part.possible(Some(limits));
        if points.is_empty() {
            continue;
        }
        let indices: Vec<u64> = (0..points.len() as u64).collect();
        let mut known: Vec<(usize, Cost)> = Vec::new();
        for index in evenly_spaced(&indices, POINTS) {
            if began.elapsed() > LONGEST {
                break;
            }
            let found = cost(&setup, points[index as usize]);
            if interrupt.is_set() {
                return Err(failed("interrupted"));
            }
            known.extend(found.map(|cost| (index as usize, cost)));
        }
        let costs = (0..points.len()).map(|index| interpolated(&known, index).unwrap_or(last));
        let costs: Vec<Cost> = costs.collect();
        let is_drawn = points.iter().map(|point| setup.is_drawn(point)).collect();
        last = costs.last().copied().unwrap_or(last);
        part.host = Some(HostTime { costs, is_drawn });
    }
    Ok(())
}

/// What a point takes; `None` if a trial fails.
fn cost(setup: &Setup, point: &Point) -> Option<Cost> {
    let mut trials = Vec::new();
    for messages in MESSAGES {
        let short = point.with(|common| {
            let messages = messages.min(common.messages);
            (common.messages, common.runs, common.warm_up) = (messages, 1, 0);
        });
        let began = Instant::now();
        let done = setup.simulate(&short, None);
        if done.why.is_some() {
            break;
        }
        trials.push((short.common.total(), began.elapsed().as_secs_f64()));
        let is_long = trials.len() > 1 && began.elapsed() > LONG;
        if is_long || short.common.messages == point.common.messages {
            break;
        }
    }
    // The first one also brings code and data into the caches.
    let later = if trials.len() > 2 { &trials[1..] } else { &trials[..] };
    (!later.is_empty()).then(|| Cost::of(later))
}
