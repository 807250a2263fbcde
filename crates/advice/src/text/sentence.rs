//! One answer as a sentence. U+00A0 marks blanks at which a line must not be broken.

use rdmalab_measure::group::by_key;
use rdmalab_measure::stats::Interval;
use rdmalab_measure::text;

use crate::answer::Answer;
use crate::decide::{Effect, Outcome};
use crate::goal::Goal;
use crate::question::Pick;

/// From this factor on, "times as long" says more than per cent.
const TIMES: f64 = 3.0;

/// The result of an answer.
pub fn verdict(answer: &Answer) -> String {
    let decision = &answer.decision;
    let leader = name(answer, decision.leader);
    match decision.outcome {
        _ if answer.ways.len() == 1 && !answer.without_number.is_empty() => format!(
            "cannot tell: the runs of {} have no {}: raise --messages",
            text::and(&answer.without_number),
            answer.goal.measure()
        ),
        _ if answer.ways.len() == 1 => format!("{leader} is the only one that is offered here"),
        Outcome::Best => {
            format!("{leader} is best{}{}; {}", edge(answer), losses(answer), worse(answer))
        }
        Outcome::Alike => alike(answer),
        Outcome::Open if decision.runs < decision.runs_needed => format!(
            "cannot tell: {} of each, and it takes {} at least: {}",
            text::count_of(decision.runs, "run"),
            decision.runs_needed,
            answer.command
        ),
        Outcome::Open => open(answer),
    }
}

/// A note that a larger number may be better, if the best one is the largest that was tried.
fn edge(answer: &Answer) -> &'static str {
    let is_last = answer.decision.leader + 1 == answer.ways.len();
    let is_edge = is_last && answer.question.pick == Pick::Least;
    if is_edge { ", the largest that was tried" } else { "" }
}

/// The messages that the best way lost: a high rate with losses is no advantage.
fn losses(answer: &Answer) -> String {
    let way = &answer.ways[answer.decision.leader];
    match way.lost {
        0 => String::new(),
        lost => format!(", though it lost {lost} of {} messages", way.sent),
    }
}

fn alike(answer: &Answer) -> String {
    let decision = &answer.decision;
    let same = decision.alike();
    let within = format!("within {:.0}\u{a0}%", decision.zone * 100.0);
    let rest = match decision.worse().as_slice() {
        [] => String::new(),
        _ => format!("; {}", worse(answer)),
    };
    if answer.question.pick == Pick::Least {
        let are = if same.len() == 2 { "is" } else { "are" };
        let (first, others) = (name(answer, same[0]), listed(answer, &same[1..]));
        return format!("{first} is enough: {others} {are} alike, {within}{rest}");
    }
    match rest.as_str() {
        "" => format!("no difference: {} are alike, {within}", listed(answer, &same)),
        _ => format!("{} are best, and alike, {within}{rest}", listed(answer, &same)),
    }
}

fn open(answer: &Answer) -> String {
    let decision = &answer.decision;
    let (leader, unknown) = (name(answer, decision.leader), decision.unknown());
    let text = format!("cannot tell {leader} from {}", listed(answer, &unknown));
    match decision.worse().as_slice() {
        [] => text,
        _ => format!("{text}; {}", worse(answer)),
    }
}

/// The best of the worse ways with its effect, and the names of the others.
fn worse(answer: &Answer) -> String {
    let found = answer.decision.worse();
    let Some(next) = found.first() else { return String::new() };
    let Some(effect) = answer.decision.effects[*next] else { return String::new() };
    let others = match found.len() {
        1 => String::new(),
        _ => format!(", {} even more", listed(answer, &found[1..])),
    };
    format!("{} {}{others}", name(answer, *next), against(answer.goal, &effect))
}

/// `takes 12 % longer (95 % interval 10 to 15 %)`.
fn against(goal: Goal, effect: &Effect) -> String {
    let verb = match goal {
        Goal::Latency | Goal::Predictability => ("takes", "longer", "as long"),
        Goal::Cpu => ("takes", "more", "as much"),
        Goal::Rate => ("reaches", "less", "of it"),
    };
    let ratio = effect.ratio.value;
    let ends = effect.ratio.interval;
    let (amount, between) = if ratio >= TIMES {
        let ends = ends.map(|i| format!("{}\u{a0}to\u{a0}{}", factor(i.low), factor(i.high)));
        (format!("{}\u{a0}times {}", factor(ratio), verb.2), ends)
    } else {
        let share = |r: f64| (r - 1.0).abs() * 100.0;
        let ends = ends.map(|i| {
            let (one, other) = (share(i.low), share(i.high));
            format!("{}\u{a0}to\u{a0}{}\u{a0}%", round(one.min(other)), round(one.max(other)))
        });
        (format!("{}\u{a0}% {}", round(share(ratio)), verb.1), ends)
    };
    let between = between.map(|text| format!(" (95\u{a0}% interval {text})"));
    format!("{} {amount}{}", verb.0, between.unwrap_or_default())
}

