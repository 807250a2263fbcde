//! Heat maps: cells over two parameters.

use super::frame::{BOTTOM, CHARACTER, Labels, TOP, WIDTH, begin_svg, escape, put, text_at};
use super::published::{self, PublishedMark, shape};

/// A cell.
#[derive(Clone, Debug)]
pub struct HeatCell {
    /// Its column and its row.
    pub place: (usize, usize),
    /// Its value.
    pub value: f64,
    /// The value as text.
    pub text: String,
    /// Published values for the cell: a line with a mark for each, below the value.
    pub printed: Vec<PublishedMark>,
}

/// Width of a character in a cell.
const LETTER: f64 = 6.2;
/// Height of a row with one line of text, and of each further line.
const ROW: f64 = 22.0;
const MORE: f64 = 11.0;
/// From the middle of a mark to the number behind it.
const MARK: f64 = 8.0;
/// Squares of the legend.
const STEPS: usize = 5;
/// From this shade on, the colour of the background is easier to read than that of text.
const DARK: f64 = 0.68;

/// Cells over two parameters with their numbers. The shade is stronger for larger values, on a
/// logarithmic scale.
pub fn heat(labels: &Labels, axes: &[(String, Vec<String>); 2], cells: &[HeatCell]) -> String {
    let [(x_name, xs), (y_name, ys)] = axes;
    let left = (longest(ys.iter()) * CHARACTER).max(30.0) + 6.0;
    let width = (WIDTH - left - 4.0) / xs.len().max(1) as f64;
    // If a number and its unit do not fit side by side, the unit is below the number.
    let is_narrow = longest(cells.iter().map(|cell| &cell.text)) * LETTER > width;
    let printed = cells.iter().map(|cell| cell.printed.len()).max().unwrap_or(0);
    let row = ROW + MORE * (usize::from(is_narrow) + printed) as f64;
    let height = TOP + ys.len() as f64 * row + BOTTOM;
    let all = cells.iter().flat_map(|cell| &cell.printed);
    let (sources, depth) = published::names(all, height);
    let mut out = begin_svg(labels, height + depth);
    let values = || cells.iter().filter(|cell| cell.value > 0.0);
    let least = values().min_by(|a, b| a.value.total_cmp(&b.value));
    let most = values().max_by(|a, b| a.value.total_cmp(&b.value));
    let (low, high) = (least.map_or(0.0, |c| c.value), most.map_or(0.0, |c| c.value));
    for cell in cells {
        let (i, j) = cell.place;
        let part = if high > low { (cell.value / low).ln() / (high / low).ln() } else { 0.5 };
        let shade = shade(part);
        let (x, y) = (left + i as f64 * width, TOP + (ys.len() - 1 - j) as f64 * row);
        let published: String = cell.printed.iter().map(|one| format!("; {}", one.text)).collect();
        let tip = format!("{x_name} {}, {y_name} {}: {}{published}", xs[i], ys[j], cell.text);
        let tip = escape(&tip);
        put(
            &mut out,
            format_args!(
                "<g class='heat'><rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{:.1}' \
                 fill-opacity='{shade:.2}'/><title>{tip}</title></g>",
                width - 1.0,
                row - 1.0
            ),
        );
        let (middle, dark) = ((x + width / 2.0, y + row / 2.0), shade > DARK);
        put(&mut out, in_cell(cell, middle, width, (is_narrow, dark)));
    }
    if let (Some(least), Some(most)) = (least, most) {
        put(&mut out, legend(&least.text, &most.text));
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
    out + &sources + "</svg>"
}

/// The number of a cell and the published values below it, centred in the cell. A number without
/// room is in the tooltip only.
fn in_cell(
    cell: &HeatCell,
    (x, y): (f64, f64),
    width: f64,
    (is_narrow, is_dark): (bool, bool),
) -> String {
    let class = if is_dark { "cell dark" } else { "cell" };
    let own: Vec<&str> =
        if is_narrow { cell.text.splitn(2, ' ').collect() } else { vec![cell.text.as_str()] };
    let count = own.len() + cell.printed.len();
    let at = |k: usize| y + (k as f64 - (count - 1) as f64 / 2.0) * (MORE + 1.0);
    let long = |text: &str| text.chars().count() as f64 * LETTER;
    let mut out = String::new();
    for (k, line) in own.iter().enumerate().filter(|(_, line)| long(line) <= width) {
        put(&mut out, text_at((x, at(k) + 3.5), class, "middle", line));
    }
    for (k, one) in cell.printed.iter().enumerate() {
        let y = at(own.len() + k);
        let is_shown = long(&one.shown) + 2.0 * MARK <= width;
        let start = if is_shown { x - long(&one.shown) / 2.0 } else { x };
        let dark = if is_dark { " dark" } else { "" };
        let shape = shape(one.kind, start, y);
        put(&mut out, format_args!("<g class='pub{dark}'>{shape}"));
        put(&mut out, format_args!("<title>{}</title></g>", escape(&one.text)));
        if is_shown {
            put(&mut out, text_at((start + MARK, y + 3.5), class, "start", &one.shown));
        }
    }
    out
}

fn shade(part: f64) -> f64 {
    0.08 + 0.8 * if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
}

/// The legend of the shades, at the right end above the cells.
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
