//! Heat maps: cells over two parameters.

use super::{BOTTOM, CHARACTER, TOP, WIDTH, Words, escape, open, put, text_at};

/// A cell: its column, its row, its value, and that as text.
pub type Cell = (usize, usize, f64, String);

/// Width of a character in a cell.
const LETTER: f64 = 6.2;
/// Height of a row with one line of text, and with two.
const ROWS: [f64; 2] = [22.0, 32.0];
/// Squares of the legend.
const STEPS: usize = 5;
/// From this shade on, the panel's colour is read more easily than the ink's.
const DARK: f64 = 0.68;

/// Cells over two parameters, stronger for larger values, on a logarithmic scale; each with its
/// number.
pub fn heat(words: &Words, axes: &[(String, Vec<String>); 2], cells: &[Cell]) -> String {
    let [(x_name, xs), (y_name, ys)] = axes;
    let left = (longest(ys.iter()) * CHARACTER).max(30.0) + 6.0;
    let width = (WIDTH - left - 4.0) / xs.len().max(1) as f64;
    // Where a number and its unit do not fit side by side, they stand one above the other.
    let is_narrow = longest(cells.iter().map(|cell| &cell.3)) * LETTER > width;
    let row = ROWS[usize::from(is_narrow)];
    let height = TOP + ys.len() as f64 * row + BOTTOM;
    let mut out = open(words, height);
    let values = || cells.iter().filter(|cell| cell.2 > 0.0);
    let least = values().min_by(|a, b| a.2.total_cmp(&b.2));
    let most = values().max_by(|a, b| a.2.total_cmp(&b.2));
    let (low, high) = (least.map_or(0.0, |c| c.2), most.map_or(0.0, |c| c.2));
    for (i, j, value, text) in cells {
        let part = if high > low { (value / low).ln() / (high / low).ln() } else { 0.5 };
        let shade = shade(part);
        let (x, y) = (left + *i as f64 * width, TOP + (ys.len() - 1 - j) as f64 * row);
        let tip = escape(&format!("{x_name} {}, {y_name} {}: {text}", xs[*i], ys[*j]));
        put(
            &mut out,
            format_args!(
                "<g class='heat'><rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{:.1}' \
                 fill-opacity='{shade:.2}'/><title>{tip}</title></g>",
                width - 1.0,
                row - 1.0
            ),
        );
        let class = if shade > DARK { "cell dark" } else { "cell" };
        let lines: Vec<&str> =
            if is_narrow { text.splitn(2, ' ').collect() } else { vec![text.as_str()] };
        for (k, line) in lines.iter().enumerate() {
            let middle = y + row / 2.0 + 3.5;
            let at = middle + (k as f64 - (lines.len() - 1) as f64 / 2.0) * 12.0;
            if line.chars().count() as f64 * LETTER <= width {
                put(&mut out, text_at((x + width / 2.0, at), class, "middle", line));
            }
        }
    }
    if let (Some(least), Some(most)) = (least, most) {
        put(&mut out, legend(&least.3, &most.3));
    }
    let every = (longest(xs.iter()) * CHARACTER / width).ceil().max(1.0) as usize;
    for (i, text) in xs.iter().enumerate().step_by(every) {
        let x = left + (i as f64 + 0.5) * width;
        put(&mut out, text_at((x, height - BOTTOM + 14.0), "tick", "middle", text));
    }
    for (j, text) in ys.iter().enumerate() {
        let y = TOP + (ys.len() - 1 - j) as f64 * row + row / 2.0 + 3.5;
        put(&mut out, text_at((left - 5.0, y), "tick", "end", text));
    }
    let middle = f64::midpoint(left, WIDTH);
    put(&mut out, text_at((middle, height - 6.0), "name", "middle", x_name));
    put(&mut out, text_at((2.0, 11.0), "name", "start", y_name));
    out + "</svg>"
}

fn shade(part: f64) -> f64 {
    0.08 + 0.8 * if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
}

/// What the shades stand for, at the right end above the cells.
fn legend(least: &str, most: &str) -> String {
    const SIDE: f64 = 12.0;
    let end = WIDTH - 4.0 - most.chars().count() as f64 * LETTER - 4.0;
    let start = end - STEPS as f64 * SIDE;
    let mut out = text_at((start - 4.0, 11.0), "tick", "end", least);
    for i in 0..STEPS {
        put(
            &mut out,
            format_args!(
                "<g class='shade'><rect x='{:.1}' y='2' width='{:.1}' height='11' \
                 fill-opacity='{:.2}'/></g>",
                start + i as f64 * SIDE,
                SIDE - 1.0,
                shade(i as f64 / (STEPS - 1) as f64)
            ),
        );
    }
    put(&mut out, text_at((end + 3.0, 11.0), "tick", "start", most));
    out
}

fn longest<'a>(texts: impl Iterator<Item = &'a String>) -> f64 {
    texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64
}
