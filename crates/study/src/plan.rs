//! `plan.toml`: the figures of a study, each as sweeps.

use serde::Deserialize;

use crate::error::{self, Error};
use crate::simulated::Simulated;

/// The plan of a study.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its key: the name of its directory.
    pub key: String,
    /// The study's subject.
    pub title: String,
    /// Authors, place and year.
    pub source: String,
    /// The hardware of the study.
    pub hardware: String,
    /// The simulation that stands for that hardware, if there is one.
    #[serde(default)]
    pub sim: Simulated,
    /// How often each point is measured, unless a sweep says otherwise.
    #[serde(default = "one")]
    pub repeat: u32,
    /// The same number with `--quick`.
    #[serde(default = "one")]
    pub quick_repeat: u32,
    /// Its figures, in the study's order.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A figure: the sweeps whose results it shows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its key within the study.
    pub key: String,
    /// What it shows.
    pub title: String,
    /// A note for the reader.
    #[serde(default)]
    pub note: String,
    /// The points of claims or values that `--quick` leaves out, and the reason.
    #[serde(default)]
    pub quick_note: String,
    /// The meaning of the bars at its medians.
    #[serde(default)]
    pub bars: Bars,
    /// A value in the unit of the samples: the share of samples above it is drawn, too.
    #[serde(default)]
    pub above: Option<u64>,
    /// Published values by which options of its sweeps were chosen, on the model of the study's
    /// adapter. So that model does not predict them.
    #[serde(default)]
    pub calibrated_by: Vec<String>,
    /// What its simulation has besides the plan's, or in place of it.
    #[serde(default)]
    pub sim: Simulated,
    /// Names of its sweeps that a table shows side by side: the same rows for each, and the ratio
    /// of the first to the others.
    #[serde(default)]
    pub side_by_side: Vec<String>,
    /// The sweeps that make it.
    #[serde(default, rename = "sweep")]
    pub sweeps: Vec<Sweep>,
}

/// The meaning of the bars at a figure's medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bars {
    /// The 95 % interval of the median.
    #[default]
    Interval,
    /// From the 10 % to the 90 % quantile.
    Deciles,
}

/// One sweep: an experiment, and its options in the words of `rdmalab run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Its name within the figure; may be empty if the figure has one sweep.
    #[serde(default)]
    pub name: String,
    /// `EXPERIMENT --OPTION VALUES ...`.
    pub run: String,
    /// Options that `--quick` adds or replaces.
    #[serde(default)]
    pub quick: String,
    /// How often each point is measured.
    #[serde(default)]
    pub repeat: Option<u32>,
    /// What its simulation has besides the figure's, or in place of it.
    #[serde(default)]
    pub sim: Simulated,
}

/// The command of a sweep, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepCommand {
    /// The experiment, or the installed program.
    pub experiment: String,
    /// Options without dashes and their values, in the order of the command.
    pub options: Vec<(String, String)>,
}

const fn one() -> u32 {
    1
}

