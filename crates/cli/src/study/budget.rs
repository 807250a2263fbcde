//! Fits a study into `--max-time`: every part is shortened to the same share of its work. If that
//! is not enough, every sweep has fewer points.

use std::time::Duration;

use rdmalab_experiments::Limits;

use super::parts::{Part, What};
use super::program;
use super::shorten::{share_for, shortened, thinned};
use crate::run::plan::duration;

/// A plan may exceed the time by this factor without a warning.
const SLACK: f64 = 1.1;

/// Shortens the parts so that together they take `time`. Each part is shortened to the same share;
/// if a part has reached its minimum, the others are shortened more. If all have, sweeps keep the
/// first and the last number of each list, and those between as far as they fit.
pub fn fit(parts: &mut [Part], time: Duration, limits: &Limits) {
    let expected_s = |parts: &[Part]| -> f64 {
        parts.iter().map(|part| part.size(Some(limits)).expected_s).sum()
    };
    let (time_s, all_s) = (time.as_secs_f64(), expected_s(parts));
    if time_s >= all_s {
        return;
    }
    let shortened_to = |share: f64| -> Vec<Part> {
        let mut parts = parts.to_vec();
        parts.iter_mut().for_each(|part| shorten(part, share));
        parts
    };
    let share = share_for(time_s, |share| expected_s(&shortened_to(share)));
    let fitted = shortened_to(share);
    parts.clone_from_slice(&fitted);
    if expected_s(parts) > time_s * SLACK {
        thin(parts, time_s, &expected_s, limits);
    }
    let least_s = expected_s(parts);
    if least_s > time_s * SLACK {
        errln!(
            "--max-time {}: the plan takes at least {}, because each point needs a few messages \
             (6 with long pauses) and each program its first and last size: choose figures with \
             --figure",
            duration(time_s),
            duration(least_s)
        );
    }
}

/// Leaves points of all sweeps out, and tells how many.
fn thin(parts: &mut [Part], time_s: f64, expected_s: &impl Fn(&[Part]) -> f64, limits: &Limits) {
    let thinned_to = |share: f64| -> Vec<Part> {
        let mut parts = parts.to_vec();
        for part in &mut parts {
            if let What::Experiment(_, points) = &part.what {
                part.words = thinned(&part.words, points, share);
                part.look_up();
            }
        }
        parts
    };
    let points =
        |parts: &[Part]| -> usize { parts.iter().map(|part| part.size(Some(limits)).points).sum() };
    let share = share_for(time_s, |share| expected_s(&thinned_to(share)));
    let (fitted, all) = (thinned_to(share), points(parts));
    let left = points(&fitted);
    if left < all {
        errln!(
            "--max-time {}: {} of {all} points are left out, between the ends of their sweeps: \
             claims about them cannot be judged",
            duration(time_s),
            all - left
        );
    }
    parts.clone_from_slice(&fitted);
}

/// Shortens a part to a share of its work.
pub fn shorten(part: &mut Part, share: f64) {
    // Repetitions that are simulated once take no time.
    let is_once = part.host.as_ref().is_some_and(|host| !host.repeats());
    let repeat = if is_once { 1 } else { part.repeat };
    let (words, fewer) = match &part.what {
        What::Experiment(_, points) => match points.first() {
            Some(point) => shortened(&part.words, repeat, point, share),
            None => return,
        },
        What::Program(cases) => program::shortened(&part.words, repeat, cases, share),
        What::Application(_) => {
            let fewer = (f64::from(repeat) * share).floor() as u32;
            (part.words.clone(), fewer.clamp(1, repeat))
        }
        What::Missing(_) | What::NotAsked => return,
    };
    part.words = words;
    if !is_once {
        part.repeat = fewer;
    }
    part.look_up();
}