/// `+12 %`, or `x 4.2`.
pub fn percent(ratio: f64) -> String {
    if ratio >= TIMES {
        return format!("x\u{a0}{}", factor(ratio));
    }
    let share = (ratio - 1.0) * 100.0;
    let sign = if share < 0.0 { "-" } else { "+" };
    format!("{sign}{}\u{a0}%", round(share.abs()))
}

/// `+10 to +15 %`.
pub fn interval(ratio: Interval) -> String {
    format!(
        "{}\u{a0}to\u{a0}{}",
        percent(ratio.low).trim_end_matches("\u{a0}%"),
        percent(ratio.high)
    )
}

/// Two digits, or all digits before the decimal point.
fn factor(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

/// Whole per cents; below ten, with one decimal.
fn round(percent: f64) -> String {
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

fn name(answer: &Answer, i: usize) -> &str {
    &answer.ways[i].name
}

fn listed(answer: &Answer, which: &[usize]) -> String {
    let names: Vec<&str> = which.iter().map(|i| name(answer, *i)).collect();
    text::and(&names)
}

/// Conclusions from the answers at several sizes: up to which size `on` is better than `off`. One
/// line for each set of answers that differ in the size only.
pub fn thresholds(answers: &[&Answer], on: &str, off: &str) -> Vec<String> {
    let sized = answers.iter().filter_map(|answer| {
        let mut rest = answer.context.clone();
        rest.shift_remove("size_bytes")?;
        Some((rest, *answer))
    });
    let several = by_key(sized).into_iter().filter(|(_, answers)| answers.len() > 1);
    several.map(|(_, answers)| threshold(&states(&answers, on, off), on, off)).collect()
}

/// How `on` compares with `off` at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeVerdict {
    /// `on` is better.
    Pays,
    /// They are alike.
    Same,
    /// `on` is worse.
    Costs,
    /// The runs do not decide.
    Unknown,
    /// There are no runs of `on`.
    Missing,
}

/// The comparison at each size, the smallest size first.
pub fn states(answers: &[&Answer], on: &str, off: &str) -> Vec<(u64, SizeVerdict)> {
    let one = |answer: &&Answer| Some((answer.size_bytes()?, state(answer, on, off)));
    let mut found: Vec<(u64, SizeVerdict)> = answers.iter().filter_map(one).collect();
    found.sort_by_key(|(size, _)| *size);
    found
}

fn state(answer: &Answer, on: &str, off: &str) -> SizeVerdict {
    let decision = &answer.decision;
    let leader = name(answer, decision.leader);
    if !answer.ways.iter().any(|way| way.name == on) {
        return SizeVerdict::Missing;
    }
    match decision.outcome {
        Outcome::Best if leader == on => SizeVerdict::Pays,
        Outcome::Best if leader == off => SizeVerdict::Costs,
        Outcome::Alike => SizeVerdict::Same,
        _ => SizeVerdict::Unknown,
    }
}

fn threshold(sizes: &[(u64, SizeVerdict)], on: &str, off: &str) -> String {
    let first = sizes.iter().take_while(|(_, state)| *state == SizeVerdict::Pays).last();
    let mut parts = Vec::new();
    if let Some((size, _)) = first {
        parts.push(format!("{on} pays up to {size}\u{a0}B"));
    }
    let beyond = first.map_or(0, |(size, _)| *size);
    let mut say = |state: SizeVerdict, what: &str| {
        let of_state = sizes.iter().filter(|(size, s)| *s == state && *size > beyond);
        let listed: Vec<String> = of_state.map(|(size, _)| size.to_string()).collect();
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        if !listed.is_empty() {
            parts.push(format!("{what} at {}\u{a0}B", text::and(&listed)));
        }
    };
    say(SizeVerdict::Pays, &format!("{on} pays"));
    say(SizeVerdict::Same, "no difference");
    say(SizeVerdict::Costs, &format!("{off} is better"));
    say(SizeVerdict::Unknown, "cannot tell");
    say(SizeVerdict::Missing, &format!("{on} is not offered"));
    format!("over sizes: {}", parts.join("; "))
}