impl Plan {
    /// Reads a plan; `file` is its name in errors.
    ///
    /// # Errors
    /// What is wrong with the plan, and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<Self, Error> {
        let plan: Self = toml::from_str(text).map_err(|e| error::toml(file, text, &e))?;
        plan.check().map_err(|what| Error { file: file.to_owned(), what })?;
        Ok(plan)
    }

    /// The figure of that key, in letters of either case: studies write `1B` where a key is `1b`.
    #[must_use]
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.key.eq_ignore_ascii_case(key))
    }

    /// The conditions of a simulation of one of its sweeps.
    #[must_use]
    pub fn simulated(&self, figure: &Figure, sweep: &Sweep) -> Simulated {
        sweep.sim.within(&figure.sim.within(&self.sim))
    }

    /// The profiles of all its simulations, that of the plan first.
    #[must_use]
    pub fn profiles(&self) -> Vec<String> {
        let sweeps = self.figures.iter().flat_map(|f| f.sweeps.iter().map(move |s| (f, s)));
        let of_sweeps = sweeps.filter_map(|(f, s)| self.simulated(f, s).profile);
        let mut found: Vec<String> = Vec::new();
        for profile in self.sim.profile.clone().into_iter().chain(of_sweeps) {
            if !found.contains(&profile) {
                found.push(profile);
            }
        }
        found
    }

    fn check(&self) -> Result<(), String> {
        is_key(&self.key).map_err(|why| format!("key = {:?}: {why}", self.key))?;
        if self.repeat == 0 || self.quick_repeat == 0 {
            return Err("repeat and quick_repeat must be at least 1".to_owned());
        }
        for (i, figure) in self.figures.iter().enumerate() {
            let at = |what: String| format!("figure {:?}: {what}", figure.key);
            is_figure(&figure.key).map_err(|why| at(why.to_owned()))?;
            let is_same = |other: &Figure| other.key.eq_ignore_ascii_case(&figure.key);
            if self.figures[..i].iter().any(is_same) {
                return Err(at("this key is used twice".to_owned()));
            }
            let is_sweep = |name: &&String| figure.sweeps.iter().any(|s| s.name == **name);
            if let Some(other) = figure.side_by_side.iter().find(|name| !is_sweep(name)) {
                return Err(at(format!("side_by_side: there is no sweep {other:?}")));
            }
            for (j, sweep) in figure.sweeps.iter().enumerate() {
                sweep.command(false).and_then(|_| sweep.command(true)).map_err(at)?;
                let simulated = self.simulated(figure, sweep).options();
                let own = sweep.command(false).map_err(at)?.options;
                if let Some((name, _)) =
                    own.iter().find(|own| simulated.iter().any(|(name, _)| *name == own.0))
                {
                    return Err(at(format!(
                        "the run and sim both set --{name}: remove one of them"
                    )));
                }
                if self.sim.profile.is_none() && !self.simulated(figure, sweep).is_empty() {
                    return Err(at("sim: the plan names no profile with its own sim".to_owned()));
                }
                let named = !sweep.name.is_empty();
                if named {
                    is_key(&sweep.name).map_err(|why| at(format!("{:?}: {why}", sweep.name)))?;
                }
                if figure.sweeps[..j].iter().any(|other| other.name == sweep.name) {
                    let what =
                        format!("two sweeps have the name {:?}: give each its own", sweep.name);
                    return Err(at(what));
                }
            }
        }
        Ok(())
    }
}

/// Keys are also names of directories.
fn is_key(key: &str) -> Result<(), &'static str> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    if !key.is_empty() && key.chars().all(is_plain) {
        return Ok(());
    }
    Err("a key may have only lower-case letters, digits, - and _")
}

/// A figure's key, or its number in the study: `6.1`.
fn is_figure(key: &str) -> Result<(), &'static str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match key.split_once('.') {
        Some((chapter, number)) if is_number(chapter) && is_number(number) => Ok(()),
        _ => is_key(key),
    }
}

impl Sweep {
    /// The command of the sweep; with `quick`, the options of [`Sweep::quick`] replace those of the
    /// same name.
    ///
    /// # Errors
    /// What is wrong with the options, and how they are written.
    pub fn command(&self, quick: bool) -> Result<SweepCommand, String> {
        let (experiment, rest) = match self.run.trim().split_once(char::is_whitespace) {
            Some((experiment, rest)) => (experiment, rest),
            None => (self.run.trim(), ""),
        };
        if experiment.is_empty() || experiment.starts_with('-') {
            return Err(format!(
                "run = {:?}: it must begin with the name of an experiment",
                self.run
            ));
        }
        let mut options = pairs(rest)?;
        let changes = pairs(&self.quick)?;
        for (name, value) in if quick { changes } else { Vec::new() } {
            match options.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => options.push((name, value)),
            }
        }
        Ok(SweepCommand { experiment: experiment.to_owned(), options })
    }
}

/// `--name value --name value`.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut words = text.split_whitespace();
    let mut found: Vec<(String, String)> = Vec::new();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
            return Err(format!("{word:?} in {text:?}: write options as --name value"));
        };
        let Some(value) = words.next().filter(|value| !value.starts_with("--")) else {
            return Err(format!("--{name} in {text:?} has no value"));
        };
        if found.iter().any(|(known, _)| known == name) {
            return Err(format!("--{name} is given twice in {text:?}"));
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Ok(found)
}

impl SweepCommand {
    /// The command line after `rdmalab run`.
    #[must_use]
    pub fn line(&self) -> Vec<String> {
        let options = self.options.iter().flat_map(|(n, v)| [format!("--{n}"), v.clone()]);
        std::iter::once(self.experiment.clone()).chain(options).collect()
    }

