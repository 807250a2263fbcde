//! The plan of a run: the points, their order, the impossible points, and the expected duration.

use std::time::Duration;

use rdmalab_experiments::{Experiment, Impossible, Limits, Opt, Point, Turn, check, shuffle};
use rdmalab_measure::stats::MIN_RUNS;
use rdmalab_record::Object;
use serde_json::{Value, json};

use super::args::HowArgs;
use super::until::{Goal, Until};
use crate::failure::{Outcome, usage};
use crate::table::{Rows, grouped};

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Which experiment.
    pub experiment: Experiment,
    /// The points that can be measured, in the order of the sweep.
    pub points: Vec<Point>,
    /// The points that cannot be measured, with the reason.
    pub impossible: Vec<(Point, Impossible)>,
    /// The order of measurement.
    pub turns: Vec<Turn>,
    /// The seed of the order.
    pub seed: u64,
    /// How often each point is measured.
    pub repeat: u32,
    /// Instead of a fixed number of repetitions: the required precision, and the longest duration.
    goal: Option<(Goal, Duration)>,
}

impl Plan {
    /// The points of a sweep that this number of ranks and their devices can measure.
    ///
    /// # Errors
    /// No point can be measured.
    pub fn of(
        experiment: Experiment,
        all: Vec<Point>,
        how: &HowArgs,
        (ranks, limits): (usize, &[Limits]),
    ) -> Outcome<Self> {
        let count = all.len();
        let (mut points, mut impossible) = (Vec::new(), Vec::new());
        for point in all {
            match limits
                .iter()
                .find_map(|limits| check(&point, limits).err())
                .or_else(|| point.check_ranks(ranks).err())
            {
                None => points.push(point),
                Some(reason) => impossible.push((point, reason)),
            }
        }
        if points.is_empty() {
            let Some((_, reason)) = impossible.first() else { return Err(usage("no points")) };
            let others = match count {
                1 => String::new(),
                2 => " (and the other point is not possible either)".to_owned(),
                _ => format!(" (and none of the other {} points is possible)", count - 1),
            };
            return Err(usage(format!("{reason}{others}")));
        }
        let seed = points[0].common.seed;
        // With a goal, the number of runs is the minimum.
        let repeat = if how.until.is_some() { MIN_RUNS as u32 } else { how.repeat };
        let mut turns = shuffle(points.len(), repeat as usize, seed);
        turns.iter_mut().for_each(|turn| turn.repetition += how.first_repetition);
        let goal = how.until.map(|goal| (goal, Duration::from_secs(how.max_time)));
        Ok(Self { experiment, points, impossible, turns, seed, repeat, goal })
    }

    /// The stop condition, if the number of runs is not fixed.
    pub fn until(&self) -> Option<Until> {
        let (goal, max_time) = self.goal?;
        Some(Until::new(goal, self.points.len(), self.seed, max_time))
    }

    /// Names of options that differ between points.
    pub fn varying(&self) -> Vec<&'static str> {
        let first = &self.points[0];
        let differs = |o: &&Opt| {
            o.name != "poll" && self.points.iter().any(|point| o.get(point) != o.get(first))
        };
        self.experiment.options().into_iter().filter(differs).map(|option| option.name).collect()
    }

    /// The approximate duration of the measurement, in seconds.
    pub fn expected_s(&self) -> f64 {
        self.turns.iter().map(|turn| expected_s(&self.points[turn.point])).sum()
    }
}

/// The approximate duration of a point in seconds, on a device that answers in a microsecond. It
/// helps the user to choose; during the run, the progress line is more precise.
pub fn expected_s(point: &Point) -> f64 {
    point.expected_s(point.message_ns())
}

/// A point's parameters as in records and reports: units in names, numbers as numbers, and only
/// those that the experiment uses.
pub fn parameters(point: &Point) -> Object {
    let mut object = Object::new();
    object.insert("experiment".into(), point.experiment().name().into());
    let used = point.experiment().options();
    // `--poll` only stands for two other options, and a time stands for the number of messages.
    let is_timed = point.common.duration_ns > 0;
    let is_kept = |name| name != "poll" && !(is_timed && name == "messages");
    for option in used.into_iter().filter(|option| is_kept(option.name)) {
        let text = option.get(point);
        let value = text.parse::<u64>().map_or(Value::String(text), Value::from);
        object.insert(parameter(option), value);
    }
    object
}

