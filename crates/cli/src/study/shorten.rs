//! Shortens a sweep by fewer repetitions, runs and messages, and then by fewer points, so that a
//! study fits into a time.

use rdmalab_experiments::Point;
use rdmalab_study::SweepCommand;

/// The fewest messages of a run: a median needs them.
const LEAST_MESSAGES: u64 = 20;

/// The fewest messages if each has a long pause: with fewer, a median has no 95 % interval.
const LEAST_PAUSED: u64 = 6;

/// The smallest share of the time.
const LEAST_SHARE: f64 = 1e-7;

/// Bisection steps when a share is searched.
const STEPS: usize = 14;

/// From this duration on, a pause is long.
const LONG_NS: u64 = 100_000_000;

/// The fewest runs if each run is a sample: an interval needs them.
const LEAST_RUNS: u64 = 6;

/// The options and repetitions of a sweep that takes `share` of the time: repetitions are reduced
/// first, then runs, then messages; if each run is a sample, messages before runs.
pub fn shortened(
    words: &SweepCommand,
    repeat: u32,
    point: &Point,
    share: f64,
) -> (SweepCommand, u32) {
    if share >= 1.0 {
        return (words.clone(), repeat);
    }
    let repeats = ((f64::from(repeat) * share).floor() as u32).clamp(1, repeat);
    let left = share * f64::from(repeat) / f64::from(repeats);
    let (runs, messages) = (point.common.runs, point.common.messages);
    let reduced =
        |n: u64, share: f64, least: u64| ((n as f64 * share).floor() as u64).clamp(least.min(n), n);
    let (runs, messages) = if point.experiment().samples_runs() {
        let fewer = reduced(messages, left, LEAST_MESSAGES);
        let left = left * messages as f64 / fewer as f64;
        (reduced(runs, left, LEAST_RUNS), fewer)
    } else {
        let fewer = reduced(runs, left, 1);
        let left = left * runs as f64 / fewer as f64;
        let least = if point.common.pause_ns >= LONG_NS { LEAST_PAUSED } else { LEAST_MESSAGES };
        (fewer, reduced(messages, left, least))
    };
    let mut words = words.clone();
    set(&mut words, "runs", runs, point.common.runs);
    set(&mut words, "messages", messages, point.common.messages);
    (words, repeats)
}

/// The options of a sweep with `share` of the values of each list of numbers, at least the first
/// and the last one.
pub fn thinned(words: &SweepCommand, points: &[Point], share: f64) -> SweepCommand {
    let mut words = words.clone();
    let Some(experiment) = points.first().map(Point::experiment) else { return words };
    for option in experiment.options().iter().filter(|option| option.is_number) {
        let Some((_, list)) = words.options.iter_mut().find(|(name, _)| name == option.name) else {
            continue;
        };
        let all = option.values(list).unwrap_or_default();
        let places: Vec<u64> = (0..all.len() as u64).collect();
        let kept = evenly_spaced(&places, (all.len() as f64 * share).floor() as usize);
        if kept.len() < all.len() {
            let kept: Vec<&str> = kept.iter().map(|place| all[*place as usize].as_str()).collect();
            *list = kept.join(",");
        }
    }
    words
}

/// `wanted` values at even distances, including the first and the last.
pub fn evenly_spaced(all: &[u64], wanted: usize) -> Vec<u64> {
    let wanted = wanted.clamp(2.min(all.len()), all.len());
    let at = |i: usize| all[(i * (all.len() - 1) + (wanted - 1) / 2) / (wanted - 1).max(1)];
    if wanted < 2 { all.to_vec() } else { (0..wanted).map(at).collect() }
}

/// The largest share whose `expected_s` is at most `time_s`, or the smallest share.
pub fn share_for(time_s: f64, expected_s: impl Fn(f64) -> f64) -> f64 {
    // Shares span many powers of ten: a pause of a second lasts as long as a million messages.
    let (mut low, mut high) = (LEAST_SHARE.ln(), 0.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if expected_s(middle.exp()) <= time_s { low = middle } else { high = middle }
    }
    low.exp()
}

