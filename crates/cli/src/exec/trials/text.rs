//! What the trials say, for people: times, groups, counters, failures, and verdicts.

use rdmalab_engine::odp;
use rdmalab_experiments::Turn;
use rdmalab_measure::Quantity;
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats;
use rdmalab_measure::text::{count_of, plural};
use rdmalab_measure::two_groups::{MIN_NUMBERS, two_groups};
use rdmalab_record::{Point, Record};
use rdmalab_report::compare::{CONFIDENCE, Comparison, Options, Side};
use rdmalab_report::{Histogram, Scale};

use super::keep::{MEMORY, PAGE_FAULTS, PAGE_INTERVAL};
use crate::table::{Rows, grouped};

/// Bins of the histogram in a line.
const BINS: usize = 40;
/// Heights of its bars; the first is for none.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Failed trials that are shown one by one.
const SHOWN_FAILURES: usize = 20;
/// Rounds whose order is printed.
const SHOWN_ROUNDS: usize = 20;
/// Counters that are shown even if they are zero everywhere.
const ALWAYS: [&str; 6] =
    ["processes", "queue_pairs", "messages", "repeated_packets", "time_outs", "rnr_naks"];

/// A condition with its trials.
struct Arm<'a> {
    letter: String,
    record: &'a Record,
    name: &'a str,
    /// Times of the trials that did not fail, sorted, ns.
    times: Vec<f64>,
}

/// All of it. The records are those of the conditions, in their order.
pub fn all(records: &[Record], turns: &[Turn], seed: u64) -> String {
    let arms: Vec<Arm> = records.iter().enumerate().map(arm).collect();
    let mut parts = vec![head(&arms, turns, seed) + &memory(&arms), times(&arms)];
    parts.extend(arms.iter().filter_map(distribution));
    parts.push(counters(&arms) + &page_faults(&arms));
    parts.extend(failures(&arms));
    parts.extend(arms.iter().skip(1).map(|arm| verdict(&arms[0], arm)));
    parts.join("\n")
}

fn arm<'a>((number, record): (usize, &'a Record)) -> Arm<'a> {
    let time = |point: &Point| point.figure(Quantity::ExecutionTime);
    let mut times: Vec<f64> = record.whole_points().filter_map(time).collect();
    stats::sort(&mut times);
    let letter = u8::try_from(number).ok().filter(|number| *number < 26);
    let letter = letter.map_or(format!("{}", number + 1), |n| char::from(b'A' + n).to_string());
    Arm { letter, record, name: record.header.condition.as_deref().unwrap_or("-"), times }
}

fn head(arms: &[Arm], turns: &[Turn], seed: u64) -> String {
    let mut text = format!(
        "{}, the order in each round shuffled by the seed {seed}:",
        count_of(turns.len(), "trial")
    );
    for round in turns.chunk_by(|a, b| a.repetition == b.repetition).take(SHOWN_ROUNDS) {
        let letters: Vec<&str> = round.iter().map(|turn| &*arms[turn.point].letter).collect();
        text = format!("{text} {}", letters.concat());
    }
    let rounds = turns.last().map_or(0, |turn| turn.repetition + 1);
    if rounds > SHOWN_ROUNDS {
        text += " ...";
    }
    text + "\n"
}

/// Where the programs had their large buffers, if that is the same under all conditions.
fn memory(arms: &[Arm]) -> String {
    let first =
        |arm: &Arm| arm.record.points.first().and_then(|p| p.fact(MEMORY).map(str::to_owned));
    let mut words: Vec<String> = arms.iter().filter_map(first).collect();
    words.dedup();
    match &words[..] {
        [word] => format!("large buffers of the program are {word} memory (--memory)\n"),
        _ => String::new(),
    }
}

fn times(arms: &[Arm]) -> String {
    let head = ["", "condition", "trials", "failed", "median", "95 % interval", "min", "max"];
    let mut rows = Rows::new(&head, 2);
    for arm in arms {
        let all = arm.record.points.len();
        let mut row = vec![arm.letter.clone(), arm.name.to_owned(), all.to_string()];
        row.push((all - arm.times.len()).to_string());
        let estimate = stats::median_estimate(&arm.times, CONFIDENCE);
        let shown = |time: Option<&f64>| time.map_or("-".to_owned(), |time| fmt_ns(*time));
        let value = Some(&estimate.value).filter(|value| value.is_finite());
        let interval = estimate.interval;
        row.push(shown(value));
        row.push(
            interval.map_or("-".to_owned(), |i| format!("{} .. {}", fmt_ns(i.low), fmt_ns(i.high))),
        );
        row.extend([shown(arm.times.first()), shown(arm.times.last())]);
        rows.push(&row);
    }
    format!("execution time of the trials that did not fail\n{}", rows.text())
}

