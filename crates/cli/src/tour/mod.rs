//! The tour: a few points of some experiments in about a minute, and what to try next.

mod limits;

use std::path::PathBuf;

use clap::Args;
use rdmalab_experiments::{Experiment, Limits, Point, sweep};
use rdmalab_measure::Clock;
use rdmalab_measure::limits::two_cores;

use crate::failure::{Failure, Outcome, run as failed, usage};
use crate::format::Format;
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;
use crate::run::args::HowArgs;
use crate::run::ends::Ends;
use crate::run::keep::Keep;
use crate::run::measure;
use crate::run::plan::{Plan, duration};
use crate::run::session::Session;
use crate::table::Rows;

/// Options of the tour.
#[derive(Args, Clone, Debug)]
pub struct TourArgs {
    /// The device, by the name that `rdmalab devices` shows [default: the first adapter with an
    /// active port, else soft0]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Fewer samples: seconds instead of a minute, and fewer percentiles
    #[arg(long)]
    pub quick: bool,
    /// The CPUs of the two ends, as A,B; `none` leaves them to the scheduler
    #[arg(long, value_name = "A,B")]
    pub cores: Option<String>,
    /// Where the records' directories are made [default: rdmalab-records]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Keep no records
    #[arg(long, conflicts_with = "out")]
    pub no_record: bool,
    /// What lies between the ends.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// A part of the tour: an experiment, and the options of its points.
struct Part {
    title: &'static str,
    experiment: Experiment,
    /// The options that are swept or set.
    options: &'static [(&'static str, &'static str)],
    /// Options that `--quick` adds or replaces.
    quick: &'static [(&'static str, &'static str)],
}

const PARTS: [Part; 4] = [
    Part {
        title: "Round trips of SENDs, over each transport",
        experiment: Experiment::PING,
        options: &[("transport", "rc,uc,ud"), ("messages", "100000")],
        quick: &[("messages", "2000")],
    },
    Part {
        title: "One way: from the post to the arrival, and to the completion, over sizes",
        experiment: Experiment::ONEWAY,
        options: &[("size", "8,64,512,4K,32K"), ("messages", "4000"), ("runs", "5")],
        quick: &[("messages", "500"), ("runs", "1")],
    },
    Part {
        title: "Throughput of small messages, with more and more of them in flight",
        experiment: Experiment::BLAST,
        options: &[("buffers", "1,4,16,64"), ("size", "64"), ("messages", "100000"), ("runs", "1")],
        quick: &[("messages", "5000")],
    },
    Part {
        title: "Throughput of large messages, by WRITE and by READ",
        experiment: Experiment::BLAST,
        options: &[
            ("op", "write,read"),
            ("size", "64K,1M"),
            ("messages", "2000"),
            ("runs", "1"),
            ("buffers", "16"),
        ],
        quick: &[("messages", "200")],
    },
];

/// The suggested commands.
const NEXT: [(&str, &str); 8] = [
    ("rdmalab run ping --size 8..32K*2 --transport rc,ud", "a sweep; lists and ranges anywhere"),
    ("rdmalab run oneway --stamps send,recv,comp,post", "where the time of a message goes"),
    ("rdmalab run blast --buffers 1..64*2 --signal-every 1,16", "what selective signalling saves"),
    ("rdmalab advise --quick", "which way of sending is best here, and how sure that is"),
    ("rdmalab run ping --plan", "every option and its default"),
    ("rdmalab serve --bind 0.0.0.0   and   rdmalab run ping HOST", "two machines"),
    ("rdmalab exec -- ib_send_lat -d soft0", "an unmodified program on the soft device"),
    ("rdmalab bench self --quick", "the soft device over the limits of this machine, as ratios"),
];

/// Measures and prints. After a failure, the points measured before it are printed too.
pub fn run(args: &TourArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let device = args.device.clone().unwrap_or_else(|| crate::soft::best(&args.link));
    let ends = Ends::pair(args.cores.clone()).over(&args.link);
    ends.check(&device)?;
    crate::devices::brief()?;
    let clock = Clock::new();
    let mut session = Session::open(&interrupt, &device, &ends)?;
    let limits = session.limits(1)?;
    let Some(ours) = limits.first() else { return Err(failed("no rank knows the device")) };
    outln!("\n{device}, {}", what_kind(&ours.kind));
    let how = HowArgs {
        repeat: 1,
        out: args.out.clone(),
        no_record: args.no_record,
        ..HowArgs::default()
    };
    let mut pages = Vec::new();
    let mut result = Ok(());
    for part in &PARTS {
        result = one(part, args.quick, &how, &limits, &mut session, &clock, &interrupt, &mut pages);
        if result.is_err() {
            break;
        }
    }
    // The cores are now free for the limits.
    drop(session);
    for file in ends.captures() {
        outln!("\ncaptured in {} (rdmalab trace FILE)", file.display());
    }
    if result.is_ok() {
        outln!("\n== Bare limits of this machine, with nothing of ours in the way\n");
        out!("{}", bare(&clock));
        outln!("{}", crate::harness::cost(&clock));
    }
    if !pages.is_empty() {
        outln!("\nPages with plots, for a browser:");
        pages.iter().for_each(|page| outln!("  {page}"));
    }
    if result.is_ok() {
        outln!("\nNext:");
        let width = NEXT.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        NEXT.iter().for_each(|(command, why)| outln!("  {command:width$}  {why}"));
    }
    result
}

/// Describes what the numbers of a device kind are about.
fn what_kind(kind: &str) -> &'static str {
    match kind {
        "soft" => "a soft device: its numbers are this host's, not an adapter's",
        "sim" => "a simulated device: its numbers are a model's",
        _ => "a device of the system's libibverbs",
    }
}

