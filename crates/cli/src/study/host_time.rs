//! How long this machine needs for the sweeps of a study on a simulated device: an estimate from
//! short simulations of some of their points. `--max-time` counts in this time.

use rdmalab_experiments::{Limits, Point};
use rustix::time::{ClockId, clock_gettime};

use super::dir::Request;
use super::host_cost::{Cost, HostTime, Trial, interpolated};
use super::parts::Part;
use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;
use crate::simulated::{Setup, profile};

/// Messages of the first two trials of a point. They tell how many events a message has.
const MESSAGES: [u64; 2] = [2, 8];
/// Where no trial has told what an event takes, s.
const EVENT_S: f64 = 5e-7;
/// The last trial of a point is to take longer than the one before by its time, or by this one, so
/// that what an event takes is seen beside the setup.
const MORE_S: f64 = 5e-3;
/// How much processor time all trials take. Each sweep has a share of what is left, and one point
/// at least.
const LONGEST_S: f64 = 6.0;

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
    let began_s = processor_s();
    let mut last = Cost { once_s: 0.0, run_s: 0.0, message_s: 1e-5 };
    let mut left = parts.iter().filter(|part| !part.possible(Some(limits)).is_empty()).count();
    for part in parts {
        let Some(profile) = profile(&part.request(request).device)? else { return Ok(()) };
        let ranks = part.ranks().unwrap_or(2);
        let setup = Setup::new(profile, ranks, &LinkArgs::default(), interrupt);
        let points = part.possible(Some(limits));
        if points.is_empty() {
            continue;
        }
        let now_s = processor_s();
        let share_s = (LONGEST_S - (now_s - began_s)).max(0.0) / left.max(1) as f64;
        left = left.saturating_sub(1);
        let mut known: Vec<(usize, Cost)> = Vec::new();
        for index in in_turn(points.len()) {
            known.extend(cost(&setup, points[index]).map(|cost| (index, cost)));
            if interrupt.is_set() {
                return Err(failed("interrupted"));
            }
            if processor_s() - now_s > share_s {
                break;
            }
        }
        known.sort_unstable_by_key(|(index, _)| *index);
        let costs = (0..points.len()).map(|index| interpolated(&known, index).unwrap_or(last));
        let costs: Vec<Cost> = costs.collect();
        let is_drawn = points.iter().map(|point| setup.is_drawn(point)).collect();
        last = costs.last().copied().unwrap_or(last);
        part.host = Some(HostTime { costs, is_drawn });
    }
    Ok(())
}

/// The points to try, the most telling ones first: the last, the first, and then between. The
/// costs of the rest are interpolated.
fn in_turn(points: usize) -> Vec<usize> {
    let end = points.saturating_sub(1);
    let mut found = Vec::new();
    for index in [end, 0, end / 2, end / 4, end * 3 / 4] {
        if !found.contains(&index) {
            found.push(index);
        }
    }
    found
}

/// What a point takes; `None` if a trial fails.
fn cost(setup: &Setup, point: &Point) -> Option<Cost> {
    let (runs, messages) = (point.common.runs, point.common.messages);
    let [first, short] = MESSAGES.map(|few| trial(setup, point, 1, messages.min(few)));
    let (first, short) = (first?, short?);
    let of_message = short.events.saturating_sub(first.events) as f64
        / short.messages.saturating_sub(first.messages).max(1) as f64;
    let more = short.cpu_s.max(MORE_S) / (EVENT_S * of_message.max(1.0));
    let longer = messages.min(short.messages.saturating_add(more as u64));
    let long = match (runs.min(2), longer) {
        (1, same) if same == short.messages => short,
        (runs, messages) => trial(setup, point, runs, messages)?,
    };
    Some(Cost::of([first, short, long]))
}

/// Simulates a point with other runs and messages; `None` if that fails.
fn trial(setup: &Setup, point: &Point, runs: u64, messages: u64) -> Option<Trial> {
    let short = point.with(|common| {
        (common.messages, common.runs, common.warm_up) = (messages, runs, 0);
    });
    let began_s = processor_s();
    let done = setup.simulate(&short, None);
    let cpu_s = processor_s() - began_s;
    done.why.is_none().then_some(Trial { runs, messages, events: done.report.events, cpu_s })
}

/// Processor time of this thread, which simulates a whole point. Unlike the time that passes, it
/// does not grow while others have the processor.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