/// The histogram in a line, and whether there are two groups.
fn distribution(arm: &Arm) -> Option<String> {
    let (first, last) = (arm.times.first()?, arm.times.last()?);
    let histogram = Histogram::of(&arm.times, Scale::Auto, BINS);
    let line = bars(&histogram.counts);
    let scale = if histogram.is_log { ", logarithmic" } else { "" };
    let n = arm.times.len();
    let groups = match two_groups(&arm.times) {
        Some(found) => format!(
            "two groups: {} up to {}, and {} from {} on",
            count_of(found.lower, "trial"),
            fmt_ns(found.gap.0),
            n - found.lower,
            fmt_ns(found.gap.1)
        ),
        None if n < MIN_NUMBERS => {
            format!(
                "to decide whether there are two groups, {MIN_NUMBERS} trials without a failure \
                 are needed"
            )
        }
        None => "no two groups".to_owned(),
    };
    let Arm { letter, .. } = arm;
    let (low, high) = (fmt_ns(*first), fmt_ns(*last));
    Some(format!("{letter}  {low} |{line}| {high}{scale}\n   {groups}\n"))
}

/// The value of a counter in a trial; `None` if no process left counters.
fn counter(point: &Point, name: &str) -> Option<u64> {
    let absent = point.count("processes").is_none_or(|n| n == 0 && name != "processes");
    if absent { None } else { Some(point.count(name).unwrap_or(0)) }
}

/// The name of a counter as people write it.
fn in_words(name: &str) -> String {
    match name {
        "time_outs" => "time-outs".to_owned(),
        "rnr_naks" => "RNR NAKs".to_owned(),
        "acks_sent" => "ACKs sent".to_owned(),
        "rnr_naks_sent" => "RNR NAKs sent".to_owned(),
        other => other.replace('_', " "),
    }
}

fn counters(arms: &[Arm]) -> String {
    let mut names: Vec<&str> = ALWAYS.to_vec();
    for count in arms.iter().flat_map(|arm| &arm.record.points).flat_map(|point| &point.counts) {
        if count.value > 0 && !names.contains(&count.name.as_str()) {
            names.push(&count.name);
        }
    }
    let heads: Vec<&str> = arms.iter().map(|arm| &*arm.letter).collect();
    let mut rows = Rows::new(&[&["counted"][..], &heads[..]].concat(), 1);
    for name in names {
        let cell = |arm: &Arm| {
            let points = arm.record.points.iter();
            let mut all: Vec<u64> = points.filter_map(|point| counter(point, name)).collect();
            all.sort_unstable();
            match (all.get(all.len().saturating_sub(1) / 2), all.last()) {
                (Some(middle), Some(most)) if middle == most => grouped(*most),
                (Some(middle), Some(most)) => format!("{} ({})", grouped(*middle), grouped(*most)),
                _ => "-".to_owned(),
            }
        };
        let cells = arms.iter().map(cell);
        rows.push(&[in_words(name)].into_iter().chain(cells).collect::<Vec<_>>());
    }
    let mut text = format!(
        "counted by all processes of a trial that opened the device, failed trials included: the \
         median,\nand the largest where it differs\n{}",
        rows.text()
    );
    let lacking = |point: &&Point| !point.warnings.is_empty();
    let lacking = arms.iter().flat_map(|arm| &arm.record.points).filter(lacking);
    let doubts: Vec<&String> = lacking.clone().flat_map(|point| &point.warnings).collect();
    if let Some(first) = doubts.first() {
        let n = lacking.count();
        let has = plural(n, "trial has", "trials have");
        text += &format!("warning: {n} {has} incomplete numbers, as: {first}\n");
    }
    text
}

/// When the trials of each condition had page faults, added up.
fn page_faults(arms: &[Arm]) -> String {
    let mut text = String::new();
    for arm in arms {
        let mut all = odp::Timeline::default();
        for point in &arm.record.points {
            let series = point.series.iter().find(|one| one.label == PAGE_FAULTS);
            let samples = series.and_then(|series| arm.record.samples(series).ok());
            let interval_ns = point.fact(PAGE_INTERVAL).and_then(|text| text.parse::<u64>().ok());
            let Some((samples, interval_ns)) = samples.zip(interval_ns) else { continue };
            for (i, count) in samples.iter().enumerate() {
                let page_faults = *count as u64;
                let counters = odp::Counters { page_faults, ..odp::Counters::default() };
                all.add(i as u64 * interval_ns, &counters);
            }
        }
        let (interval_ns, all) = all.from(0);
        let each = all.len().div_ceil(BINS).max(1);
        let sum = |part: &[odp::Counters]| part.iter().map(|one| one.page_faults).sum();
        let all: Vec<u64> = all.chunks(each).map(sum).collect();
        if let Some(most) = all.iter().max().filter(|most| **most > 0) {
            let width = fmt_ns((each as u64 * interval_ns) as f64);
            text += &format!(
                "{}  page faults since the start |{}| a bar is {width}, the highest {}\n",
                arm.letter,
                bars(&all),
                grouped(*most)
            );
        }
    }
    text
}

