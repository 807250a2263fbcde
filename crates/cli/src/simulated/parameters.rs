//! The parameters of simulated devices: a list of them, and the sweep that leaves out each.

use rdmalab_experiments::Link;
use rdmalab_sim::{Parameter, Parameters, Profile, name_of_device};

use super::loggp::LogGp;
use super::{names, profile};
use crate::failure::{Outcome, usage};
use crate::table::Rows;

/// The value of `--sim` that leaves out the time of each part in turn.
const ABLATE: &str = "ablate";

/// The options of a sweep, with `--sim ablate` replaced by the profile, and the profile without the
/// time of each of its parts.
///
/// # Errors
/// The profile is wrong, or the device is not simulated.
pub fn ablated(device: &str, options: &[(String, String)]) -> Outcome<Vec<(String, String)>> {
    let mut options = options.to_vec();
    let is_it = |(name, text): &&mut (String, String)| name == "sim" && text.contains(ABLATE);
    if let Some((_, text)) = options.iter_mut().find(is_it) {
        if text != ABLATE {
            return Err(usage(format!(
                "--sim {text}: {ABLATE} cannot be combined with other changes"
            )));
        }
        let profile = profile(device)?.ok_or_else(|| {
            usage(format!("--sim {ABLATE}: {device} is not simulated: choose --device sim:ideal"))
        })?;
        let takes_time = |parameter: &&Parameter| {
            let value = profile.parameters.get(parameter.name);
            !parameter.is_whole && value.is_some_and(|value| value > parameter.min)
        };
        let without = |parameter: &Parameter| format!("{}={}", parameter.name, parameter.min);
        let parts = Parameters::ALL.iter().filter(takes_time).map(without);
        *text = std::iter::once("profile".to_owned()).chain(parts).collect::<Vec<_>>().join(",");
    }
    Ok(options)
}

/// A profile in a line: what it is, its link, and how adapters are connected.
pub fn described(profile: &Profile) -> String {
    let of = |name| profile.parameters.get(name).unwrap_or(0.0);
    let is_it = |link: &&&str| {
        let values = rdmalab_sim::link_values(link);
        values.is_some_and(|all| all.iter().all(|(name, value)| close(of(name), *value)))
    };
    let name = Link::WORDS.iter().find(is_it).map(|link| format!(" ({link})"));
    let topology = match (of("leaf_ports"), of("switch_between_two")) {
        (ports, _) if ports > 0.0 => format!(
            "a fat tree, {ports} adapters at each leaf switch, {} links up",
            of("leaf_uplinks")
        ),
        (_, is_switch) if is_switch > 0.0 => "one switch".to_owned(),
        _ => "a cable between two adapters, one switch between more".to_owned(),
    };
    format!(
        "model {:016x}: {}; link {:.0} MB/s{}; {topology}",
        profile.hash(),
        profile.title,
        of("link_mb_per_s"),
        name.unwrap_or_default()
    )
}

/// Whether two rates are the same: they are kept in whole picoseconds for 2^20 bytes.
fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * b.abs()
}

/// Prints the parameters of a simulated device: value, how well it is known, and meaning; and what
/// it is in the terms of LogGP.
///
/// # Errors
/// There is no such profile, or no message can be simulated on it.
pub fn list_parameters(device: &str, is_json: bool) -> Outcome {
    let wrong = |why: String| usage(format!("--parameters {device}: {why}"));
    let name = name_of_device(device).ok_or_else(|| {
        wrong(format!(
            "this device is not simulated; the simulated ones are {}",
            names().join(", ")
        ))
    })?;
    let found = rdmalab_sim::find(name).map_err(|error| usage(format!("--parameters {error}")))?;
    let loggp = LogGp::of(&found)?;
    // Rates are kept in whole picoseconds for 2^20 bytes.
    let value = |name| (found.parameters.get(name).unwrap_or(0.0) * 1e3).round() / 1e3;
    let mark = |name| found.entries.get(name).map(|entry| entry.mark.name());
    if is_json {
        let each = Parameters::ALL.iter().map(|parameter| {
            serde_json::json!({
                "name": parameter.name,
                "value": value(parameter.name),
                "min": parameter.min,
                "max": parameter.max,
                "mark": mark(parameter.name),
                "from": found.entries.get(parameter.name).map(|entry| &entry.from),
                "meaning": parameter.meaning.trim(),
            })
        });
        let all: Vec<_> = each.collect();
        let value = serde_json::json!({
            "profile": found.name, "title": found.title, "lacks": found.lacks, "parameters": all,
            "loggp": loggp,
        });
        outln!("{value:#}");
        return Ok(());
    }
    outln!("{}: {}", found.name, found.title);
    outln!("It lacks {}.", found.lacks);
    outln!("{}\n", loggp.text());
    let mut rows = Rows::new(&["parameter", "value", "known", "meaning"], 4);
    for parameter in Parameters::ALL {
        rows.push(&[
            parameter.name.to_owned(),
            value(parameter.name).to_string(),
            mark(parameter.name).unwrap_or("default").to_owned(),
            parameter.meaning.trim().to_owned(),
        ]);
    }
    out!("{}", rows.text());
    Ok(())
}
