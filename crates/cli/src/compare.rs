//! `rdmalab compare A B`: the differences between two records, their size and their certainty.

use std::path::{Path, PathBuf};

use clap::Args;
use rdmalab_record::Record;
use rdmalab_report::compare::{Comparison, Options, Side};
use rdmalab_report::expect::Expectation;

use crate::failure::{Outcome, run as failed, usage};
use crate::files;
use crate::format::ListFormat;
use crate::values;

/// Compare two records: what differs, by how much, and how certain that is
///
/// Matches points by the parameters that vary within a record; what differs between the records
/// is what is compared. Exits with 1 if B is worse than A by more than --threshold, with
/// certainty.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Two directories of records; or more, of two conditions (run --condition): the records of a
    /// condition then count as its runs
    #[arg(required = true, num_args = 2.., value_name = "DIR")]
    pub records: Vec<PathBuf>,
    /// Which quantile of times is compared: median, or a percentile as p99
    #[arg(long, value_name = "QUANTILE", default_value = "median", value_parser = values::quantile)]
    pub at: f64,
    /// How much worse B may be
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = values::percentage)]
    pub threshold: f64,
    /// Only quantities whose name or label contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// What has to hold at every point of B, as for `run`; may be given several times
    #[arg(long, value_name = "EXPECTATION")]
    pub expect: Vec<Expectation>,
    /// Show the shift of each decile also where there are many points
    #[arg(long)]
    pub deciles: bool,
    /// Write it as a page instead of printing it
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub html: Option<PathBuf>,
    /// How it is printed
    #[arg(long, value_enum, value_name = "FORM", default_value = "table")]
    pub format: ListFormat,
}

/// Compares; fails if B is certainly worse than A by more than the threshold.
pub fn run(args: &CompareArgs) -> Outcome {
    if let Some(file) = &args.html {
        files::check("--html", file)?;
    }
    let records = args.records.iter().map(|dir| Record::open(dir).map_err(usage));
    let records: Vec<Record> = records.collect::<Outcome<_>>()?;
    let sides = sides(records)?;
    let side = |i: usize| Side { name: &sides[i].0, records: &sides[i].1 };
    let options = Options { quantile: args.at, threshold: args.threshold, only: args.only.clone() };
    let found = Comparison::of(side(0), side(1), &options).map_err(usage)?;
    if let Some(file) = &args.html {
        files::write("--html", file, found.page())?;
    }
    match args.format {
        _ if args.html.is_some() => {}
        ListFormat::Table => out!("{}", found.text(args.deciles)),
        ListFormat::Json => out!("{}", found.json()),
    }
    let expected = crate::expect::check_all(&args.expect, &sides[1].1);
    let regressions = match found.regressions() {
        0 => Ok(()),
        n => Err(failed(format!(
            "{} is worse than {} by more than {:.1} % in {n} of {} comparisons",
            sides[1].0,
            sides[0].0,
            args.threshold * 100.0,
            found.compared()
        ))),
    };
    crate::failure::for_each(&[expected, regressions], Outcome::clone)
}

/// The two sides: the two records, or the records of each of two conditions.
fn sides(records: Vec<Record>) -> Outcome<[(String, Vec<Record>); 2]> {
    if let [a, b] = records.as_slice() {
        let (mut left, mut right) = (name(a), name(b));
        if left == right {
            (left, right) = (directory(&a.dir), directory(&b.dir));
        }
        let mut both = records.into_iter().map(|record| vec![record]);
        let mut next = || both.next().unwrap_or_default();
        return Ok([(left, next()), (right, next())]);
    }
    let mut sides: Vec<(String, Vec<Record>)> = Vec::new();
    for record in records {
        let Some(condition) = record.header.condition.clone() else {
            return Err(usage(format!(
                "{} has no condition: with more than two records each needs one, which `run \
                 --condition NAME` sets",
                record.dir.display()
            )));
        };
        match sides.iter_mut().find(|(name, _)| *name == condition) {
            Some((_, records)) => records.push(record),
            None => sides.push((condition, vec![record])),
        }
    }
    let names: Vec<String> = sides.iter().map(|(name, _)| name.clone()).collect();
    <[(String, Vec<Record>); 2]>::try_from(sides).map_err(|_| {
        usage(format!(
            "compare needs exactly two conditions, and these records have {}: {}",
            names.len(),
            names.join(", ")
        ))
    })
}

/// The condition of a record, otherwise its directory.
fn name(record: &Record) -> String {
    record.header.condition.clone().unwrap_or_else(|| directory(&record.dir))
}

fn directory(dir: &Path) -> String {
    let last = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    last.unwrap_or_else(|| dir.display().to_string())
}
