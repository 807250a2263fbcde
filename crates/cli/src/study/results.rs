//! The results of a study's run: its parts with their records, and its page.

use std::path::{Path, PathBuf};

use rdmalab_findings::with_findings;
use rdmalab_record::Record;
use rdmalab_report::OtherCondition;
use rdmalab_study::{Evaluation, Study, SweepState, evaluate_model};

use super::dir::StudyDir;
use super::parts::{self, Part, What};
use crate::failure::{Outcome, run as failed, usage};
use crate::suggestion::did_you_mean;

/// The page, in the study's directory.
pub const PAGE: &str = "report.html";
/// The published values with their verdicts, beside the page.
const VALUES: &str = "values.csv";

/// The studies of a directory, or those that are part of this program.
///
/// # Errors
/// The file of a study that is wrong, and why.
pub fn studies(dir: Option<&Path>) -> Outcome<Vec<Study>> {
    match dir {
        Some(dir) => Study::read_all(dir),
        None => Study::shipped(),
    }
    .map_err(usage)
}

/// The study with a key.
///
/// # Errors
/// There is no such study; the error lists the keys.
pub fn find(key: &str, studies: Vec<Study>) -> Outcome<Study> {
    let keys: Vec<String> = studies.iter().map(|study| study.plan.key.clone()).collect();
    studies.into_iter().find(|study| study.plan.key == key).ok_or_else(|| {
        let meant = did_you_mean(key, keys.iter().map(String::as_str));
        usage(format!("there is no study {key:?}; there are {}{meant}", keys.join(", ")))
    })
}

/// The parts of a study with the options with which they were started in a directory; they differ
/// from the plan if a part was shortened.
pub fn started_parts(study: &Study, dir: &StudyDir) -> Vec<parts::Part> {
    let mut all = parts::of_request(&study.plan, &dir.request);
    for part in &mut all {
        if let Ok(record) = Record::open(&dir.path.join(part.name())) {
            part.restore(&record.header.command);
        }
    }
    all
}

/// Each part with its record, or the reason why it has none.
pub fn measured(parts: &[Part], dir: &StudyDir) -> Vec<rdmalab_study::SweepResult> {
    // An existing record counts even if its program is no longer installed.
    let state = |part: &Part| match (Record::open(&dir.path.join(part.name())), &part.what) {
        (_, What::NotAsked) => SweepState::NotAsked,
        (Ok(record), _) => SweepState::Measured(Box::new(with_findings(record))),
        (Err(_), What::Missing(why)) => SweepState::Missing(why.clone()),
        (Err(_), _) => SweepState::Missing("it was not measured: the run ended before".into()),
    };
    parts
        .iter()
        .map(|part| rdmalab_study::SweepResult {
            figure: part.figure.clone(),
            sweep: part.sweep.clone(),
            line: part.shown_command(&dir.request),
            state: state(part),
        })
        .collect()
}

/// Other runs of a study, which the page shows beside this one. `own` is this run's name.
///
/// # Errors
/// A directory does not belong to the study, or two runs have the same name.
pub fn beside(
    study: &Study,
    dirs: &[PathBuf],
    own: Option<&String>,
) -> Outcome<Vec<OtherCondition>> {
    let one = |dir: &PathBuf| {
        let run = StudyDir::of(&study.plan.key, dir, "--beside")?;
        let parts = measured(&started_parts(study, &run), &run);
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let name =
            run.request.condition.clone().or(name).unwrap_or_else(|| dir.display().to_string());
        let evaluation = evaluate_model(study, &parts, &run.request.calibration(study));
        Ok(OtherCondition { name, evaluation, parts })
    };
    let mut found = Vec::<OtherCondition>::new();
    for dir in dirs {
        let next = one(dir)?;
        // Runs with the same name would be taken for repetitions.
        if own == Some(&next.name) || found.iter().any(|other| other.name == next.name) {
            return Err(usage(format!(
                "--beside {}: two runs have the condition {:?}: give each its own --condition",
                dir.display(),
                next.name
            )));
        }
        found.push(next);
    }
    Ok(found)
}

/// Writes the page, and the verdicts on values beside it, and prints the page's path.
///
/// # Errors
/// Why it cannot be written.
pub fn write_page(
    page: &Path,
    study: &Study,
    parts: &[rdmalab_study::SweepResult],
    evaluation: &Evaluation,
    others: &[OtherCondition],
) -> Outcome {
    let text = rdmalab_report::study_page(study, parts, evaluation, others);
    let values = rdmalab_report::study_values_csv(evaluation);
    for (file, text) in [(page, text), (&page.with_file_name(VALUES), values)] {
        std::fs::write(file, text).map_err(|e| failed(format!("{}: {e}", file.display())))?;
    }
    outln!("\n{}", page.display());
    Ok(())
}
