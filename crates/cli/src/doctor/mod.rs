//! `rdmalab doctor`: what on this machine hurts latency and bandwidth, and how to fix it. Reads
//! files below /sys and /proc, and changes nothing.

mod adapters;
mod diagnosis;
mod host;
mod tree;

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Outcome, usage};
use crate::format::ListFormatArgs;
use diagnosis::{Diagnosis, Level};
use tree::Tree;

/// Find what on this machine hurts latency and bandwidth, and how to fix it
///
/// Reads files below /sys and /proc, and changes nothing: --fix shows commands, and runs none.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Show the commands that would fix it, for a shell of root; runs none of them
    #[arg(long, conflicts_with_all = ["json", "format"])]
    pub fix: bool,
    /// How it is printed.
    #[command(flatten)]
    list: ListFormatArgs,
    /// Read the tree below this directory instead of this machine's
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// Reads the machine and prints the problems. Problems do not make the command fail.
pub fn run(args: &DoctorArgs) -> Outcome {
    if !args.root.join("proc").is_dir() && !args.root.join("sys").is_dir() {
        let root = args.root.display();
        return Err(usage(format!("--root {root}: it contains neither proc nor sys")));
    }
    let findings = examine(&Tree::at(&args.root));
    match (args.fix, args.list.is_json()) {
        (true, _) => out!("{}", script(&findings)),
        (false, false) => out!("{}", text(&findings)),
        (false, true) => outln!("{:#}", json(&findings)),
    }
    Ok(())
}

/// All findings about a tree.
fn examine(tree: &Tree) -> Vec<Diagnosis> {
    let mut found = host::findings(tree);
    found.extend(adapters::findings(tree));
    found
}

fn json(findings: &[Diagnosis]) -> serde_json::Value {
    let hurts = findings.iter().filter(|f| f.level == Level::Hurts).count();
    serde_json::json!({
        "format": "rdmalab-doctor",
        "format_version": 1,
        "hurts": hurts,
        "findings": findings,
    })
}

/// The findings, the worst first.
fn text(findings: &[Diagnosis]) -> String {
    const COLUMNS: usize = 98;
    let mut sorted: Vec<&Diagnosis> = findings.iter().collect();
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
    let fixable = sorted.iter().filter(|f| !f.commands.is_empty()).count();
    text += &match hurts {
        0 => "\nnothing that disturbs measurements was found\n".to_owned(),
        n => format!("\n{n} of {} things that were checked disturb measurements\n", sorted.len()),
    };
    if fixable > 0 {
        text += "rdmalab doctor --fix shows commands that fix them, and runs none\n";
    }
    text
}

/// A text wrapped into lines of at most `columns` characters.
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

/// A shell script that fixes the problems that commands can fix. It is for a person to read first.
fn script(findings: &[Diagnosis]) -> String {
    let fixable: Vec<&Diagnosis> = findings.iter().filter(|f| !f.commands.is_empty()).collect();
    if fixable.is_empty() {
        return "# there is nothing that a command could fix\n".to_owned();
    }
    let mut text = "# Commands for root; rdmalab runs none of them. They last until the \
                    next boot, unless a line says otherwise.\n"
        .to_owned();
    for finding in fixable {
        text += &format!("\n# {}: {}\n", finding.about, finding.found);
        text += &finding.commands.iter().map(|line| format!("{line}\n")).collect::<String>();
    }
    text
}

#[cfg(test)]
mod tests;
