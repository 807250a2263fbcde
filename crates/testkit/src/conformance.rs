//! The conformance programs of `tests/c`, and the outcomes that the book lists for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::compiled::compile;

/// The programs. Each prints a line `CASE: OUTCOME` for each observation.
const PROGRAMS: [&str; 4] =
    ["conform_lengths.c", "conform_transport.c", "conform_keys.c", "conform_limits.c"];

/// The chapter of the book with the tables `| case | ours | rxe | why they differ |`.
const CHAPTER: &str = include_str!("../../../docs/book/src/conformance.md");

/// What the chapter has in place of rxe's outcome if it is ours.
const SAME: &str = "the same";

/// What the chapter has in place of an outcome if the device does not come to the observation.
const NOT_PRINTED: &str = "not printed";

/// A row of the chapter's tables.
#[derive(Debug)]
pub struct Row {
    /// The name of the case.
    pub case: &'static str,
    /// The outcome on our device.
    pub ours: &'static str,
    /// The outcome on the kernel's rxe.
    pub rxe: &'static str,
    /// Why they differ; empty if they are equal.
    pub reason: &'static str,
}

/// The rows of all tables of the chapter.
pub fn table() -> Vec<Row> {
    let cells = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        <[&str; 4]>::try_from(cells).ok()
    };
    let rows = CHAPTER.lines().filter(|line| line.starts_with("| `")).filter_map(cells);
    rows.map(|[case, ours, rxe, reason]| {
        let rxe = if rxe == SAME { ours } else { rxe };
        Row { case: case.trim_matches('`'), ours, rxe, reason }
    })
    .collect()
}

impl Row {
    /// Whether the two devices have the case with each other, and not each with itself.
    pub fn is_wire(&self) -> bool {
        self.case.starts_with("wire-")
    }
}

/// Compiles all programs with which a device conforms alone; `None`, with a SKIPPED line, if that
/// is impossible here.
pub fn compile_all(scratch: &Path) -> Option<Vec<PathBuf>> {
    PROGRAMS.into_iter().map(|name| compile_one(scratch, name)).collect()
}

/// Compiles the program whose two ends are on two devices, as [`compile_all`].
pub fn compile_wire(scratch: &Path) -> Option<PathBuf> {
    compile_one(scratch, "conform_wire.c")
}

fn compile_one(scratch: &Path, name: &str) -> Option<PathBuf> {
    compile(scratch, &[name, "endpoint.c", "conformance.c"], &["-libverbs"])
}

/// The differences between what programs printed and a column of the table: one line each. The
/// column has no value in rows that the programs do not print.
pub fn differences(printed: &str, column: impl Fn(&Row) -> Option<&'static str>) -> Vec<String> {
    let lines = printed.lines().filter_map(|line| line.split_once(": "));
    let mut found: BTreeMap<&str, &str> = lines.collect();
    let mut differences = Vec::new();
    for row in table() {
        let Some(expected) = column(&row) else { continue };
        match found.remove(row.case) {
            Some(outcome) if outcome == expected => {}
            None if expected == NOT_PRINTED => {}
            outcome => {
                let outcome = outcome.unwrap_or(NOT_PRINTED);
                differences.push(format!("{}: {outcome}; the table has: {expected}", row.case));
            }
        }
    }
    let unlisted = found.iter().map(|(case, outcome)| format!("{case}: {outcome}; not listed"));
    differences.extend(unlisted);
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_gives_a_reason_exactly_where_the_devices_differ() {
        let table = table();
        assert!(table.len() > 40, "{} rows", table.len());
        for row in table {
            assert_eq!(row.ours == row.rxe, row.reason.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn each_difference_is_found() {
        let row = &table()[0];
        let printed: String =
            table().iter().skip(1).map(|row| format!("{}: {}\n", row.case, row.ours)).collect();
        let wrong = |printed: &str| differences(printed, |row| Some(row.ours));
        assert_eq!(wrong(&printed).len(), 1);
        assert_eq!(wrong(&format!("{printed}{}: {}\n", row.case, row.ours)), [""; 0]);
        assert_eq!(wrong(&format!("{printed}{}: nothing\nnew: x\n", row.case)).len(), 2);
    }
}
