//! `rdmalab report`: prints existing records in one of the forms.

use std::path::PathBuf;

use clap::Args;
use rdmalab_findings::with_findings;
use rdmalab_record::Record;

use crate::expect;
use crate::failure::{Outcome, run as failed, usage};
use crate::files;
use crate::format::Format;
use crate::print;
use crate::records::{open_below, warn_of_damage};
use crate::study::report::{self as study, ReportOutput};

/// Print records as tables, JSON, CSV, Markdown, perftest's tables, a page, or pictures
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Directories of records, or directories that contain such; or the directory of a study, whose
    /// page is then written again
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// How and where.
    #[command(flatten)]
    pub output: ReportOutput,
}

/// Prints records, or writes a page of them; for a study's directory, its page.
pub fn run(args: &ReportArgs) -> Outcome {
    let output = &args.output;
    if let Some(file) = &output.html {
        files::check("--html", file)?;
    }
    if let Some(dir) = args.dirs.iter().find(|dir| study::is_study_dir(dir)) {
        return match args.dirs.as_slice() {
            [_] => study::run(dir, output),
            _ => Err(usage(format!(
                "{} is the directory of a study: report it alone, or name the directories of its \
                 records",
                dir.display()
            ))),
        };
    }
    let mut records = Vec::new();
    for dir in &args.dirs {
        records.extend(open_below(dir)?.into_iter().map(with_findings));
    }
    show(output, &records)?;
    whole(&records)?;
    expect::check_all(&output.expect, &records)
}

/// Fails if points of a record are damaged: what was printed is not all that was measured.
fn whole(records: &[Record]) -> Outcome {
    let Some(record) = records.iter().find(|record| record.damaged_points > 0) else {
        return Ok(());
    };
    let (damaged, dir) = (record.damaged_points, record.dir.display());
    Err(failed(format!(
        "{damaged} of {} measured points of {dir} cannot be read; the others are shown: copy the \
         record again from where it was made, or measure the missing points again",
        record.points.len() as u64 + damaged
    )))
}

fn show(output: &ReportOutput, records: &[Record]) -> Outcome {
    let shows_damage = matches!(output.format, Format::Table | Format::Markdown | Format::Json);
    if !shows_damage || output.html.is_some() || output.svg.is_some() {
        warn_of_damage(records);
    }
    match (&output.html, &output.svg) {
        (Some(file), _) => files::write("--html", file, rdmalab_report::pages(records)),
        (None, Some(dir)) => print::charts(records, dir),
        (None, None) => print::records(records, output.format),
    }
}
