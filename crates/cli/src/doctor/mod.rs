//! `rdmalab doctor`: what of this machine hurts latency and bandwidth, and how to mend it. Reads
//! files below /sys and /proc, and changes nothing.

mod adapters;
mod host;
mod tree;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::args::ListFormat;
use crate::failure::{Outcome, usage};
use tree::Tree;

/// Options of `doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Show the commands that would mend it, for a shell with root's rights; nothing is run
    #[arg(long)]
    pub fix: bool,
    /// Print as JSON: short for --format json
    #[arg(long, conflicts_with = "fix")]
    json: bool,
    /// How it is printed
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value = "table",
        conflicts_with_all = ["fix", "json"]
    )]
    format: ListFormat,
    /// Read the tree below this directory instead of this machine's
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// The machine does not tell.
    Unknown,
    /// Worth knowing: it depends on what is measured.
    Note,
    /// Makes it slower, or less predictable.
    Hurts,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "?",
            Self::Note => "note",
            Self::Hurts => "HURTS",
        }
    }
}

/// What was found of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Of what: `governor`, `mlx5_0 MTU`.
    pub about: String,
    /// How bad.
    pub level: Level,
    /// What is there.
    pub found: String,
    /// What it does to measurements, and what to do; empty where it is good.
    pub advice: String,
    /// What mends it; empty where no command does.
    pub commands: Vec<String>,
}

impl Finding {
    /// One without advice.
    fn new(about: &str, level: Level, found: impl Into<String>) -> Self {
        let (about, found) = (about.to_owned(), found.into());
        Self { about, level, found, advice: String::new(), commands: Vec::new() }
    }

    fn good(about: &str, found: impl Into<String>) -> Self {
        Self::new(about, Level::Good, found)
    }

    fn unknown(about: &str, found: impl Into<String>) -> Self {
        Self::new(about, Level::Unknown, found)
    }

    fn note(about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..Self::new(about, Level::Note, found) }
    }

    fn hurts(about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..Self::new(about, Level::Hurts, found) }
    }

    fn mended_by(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }
}

/// Reads the machine and says what hurts. Succeeds also when something does.
pub fn run(args: &DoctorArgs) -> Outcome {
    if !args.root.join("proc").is_dir() && !args.root.join("sys").is_dir() {
        let root = args.root.display();
        return Err(usage(format!("--root {root}: there is neither proc nor sys below it")));
    }
    let findings = examine(&Tree::at(&args.root));
    let is_json = args.json || args.format == ListFormat::Json;
    match (args.fix, is_json) {
        (true, _) => out!("{}", script(&findings)),
        (false, false) => out!("{}", text(&findings)),
        (false, true) => outln!("{:#}", json(&findings)),
    }
    Ok(())
}

/// All that can be said of a tree.
fn examine(tree: &Tree) -> Vec<Finding> {
    let mut found = host::findings(tree);
    found.extend(adapters::findings(tree));
    found
}

fn json(findings: &[Finding]) -> serde_json::Value {
    let hurts = findings.iter().filter(|f| f.level == Level::Hurts).count();
    serde_json::json!({
        "format": "rdmalab-doctor",
        "format_version": 1,
        "hurts": hurts,
        "findings": findings,
    })
}

/// The worst first.
fn text(findings: &[Finding]) -> String {
    const COLUMNS: usize = 98;
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let width = sorted.iter().map(|f| f.about.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in &sorted {
        let line =
            format!("{:<5}  {:<width$}  {}", finding.level.word(), finding.about, finding.found);
        text += &format!("{}\n", line.trim_end());
        for line in folded(&finding.advice, COLUMNS.saturating_sub(width + 9)) {
            text += &format!("{:1$}{line}\n", "", width + 9);
        }
    }
    let hurts = sorted.iter().filter(|f| f.level == Level::Hurts).count();
    let mendable = sorted.iter().filter(|f| !f.commands.is_empty()).count();
    text += &match hurts {
        0 => "\nnothing hurts that the machine tells of\n".to_owned(),
        n => format!("\n{n} of {} things hurt\n", sorted.len()),
    };
    if mendable > 0 {
        text += "rdmalab doctor --fix shows the commands that mend them, and runs none\n";
    }
    text
}

/// A text in lines of so many columns.
fn folded(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A shell script of what would mend it, to be read first.
fn script(findings: &[Finding]) -> String {
    let mendable: Vec<&Finding> = findings.iter().filter(|f| !f.commands.is_empty()).collect();
    if mendable.is_empty() {
        return "# nothing that a command could mend\n".to_owned();
    }
    let mut text = "# Commands for root; rdmalab runs none of them. Until the next boot, unless \
                    said otherwise.\n"
        .to_owned();
    for finding in mendable {
        text += &format!("\n# {}: {}\n", finding.about, finding.found);
        text += &finding.commands.iter().map(|line| format!("{line}\n")).collect::<String>();
    }
    text
}

#[cfg(test)]
mod tests;
