//! `rdmalab devices --profiles`: the profiles of soft devices, and what is best on each.

use rdmalab_softnic::{Optimum, Profile, SHIPPED, find_profile};
use serde_json::{Value, json};

use crate::failure::{Outcome, run as failed};

/// Prints a line for each shipped profile.
///
/// # Errors
/// A shipped profile cannot be parsed; tests rule this out.
pub fn list(is_json: bool) -> Outcome {
    let all: Result<Vec<Profile>, String> =
        SHIPPED.iter().map(|(name, _)| find_profile(name)).collect();
    let all = all.map_err(failed)?;
    if is_json {
        let all: Vec<Value> = all.iter().map(json).collect();
        outln!("{:#}", json!({ "profiles": all }));
        return Ok(());
    }
    let wide = all.iter().map(|profile| profile.name.len()).max().unwrap_or(0);
    for profile in &all {
        outln!("{:wide$}  {}", profile.name, profile.title);
    }
    outln!("\n`rdmalab devices --profile NAME` tells more; name a profile of your own by its path");
    Ok(())
}

/// Prints a profile.
///
/// # Errors
/// The profile cannot be read any more.
pub fn tell(asked: &str) -> Result<(), String> {
    let profile = find_profile(asked)?;
    outln!("profile {}: {}", profile.name, profile.title);
    outln!("    imitates: {}", profile.imitates);
    outln!("    lacks: {}", profile.lacks);
    if !profile.source.is_empty() {
        outln!("    source: {}", profile.source);
    }
    for (name, number) in &profile.lowered {
        outln!("    limit: {name} {number}");
    }
    profile.rules.iter().for_each(|rule| outln!("    rule: {rule}"));
    profile.optima.iter().for_each(|optimum| outln!("    known: {}", sentence(optimum)));
    outln!();
    Ok(())
}

fn sentence(optimum: &Optimum) -> String {
    let Optimum { ask, goal, best, worse, because } = optimum;
    let worse = worse.join(" and ");
    let known = match (best.as_str(), worse.as_str()) {
        (best, "") => format!("{best} is best"),
        ("", worse) => format!("others are better than {worse}"),
        (best, worse) => format!("{best} is better than {worse}"),
    };
    format!("{ask} for {goal}: {known}: {because}")
}

/// A profile as JSON.
pub fn json(profile: &Profile) -> Value {
    let limits: serde_json::Map<String, Value> = profile
        .lowered
        .iter()
        .map(|(name, number)| ((*name).to_owned(), (*number).into()))
        .collect();
    let optimum = |optimum: &Optimum| {
        json!({
            "ask": optimum.ask,
            "for": optimum.goal,
            "best": (!optimum.best.is_empty()).then_some(&optimum.best),
            "worse": optimum.worse,
            "because": optimum.because,
        })
    };
    json!({
        "name": profile.name,
        "title": profile.title,
        "imitates": profile.imitates,
        "lacks": profile.lacks,
        "source": profile.source,
        "limits": limits,
        "rules": profile.rules,
        "optima": profile.optima.iter().map(optimum).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_what_advise_can_be_asked() {
        for (name, _) in SHIPPED {
            for optimum in find_profile(name).unwrap().optima {
                assert!(rdmalab_advice::question(&optimum.ask).is_ok(), "{name}: {optimum:?}");
                let mut goals = rdmalab_advice::Goal::ALL.iter();
                assert!(goals.any(|goal| goal.name() == optimum.goal), "{name}: {optimum:?}");
            }
        }
    }

    #[test]
    fn profiles_of_adapters_have_the_values_of_the_simulated_ones() {
        for name in ["connectx3", "connectx4", "connectx5", "connectx6"] {
            let (soft, sim) = (find_profile(name).unwrap(), rdmalab_sim::find(name).unwrap());
            for (name, value) in soft.adapter.values() {
                assert_eq!(sim.parameters.get(name), Some(value as f64), "{name}");
            }
            let of = |name: &str| sim.parameters.get(name).unwrap() / 1e3;
            let (least, mean) = (of("damming_ns"), of("damming_mean_ns"));
            // The quirk draws evenly: twice the mean beyond the least time.
            let rule = format!("damming {least}us..{}us", least + 2.0 * mean);
            assert_eq!(soft.rules, if least > 0.0 { vec![rule] } else { Vec::new() }, "{name}");
        }
    }

    #[test]
    fn an_optimum_is_a_sentence() {
        let mut optimum = Optimum {
            ask: "opcode".to_owned(),
            goal: "latency".to_owned(),
            best: "write".to_owned(),
            worse: vec!["send".to_owned(), "read".to_owned()],
            because: "nothing delays it".to_owned(),
        };
        let said = "opcode for latency: write is better than send and read: nothing delays it";
        assert_eq!(sentence(&optimum), said);
        optimum.worse.clear();
        assert!(sentence(&optimum).contains("latency: write is best: "), "{}", sentence(&optimum));
        (optimum.best, optimum.worse) = (String::new(), vec!["rc".to_owned()]);
        let said = "opcode for latency: others are better than rc: nothing delays it";
        assert_eq!(sentence(&optimum), said);
    }
}
