//! The options of all experiments, for the command line, its help and completions, for sweeps, and
//! for the columns of a record.

use rdmalab_measure::text;

use crate::common::option::{Opt, OptionError};
use crate::experiment::Experiment;

/// All options of all experiments, each once, in an order that agrees with that of each experiment.
#[must_use]
pub fn options() -> Vec<&'static Opt> {
    let mut all: Vec<&'static Opt> = Vec::new();
    for experiment in Experiment::all() {
        // Insert each option behind its predecessor in this experiment.
        let mut at = 0;
        for option in experiment.options() {
            match all.iter().position(|known| known.name == option.name) {
                Some(known) => at = known + 1,
                None => {
                    all.insert(at, option);
                    at += 1;
                }
            }
        }
    }
    all
}

/// The option of that name, which may be written with dashes or underscores.
///
/// # Errors
/// The experiment has no option of that name; the text lists the options that it has.
pub fn option(experiment: Experiment, name: &str) -> Result<&'static Opt, OptionError> {
    let plain = name.trim_start_matches('-').replace('_', "-");
    let found = experiment.options().into_iter().find(|option| option.name == plain);
    found.ok_or_else(|| unused(experiment, &plain))
}

/// The experiments that use an option, as words.
fn users(name: &str) -> Vec<&'static str> {
    let uses = |e: &Experiment| e.options().iter().any(|option| option.name == name);
    Experiment::all().filter(uses).map(Experiment::name).collect()
}

/// The error that an experiment does not use an option; it names the experiments that do.
pub(crate) fn unused(experiment: Experiment, name: &str) -> OptionError {
    let others = users(name);
    let reason = if others.is_empty() {
        let names: Vec<&str> = experiment.options().iter().map(|o| o.name).collect();
        format!("there is no such option; the options are {}", names.join(", "))
    } else {
        let do_it = text::plural(others.len(), "does", "do");
        format!("{experiment} does not use it; {} {do_it}", text::and(&others))
    };
    OptionError { option: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::Point;

    #[test]
    fn names_and_letters_are_used_once() {
        let all = options();
        for (i, a) in all.iter().enumerate() {
            assert!(!a.help.ends_with('.'), "{}", a.name);
            assert!(a.is_number || !a.words.is_empty(), "{}", a.name);
            for b in &all[i + 1..] {
                assert_ne!(a.name, b.name);
                assert!(a.letter.is_none() || a.letter != b.letter, "{} {}", a.name, b.name);
            }
        }
    }

    #[test]
    fn an_option_is_the_same_in_all_experiments_and_in_their_order() {
        let all = options();
        for experiment in Experiment::all() {
            let at = experiment.options().into_iter().map(|option| {
                let at = all.iter().position(|known| *known == option);
                at.unwrap_or_else(|| panic!("--{} of {experiment} is another one", option.name))
            });
            assert!(at.is_sorted(), "{experiment}");
        }
    }

    #[test]
    fn what_an_option_says_it_also_takes() {
        for experiment in Experiment::all() {
            for option in experiment.options() {
                let mut point = Point::default_for(experiment);
                let text = option.get(&point);
                option.set(&mut point, &text).unwrap();
                assert_eq!(point, Point::default_for(experiment), "--{} {text}", option.name);
                for word in option.words.iter().chain(&option.bare) {
                    option.set(&mut point, word).unwrap();
                    assert_eq!(option.get(&point), *word, "--{}", option.name);
                }
                if option.is_number {
                    let number = if option.name == "mtu" { "256" } else { "2" };
                    option.set(&mut point, number).unwrap();
                    assert!(option.get(&point).starts_with('2'), "--{}", option.name);
                }
            }
        }
    }

    #[test]
    fn each_option_changes_the_point() {
        let all = Experiment::all().flat_map(|e| e.options().into_iter().map(move |o| (e, o)));
        for (experiment, option) in all {
            let mut point = Point::default_for(experiment);
            let values =
                ["3", "4", "rc", "uc", "send", "read", "busy", "event", "spin", "sleep", "a=1"]
                    .iter()
                    .chain(option.words);
            let changed = values.filter(|text| {
                let before = point.clone();
                option.set(&mut point, text).is_ok() && before != point
            });
            assert!(changed.count() > 0, "--{}", option.name);
        }
    }

    #[test]
    fn errors_teach() {
        let mut point = Point::default_for(Experiment::PING);
        let of = |name| option(Experiment::PING, name).unwrap();
        let text = of("transport").set(&mut point, "xrc").unwrap_err().to_string();
        assert_eq!(text, "--transport: \"xrc\" is not a valid transport: choose one of rc, uc, ud");
        let text = of("mtu").set(&mut point, "1500").unwrap_err().to_string();
        assert!(text.starts_with("--mtu: ") && text.contains("4096"), "{text}");
        let text = option(Experiment::PING, "stamps").unwrap_err().to_string();
        assert!(text.contains("oneway does"), "{text}");
        let text = option(Experiment::PING, "--sise").unwrap_err().to_string();
        assert!(text.starts_with("--sise: there is no such option") && text.contains("size"));
    }

    #[test]
    fn polling_of_both_sides_is_one_option_too() {
        let mut point = Point::default_for(Experiment::PING);
        let poll = option(Experiment::PING, "poll").unwrap();
        poll.set(&mut point, poll.bare.unwrap()).unwrap();
        assert_eq!(poll.get(&point), "event");
        option(Experiment::PING, "poll_recv").unwrap().set(&mut point, "busy").unwrap();
        assert_eq!(poll.get(&point), "mixed");
    }

    #[test]
    fn the_book_names_every_experiment() {
        let chapter = include_str!("../../../docs/book/src/numbers.md");
        let (_, table) = chapter.split_once("## What is measured").unwrap();
        let (table, _) = table.split_once("For `t_lat_send`").unwrap();
        for experiment in Experiment::all() {
            assert!(table.contains(&format!("`{experiment}`")), "{experiment} is not in the table");
        }
    }
}
