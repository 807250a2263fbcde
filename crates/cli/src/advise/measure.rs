//! Measuring what answers the questions: part by part, each with a record of its own.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use rdmalab_advice::{MESSAGES_OF_P99, answers};
use rdmalab_experiments::{Experiment, Limits};
use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::{Clock, text};
use tempfile::TempDir;

use super::args::AdviseArgs;
use super::fit::{Cut, allowed_s, fit};
use super::parts::{self, Part};
use super::probe::Probe;
use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::run::args::{HowArgs, PartOf};
use crate::run::ends::Ends;
use crate::run::keep::Keep;
use crate::run::plan::{Plan, duration};
use crate::run::session::Session;
use crate::table::Rows;

/// Where directories go unless told otherwise.
const RECORDS: &str = "rdmalab-records";
/// Directories of one second.
const MAX_NAMES: u32 = 1000;

/// Measures and answers. What was measured before a failure is answered from too.
pub fn run(args: &AdviseArgs) -> Outcome {
    let mut parts = parts::of(args)?;
    let how = args.how()?;
    // Both experiments take two ends.
    let ends = Ends::of(Experiment::Ping, &how)?;
    if let Some(followed) = ends.follow() {
        return followed;
    }
    let device = how.device();
    ends.check(&device)?;
    let interrupt = Interrupt::catch();
    let mut session = Session::open(&interrupt, &device, &ends)?;
    let limits = session.limits(1)?;
    errln!("{device}: how long each way takes is tried first");
    let probe = Probe { device: &device, ends: &ends, interrupt: &interrupt };
    probe.all(&mut parts, &limits, &mut session)?;
    let usual_s = allowed_s(&parts, &limits, args.runs(), args.quick);
    let allowed_s = args.max_time.map_or(usual_s, |time| time.as_secs_f64());
    let cut = fit(&mut parts, &limits, args.runs(), allowed_s);
    if args.plan {
        plan(&parts, &limits, &device, args);
        cut.iter().for_each(|cut| outln!("{}", said(cut, &parts)));
        return Ok(());
    }
    let all_s: f64 = parts.iter().map(|part| part.expected_s(&limits, args.runs())).sum();
    errln!(
        "{device}: {}, {} runs of each way in turns, about {}",
        text::count_of(parts.len(), "sweep"),
        args.runs(),
        duration(all_s)
    );
    cut.iter().for_each(|cut| errln!("{}", said(cut, &parts)));
    let _hold = how.latency.hold()?;
    let place = Place::new(args)?;
    let mut lab = Lab { args, how, ends, device, limits, interrupt, session: Some(session) };
    let failures = lab.all(&parts, &place.dir);
    lab.session = None;
    // None where the first part failed before its first run.
    let records = crate::report::below(&place.dir).unwrap_or_default();
    let advice = answers(&records, &args.questions(), &args.goals(), args.sizes());
    super::show(args, &advice, &records);
    for file in lab.ends.captures() {
        errln!("captured in {} (rdmalab trace FILE)", file.display());
    }
    place.say();
    match failures.into_iter().next() {
        None => Ok(()),
        Some(Failure::Run(why)) => Err(failed(format!("{why} (what was measured is above)"))),
        Some(other) => Err(other),
    }
}

/// What measures.
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
    /// Measures the parts; what failed, each with its reason.
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
                // Its ranks may be gone.
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
            errln!("nothing of it is possible on {}", self.device);
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

/// The directory of the records.
struct Place {
    dir: PathBuf,
    /// Removed when dropped.
    passing: Option<TempDir>,
}

impl Place {
    fn new(args: &AdviseArgs) -> Outcome<Self> {
        if args.no_record {
            let passing = tempfile::tempdir()
                .map_err(|e| failed(format!("no place for passing records: {e}")))?;
            return Ok(Self { dir: passing.path().to_owned(), passing: Some(passing) });
        }
        let parent = args.out.as_deref().unwrap_or(Path::new(RECORDS));
        let wrong = |e: std::io::Error| {
            let hint = "choose another place with --out DIR, or --no-record";
            usage(format!("--out {}: {e}; {hint}", parent.display()))
        };
        std::fs::create_dir_all(parent).map_err(wrong)?;
        let now = rdmalab_record::utc(SystemTime::now());
        let time: String = now.chars().filter(|c| !"-:".contains(*c)).collect();
        let base = format!("rdmalab-advise-{}Z", time.split('.').next().unwrap_or_default());
        for n in 1..=MAX_NAMES {
            let name = if n == 1 { base.clone() } else { format!("{base}-{n}") };
            let dir = parent.join(name);
            match std::fs::create_dir(&dir) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(wrong(e)),
                Ok(()) => return Ok(Self { dir, passing: None }),
            }
        }
        Err(failed(format!("{}: too many directories of that name", parent.display())))
    }

    fn say(&self) {
        if self.passing.is_none() {
            errln!("kept in {0} (`rdmalab advise {0}` reads it again)", self.dir.display());
        }
    }
}

/// What would be measured.
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
    outln!("\nabout {} in all, by a short try of each way", duration(all_s));
}

/// What a slow device takes away from the answers.
fn said(cut: &Cut, parts: &[Part]) -> String {
    let takes = fmt_ns(cut.slowest_ns);
    if cut.parts == 0 {
        return format!(
            "a message takes up to {takes} here, and fewer of them than planned are no answer: it \
             takes longer than it should; ask less with --ask or --for"
        );
    }
    let long = if cut.is_long { "; fewer are no answer: ask less with --ask or --for" } else { "" };
    format!(
        "a message takes up to {takes} here, so runs have fewer messages for this time, {} at \
         least, in {} of {}: intervals are wider, and a p99 takes {MESSAGES_OF_P99} round \
         trips{long}",
        cut.messages,
        cut.parts,
        text::count_of(parts.len(), "sweep"),
    )
}
