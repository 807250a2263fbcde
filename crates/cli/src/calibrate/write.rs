//! The profile as a file.

use rdmalab_measure::text::{and_more, first_few};
use rdmalab_sim::{Entry, Mark, Profile};

use super::args::CalibrateArgs;
use super::model::Model;
use super::result::Calibrated;
use crate::failure::{Outcome, run as failed};
use crate::files;

/// Most points that a source names.
const NAMED: usize = 3;
/// A derivative counts if it is so large a share of the largest one of its parameter.
const COUNTS: f64 = 0.05;

/// The profile with the fitted values. Other values keep their marks and sources.
pub fn profile(model: &Model<'_>, found: &Calibrated, args: &CalibrateArgs) -> Profile {
    let mut profile = model.base.clone();
    let stem = args.output.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    profile.name = stem.unwrap_or_else(|| "calibrated".to_owned());
    profile.title = format!("{}, fitted to {}", model.base.name, model.data.device);
    for (i, fitted) in found.fitted().enumerate() {
        let name = fitted.parameter.name;
        // The range was kept, and digits beyond the sixth say nothing.
        let value = rounded(fitted.value);
        let _ = profile.set(name, value);
        let group = found.known.groups.iter().find(|group| group.members.contains(&i));
        let note = match (group, fitted.error) {
            (Some(group), _) => {
                format!("; {}; the shares are those of {}", found.sentence(group), model.base.name)
            }
            (None, Some(error)) => format!("; standard error {}", rounded(error)),
            (None, None) => "; hardly known".to_owned(),
        };
        let from = format!("rdmalab calibrate: {}{note}", sources(model, found, i));
        profile.entries.insert(name.to_owned(), Entry { is: value, mark: Mark::Calibrated, from });
    }
    profile
}

/// The device, and the points and quantities that a parameter comes from.
fn sources(model: &Model<'_>, found: &Calibrated, variable: usize) -> String {
    let column = found.fit.jacobian.column(variable);
    let largest = column.amax();
    let mut rows: Vec<usize> =
        (0..column.len()).filter(|row| column[*row].abs() > COUNTS * largest).collect();
    rows.sort_by(|a, b| column[*b].abs().total_cmp(&column[*a].abs()));
    let name = |row: &usize| {
        let wanted = &model.data.wanted[*row];
        let place = &model.data.places[wanted.point].name;
        format!("{} {} of {place}", wanted.quantity, wanted.label).replace("  ", " ")
    };
    let names: Vec<String> = rows.iter().map(name).collect();
    let device = &model.data.device;
    let dirs = match &model.data.sources[..] {
        [] => String::new(),
        some => format!(" ({})", and_more(some, NAMED)),
    };
    format!("{device}{dirs}: {}", first_few(&names, NAMED))
}

/// A number with six digits.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Writes the profile, and checks that it can be read.
///
/// # Errors
/// The disk is full.
pub fn file(args: &CalibrateArgs, profile: &Profile) -> Outcome {
    let text = profile.text();
    Profile::parse("the new profile", &text).map_err(|error| failed(error.0))?;
    let shown = args.output.display().to_string();
    match args.format.is_json() {
        true => std::fs::write(&args.output, text)
            .map_err(|error| failed(format!("--output {shown}: {error}")))?,
        false => files::write("--output", &args.output, text)?,
    }
    let path = if shown.contains('/') { shown } else { format!("./{shown}") };
    errln!("use it: rdmalab run ping --device sim:{path}");
    Ok(())
}
