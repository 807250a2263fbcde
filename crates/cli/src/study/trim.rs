//! Less of the same: what is repeated is repeated less often, so that a study fits into a time.

use std::time::Duration;

use rdmalab_experiments::{Experiment, Point};
use rdmalab_study::Words;

/// Messages of a run are not cut below this: a median needs them.
const LEAST_MESSAGES: u64 = 20;

/// Runs of `blast` are its samples: not cut below what an interval needs.
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
/// runs, then messages; of `blast`, messages before runs.
pub fn trimmed(words: &Words, repeat: u32, point: &Point, share: f64) -> (Words, u32) {
    if share >= 1.0 {
        return (words.clone(), repeat);
    }
    let repeats = ((f64::from(repeat) * share).floor() as u32).clamp(1, repeat);
    let left = share * f64::from(repeat) / f64::from(repeats);
    let (runs, messages) = (point.runs, point.messages);
    let cut =
        |n: u64, share: f64, least: u64| ((n as f64 * share).floor() as u64).clamp(least.min(n), n);
    let (runs, messages) = if point.experiment == Experiment::Blast {
        let fewer = cut(messages, left, LEAST_MESSAGES);
        let left = left * messages as f64 / fewer as f64;
        (cut(runs, left, LEAST_RUNS), fewer)
    } else {
        let fewer = cut(runs, left, 1);
        let left = left * runs as f64 / fewer as f64;
        (fewer, cut(messages, left, LEAST_MESSAGES))
    };
    let mut words = words.clone();
    set(&mut words, "runs", runs, point.runs);
    set(&mut words, "messages", messages, point.messages);
    (words, repeats)
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
        (point.runs, point.messages) = (10, 8000);
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
    fn blast_keeps_its_runs_and_lists_stay() {
        let mut point = Point::default_for(Experiment::Blast);
        (point.runs, point.messages) = (8, 1000);
        let words = Words::of_line(&["blast", "--runs", "8"].map(String::from)).unwrap();
        let (cut, _) = trimmed(&words, 1, &point, 0.1);
        assert_eq!(cut.line().join(" "), "blast --runs 8 --messages 100");
        let words = Words::of_line(&["blast", "--messages", "500,1000"].map(String::from)).unwrap();
        let (cut, _) = trimmed(&words, 1, &point, 0.1);
        assert_eq!(cut.line().join(" "), "blast --messages 500,1000");
    }
}