/// The name of an option as a parameter: with its unit.
fn parameter(option: &Opt) -> String {
    let name = option.name.replace('-', "_");
    if option.unit.is_empty() { name } else { format!("{name}_{}", option.unit) }
}

/// The point whose parameters a record has; options that it lacks have their defaults.
///
/// # Errors
/// There is no such experiment, or a value that this version does not take.
pub fn point_of(parameters: &Object) -> Result<Point, String> {
    let text = |name: &str| parameters.get(name).map(rdmalab_record::word);
    let experiment: Experiment = text("experiment").unwrap_or_default().parse()?;
    let mut point = Point::default_for(experiment);
    for option in experiment.options() {
        if let Some(value) = text(&parameter(option)) {
            option.set(&mut point, &value).map_err(|error| error.to_string())?;
        }
    }
    Ok(point)
}

/// Prints the plan as JSON.
pub fn json(plan: &Plan, device: &str) {
    let impossible: Vec<Value> = plan
        .impossible
        .iter()
        .map(|(p, reason)| json!({ "parameters": parameters(p), "reason": reason.to_string() }))
        .collect();
    let value = json!({
        "experiment": plan.experiment.name(),
        "device": device,
        "repeat": plan.repeat,
        "seed": plan.seed,
        "expected_s": plan.expected_s(),
        "points": plan.points.iter().map(parameters).collect::<Vec<_>>(),
        "order": plan.turns.iter().map(|turn| turn.point).collect::<Vec<_>>(),
        "impossible": impossible,
    });
    outln!("{value:#}");
}

/// Prints the plan for people: every option with its value, the points, and how long it takes.
pub fn print(plan: &Plan, device: &str, link: &str) {
    outln!("{}: {}", plan.experiment, plan.experiment.summary());
    outln!("device {device} {link}\n");
    out!("{}", options(plan));
    let varying = plan.varying();
    if plan.points.len() > 1 {
        outln!("\n{} points\n", plan.points.len());
        out!("{}", points(plan, &varying));
    }
    for (_, reason) in &plan.impossible {
        outln!("impossible: {reason}");
    }
    outln!(
        "\n{} measurements ({} points x {}), in an order drawn from seed {}; about {} on a device \
         that answers in a microsecond",
        plan.turns.len(),
        plan.points.len(),
        plan.repeat,
        plan.seed,
        duration(plan.expected_s())
    );
}

