//! Tables that fit a terminal: a table that is too wide is transposed or split into parts.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ContentArrangement};

/// The longest line, unless a single cell is longer.
pub const COLUMNS: usize = 100;

/// From this many parts on, a transposed table is easier to read.
const PARTS: usize = 3;

/// Keys up to this width are not replaced by row numbers.
const NUMBER: usize = 10;

/// A table: key columns, which identify the row, and then value columns.
pub struct Grid {
    heads: Vec<String>,
    keys: usize,
    is_word: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// The first `keys` columns identify a row; the first `words` columns hold words. Words are
    /// aligned to the left, numbers to the right.
    pub fn new(heads: Vec<String>, keys: usize, words: usize) -> Self {
        let is_word = (0..heads.len()).map(|column| column < words).collect();
        Self { heads, keys, is_word, rows: Vec::new() }
    }

    /// Declares that the columns with these heads hold words.
    pub fn set_words(&mut self, heads: &[&str]) {
        self.is_word = self.heads.iter().map(|head| heads.contains(&head.as_str())).collect();
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Whether each row fits in one line.
    pub fn fits(&self) -> bool {
        let all: Vec<usize> = (0..self.heads.len()).collect();
        self.width(&all) <= COLUMNS
    }

    /// The lines: the table unchanged, transposed, or in parts, whatever fits.
    pub fn text(&self) -> String {
        if self.fits() {
            return self.part(&(0..self.heads.len()).collect::<Vec<_>>());
        }
        let parts = self.parts();
        let keys: Vec<usize> = (0..self.keys).collect();
        let is_crowded = parts.iter().any(|part| self.width(part) > COLUMNS);
        if is_crowded && self.width(&keys) > NUMBER {
            return self.numbered().text();
        }
        let side = self.on_its_side().filter(|side| parts.len() >= PARTS && side.fits());
        match side {
            Some(side) => side.text(),
            None => parts.iter().map(|part| self.part(part)).collect(),
        }
    }

    /// The columns of each part: the keys and some values. Parts have about equally many values.
    fn parts(&self) -> Vec<Vec<usize>> {
        let keys: Vec<usize> = (0..self.keys).collect();
        let values: Vec<usize> = (self.keys..self.heads.len()).collect();
        let with_keys = |part: &[usize]| [keys.as_slice(), part].concat();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for &column in &values {
            match parts.last_mut() {
                Some(part) if self.width(&[part.as_slice(), &[column]].concat()) <= COLUMNS => {
                    part.push(column);
                }
                _ => parts.push(with_keys(&[column])),
            }
        }
        let each = values.len().div_ceil(parts.len().max(1)).max(1);
        let even: Vec<Vec<usize>> = values.chunks(each).map(with_keys).collect();
        let is_narrow = even.iter().all(|part| self.width(part) <= COLUMNS);
        if is_narrow { even } else { parts }
    }

    /// The transposed table: a column for each row.
    fn on_its_side(&self) -> Option<Self> {
        let line = |column: usize| {
            let cells = self.rows.iter().map(move |row| row[column].clone());
            std::iter::once(self.heads[column].clone()).chain(cells).collect::<Vec<String>>()
        };
        let mut lines = (0..self.heads.len()).map(line);
        // A table without keys has one row, which needs no head.
        let heads =
            if self.keys == 0 { vec![String::new(); self.rows.len() + 1] } else { lines.next()? };
        let mut side = Self::new(heads, 1, 1);
        side.rows = lines.collect();
        Some(side)
    }

    /// The table with a row number as its only key, in front of the other columns.
    fn numbered(&self) -> Self {
        let number = |first: String, rest: &[String]| [&[first], rest].concat();
        let heads = number("row".to_owned(), &self.heads);
        let is_word = [&[false], self.is_word.as_slice()].concat();
        let rows = self.rows.iter().enumerate();
        let rows = rows.map(|(i, row)| number((i + 1).to_string(), row)).collect();
        Self { heads, keys: 1, is_word, rows }
    }

    /// The width of the longest line with these columns: one blank before, and two between columns.
    fn width(&self, columns: &[usize]) -> usize {
        let letters = |text: &String| text.chars().count();
        let widest = |column: &usize| {
            let cells = self.rows.iter().map(|row| letters(&row[*column]));
            cells.fold(letters(&self.heads[*column]), usize::max)
        };
        columns.iter().map(|column| widest(column) + 2).sum::<usize>().saturating_sub(1)
    }

    fn part(&self, columns: &[usize]) -> String {
        let cells = |row: &[String]| -> Vec<Cell> {
            let align = |column: usize| match self.is_word[column] {
                true => CellAlignment::Left,
                false => CellAlignment::Right,
            };
            columns.iter().map(|c| Cell::new(&row[*c]).set_alignment(align(*c))).collect()
        };
        let mut table = comfy_table::Table::new();
        table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(cells(&self.heads));
        table.add_rows(self.rows.iter().map(|row| cells(row)));
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with these numbers of keys, values and rows, and these lengths of heads and cells.
    fn grid(keys: usize, values: usize, rows: usize, (head, cell): (usize, usize)) -> Grid {
        let name =
            |c: usize| format!("{:x<head$}", format!("{}{c}", if c < keys { 'k' } else { 'v' }));
        let mut grid = Grid::new((0..keys + values).map(name).collect(), keys, keys.min(1));
        for row in 0..rows {
            grid.push(
                (0..keys + values).map(|c| format!("{:y<cell$}", format!("{row}.{c}"))).collect(),
            );
        }
        grid
    }

    #[test]
    fn whatever_is_in_it_no_line_is_too_long_and_nothing_is_left_out() {
        for keys in [0, 1, 2, 9] {
            for values in [1, 3, 12, 40] {
                for rows in [1, 2, 30] {
                    for letters in [(4, 4), (26, 9), (9, 26), (60, 60)] {
                        let grid = grid(keys, values, rows, letters);
                        let text = grid.text();
                        let longest = text.lines().map(|line| line.chars().count()).max();
                        let which = format!("{keys} {values} {rows} {letters:?}\n{text}");
                        assert!(longest <= Some(COLUMNS), "{which}");
                        let words: Vec<&str> = text.split_whitespace().collect();
                        let mut all = grid.heads.iter().chain(grid.rows.iter().flatten());
                        assert!(all.all(|cell| words.contains(&cell.as_str())), "{which}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_narrow_table_is_left_as_it_is_and_a_wide_one_goes_on_below() {
        let narrow = grid(1, 2, 1, (4, 4));
        assert_eq!(narrow.text(), " k0xx  v1xx  v2xx\n 0.0y  0.1y  0.2y\n");
        let wide = grid(1, 2, 1, (45, 4)).text();
        assert_eq!(wide.lines().count(), 4, "{wide}");
        assert!(wide.lines().all(|line| line.trim_start().starts_with(['k', '0'])), "{wide}");
    }
}
