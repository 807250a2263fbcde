//! The parts of the measurement: a sweep for each question and experiment.

use rdmalab_advice::{CONFIDENCE, Goal, Question, Sweep, fewer_of_large, runs_needed};
use rdmalab_experiments::{Experiment, Limits, Point, check, sweep};
use rdmalab_measure::Method;

use super::args::AdviseArgs;
use crate::failure::{Outcome, usage};
use crate::run::plan::expected_s;

/// A sweep that is measured.
#[derive(Clone, Debug)]
pub struct Part {
    /// The question.
    pub question: &'static Question,
    /// Its experiment.
    pub experiment: Experiment,
    /// The name of its record: `opcode.ping`.
    pub name: String,
    /// Its options.
    pub words: Vec<(String, String)>,
    /// All of its points.
    pub points: Vec<Point>,
    /// The time per message of each point in its trial, in nanoseconds; see [`super::probe`].
    pub each_ns: Vec<Option<f64>>,
}

/// The parts that answer these questions for these goals.
///
/// # Errors
/// `--size` is wrong, no question concerns the goals, or there are too few runs for a result.
pub fn of(args: &AdviseArgs) -> Outcome<Vec<Part>> {
    let goals = args.goals();
    let mut parts: Vec<Part> = Vec::new();
    for question in args.questions() {
        for sweep in question.sweeps.iter().filter(|sweep| concerns(sweep, &goals)) {
            let mut part = part(question, sweep, args)?;
            let name = part.name.clone();
            let same = parts.iter().filter(|other| other.name.starts_with(&name)).count();
            if same > 0 {
                part.name = format!("{name}-{}", same + 1);
            }
            parts.push(part);
        }
    }
    if parts.is_empty() {
        let asked: Vec<&str> = args.questions().iter().map(|question| question.key).collect();
        let goals: Vec<&str> = goals.iter().map(|goal| goal.name()).collect();
        return Err(usage(format!(
            "--ask {}: the question does not affect --for {}: leave --ask out",
            asked.join(","),
            goals.join(",")
        )));
    }
    enough(&parts, args.runs())?;
    Ok(parts)
}

/// The experiments that measure for advice.
pub fn experiments() -> Vec<(&'static str, Method)> {
    Experiment::all().filter_map(|one| Some((one.name(), one.method()?))).collect()
}

fn concerns(sweep: &Sweep, goals: &[Goal]) -> bool {
    sweep.goals.iter().any(|goal| goals.contains(goal))
}

fn part(question: &'static Question, of: &Sweep, args: &AdviseArgs) -> Outcome<Part> {
    let mut words = of.words(args.sizes(), args.quick);
    let experiment = Experiment::of_method(of.method);
    let mut points = sweep(experiment, &words).map_err(usage)?;
    let messages = messages_of(&points);
    if let Some((_, value)) = words.iter_mut().find(|(name, _)| name == "messages") {
        *value = messages.to_string();
        points.iter_mut().for_each(|point| point.common.messages = messages);
    }
    let name = format!("{}.{experiment}", question.key);
    let each_ns = vec![None; points.len()];
    Ok(Part { question, experiment, name, words, points, each_ns })
}

/// Messages of a run: fewer if they are large, the same number for all sizes.
fn messages_of(points: &[Point]) -> u64 {
    let largest = points.iter().map(|point| point.common.size_bytes).max().unwrap_or(1);
    let planned = points.iter().map(|point| point.common.messages).max().unwrap_or(1);
    fewer_of_large(planned, largest)
}

/// Refuses fewer runs than an answer needs.
fn enough(parts: &[Part], runs: u32) -> Outcome {
    for part in parts {
        let ways = part.ways();
        let needed = runs_needed(ways, CONFIDENCE);
        if (runs as usize) < needed {
            return Err(usage(format!(
                "--repeat {runs}: {} compares {ways} ways, which needs {needed} runs of each: \
                 choose {needed} or more",
                part.question.key
            )));
        }
    }
    Ok(())
}

impl Part {
    /// The number of ways that are compared.
    fn ways(&self) -> usize {
        let is_asked = |name: &str| self.question.options.contains(&name);
        let lists = self.words.iter().filter(|(name, _)| is_asked(name));
        lists.map(|(_, list)| list.split(',').count()).product()
    }

    /// Indices of the points that devices with these limits can measure.
    pub fn possible(&self, limits: &[Limits]) -> Vec<usize> {
        let can = |i: &usize| limits.iter().all(|limits| check(&self.points[*i], limits).is_ok());
        (0..self.points.len()).filter(can).collect()
    }