fn options(plan: &Plan) -> String {
    let mut rows = Rows::new(&["option", "value", "unit", "what it is"], 4);
    for option in plan.experiment.options() {
        let mut values: Vec<String> = Vec::new();
        for value in plan.points.iter().map(|point| option.get(point)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let name = format!("--{}", option.name);
        let what = option.help.split(';').next().unwrap_or_default();
        rows.push(&[name, shortened(&values), option.unit.to_owned(), what.to_owned()]);
    }
    rows.text()
}

fn shortened(values: &[String]) -> String {
    match values {
        [first, second, .., last] if values.len() > 6 => format!("{first}, {second} .. {last}"),
        _ => values.join(", "),
    }
}

fn points(plan: &Plan, varying: &[&str]) -> String {
    let mut head = varying.to_vec();
    head.extend(["samples", "about"]);
    let mut rows = Rows::new(&head, 0);
    for point in &plan.points {
        let mut row: Vec<String> = varying.iter().filter_map(|name| point.get(name)).collect();
        let common = &point.common;
        row.push(match common.duration_ns {
            0 => grouped(common.messages.saturating_mul(common.runs)),
            ns => format!("of {}", duration(ns as f64 / 1e9)),
        });
        row.push(duration(expected_s(point)));
        rows.push(&row);
    }
    rows.text()
}

/// A time for people.
pub fn duration(s: f64) -> String {
    match s {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            kind: "soft".into(),
            device: "soft0".into(),
            link_layer: "InfiniBand".into(),
            max_qp: 16384,
            max_qp_wr: 16384,
            max_cqe: 131_072,
            max_mr_bytes: 1 << 40,
            has_atomics: true,
            max_rd_atomic: 16,
            profile: None,
            max_inline_bytes: 1024,
            max_sge: 32,
            max_srq_sge: 32,
            ports: 1,
            active_mtu_bytes: 4096,
            max_msg_bytes: 2 << 30,
            gids: 2,
            needs_gid: false,
            has_on_demand_paging: true,
            ack_delay_code: 0,
        }
    }

    fn plan(experiment: Experiment, sweep: &[(&str, &str)]) -> Outcome<Plan> {
        let points = rdmalab_experiments::sweep(experiment, sweep).map_err(usage)?;
        let how = HowArgs { repeat: 2, ..HowArgs::default() };
        Plan::of(experiment, points, &how, (2, &[limits()]))
    }

    #[test]
    fn what_is_impossible_is_left_out_of_a_sweep_and_refused_alone() {
        let some = plan(Experiment::PING, &[("transport", "rc,ud"), ("size", "64,64K")]).unwrap();
        assert_eq!((some.points.len(), some.impossible.len(), some.turns.len()), (3, 1, 6));
        assert!(some.impossible[0].1.to_string().contains("4096"));
        let none = plan(Experiment::PING, &[("transport", "ud"), ("size", "64K")]).unwrap_err();
        assert!(none.to_string().starts_with("--size 65536"), "{none}");
        let none = plan(Experiment::PING, &[("transport", "ud"), ("size", "64K,1M")]).unwrap_err();
        assert!(none.to_string().contains("the other point is not possible"), "{none}");
    }

    #[test]
    fn peers_are_as_many_as_there_are_ranks() {
        // The number of ranks comes from --hosts, mpirun or srun too.
        let how = HowArgs { repeat: 1, ..HowArgs::default() };
        let plan = |ranks| {
            let points = rdmalab_experiments::sweep(Experiment::FAN, &[("peers", "1,3,4")]);
            Plan::of(Experiment::FAN, points.unwrap(), &how, (ranks, &[limits()]))
        };
        let four = plan(4).unwrap();
        assert_eq!((four.points.len(), four.impossible.len()), (2, 1));
        assert!(four.impossible[0].1.to_string().contains("or 5 ranks"), "{four:?}");
        assert_eq!(plan(5).unwrap().points.len(), 3);
    }

    #[test]
    fn parameters_have_units_in_their_names_and_are_those_that_are_used() {
        let plan = plan(Experiment::PING, &[("size", "64")]).unwrap();
        let object = parameters(&plan.points[0]);
        assert_eq!(object["size_bytes"], 64);
        assert_eq!(object["transport"], "rc");
        assert!(object.contains_key("pause_ns") && !object.contains_key("stamps"), "{object:?}");
        assert!(!object.contains_key("poll") && object["poll_recv"] == "busy");
    }

    #[test]
    fn a_point_is_found_again_by_its_parameters() {
        for experiment in Experiment::all() {
            let point = Point::default_for(experiment).with(|common| common.size_bytes = 96);
            let again = point_of(&parameters(&point)).unwrap();
            assert_eq!(parameters(&again), parameters(&point), "{experiment}");
        }
        assert!(point_of(&Object::new()).is_err());
        let mut wrong = parameters(&Point::default_for(Experiment::PING));
        wrong.insert("transport".into(), "xrc".into());
        assert!(point_of(&wrong).unwrap_err().contains("rc, uc, ud"));
    }

    #[test]
    fn more_takes_longer() {
        let of = |sweep: &[(&str, &str)]| plan(Experiment::ONEWAY, sweep).unwrap().expected_s();
        assert!(of(&[("messages", "1M")]) > of(&[]));
        assert!(of(&[("pause", "1ms")]) > 100.0 * of(&[("pause", "0")]));
        assert_eq!([0.25, 65.0, 600.0].map(duration), ["0.2 s", "65 s", "10 min"]);
    }
}
