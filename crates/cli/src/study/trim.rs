//! Less of the same: what is repeated is repeated less often, so that a study fits into a time.

use std::time::Duration;

use rdmalab_experiments::Point;
use rdmalab_study::Words;

/// Messages of a run are not cut below this: a median needs them.
const LEAST_MESSAGES: u64 = 20;

/// Where each message has a long pause, nor below this: with fewer, no interval of a median has
/// 95 %.
const LEAST_PAUSED: u64 = 6;

/// Nothing can be cut further than by this share.
const LEAST_SHARE: f64 = 1e-7;

/// Steps in which a share is found.
const STEPS: usize = 14;

/// A long pause.
const LONG_NS: u64 = 100_000_000;

/// Where runs are the samples: not cut below what an interval needs.
const LEAST_RUNS: u64 = 6;

/// A time as `90s`, `10m`, `2h`; seconds without a unit.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: write it as 90s, 10m or 2h");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[end..] {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..end].parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * factor).ok().filter(|t| !t.is_zero()).ok_or_else(wrong)
}

/// What is left of a sweep when only `share` of it may be measured: repetitions go first, then
/// runs, then messages; where runs are the samples, messages before runs.
pub fn trimmed(words: &Words, repeat: u32, point: &Point, share: f64) -> (Words, u32) {
    if share >= 1.0 {
        return (words.clone(), repeat);
    }
    let repeats = ((f64::from(repeat) * share).floor() as u32).clamp(1, repeat);
    let left = share * f64::from(repeat) / f64::from(repeats);
    let (runs, messages) = (point.common.runs, point.common.messages);
    let cut =
        |n: u64, share: f64, least: u64| ((n as f64 * share).floor() as u64).clamp(least.min(n), n);
    let (runs, messages) = if point.experiment().samples_runs() {
        let fewer = cut(messages, left, LEAST_MESSAGES);
        let left = left * messages as f64 / fewer as f64;
        (cut(runs, left, LEAST_RUNS), fewer)
    } else {
        let fewer = cut(runs, left, 1);
        let left = left * runs as f64 / fewer as f64;
        let least = if point.common.pause_ns >= LONG_NS { LEAST_PAUSED } else { LEAST_MESSAGES };
        (fewer, cut(messages, left, least))
    };
    let mut words = words.clone();
    set(&mut words, "runs", runs, point.common.runs);
    set(&mut words, "messages", messages, point.common.messages);
    (words, repeats)
}

/// So many of some values, evenly: always the first and the last.
pub fn spread(all: &[u64], wanted: usize) -> Vec<u64> {
    let wanted = wanted.clamp(2.min(all.len()), all.len());
    let at = |i: usize| all[(i * (all.len() - 1) + (wanted - 1) / 2) / (wanted - 1).max(1)];
    if wanted < 2 { all.to_vec() } else { (0..wanted).map(at).collect() }
}

/// The largest share at which `expected_s` is not more than that time; as far down as it goes.
pub fn share_for(time_s: f64, expected_s: impl Fn(f64) -> f64) -> f64 {
    // Shares span many powers of ten: a pause of a second is a million short messages.
    let (mut low, mut high) = (LEAST_SHARE.ln(), 0.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if expected_s(middle.exp()) <= time_s { low = middle } else { high = middle }
    }
    low.exp()
}

/// Sets an option that is no list, where the value is another one.
fn set(words: &mut Words, name: &str, value: u64, before: u64) {
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
    fn times_are_written_with_their_unit() {
        let seconds = |text| time(text).map(|t| t.as_secs_f64());
        assert_eq!(seconds("90"), Ok(90.0));
        assert_eq!(seconds("1.5m"), Ok(90.0));
        assert_eq!(seconds("2h"), Ok(7200.0));
        for wrong in ["", "s", "0", "5d", "-1s", "1e400"] {
            assert!(seconds(wrong).unwrap_err().contains("10m"), "{wrong}");
        }
    }

    #[test]
    fn repetitions_go_first_then_runs_then_messages() {
        let words =
            Words::of_line(&["oneway", "--runs", "10", "--messages", "8000"].map(String::from));
        let words = words.unwrap();
        let mut point = Point::default_for(Experiment::Oneway);
        (point.common.runs, point.common.messages) = (10, 8000);
        let line = |share: f64, repeat| {
            let (words, repeat) = trimmed(&words, repeat, &point, share);
            format!("{repeat} x {}", words.line().join(" "))
        };
        assert_eq!(line(1.0, 5), "5 x oneway --runs 10 --messages 8000");
        assert_eq!(line(0.4, 5), "2 x oneway --runs 10 --messages 8000");
        assert_eq!(line(0.02, 5), "1 x oneway --runs 1 --messages 8000");
        assert_eq!(line(0.002, 5), "1 x oneway --runs 1 --messages 800");
        assert_eq!(line(1e-9, 5), "1 x oneway --runs 1 --messages 20");
    }

    #[test]
    fn what_is_left_lies_evenly() {
        let all: Vec<u64> = (0..10).collect();
        assert_eq!(spread(&all, 0), [0, 9]);
        assert_eq!(spread(&all, 3), [0, 5, 9]);
        assert_eq!(spread(&all, 4), [0, 3, 6, 9]);
        assert_eq!((spread(&all, 99), spread(&[7], 0), spread(&[], 3)), (all, vec![7], vec![]));
    }

    #[test]
    fn what_cannot_be_cut_is_made_up_for_by_the_rest() {
        // A floor of 30 s, and 1000 s of which everything can go.
        let expected_s = |share: f64| f64::max(30.0, 50.0 * share) + 1000.0 * share;
        let share = share_for(60.0, expected_s);
        assert!((59.5..=60.0).contains(&expected_s(share)), "{share}");
        assert!(share_for(10.0, expected_s) < 1e-6);
    }

    #[test]
    fn long_pauses_leave_what_an_interval_needs() {
        let words = Words::of_line(&["oneway", "--messages", "8000"].map(String::from)).unwrap();
        let mut point = Point::default_for(Experiment::Oneway);
        (point.common.runs, point.common.messages, point.common.pause_ns) =
            (1, 8000, 1_000_000_000);
        let (cut, _) = trimmed(&words, 1, &point, 1e-9);
        assert_eq!(cut.line().join(" "), "oneway --messages 6");
    }

    #[test]
    fn blast_keeps_its_runs_and_lists_stay() {
        let mut point = Point::default_for(Experiment::Blast);
        (point.common.runs, point.common.messages) = (8, 1000);
        let words = Words::of_line(&["blast", "--runs", "8"].map(String::from)).unwrap();
        let (cut, _) = trimmed(&words, 1, &point, 0.1);
        assert_eq!(cut.line().join(" "), "blast --runs 8 --messages 100");
        let words = Words::of_line(&["blast", "--messages", "500,1000"].map(String::from)).unwrap();
        let (cut, _) = trimmed(&words, 1, &point, 0.1);
        assert_eq!(cut.line().join(" "), "blast --messages 500,1000");
    }
}
