//! The output of `rdmalab study`.

use rdmalab_experiments::Limits;
use rdmalab_study::{Evaluation, Study, Verdict};

use super::conditions;
use super::dir::Request;
use super::parts::{Part, What};
use crate::run::plan::duration;
use crate::table::Rows;

/// Prints the studies.
pub fn list(studies: &[Study]) {
    let mut rows = Rows::new(&["key", "what", "figures", "claims", "values"], 2);
    for study in studies {
        rows.push(&[
            study.plan.key.clone(),
            study.plan.title.clone(),
            study.plan.figures.len().to_string(),
            study.claims.len().to_string(),
            study.published.len().to_string(),
        ]);
    }
    out!("{}", rows.text());
    outln!(
        "\nrdmalab study KEY --plan shows the sweeps and their duration; --quick takes less time."
    );
}

/// Prints the plan: each part, its possible points, and its duration.
pub fn plan(study: &Study, parts: &[Part], request: &Request, limits: &Limits) {
    let plan = &study.plan;
    outln!("{}: {}", plan.key, plan.title);
    outln!("  {}; on {}", plan.source, plan.hardware);
    let profile = limits.profile.as_ref().map(|(name, _)| format!(", profile {name}"));
    outln!("  here on {} (of kind {}{})", request.device, limits.kind, profile.unwrap_or_default());
    // Waiting takes no time of ours where time is virtual.
    let is_simulated = limits.kind == "sim";
    if let Some((_, does)) = limits.profile.as_ref().filter(|_| is_simulated) {
        outln!("  {does}");
    }
    let conditions = conditions::described(plan);
    if request.is_of_plan && !conditions.is_empty() {
        outln!("  in place of the profile's, the plan has {conditions}");
    }
    outln!("");
    let mut head = vec!["figure", "what is run", "points", "impossible", "times"];
    head.extend(if is_simulated { ["virtual", "here"].as_slice() } else { &["about"] });
    let mut rows = Rows::new(&head, 2);
    let (mut device_s, mut here_s, mut missing) = (0.0, 0.0, Vec::new());
    for part in parts {
        let line = part.line(request);
        match &part.what {
            What::NotAsked => {}
            What::Missing(why) => missing.push(format!("not available: {}: {why}", part.name())),
            What::Experiment(..) | What::Program(_) | What::Application(_) => {
                let size = part.size(Some(limits));
                device_s += size.device_s;
                here_s += size.expected_s;
                let mut row = vec![
                    part.name(),
                    line,
                    size.points.to_string(),
                    size.impossible.to_string(),
                    part.repeat.to_string(),
                    duration(size.device_s),
                ];
                row.extend(is_simulated.then(|| duration(size.expected_s)));
                rows.push(&row);
            }
        }
    }
    out!("{}", rows.text());
    missing.iter().for_each(|line| outln!("{line}"));
    let by = match parts.iter().any(|part| part.more_ns.is_some()) {
        true => "from a short trial of its sweeps",
        false => "on a device that answers in a microsecond",
    };
    if !is_simulated {
        outln!("\nabout {} in all, {by}\n", duration(device_s));
        return;
    }
    outln!("\nabout {} of virtual time in all, {by}", duration(device_s));
    outln!(
        "about {} of this machine's time, an estimate from short simulations of some points; \
         --max-time limits this time\n",
        duration(here_s)
    );
}

/// Prints a line when a part begins: its number of all, and the options of it.
pub fn begin((number, count): (usize, usize), part: (&Part, &str), about_s: f64, left_s: f64) {
    let (part, line) = part;
    errln!(
        "[{number}/{count}] {}: {} (about {}, {} left in all)",
        part.name(),
        line,
        duration(about_s),
        duration(left_s)
    );
}

/// Prints the verdicts on the claims and on the published values.
pub fn verdicts(study: &Study, evaluation: &Evaluation, request: &Request) {
    if let Some(caution) = evaluation.kind.and_then(|kind| kind.caution()) {
        outln!("{}: {caution}", request.device);
    }
    let mut rows = Rows::new(&["claim", "verdict", "why"], 3);
    for judged in &evaluation.claims {
        let why = match &judged.verdict {
            Verdict::Confirmed(but) if but.is_empty() => judged.claim.says.clone(),
            Verdict::Confirmed(but) => {
                format!("{}; {but}", judged.claim.says.trim_end_matches('.'))
            }
            other => other.why().to_owned(),
        };
        rows.push(&[judged.claim.key.clone(), judged.verdict.name().to_owned(), why]);
    }
    out!("{}", rows.text());
    let count = |name: &str| {
        evaluation.claims.iter().filter(|judged| judged.verdict.name() == name).count()
    };
    outln!(
        "\n{} confirmed, {} refuted, {} cannot be seen here",
        count("confirmed"),
        count("refuted"),
        count("cannot be seen")
    );
    if !study.advice.is_empty() {
        outln!("\nwhat the study advises");
        let mut rows = Rows::new(&["advice", "seen here"], 2);
        for advice in &study.advice {
            let verdict = evaluation.verdict_on(advice.claim.as_deref()).to_owned();
            rows.push(&[advice.says.clone(), verdict]);
        }
        out!("{}", rows.text());
    }
    values(study, evaluation);
}

/// Prints the published values that were measured, deficits first, and how many have each verdict.
fn values(study: &Study, evaluation: &Evaluation) {
    let head = ["published value", "verdict", "study", "here", "here / study"];
    let mut rows = Rows::new(&head, 2);
    let all = evaluation.values_by_verdict();
    let measured: Vec<_> = all.into_iter().filter(|value| value.number.is_some()).collect();
    for value in &measured {
        let p = &value.published;
        rows.push(&[
            p.metric.clone(),
            evaluation.named(value.verdict()).to_owned(),
            format!("{} {}", p.value, p.unit),
            value.ours.as_ref().map_or_else(String::new, |(_, number)| number.clone()),
            value.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        ]);
    }
    let Some(origin) = evaluation.origin(&study.plan.hardware) else { return };
    if !measured.is_empty() {
        outln!("\nhere: {origin}");
        out!("{}", rows.text());
    }
    if !evaluation.values.is_empty() {
        outln!("\npublished values: {}", evaluation.value_summary());
    }
}