    /// Parses a command line after `rdmalab run`.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn of_line(line: &[String]) -> Result<Self, String> {
        let run = line.join(" ");
        Sweep { run, ..Sweep::default() }.command(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "key='a'\ntitle='T'\nsource='S'\nhardware='H'\n";

    fn error(rest: &str) -> String {
        Plan::parse("a/plan.toml", &format!("{HEAD}{rest}")).expect_err("an error").to_string()
    }

    #[test]
    fn quick_words_take_the_place_of_the_same_ones() {
        let plan = format!(
            "{HEAD}[[figure]]\nkey='f'\ntitle='F'\n[[figure.sweep]]\n\
             run='ping --size 8..64*2 --runs 5'\nquick='--runs 1 --messages 20'\n\
             [[figure]]\nkey='6.1'\ntitle='G'\n"
        );
        let plan = Plan::parse("a/plan.toml", &plan).unwrap();
        let sweep = &plan.figure("F").unwrap().sweeps[0];
        assert_eq!(sweep.command(false).unwrap().line().join(" "), "ping --size 8..64*2 --runs 5");
        let quick = sweep.command(true).unwrap();
        assert_eq!(quick.line().join(" "), "ping --size 8..64*2 --runs 1 --messages 20");
        assert_eq!(SweepCommand::of_line(&quick.line()), Ok(quick));
    }

    #[test]
    fn a_sweep_is_simulated_with_the_nearest_conditions() {
        let plan = format!(
            "{HEAD}[sim]\nprofile='a'\nlink='edr'\n[[figure]]\nkey='f'\ntitle='F'\n\
             sim={{link='sdr,ddr'}}\n[[figure.sweep]]\nname='s'\nrun='ping'\n\
             [[figure.sweep]]\nname='t'\nrun='ping'\nsim={{profile='b'}}\n"
        );
        let plan = Plan::parse("a/plan.toml", &plan).unwrap();
        let figure = &plan.figures[0];
        let of = |i: usize| plan.simulated(figure, &figure.sweeps[i]);
        assert_eq!(of(0).options(), [("link".to_owned(), "sdr,ddr".to_owned())]);
        assert_eq!((of(0).profile.as_deref(), of(1).profile.as_deref()), (Some("a"), Some("b")));
        assert!(of(1).options().is_empty());
        assert_eq!(plan.profiles(), ["a", "b"]);
    }

    #[test]
    fn errors_name_file_key_and_what_is_allowed() {
        let figure = "[[figure]]\nkey='f'\ntitle='F'\n";
        let said = error(&format!("{figure}colour='red'"));
        assert!(said.starts_with("a/plan.toml: line 8: unknown field `colour`"), "{said}");
        assert!(said.contains("`sweep`"), "{said}");
        let sweep = |run: &str| error(&format!("{figure}[[figure.sweep]]\nrun='{run}'"));
        assert!(sweep("ping -s 8").contains("write options as --name value"));
        assert!(sweep("ping --size").contains("--size in \"--size\" has no value"));
        assert!(sweep("ping --size 8 --size 9").contains("twice"));
        assert!(sweep("--size 8").contains("it must begin with the name of an experiment"));
        assert!(error(&format!("{figure}side_by_side=['a']")).contains("there is no sweep \"a\""));
        assert!(error(&format!("{figure}bars='wide'")).contains("`deciles`"));
        assert!(error(&format!("{figure}{figure}")).contains("used twice"));
        for key in ["F F", "6.", "6.1.2", ".", "6.a"] {
            let said = error(&format!("[[figure]]\nkey='{key}'\ntitle=''"));
            assert!(said.contains("lower-case letters"), "{said}");
        }
        assert!(error("").contains("missing field `figure`"));
        assert!(error("repeat=0\nfigure=[]").contains("at least 1"));
        assert!(error("sim={links='sdr'}\nfigure=[]").contains("`topology`"));
        let lost = format!("{figure}sim={{link='sdr'}}\n[[figure.sweep]]\nrun='ping'");
        assert!(error(&lost).contains("figure \"f\": sim: the plan names no profile"));
        let twice = format!(
            "sim={{profile='ideal',topology='cable'}}\n{figure}[[figure.sweep]]\n\
             run='ping --sim bus_reads=1'"
        );
        assert!(error(&twice).contains("the run and sim both set --sim"));
    }
}
