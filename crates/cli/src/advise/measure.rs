//! Measures what the questions need, part by part, with one record for each part.

use std::path::Path;
use std::time::Instant;

use rdmalab_advice::{MESSAGES_OF_P99, answers};
use rdmalab_experiments::{Experiment, Limits};
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::{Clock, Method, text};

use super::args::AdviseArgs;
use super::fit::{Shortened, allowed_s, shorten};
use super::parts::{self, Part};
use super::probe::Probe;
use super::show;
use crate::failure::{Failure, Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::records::{RecordsDir, open_below};
use crate::run::args::{HowArgs, PartOf};
use crate::run::ends::Ends;
use crate::run::keep::Keep;
use crate::run::plan::{Plan, duration};
use crate::run::session::Session;
use crate::table::Rows;

/// Measures and answers. After a failure, the answers come from what was measured before it.
pub fn run(args: &AdviseArgs) -> Outcome {
    let mut parts = parts::of(args)?;
    let how = args.how()?;
    // All experiments of a method have as many ranks.
    let ends = Ends::of(Experiment::of_method(Method::RoundTrips), &how)?;
    if let Some(followed) = ends.follow() {
        return followed;
    }
    let device = how.device();
    ends.check(&device)?;
    let interrupt = Interrupt::catch();
    let mut session = Session::open(&interrupt, &device, &ends)?;
    let limits = session.limits(1)?;
    errln!("{device}: a short trial of each way comes first");
    let probe = Probe { device: &device, ends: &ends, interrupt: &interrupt };
    probe.all(&mut parts, &limits, &mut session)?;
    let usual_s = allowed_s(&parts, &limits, args.runs(), args.quick);
    let allowed_s = args.max_time.map_or(usual_s, |time| time.as_secs_f64());
    let shortened = shorten(&mut parts, &limits, args.runs(), allowed_s);
    if args.plan {
        plan(&parts, &limits, &device, args);
        shortened.iter().for_each(|it| outln!("{}", described(it, &parts)));
        return Ok(());
    }
    let all_s: f64 = parts.iter().map(|part| part.expected_s(&limits, args.runs())).sum();
    errln!(
        "{device}: {}, {} runs of each way in turns, about {}",
        text::count_of(parts.len(), "sweep"),
        args.runs(),
        duration(all_s)
    );
    shortened.iter().for_each(|it| errln!("{}", described(it, &parts)));
    let _hold = how.latency.hold()?;
    let records_dir = RecordsDir::new(args.out.as_deref(), args.no_record, "rdmalab-advise-")?;
    let mut lab = Lab { args, how, ends, device, limits, interrupt, session: Some(session) };
    let failures = lab.all(&parts, &records_dir.path);
    lab.session = None;
    // There are no records if the first part failed before its first run.
    let records = open_below(&records_dir.path).unwrap_or_default();
    let advice =
        answers(&records, &parts::experiments(), &args.questions(), &args.goals(), args.sizes());
    show::answers(args, &advice, &records);
    for file in lab.ends.captures() {
        errln!("captured in {} (rdmalab trace FILE)", file.display());
    }
    records_dir.announce("advise");
    match failures.into_iter().next() {
        None => Ok(()),
        Some(Failure::Run(why)) => Err(failed(format!("{why} (what was measured is above)"))),
        Some(other) => Err(other),
    }
}

/// The state of the measurement.
struct Lab<'a> {
    args: &'a AdviseArgs,
    how: HowArgs,
    ends: Ends,
    device: String,
    limits: Vec<Limits>,
    interrupt: Interrupt,
    /// The ranks; `None` after a failure.
    session: Option<Session>,
}

impl Lab<'_> {
    /// Measures the parts; returns their failures.
    fn all(&mut self, parts: &[Part], dir: &Path) -> Vec<Failure> {
        let clock = Clock::new();
        let runs = self.args.runs();
        let expected: Vec<f64> =
            parts.iter().map(|part| part.expected_s(&self.limits, runs)).collect();
        let (mut failures, mut done_s, began) = (Vec::new(), 0.0, Instant::now());
        for (i, part) in parts.iter().enumerate() {
            let left_s: f64 = expected[i..].iter().sum();
            let pace = if done_s > 0.0 { began.elapsed().as_secs_f64() / done_s } else { 1.0 };
            errln!(
                "[{}/{}] {}: {} ({} left)",
                i + 1,
                parts.len(),
                part.question.key,
                part.line(),
                duration(left_s * pace)
            );
            if let Err(failure) = self.one(part, dir, &clock) {
                errln!("rdmalab: {}: {failure}", part.name);
                failures.push(failure);
                // The ranks may have ended, so the session is not reused.
                self.session = None;
            }
            if self.interrupt.is_set() {
                break;
            }
            done_s += expected[i];
        }
        failures
    }

    fn one(&mut self, part: &Part, dir: &Path, clock: &Clock) -> Outcome {
        if part.possible(&self.limits).is_empty() {
            errln!("no way of sending that is asked about is possible on {}", self.device);
            return Ok(());
        }
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(Session::open(&self.interrupt, &self.device, &self.ends)?),
        };
        let mut how = self.how.clone();
        let command = part.command(&self.device, self.args.runs(), self.args);
        how.part = Some(PartOf { dir: dir.join(&part.name), command });
        let ranks = (self.ends.count(), &self.limits[..]);
        let plan = Plan::of(part.experiment, part.points.clone(), &how, ranks)?;
        let Some(ours) = self.limits.first() else {
            return Err(failed("no rank knows the device"));
        };
        let mut keep = Keep::new(&plan, &how, ours, clock)?;
        crate::run::measure(&plan, session, &mut keep, &self.interrupt)
    }
}

/// Prints the plan.
fn plan(parts: &[Part], limits: &[Limits], device: &str, args: &AdviseArgs) {
    let mut rows =
        Rows::new(&["question", "what is run", "ways", "impossible", "runs", "about"], 2);
    let mut all_s = 0.0;
    for part in parts {
        let possible = part.possible(limits).len();
        let expected_s = part.expected_s(limits, args.runs());
        all_s += expected_s;
        rows.push(&[
            part.question.key.to_owned(),
            part.line(),
            possible.to_string(),
            (part.points.len() - possible).to_string(),
            args.runs().to_string(),
            duration(expected_s),
        ]);
    }
    outln!("device {device} {}\n", args.link.given());
    out!("{}", rows.text());
    outln!("\nabout {} in all, from a short trial of each way", duration(all_s));
}

/// A note on what a slow device means for the answers.
fn described(shortened: &Shortened, parts: &[Part]) -> String {
    let takes = fmt_ns(shortened.slowest_ns);
    const FEWEST: &str = "runs already have the fewest messages that allow an answer, so this \
                          takes longer: ask fewer questions with --ask or --for";
    if shortened.parts == 0 {
        return format!("a message takes up to {takes} here; {FEWEST}");
    }
    let long = if shortened.is_long { format!("; {FEWEST}") } else { String::new() };
    format!(
        "a message takes up to {takes} here, so runs of {} of {} have fewer messages, at least {}: \
         intervals are wider, and a p99 needs {MESSAGES_OF_P99} round trips{long}",
        shortened.parts,
        text::count_of(parts.len(), "sweep"),
        shortened.messages,
    )
}