/// A line of bars. One that is not empty is seen.
fn bars(counts: &[u64]) -> String {
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    counts.iter().map(|count| BARS[(count * 8).div_ceil(most) as usize]).collect()
}

fn failures(arms: &[Arm]) -> Option<String> {
    let points =
        arms.iter().flat_map(|arm| arm.record.points.iter().map(move |p| (p, &arm.letter)));
    let mut all: Vec<(&Point, &String, &String)> =
        points.filter_map(|(p, letter)| Some((p, letter, p.cut_short.as_ref()?))).collect();
    all.sort_by_key(|(point, ..)| point.order_index);
    let mut text = match all.len() {
        0 => return None,
        n => format!("{} failed, and no time of them is above\n", count_of(n, "trial")),
    };
    for (point, letter, reason) in all.iter().take(SHOWN_FAILURES) {
        let time = fmt_ns(point.elapsed_s * 1e9);
        let (order, round) = (point.order_index + 1, point.repetition + 1);
        text += &format!("  trial {order}, round {round}, {letter}, after {time}: {reason}\n");
    }
    if all.len() > SHOWN_FAILURES {
        text += &format!("  and {} more, which the records have\n", all.len() - SHOWN_FAILURES);
    }
    Some(text)
}

/// The comparison of a condition with the first one, as `rdmalab compare` makes it.
fn verdict(first: &Arm, other: &Arm) -> String {
    fn side<'a>(arm: &'a Arm) -> Side<'a> {
        Side { name: arm.name, records: std::slice::from_ref(arm.record) }
    }
    match Comparison::of(side(first), side(other), &Options::default()) {
        Ok(found) => found.text(false),
        Err(reason) => format!("no verdict: {reason}\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use rdmalab_experiments::shuffle;
    use rdmalab_measure::outcome::Count;

    use super::*;
    use crate::exec::paths::Memory;
    use crate::exec::program::ProgramArgs;
    use crate::exec::trials::counters::Counters;
    use crate::exec::trials::keep::Keep;
    use crate::exec::trials::process::{Termination, Trial};
    use crate::exec::trials::vary::Condition;
    use crate::link::LinkArgs;

    fn trial(ms: u64, end: Termination, time_outs: u64) -> Trial {
        let sums = vec![Count { name: "time_outs".to_owned(), value: time_outs }];
        Trial {
            started: SystemTime::now(),
            began_ns: 3_000_000,
            elapsed: Duration::from_millis(ms),
            end,
            left_behind: 0,
            last_words: Some("no more".to_owned()),
            counters: Counters { processes: 2, sums, ..Counters::default() },
        }
    }

    /// A record of 16 trials, of which each fourth takes `slow_ms`, and one more if `fails`.
    fn record(home: &Path, number: usize, odp: &str, slow_ms: u64, fails: bool) -> Record {
        let condition = Condition { values: vec![("odp".to_owned(), odp.to_owned())] };
        let args = ProgramArgs {
            device: None,
            personality: None,
            memory: Memory::Private,
            link: LinkArgs::default(),
            program: vec!["/bin/mine".into()],
        };
        let mut keep = Keep::new(home, (number, &condition), &args, (17, 3)).unwrap();
        for i in 0..16 {
            let (ms, time_outs) = if i % 4 == 3 { (slow_ms + i, 1) } else { (100 + i % 4, 0) };
            let order = 2 * i as usize + number - 1;
            keep.add(&trial(ms, Termination::Exited(0), time_outs), order, i as usize).unwrap();
        }
        if fails {
            keep.add(&trial(9000, Termination::Signalled(9), 7), 33, 16).unwrap();
        }
        keep.read().unwrap()
    }

    #[test]
    fn groups_failures_counters_and_verdicts_are_told() {
        let home = tempfile::tempdir().unwrap();
        let one = record(home.path(), 1, "off", 100, false);
        let two = record(home.path(), 2, "on", 600, true);
        let text = all(&[one.clone(), two], &shuffle(2, 17, 3), 3);
        let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "34 trials, the order in each round shuffled by the seed 3:",
            "large buffers of the program are private memory",
            "A odp=off 16 0",
            "B odp=on 17 1",
            "two groups: 12 trials up to 102 ms, and 4 from 603 ms on",
            "no two groups",
            "time-outs 0 (1) 0 (7)",
            "processes 2 2",
            "trial 34, round 17, B, after 9.00 s: signal 9 (SIGKILL): no more",
            "A | B differ in odp off | on",
            "a run of B was cut short",
        ] {
            assert!(squeezed.contains(part), "{part}: {text}");
        }
        let alone = all(&[one], &shuffle(1, 16, 3), 3);
        assert!(!alone.contains("verdict") && !alone.contains("failed, and no time"), "{alone}");
    }
}