/// Sets an option to another value, unless it is a list.
fn set(words: &mut SweepCommand, name: &str, value: u64, before: u64) {
    if value == before {
        return;
    }
    match words.options.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) if old.contains([',', '.']) => {}
        Some((_, old)) => *old = value.to_string(),
        None => words.options.push((name.to_owned(), value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::Experiment;

    use super::*;

    #[test]
    fn repetitions_go_first_then_runs_then_messages() {
        let words = SweepCommand::of_line(
            &["oneway", "--runs", "10", "--messages", "8000"].map(String::from),
        );
        let words = words.unwrap();
        let mut point = Point::default_for(Experiment::ONEWAY);
        (point.common.runs, point.common.messages) = (10, 8000);
        let line = |share: f64, repeat| {
            let (words, repeat) = shortened(&words, repeat, &point, share);
            format!("{repeat} x {}", words.line().join(" "))
        };
        assert_eq!(line(1.0, 5), "5 x oneway --runs 10 --messages 8000");
        assert_eq!(line(0.4, 5), "2 x oneway --runs 10 --messages 8000");
        assert_eq!(line(0.02, 5), "1 x oneway --runs 1 --messages 8000");
        assert_eq!(line(0.002, 5), "1 x oneway --runs 1 --messages 800");
        assert_eq!(line(1e-9, 5), "1 x oneway --runs 1 --messages 20");
    }

    #[test]
    fn points_go_between_the_ends_of_lists_of_numbers() {
        let line = "oneway --transport rc,uc,ud --size 8..128*2 --depth 4 --messages 20";
        let parts: Vec<String> = line.split(' ').map(String::from).collect();
        let words = SweepCommand::of_line(&parts).unwrap();
        let points = [Point::default_for(Experiment::ONEWAY)];
        let left = |share| thinned(&words, &points, share).line().join(" ");
        assert_eq!(left(1.0), line);
        assert_eq!(left(0.7), line.replace("8..128*2", "8,32,128"));
        assert_eq!(left(0.0), line.replace("8..128*2", "8,128"));
        assert_eq!(thinned(&words, &[], 0.0).line().join(" "), line);
    }

    #[test]
    fn what_is_left_lies_evenly() {
        let all: Vec<u64> = (0..10).collect();
        assert_eq!(evenly_spaced(&all, 0), [0, 9]);
        assert_eq!(evenly_spaced(&all, 3), [0, 5, 9]);
        assert_eq!(evenly_spaced(&all, 4), [0, 3, 6, 9]);
        assert_eq!(
            (evenly_spaced(&all, 99), evenly_spaced(&[7], 0), evenly_spaced(&[], 3)),
            (all, vec![7], vec![])
        );
    }

    #[test]
    fn what_cannot_be_cut_is_made_up_for_by_the_rest() {
        // A minimum of 30 s, and 1000 s that can be reduced to nothing.
        let expected_s = |share: f64| f64::max(30.0, 50.0 * share) + 1000.0 * share;
        let share = share_for(60.0, expected_s);
        assert!((59.5..=60.0).contains(&expected_s(share)), "{share}");
        assert!(share_for(10.0, expected_s) < 1e-6);
    }

    #[test]
    fn long_pauses_leave_what_an_interval_needs() {
        let words =
            SweepCommand::of_line(&["oneway", "--messages", "8000"].map(String::from)).unwrap();
        let mut point = Point::default_for(Experiment::ONEWAY);
        (point.common.runs, point.common.messages, point.common.pause_ns) =
            (1, 8000, 1_000_000_000);
        let (cut, _) = shortened(&words, 1, &point, 1e-9);
        assert_eq!(cut.line().join(" "), "oneway --messages 6");
    }

    #[test]
    fn blast_keeps_its_runs_and_lists_stay() {
        let mut point = Point::default_for(Experiment::BLAST);
        (point.common.runs, point.common.messages) = (8, 1000);
        let words = SweepCommand::of_line(&["blast", "--runs", "8"].map(String::from)).unwrap();
        let (cut, _) = shortened(&words, 1, &point, 0.1);
        assert_eq!(cut.line().join(" "), "blast --runs 8 --messages 100");
        let words =
            SweepCommand::of_line(&["blast", "--messages", "500,1000"].map(String::from)).unwrap();
        let (cut, _) = shortened(&words, 1, &point, 0.1);
        assert_eq!(cut.line().join(" "), "blast --messages 500,1000");
    }
}
