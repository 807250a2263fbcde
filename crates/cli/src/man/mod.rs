//! `rdmalab man` and `rdmalab completions`, both generated from the commands' definitions.

mod variables;

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;

use crate::failure::{Outcome, run as failed, usage};

/// Print a manual page, or write all of them as files
///
/// To read one: `rdmalab man exec | man -l -`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Which, as `exec` or `environment` [default: rdmalab]
    pub page: Option<String>,
    /// Write all of them into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    pub out: Option<PathBuf>,
}

/// Print completions for a shell
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// The page of the environment variables.
const ENVIRONMENT: &str = "rdmalab-environment";

/// A manual page: its name, section and roff.
struct Page {
    name: String,
    section: &'static str,
    text: Vec<u8>,
}

/// Prints one page, or writes all of them into a directory.
pub fn run(args: &ManArgs, rdmalab: Command) -> Outcome {
    let pages = pages(rdmalab).map_err(failed)?;
    if let Some(directory) = &args.out {
        return write(&pages, directory);
    }
    let wanted = match args.page.as_deref() {
        None => "rdmalab".to_owned(),
        Some(name) if name.starts_with("rdmalab") => name.to_owned(),
        Some(name) => format!("rdmalab-{name}"),
    };
    match pages.iter().find(|page| page.name == wanted) {
        Some(page) => {
            outln!("{}", String::from_utf8_lossy(&page.text).trim_end());
            Ok(())
        }
        None => {
            let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
            Err(usage(format!("man {wanted}: no such page; there are: {}", names.join(", "))))
        }
    }
}

fn write(pages: &[Page], directory: &Path) -> Outcome {
    let cannot = |e| failed(format!("{}: {e}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    for page in pages {
        let file = directory.join(format!("{}.{}", page.name, page.section));
        std::fs::write(file, &page.text).map_err(cannot)?;
    }
    Ok(())
}

fn pages(mut rdmalab: Command) -> std::io::Result<Vec<Page>> {
    let mut found = Vec::new();
    rdmalab.build();
    add(&rdmalab, "rdmalab", &mut found)?;
    found.push(Page {
        name: ENVIRONMENT.to_owned(),
        section: "7",
        text: variables::page(ENVIRONMENT).into_bytes(),
    });
    Ok(found)
}

/// Adds the page of a command and the pages of its subcommands.
fn add(command: &Command, name: &str, found: &mut Vec<Page>) -> std::io::Result<()> {
    let mut text = Vec::new();
    let titled = command.clone().name(name.to_owned()).display_name(name.to_owned());
    Man::new(titled).title(name.to_uppercase()).render(&mut text)?;
    text.extend_from_slice(b".SH \"SEE ALSO\"\n");
    text.extend_from_slice(format!("rdmalab(1), {ENVIRONMENT}(7)\n").as_bytes());
    found.push(Page { name: name.to_owned(), section: "1", text });
    let shown = |c: &&Command| !c.is_hide_set() && c.get_name() != "help";
    for below in command.get_subcommands().filter(shown) {
        add(below, &format!("{name}-{}", below.get_name()), found)?;
    }
    Ok(())
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs, mut rdmalab: Command) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut rdmalab, "rdmalab", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn each_command_has_a_page_and_hidden_ones_have_none() {
        let pages = pages(Cli::command()).unwrap();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["rdmalab", "rdmalab-exec", "rdmalab-bench-self", "rdmalab-environment"] {
            assert!(names.contains(&name), "no {name} in {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("worker")), "{names:?}");
        for page in &pages {
            let text = String::from_utf8_lossy(&page.text);
            assert!(text.contains(".TH") && text.contains(".SH NAME"), "{}", page.name);
        }
    }
}
