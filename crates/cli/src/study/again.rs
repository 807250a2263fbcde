//! A study's directory in another form: its page again, or what it says as text.

use std::path::Path;

use rdmalab_record::Record;
use rdmalab_study::{Evaluation, Study, SweepResult, SweepState, evaluate};

use super::place::{ASKED, Place};
use super::{PAGE, find, measured, parts, show, studies, write_page};
use crate::args::ReportArgs;
use crate::failure::{Outcome, usage};
use crate::run::args::Format;

/// Whether it is a study's directory, as `rdmalab study` makes them.
pub fn is_one(dir: &Path) -> bool {
    dir.join(ASKED).is_file()
}

/// What there is of a study that was measured, maybe not to its end.
struct Run {
    study: Study,
    parts: Vec<SweepResult>,
    evaluation: Evaluation,
    place: Place,
}

impl Run {
    fn open(dir: &Path) -> Outcome<Self> {
        let place = Place::open(dir).map_err(usage)?;
        let study = find(&place.asked.study, studies(place.asked.studies.as_deref())?)?;
        let parts = measured(&begun(&study, &place), &place);
        let evaluation = evaluate(&study, &parts);
        Ok(Self { study, parts, evaluation, place })
    }

    fn records(&self) -> Vec<Record> {
        let record = |part: &SweepResult| match &part.state {
            SweepState::Measured(record) => Some((**record).clone()),
            _ => None,
        };
        self.parts.iter().filter_map(record).collect()
    }
}

/// The parts of a study as they were begun there: cut parts with the words that are left of them.
pub fn begun(study: &Study, place: &Place) -> Vec<parts::Part> {
    let mut all = parts::of(&study.plan, &place.asked.figures, place.asked.quick);
    for part in &mut all {
        if !place.asked.hosts.is_empty() {
            part.leave_programs();
        }
        if let Ok(record) = Record::open(&place.dir.join(part.name())) {
            part.adopt(&record.header.command);
        }
    }
    all
}

/// The study's page again, where it was or at `--html`; or in the form that is asked for.
///
/// # Errors
/// When it is not of a study that there is, or a file cannot be written.
pub fn run(dir: &Path, args: &ReportArgs) -> Outcome {
    let run = Run::open(dir)?;
    let Run { study, parts, evaluation, place } = &run;
    crate::report::say_damage(&run.records());
    if let Some(dir) = &args.svg {
        crate::report::pictures(&run.records(), dir)?;
        return crate::report::expected(args, &run.records());
    }
    match (&args.html, args.format) {
        (Some(file), _) => {
            let text = rdmalab_report::study_page(study, parts, evaluation, &[]);
            crate::files::write("--html", file, text)?;
        }
        (None, Format::Table) => {
            show::verdicts(evaluation, &place.asked);
            write_page(&place.dir.join(PAGE), study, parts, evaluation, &[])?;
        }
        (None, Format::Json) => out!("{}", rdmalab_report::study_json(study, parts, evaluation)),
        (None, Format::Csv) => out!("{}", rdmalab_report::study_csv(parts)),
        (None, Format::Markdown) => {
            out!("{}", rdmalab_report::study_markdown(study, parts, evaluation));
        }
        (None, Format::Perftest) => {
            for record in run.records() {
                crate::report::print(&record, Format::Perftest, false)?;
            }
        }
    }
    crate::report::expected(args, &run.records())
}