    /// The approximate duration of the part in seconds: from its trial, otherwise as on a device
    /// that answers in a microsecond.
    pub fn expected_s(&self, limits: &[Limits], runs: u32) -> f64 {
        let one = |i: usize| match self.each_ns[i] {
            Some(each_ns) => self.points[i].expected_s(each_ns),
            None => expected_s(&self.points[i]),
        };
        self.possible(limits).into_iter().map(one).sum::<f64>() * f64::from(runs)
    }

    /// Sets a number in the options and in all points.
    pub fn set(&mut self, name: &str, value: u64) {
        let field = |point: &mut Point| match name {
            "messages" => point.common.messages = value,
            "warm-up" => point.common.warm_up = value,
            "rate" => point.common.rate_per_s = value,
            other => unreachable!("no number of a sweep: {other}"),
        };
        self.points.iter_mut().for_each(field);
        match self.words.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.to_string(),
            None => self.words.push((name.to_owned(), value.to_string())),
        }
    }

    /// The experiment and its options as text.
    pub fn line(&self) -> String {
        let words = self.words.iter().map(|(name, value)| format!(" --{name} {value}"));
        format!("{}{}", self.experiment, words.collect::<String>())
    }

    /// The command that measures the part alone.
    pub fn command(&self, device: &str, runs: u32, args: &AdviseArgs) -> Vec<String> {
        let mut line = vec!["rdmalab".to_owned(), "run".to_owned(), self.experiment.to_string()];
        // Readers of records expect the host behind the experiment.
        line.extend(args.server.clone());
        let mut add = |name: &str, value: &str| line.extend([format!("--{name}"), value.into()]);
        for (name, value) in &self.words {
            add(name, value);
        }
        add("device", device);
        add("repeat", &runs.to_string());
        if let Some(cores) = &args.cores {
            add("cores", cores);
        }
        if !args.hosts.is_empty() {
            add("hosts", &args.hosts.join(","));
        }
        if let Some(interface) = &args.link.interface {
            add("interface", interface);
        }
        if let Some(port) = args.link.udp_port {
            add("udp-port", &port.to_string());
        }
        if let Some(profile) = &args.link.profile {
            add("profile", profile);
        }
        if let Some(faults) = &args.link.faults {
            add("faults", faults);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(quick: bool) -> AdviseArgs {
        AdviseArgs { quick, ..AdviseArgs::default() }
    }

    #[test]
    fn each_question_is_a_sweep_that_the_command_line_takes() {
        for quick in [false, true] {
            let parts = of(&args(quick)).unwrap();
            let mut names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), parts.len());
            for part in &parts {
                assert!(part.points.len() > 1 && part.ways() > 1, "{}", part.name);
                // The points differ in the question's parameters, as records name them.
                let named = |point: &Point| {
                    let all = crate::run::plan::parameters(point);
                    part.question.parameters.iter().map(|n| all[*n].clone()).collect::<Vec<_>>()
                };
                let (first, last) = (named(&part.points[0]), part.points.last().map(named));
                assert_ne!(Some(first), last, "{}", part.name);
            }
        }
    }

    #[test]
    fn what_is_asked_for_is_what_is_measured() {
        let only = AdviseArgs {
            ask: vec![rdmalab_advice::question("opcode").unwrap()],
            goals: vec![Goal::Latency],
            size: Some("64,4K".to_owned()),
            ..args(true)
        };
        let parts = of(&only).unwrap();
        assert_eq!(
            (parts.len(), parts[0].name.as_str(), parts[0].points.len()),
            (1, "opcode.ping", 6)
        );
        let large = of(&AdviseArgs { size: Some("1M".to_owned()), ..only.clone() }).unwrap();
        assert_eq!(
            (large[0].points[0].common.messages, parts[0].points[0].common.messages),
            (1024, 2000)
        );
        assert!(large[0].line().contains("--messages 1024"), "{}", large[0].line());
        let wrong = of(&AdviseArgs { repeat: Some(3), ..only.clone() }).unwrap_err().to_string();
        assert!(wrong.contains("choose 5 or more"), "{wrong}");
        let wrong = of(&AdviseArgs { size: Some("huge".into()), ..only.clone() }).unwrap_err();
        assert!(wrong.to_string().starts_with("--size"), "{wrong}");
        let buffers = vec![rdmalab_advice::question("buffers").unwrap()];
        let wrong = of(&AdviseArgs { ask: buffers, ..only }).unwrap_err().to_string();
        assert!(wrong.contains("the question does not affect --for"), "{wrong}");
    }
}
