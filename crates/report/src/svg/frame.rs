//! The frame of a chart: its size, axes, labels and pieces of text.

use std::fmt::Write as _;

use super::axis::Axis;

/// Size of a chart in its own units, about pixels.
pub(super) const WIDTH: f64 = 380.0;
pub(super) const HEIGHT: f64 = 256.0;

pub(super) const TOP: f64 = 26.0;
pub(super) const BOTTOM: f64 = 42.0;
pub(super) const LEFT: f64 = 66.0;
/// The margin right of the last tick if lines have no labels there.
pub(super) const RIGHT: f64 = 28.0;
/// Upper bound for the width of a character of the largest text.
pub(super) const CHARACTER: f64 = 7.6;
/// Approximate width of a character of a tick.
pub(super) const NARROW: f64 = 6.2;
/// The least distance between labels of lines.
pub(super) const LINE_HEIGHT: f64 = 13.0;
/// Longest name, in characters, at the end of its line; longer ones are in the legend.
pub(super) const MAX_BESIDE: usize = 12;
/// Longest name below a chart.
pub(super) const MAX_LEGEND: usize = 52;
/// Distance between rows of names below a chart.
pub(super) const LEGEND_ROW: f64 = 16.0;
/// Longest name of a bar.
pub(super) const MAX_BAR_NAME: usize = 56;

/// A point of a line.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The x position.
    pub x: f64,
    /// The y position.
    pub y: f64,
    /// An interval around `y`.
    pub interval: Option<(f64, f64)>,
    /// The text of the tooltip.
    pub text: String,
}

/// A line with its name at its right end.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name.
    pub name: String,
    /// Its marks, in the order of x.
    pub marks: Vec<Mark>,
}

/// Identifies and describes a chart.
#[derive(Clone, Debug)]
pub struct Labels {
    /// Identifies it within the page.
    pub id: String,
    /// The title.
    pub title: String,
    /// What it shows, for readers who cannot see it.
    pub description: String,
}

/// A vertical line with a name.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The x position.
    pub x: f64,
    /// Its name.
    pub name: String,
}

/// The area of the data.
pub(super) struct Frame<'a> {
    pub x: &'a Axis,
    pub y: &'a Axis,
    pub right: f64,
    /// The upper end of the y axis.
    pub top: f64,
}

impl Frame<'_> {
    pub fn x(&self, value: f64) -> f64 {
        LEFT + self.x.part(value) * (WIDTH - self.right - LEFT)
    }

    pub fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.part(value) * (HEIGHT - BOTTOM - self.top)
    }

    /// Grid, ticks and names of the axes.
    pub fn axes(&self, out: &mut String) {
        let (floor, end) = (HEIGHT - BOTTOM, WIDTH - self.right);
        for (value, text) in &self.y.ticks {
            let y = self.y(*value);
            put(out, format_args!("<path class='grid' d='M{LEFT} {y:.1}H{end:.1}'/>"));
            let at = (LEFT - 6.0, y + 3.5);
            put(out, text_at(at, "tick", "end", text));
        }
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &self.x.ticks {
            let x = self.x(*value);
            put(out, format_args!("<path class='axis' d='M{x:.1} {floor}v4'/>"));
            // Long names leave little room for the axis: ticks that would overlap are left out.
            let half = text.chars().count() as f64 * NARROW / 2.0;
            if x - half > free {
                put(out, text_at((x, floor + 16.0), "tick", "middle", text));
                free = x + half + 8.0;
            }
        }
        put(out, format_args!("<path class='axis' d='M{LEFT} {floor}H{end:.1}'/>"));
        let middle = f64::midpoint(LEFT, end);
        put(out, text_at((middle, HEIGHT - 6.0), "name", "middle", &self.x.label));
        // The name of the y axis is above it: horizontal text is easier to read.
        put(out, text_at((2.0, 11.0), "name", "start", &self.y.label));
    }

    /// The side of a vertical line on which its name is written.
    pub fn beside(&self, at: f64) -> (f64, &'static str) {
        let is_left = at > f64::midpoint(LEFT, WIDTH - self.right);
        if is_left { (-4.0, "end") } else { (4.0, "start") }
    }

    /// The `i`-th vertical line: its name is below the names of the lines before it.
    pub fn rule(&self, i: usize, rule: &Rule) -> String {
        let (at, floor) = (self.x(rule.x), HEIGHT - BOTTOM);
        let top = TOP + 4.0 + i as f64 * LINE_HEIGHT;
        let (shift, anchor) = self.beside(at);
        format!("<path class='rule' d='M{at:.1} {floor}V{:.1}'/>", top - 4.0)
            + &text_at((at + shift, top + 4.0), "label", anchor, &rule.name)
    }
}

pub(super) fn begin_svg(labels: &Labels, height: f64) -> String {
    let Labels { id, title, description } = labels;
    format!(
        "<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-labelledby='{id}-t {id}-d'>\
         <title id='{id}-t'>{}</title><desc id='{id}-d'>{}</desc>",
        escape(title),
        escape(description)
    )
}

pub(super) fn text_at((x, y): (f64, f64), class: &str, anchor: &str, text: &str) -> String {
    let text = escape(text);
    format!("<text x='{x:.1}' y='{y:.1}' class='{class}' text-anchor='{anchor}'>{text}</text>")
}

pub(super) fn put(out: &mut String, piece: impl std::fmt::Display) {
    write!(out, "{piece}").expect("a string takes whatever is written");
}

/// The name, shortened to at most `most` characters.
pub(super) fn short(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

/// Escapes text for XML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// The mark of a line. Its shape identifies the line even without colour.
pub(super) fn shape(line: usize, x: f64, y: f64, text: &str) -> String {
    let text = escape(text);
    let path = match line % 4 {
        0 => {
            return format!(
                "<circle cx='{x:.1}' cy='{y:.1}' r='2.8'><title>{text}</title></circle>"
            );
        }
        1 => format!("M{:.1} {:.1}h5v5h-5z", x - 2.5, y - 2.5),
        2 => format!("M{x:.1} {:.1}l3.4 6h-6.8z", y - 3.6),
        _ => format!("M{x:.1} {:.1}l3.6 3.6l-3.6 3.6l-3.6 -3.6z", y - 3.6),
    };
    format!("<path d='{path}'><title>{text}</title></path>")
}
