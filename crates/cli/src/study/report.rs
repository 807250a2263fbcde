//! `rdmalab report` for a study's directory: writes its page again, or prints its results.

use std::path::{Path, PathBuf};

use clap::Args;
use rdmalab_record::Record;
use rdmalab_report::expect::Expectation;
use rdmalab_study::{Evaluation, Study, SweepResult, SweepState, evaluate_model};

use super::dir::{FILE, StudyDir};
use super::results::{PAGE, find, measured, started_parts, studies, write_page};
use super::show;
use crate::expect::check_all;
use crate::failure::{Outcome, usage};
use crate::files;
use crate::format::Format;
use crate::print;
use crate::records::warn_of_damage;

/// How a report is printed, and where it goes.
#[derive(Args, Debug)]
pub struct ReportOutput {
    /// How they are printed
    #[arg(long, value_enum, value_name = "FORM", default_value = "table")]
    pub format: Format,
    /// Write one page of all of them that needs nothing but a browser, instead of printing
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub html: Option<PathBuf>,
    /// Write each chart as an SVG file into this directory, instead of printing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["format", "html"])]
    pub svg: Option<PathBuf>,
    /// What has to hold at every point, as for `run`; may be given several times. Exits with 1
    /// when one does not hold
    #[arg(long, value_name = "EXPECTATION")]
    pub expect: Vec<Expectation>,
}

/// Whether `rdmalab study` made this directory.
pub fn is_study_dir(dir: &Path) -> bool {
    dir.join(FILE).is_file()
}

/// A run of a study, which may have ended early.
struct Run {
    study: Study,
    parts: Vec<SweepResult>,
    evaluation: Evaluation,
    dir: StudyDir,
}

impl Run {
    fn open(path: &Path) -> Outcome<Self> {
        let dir = StudyDir::open(path).map_err(usage)?;
        let study = find(&dir.request.study, studies(dir.request.studies.as_deref())?)?;
        let parts = measured(&started_parts(&study, &dir), &dir);
        let evaluation = evaluate_model(&study, &parts, &dir.request.calibration(&study));
        Ok(Self { study, parts, evaluation, dir })
    }

    fn records(&self) -> Vec<Record> {
        let record = |part: &SweepResult| match &part.state {
            SweepState::Measured(record) => Some((**record).clone()),
            _ => None,
        };
        self.parts.iter().filter_map(record).collect()
    }
}

/// Writes the study's page again, in its directory or at `--html`, or prints the results in the
/// requested form.
///
/// # Errors
/// The study does not exist, or a file cannot be written.
pub fn run(path: &Path, output: &ReportOutput) -> Outcome {
    let run = Run::open(path)?;
    let Run { study, parts, evaluation, dir } = &run;
    let records = run.records();
    warn_of_damage(&records);
    match (&output.svg, &output.html, output.format) {
        (Some(directory), ..) => print::charts(&records, directory)?,
        (None, Some(file), _) => {
            let text = rdmalab_report::study_page(study, parts, evaluation, &[]);
            files::write("--html", file, text)?;
        }
        (None, None, Format::Table) => {
            show::verdicts(study, evaluation, &dir.request);
            write_page(&dir.path.join(PAGE), study, parts, evaluation, &[])?;
        }
        (None, None, Format::Json) => {
            out!("{}", rdmalab_report::study_json(study, parts, evaluation));
        }
        (None, None, Format::Csv) => out!("{}", rdmalab_report::study_csv(parts)),
        (None, None, Format::Markdown) => {
            out!("{}", rdmalab_report::study_markdown(study, parts, evaluation));
        }
        (None, None, Format::Perftest) => {
            for record in &records {
                print::record(record, Format::Perftest, false)?;
            }
        }
    }
    check_all(&output.expect, &records)
}