fn plan(part: &Part, is_quick: bool, how: &HowArgs, limits: &[Limits]) -> Outcome<Plan> {
    let is_replaced = |name: &str| is_quick && part.quick.iter().any(|(n, _)| *n == name);
    let kept = part.options.iter().filter(|(name, _)| !is_replaced(name));
    let quick = if is_quick { part.quick } else { &[] };
    let options: Vec<(&str, &str)> = kept.chain(quick).copied().collect();
    let points: Vec<Point> = sweep(part.experiment, &options).map_err(usage)?;
    // The number of ranks of `Ends::pair`.
    Plan::of(part.experiment, points, how, (2, limits))
}

/// Measures and prints a part.
#[allow(clippy::too_many_arguments)]
fn one(
    part: &Part,
    is_quick: bool,
    how: &HowArgs,
    limits: &[Limits],
    session: &mut Session,
    clock: &Clock,
    interrupt: &Interrupt,
    pages: &mut Vec<String>,
) -> Outcome {
    let plan = plan(part, is_quick, how, limits)?;
    outln!("\n== {}\n", part.title);
    let mut keep = Keep::new(&plan, how, &limits[0], clock)?;
    let failure = measure(&plan, session, &mut keep, interrupt).err();
    let shown = show(part, &mut keep, pages);
    outln!("\nThe same again: {}", command(part, &plan));
    failure.map_or(shown.clone(), |failure| Err(cut_short(failure.then(shown))))
}

/// Prints the results of a part, and writes its page.
fn show(part: &Part, keep: &mut Keep, pages: &mut Vec<String>) -> Outcome {
    if keep.points() > 0 {
        keep.conclude()?;
        let record = keep.read()?;
        crate::print::record(&record, Format::Table, false)?;
        if part.experiment == Experiment::PING {
            crate::print::histogram(&record)?;
        }
        if let Some(directory) = keep.directory() {
            let page = directory.join("report.html");
            let text = rdmalab_report::page(&record);
            std::fs::write(&page, text).map_err(|e| failed(format!("{}: {e}", page.display())))?;
            pages.push(page.display().to_string());
        }
    }
    Ok(())
}

fn cut_short(failure: Failure) -> Failure {
    match failure {
        Failure::Run(reason) => {
            Failure::Run(format!("{reason} (what was measured of the tour is above)"))
        }
        other => other,
    }
}

/// The command that measures a part.
fn command(part: &Part, plan: &Plan) -> String {
    let mut words = vec![format!("rdmalab run {}", part.experiment)];
    words.extend(part.options.iter().map(|(name, value)| format!("--{name} {value}")));
    format!("{}   (about {})", words.join(" "), duration(plan.expected_s()))
}

fn bare(clock: &Clock) -> String {
    let mut rows = Rows::new(&["limit", "quantity", "median", "least", "most", "runs"], 2);
    let mut missing = String::new();
    for limit in limits::measure(*clock, two_cores()) {
        match limit {
            Ok(s) => rows.push(&[
                s.name.clone(),
                s.quantity.name().to_owned(),
                s.quantity.format(s.median),
                s.quantity.format(s.min),
                s.quantity.format(s.max),
                s.runs.len().to_string(),
            ]),
            Err(reason) => missing += &format!("not measured here: {reason}\n"),
        }
    }
    rows.text() + &missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmalab_experiments::option;

    #[test]
    fn each_part_is_a_sweep_that_the_command_line_takes() {
        for part in &PARTS {
            for options in [part.options, part.quick] {
                let points = sweep(part.experiment, options).unwrap();
                assert!(!points.is_empty() && points.len() <= 8, "{}", part.title);
            }
            // With `--quick`, only options that the part has anyway are changed.
            for (name, _) in part.quick {
                assert!(part.options.iter().any(|(n, _)| n == name), "{name}");
                assert!(option(part.experiment, name).is_ok());
            }
        }
    }
}
