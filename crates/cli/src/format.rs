//! The forms in which commands print, as options.

use clap::{Args, ValueEnum};

/// How a record is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// Comma-separated values: one line for each point and quantity
    Csv,
    /// Tables for a wiki or an issue
    Markdown,
    /// The tables of perftest's programs
    Perftest,
}

/// How lists are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people
    Table,
    /// One JSON document
    Json,
}

/// The options of a command that prints a list for people or for programs.
#[derive(Args, Clone, Copy, Debug)]
pub struct ListFormatArgs {
    /// Print as JSON: short for --format json
    #[arg(long)]
    json: bool,
    /// How it is printed
    #[arg(long, value_enum, value_name = "FORM", default_value = "table", conflicts_with = "json")]
    format: ListFormat,
}

impl ListFormatArgs {
    /// Whether the user asked for JSON.
    pub fn is_json(self) -> bool {
        self.json || self.format == ListFormat::Json
    }
}
