//! Tables on a terminal, in a pipe, or in a file.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

/// A table with a head; columns from number `text_columns` on are numbers, aligned to the right.
/// Plain characters and no colours, so that NO_COLOR and pipes need no special treatment.
pub struct Rows {
    table: Table,
    text_columns: usize,
}

impl Rows {
    /// An empty table.
    pub fn new(head: &[&str], text_columns: usize) -> Self {
        let mut table = Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let mut rows = Self { table, text_columns };
        let cells = rows.cells(head.iter().copied());
        rows.table.set_header(cells);
        rows
    }

    fn cells<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Vec<Cell> {
        let align = |i: usize| {
            if i < self.text_columns { CellAlignment::Left } else { CellAlignment::Right }
        };
        texts.enumerate().map(|(i, t)| Cell::new(t).set_alignment(align(i))).collect()
    }

    /// Adds a row.
    pub fn push(&mut self, row: &[String]) {
        let cells = self.cells(row.iter().map(String::as_str));
        self.table.add_row(cells);
    }

    /// The lines, without trailing blanks.
    pub fn text(&self) -> String {
        self.table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

/// A count with a blank between groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut rows = Rows::new(&["name", "count"], 1);
        rows.push(&["a".into(), "5".into()]);
        let text = rows.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[1].ends_with("    5"), "{text}");
        assert!(lines.iter().all(|l| !l.contains('\u{1b}')));
    }

    #[test]
    fn counts_are_readable() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1 000", "1 234 567"].map(str::to_owned)
        );
    }
}
