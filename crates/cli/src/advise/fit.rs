//! Reduces the messages of runs so that the measurement fits into its time on a slow device.
//!
//! The number of runs stays, because runs are compared. Fewer messages make the result of each run
//! less certain, so that intervals get wider or a question stays open. They do not change the
//! answer, as long as a run is longer than what is in flight at once.

use rdmalab_experiments::{Limits, Point, Signal};

use super::parts::Part;
use crate::run::plan::expected_s;

/// Time limits without `--max-time`, in seconds: with `--quick`, and without.
const QUICK_S: f64 = 100.0;
const WHOLE_S: f64 = 600.0;
/// The limit is at least this multiple of the duration on a device that answers in a microsecond:
/// many sizes or runs may take longer.
const SLACK: f64 = 2.0;
/// The fewest messages of a run: a median needs 20, and some may be lost.
const LEAST: u64 = 24;
/// A run also has at least this multiple of the messages in flight: the window fills repeatedly.
const WINDOWS: u64 = 2;
/// A shortened run has at most one warm-up message per this many messages.
const WARM_UP: u64 = 4;
/// At an intended rate, both ends wait for at least this share of the time.
const WAITING: f64 = 0.5;
/// Bisection steps.
const STEPS: usize = 40;

/// The result of shortening.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shortened {
    /// Number of parts with fewer messages.
    pub parts: usize,
    /// The fewest messages of a run among them.
    pub messages: u64,
    /// The time per message of the slowest point, in nanoseconds.
    pub slowest_ns: f64,
    /// Whether the parts still take longer than allowed.
    pub is_long: bool,
}

/// The fewest messages of a run of these points.
pub fn least_messages(points: &[Point]) -> u64 {
    let signal = |point: &Point| match point.common.signal_every {
        Signal::Every(n) => n,
        Signal::Max => point.common.tx_depth,
    };
    let in_flight = |point: &Point| point.window().max(signal(point).into());
    let deepest = points.iter().map(|point| point.common.rx_depth).max().unwrap_or(0);
    // A comparison of queue depths needs enough messages to fill each queue.
    let varies = points.iter().any(|point| point.common.rx_depth != deepest);
    let window = points.iter().map(in_flight).max().unwrap_or(1);
    let window = if varies { window.max(deepest.into()) } else { window };
    LEAST.max(WINDOWS * window)
}

/// The time limit of these parts without `--max-time`, in seconds.
pub fn allowed_s(parts: &[Part], limits: &[Limits], runs: u32, is_quick: bool) -> f64 {
    let assumed = |part: &Part| -> f64 {
        let each = part.possible(limits).into_iter().map(|i| expected_s(&part.points[i]));
        each.sum::<f64>() * f64::from(runs)
    };
    let assumed_s: f64 = parts.iter().map(assumed).sum();
    (assumed_s * SLACK).max(if is_quick { QUICK_S } else { WHOLE_S })
}

/// Shortens the parts after the trials, so that together they take `allowed_s`. Each part gets the
/// same time limit; shorter parts are not changed. `None` if nothing had to be shortened.
pub fn shorten(
    parts: &mut [Part],
    limits: &[Limits],
    runs: u32,
    allowed_s: f64,
) -> Option<Shortened> {
    parts.iter_mut().for_each(slow_down);
    let all_s = |parts: &[Part]| -> f64 { parts.iter().map(|p| p.expected_s(limits, runs)).sum() };
    if all_s(parts) <= allowed_s {
        return None;
    }
    let shortened_to = |most_s: f64| -> Vec<Part> {
        let mut parts = parts.to_vec();
        parts.iter_mut().for_each(|part| shorten_part(part, limits, runs, most_s));
        parts
    };
    let (mut low, mut high) = (0.0, all_s(parts));
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if all_s(&shortened_to(middle)) <= allowed_s { low = middle } else { high = middle }
    }
    let shortened = shortened_to(low);
    let shorter =
        |(new, old): &(&Part, &Part)| new.points[0].common.messages < old.points[0].common.messages;
    let fewer: Vec<u64> = shortened
        .iter()
        .zip(&*parts)
        .filter(shorter)
        .map(|(part, _)| part.points[0].common.messages)
        .collect();
    let slowest = shortened.iter().flat_map(|part| &part.each_ns).flatten();
    let found = Shortened {
        parts: fewer.len(),
        messages: fewer.iter().copied().min().unwrap_or(0),
        slowest_ns: slowest.copied().fold(0.0, f64::max),
        is_long: all_s(&shortened) > allowed_s,
    };
    parts.clone_from_slice(&shortened);
    Some(found)
}

/// Lowers the rate of a part until its slowest way has time to wait: the part compares how ways
/// wait.
fn slow_down(part: &mut Part) {
    let slowest_ns = part.each_ns.iter().flatten().copied().fold(0.0, f64::max);
    let Some(rate) = part.points.first().map(|point| point.common.rate_per_s) else { return };
    let most = WAITING * 1e9 / slowest_ns.max(1.0);
    if rate > 0 && (rate as f64) > most {
        part.set("rate", rounded(most as u64).max(1));
    }
}

/// Reduces the messages of a part until it takes `most_s`, but not below the fewest.
fn shorten_part(part: &mut Part, limits: &[Limits], runs: u32, most_s: f64) {
    let now_s = part.expected_s(limits, runs);
    let Some(point) = part.points.first() else { return };
    let (planned, warm_up) = (point.common.messages, point.common.warm_up);
    if now_s <= most_s {
        return;
    }
    // A part of the duration does not depend on the number of messages.
    let at = |part: &Part, messages: u64| {
        let mut part = part.clone();
        set(&mut part, messages, warm_up);
        part.expected_s(limits, runs)
    };
    let (none_s, all_s) = (at(part, 0), at(part, planned));
    let share = ((most_s - none_s) / (all_s - none_s)).clamp(0.0, 1.0);
    let least = least_messages(&part.points).min(planned);
    set(part, rounded((planned as f64 * share) as u64).clamp(least, planned), warm_up);
}

/// Rounds down in coarse steps, because runs are joined with older ones only if they have the same
/// number of messages.
fn rounded(n: u64) -> u64 {
    let unit = 10u64.pow(n.checked_ilog10().unwrap_or(0));
    let step = [7, 5, 3, 2, 1].into_iter().find(|step| step * unit <= n);
    step.map_or(0, |step| step * unit)
}

fn set(part: &mut Part, messages: u64, warm_up: u64) {
    part.set("messages", messages);
    part.set("warm-up", warm_up.min(messages / WARM_UP));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::args::AdviseArgs;
    use crate::advise::parts;
    use rdmalab_advice::question;

    /// All parts, or those of one question, with this time per message.
    fn tried(ask: &[&str], each_ns: f64) -> Vec<Part> {
        let ask = ask.iter().map(|key| question(key).unwrap()).collect();
        let mut parts =
            parts::of(&AdviseArgs { quick: true, ask, ..AdviseArgs::default() }).unwrap();
        for part in &mut parts {
            part.each_ns.fill(Some(each_ns));
        }
        parts
    }

    fn fitted(parts: &mut [Part]) -> Option<Shortened> {
        shorten(parts, &[], 8, allowed_s(parts, &[], 8, true))
    }

    fn all_s(parts: &[Part]) -> f64 {
        parts.iter().map(|part| part.expected_s(&[], 8)).sum()
    }

    #[test]
    fn a_device_that_answers_in_microseconds_keeps_its_plan() {
        for each_ns in [100.0, 3e3, 2e4] {
            let mut parts = tried(&[], each_ns);
            let before: Vec<String> = parts.iter().map(Part::line).collect();
            assert_eq!(fitted(&mut parts), None);
            assert_eq!(parts.iter().map(Part::line).collect::<Vec<_>>(), before);
        }
    }

    #[test]
    fn milliseconds_leave_fewer_messages_and_all_runs() {
        let mut parts = tried(&[], 1e6);
        assert!(all_s(&parts) > 20.0 * QUICK_S);
        let shortened = fitted(&mut parts).unwrap();
        assert!(all_s(&parts) <= QUICK_S && !shortened.is_long, "{shortened:?}");
        assert_eq!((shortened.parts, shortened.slowest_ns), (16, 1e6));
        for part in &parts {
            let point = &part.points[0];
            assert!(point.common.messages >= least_messages(&part.points), "{}", part.line());
            assert!(point.common.warm_up <= point.common.messages / WARM_UP, "{}", part.line());
            assert!(part.line().contains(&format!("--messages {}", point.common.messages)));
        }
    }

    /// With fewer messages there would be no answer, so the longer duration is reported.
    #[test]
    fn what_an_answer_takes_stays() {
        let mut parts = tried(&[], 1e8);
        let shortened = fitted(&mut parts).unwrap();
        assert!(shortened.is_long && all_s(&parts) > 10.0 * QUICK_S, "{shortened:?}");
        assert_eq!(shortened.messages, LEAST);
        let buffers = parts.iter().find(|part| part.question.key == "buffers").unwrap();
        assert_eq!(buffers.points[0].common.messages, 128);
        let depth = parts.iter().find(|part| part.question.key == "depth").unwrap();
        assert_eq!(depth.points[0].common.messages, 1024);
    }

    #[test]
    fn what_is_short_is_not_cut_for_what_is_long() {
        let mut parts = tried(&["opcode", "buffers"], 1e3);
        let [_, _, buffers] = parts.as_mut_slice() else { panic!("{parts:?}") };
        buffers.each_ns[0] = Some(1e7);
        fitted(&mut parts).unwrap();
        let messages: Vec<u64> = parts.iter().map(|part| part.points[0].common.messages).collect();
        assert_eq!(messages[..2], [2000, 10_000]);
        assert!(messages[2] < 1500, "{messages:?}");
    }

    #[test]
    fn a_rate_leaves_time_to_wait_in() {
        let rate = |each_ns| {
            let mut parts = tried(&["polling"], each_ns);
            fitted(&mut parts);
            let paced = parts.iter().find(|part| part.points[0].common.rate_per_s > 0).unwrap();
            assert!(
                paced.line().contains(&format!("--rate {}", paced.points[0].common.rate_per_s))
            );
            paced.points[0].common.rate_per_s
        };
        assert_eq!([2e5, 1e6, 1e7, 9e9].map(rate), [2000, 500, 50, 1]);
    }

    #[test]
    fn numbers_are_coarse() {
        assert_eq!(
            [0, 1, 9, 24, 49, 999, 1000, 1400].map(rounded),
            [0, 1, 7, 20, 30, 700, 1000, 1000]
        );
    }
}
