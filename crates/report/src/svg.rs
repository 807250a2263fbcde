//! Charts as SVG: small, so that the same text is legible on a telephone and in three columns of a
//! wide screen; classes instead of colours, so that the page's light and dark style rules them; a
//! title and a description for who cannot see them.
//!
//! Hand-made: a plotting library's SVG has fixed colours and sizes, and neither names nor classes.

mod axis;
mod effects;
mod heat;
mod published;

use std::fmt::Write as _;

pub use axis::{Axis, binary_axis, is_wide, linear_axis, log_axis, reaching, value_axis};
pub use effects::{Effect, band, effects};
pub use heat::{HeatCell, heat};
pub use published::PublishedMark;

/// Size of a chart in its own units, about pixels.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 256.0;

const TOP: f64 = 26.0;
const BOTTOM: f64 = 42.0;
const LEFT: f64 = 66.0;
/// Right of the last tick without labels of lines.
const RIGHT: f64 = 28.0;
/// Width of a character of the largest text, on the safe side.
const CHARACTER: f64 = 7.6;
/// Width of a character of a tick, about.
const NARROW: f64 = 6.2;
/// Labels of lines are not nearer to each other than this.
const LINE_HEIGHT: f64 = 13.0;
/// Longest name that stands at the end of its line, in characters: longer ones stand below.
const MAX_BESIDE: usize = 12;
/// Longest name below a chart.
const MAX_LEGEND: usize = 52;
/// From one row of names below a chart to the next.
const LEGEND_ROW: f64 = 16.0;
/// Longest name of a bar.
const MAX_BAR_NAME: usize = 56;

/// A point of a line.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Along the x axis.
    pub x: f64,
    /// Along the y axis.
    pub y: f64,
    /// An interval around `y`.
    pub interval: Option<(f64, f64)>,
    /// What is shown when pointed at.
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

/// What identifies and describes a chart.
#[derive(Clone, Debug)]
pub struct Labels {
    /// Identifies it within the page.
    pub id: String,
    /// The title.
    pub title: String,
    /// What it shows, for who cannot see it.
    pub description: String,
}

/// A vertical line with a name.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Where.
    pub x: f64,
    /// Its name.
    pub name: String,
}

/// The area that the data have.
struct Frame<'a> {
    x: &'a Axis,
    y: &'a Axis,
    right: f64,
    /// Where the y axis ends.
    top: f64,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.part(value) * (WIDTH - self.right - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.part(value) * (HEIGHT - BOTTOM - self.top)
    }

    /// Grid, ticks and names of the axes.
    fn axes(&self, out: &mut String) {
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
            // Beside many long names little is left for the axis: what would cover goes.
            let half = text.chars().count() as f64 * NARROW / 2.0;
            if x - half > free {
                put(out, text_at((x, floor + 16.0), "tick", "middle", text));
                free = x + half + 8.0;
            }
        }
        put(out, format_args!("<path class='axis' d='M{LEFT} {floor}H{end:.1}'/>"));
        let middle = f64::midpoint(LEFT, end);
        put(out, text_at((middle, HEIGHT - 6.0), "name", "middle", &self.x.label));
        // The name of the y axis stands above it, where it can be read without turning the head.
        put(out, text_at((2.0, 11.0), "name", "start", &self.y.label));
    }

    /// On which side of a vertical line its name stands.
    fn beside(&self, at: f64) -> (f64, &'static str) {
        let is_left = at > f64::midpoint(LEFT, WIDTH - self.right);
        if is_left { (-4.0, "end") } else { (4.0, "start") }
    }

    /// The how many-th vertical line: its name lies below those before it.
    fn rule(&self, i: usize, rule: &Rule) -> String {
        let (at, floor) = (self.x(rule.x), HEIGHT - BOTTOM);
        let top = TOP + 4.0 + i as f64 * LINE_HEIGHT;
        let (shift, anchor) = self.beside(at);
        format!("<path class='rule' d='M{at:.1} {floor}V{:.1}'/>", top - 4.0)
            + &text_at((at + shift, top + 4.0), "label", anchor, &rule.name)
    }
}

/// A bar of a histogram.
#[derive(Clone, Debug)]
pub struct Bin {
    /// Its ends.
    pub ends: (f64, f64),
    /// Samples in it.
    pub count: u64,
    /// What is shown when pointed at.
    pub text: String,
}

/// Lines over a common x, each with its name at its end, or below where names are long; vertical
/// lines at named places; and what was printed elsewhere.
pub fn lines(
    labels: &Labels,
    x: &Axis,
    y: &Axis,
    lines: &[Line],
    rules: &[Rule],
    printed: &[PublishedMark],
) -> String {
    let longest = lines.iter().map(|l| l.name.chars().count()).max().unwrap_or(0);
    let is_beside = longest <= MAX_BESIDE;
    let right = if is_beside { longest as f64 * CHARACTER } else { 0.0 };
    let frame = Frame { x, y, right: RIGHT + right, top: TOP };
    let (legend, depth) = if is_beside { (String::new(), 0.0) } else { legend(lines) };
    let (sources, more) = published::names(printed.iter(), HEIGHT + depth);
    let mut out = begin_svg(labels, HEIGHT + depth + more);
    frame.axes(&mut out);
    for (i, rule) in rules.iter().enumerate() {
        put(&mut out, frame.rule(i, rule));
    }
    for (i, line) in lines.iter().enumerate() {
        put(&mut out, format_args!("<g class='line c{}'>", i % 7));
        let path: Vec<String> =
            line.marks.iter().map(|m| format!("{:.1} {:.1}", frame.x(m.x), frame.y(m.y))).collect();
        if !path.is_empty() {
            put(&mut out, format_args!("<path class='stroke' d='M{}'/>", path.join("L")));
        }
        for mark in &line.marks {
            let (x, y) = (frame.x(mark.x), frame.y(mark.y));
            if let Some((low, high)) = mark.interval {
                let (low, high) = (frame.y(low), frame.y(high));
                put(
                    &mut out,
                    format_args!(
                        "<path class='whisker' d='M{x:.1} {low:.1}V{high:.1}\
                         M{0:.1} {low:.1}h6M{0:.1} {high:.1}h6'/>",
                        x - 3.0
                    ),
                );
            }
            put(&mut out, shape(i, x, y, &mark.text));
        }
        out.push_str("</g>");
    }
    for one in printed {
        let (ends, y) = ((frame.x(one.ends.0), frame.x(one.ends.1)), frame.y(one.y));
        put(&mut out, if one.is_upright { one.upright(&frame, y) } else { one.drawn(ends, y) });
    }
    if is_beside {
        names(&frame, lines, &mut out);
    }
    out + &legend + &sources + "</svg>"
}

/// The names of lines with their marks, below the chart, and how deep that is.
fn legend(lines: &[Line]) -> (String, f64) {
    let mut out = String::new();
    let (mut x, mut row) = (2.0, 0.0);
    for (i, line) in lines.iter().enumerate() {
        let name = short(&line.name, MAX_LEGEND);
        let width = 24.0 + name.chars().count() as f64 * NARROW + 12.0;
        if x > 2.0 && x + width > WIDTH {
            (x, row) = (2.0, row + 1.0);
        }
        let y = HEIGHT + 10.0 + row * LEGEND_ROW;
        put(&mut out, format_args!("<g class='line c{}'>", i % 7));
        put(&mut out, format_args!("<path class='stroke' d='M{x:.1} {y:.1}h18'/>"));
        put(&mut out, shape(i, x + 9.0, y, &line.name));
        out.push_str("</g>");
        put(&mut out, text_at((x + 24.0, y + 3.5), "name", "start", &name));
        x += width;
    }
    (out, (row + 1.0) * LEGEND_ROW + 6.0)
}

/// A mark whose shape, not colour alone, says which line it is of.
fn shape(line: usize, x: f64, y: f64, text: &str) -> String {
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

/// The names of lines at their ends, moved apart where they would cover each other.
fn names(frame: &Frame, lines: &[Line], out: &mut String) {
    let mut ends: Vec<(f64, usize)> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        if let Some(last) = line.marks.last() {
            ends.push((frame.y(last.y), i));
        }
    }
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut above = f64::NEG_INFINITY;
    for (y, _) in &mut ends {
        *y = y.max(above + LINE_HEIGHT);
        above = *y;
    }
    // What was pushed below the floor goes up again, the lowest first.
    let mut below = HEIGHT - BOTTOM + LINE_HEIGHT;
    for (y, _) in ends.iter_mut().rev() {
        *y = y.min(below - LINE_HEIGHT);
        below = *y;
    }
    let x = WIDTH - frame.right + 8.0;
    for (y, i) in ends {
        let class = format!("label c{}", i % 7);
        put(out, text_at((x, y + 3.5), &class, "start", &lines[i].name));
    }
}

/// Bars over bins whose `edges` lie on the x axis, and vertical lines at named places: ours, and
/// what was printed elsewhere.
pub fn bars(
    labels: &Labels,
    (x, y): (&Axis, &Axis),
    bins: &[Bin],
    rules: &[Rule],
    printed: &[PublishedMark],
) -> String {
    // Names of lines stand above all bars, as far as these have room below.
    let names = (rules.len() + printed.len()) as f64 * LINE_HEIGHT;
    let top = TOP + names.min((HEIGHT - BOTTOM - TOP) / 2.0);
    let frame = Frame { x, y, right: RIGHT, top };
    let (sources, more) = published::names(printed.iter(), HEIGHT);
    let mut out = begin_svg(labels, HEIGHT + more);
    frame.axes(&mut out);
    let floor = HEIGHT - BOTTOM;
    out.push_str("<g class='bars c0'>");
    for bin in bins.iter().filter(|bin| bin.count > 0) {
        let (left, right) = (frame.x(bin.ends.0), frame.x(bin.ends.1));
        // One sample among a million is still seen.
        let height = (floor - frame.y(bin.count as f64)).max(1.5);
        put(
            &mut out,
            format_args!(
                "<rect x='{left:.1}' y='{:.1}' width='{:.1}' height='{height:.1}'>\
                 <title>{}</title></rect>",
                floor - height,
                (right - left - 0.5).max(1.0),
                escape(&bin.text)
            ),
        );
    }
    out.push_str("</g>");
    for (i, rule) in rules.iter().enumerate() {
        put(&mut out, frame.rule(i, rule));
    }
    for (i, one) in printed.iter().enumerate() {
        let y = TOP + 5.0 + (rules.len() + i) as f64 * LINE_HEIGHT;
        put(&mut out, one.upright(&frame, y));
        put(&mut out, one.label(&frame, y));
    }
    out + &sources + "</svg>"
}

/// Samples in time: for each mark a line from its least to its largest, and a dot at its middle.
/// Those that are `picked` stand out, by colour and as diamonds.
pub fn columns(labels: &Labels, x: &Axis, y: &Axis, marks: &[Mark], picked: &[usize]) -> String {
    let frame = Frame { x, y, right: RIGHT, top: TOP };
    let mut out = begin_svg(labels, HEIGHT);
    frame.axes(&mut out);
    for (i, mark) in marks.iter().enumerate() {
        let (x, y) = (frame.x(mark.x), frame.y(mark.y));
        let is_picked = picked.contains(&i);
        let class = if is_picked { "c1" } else { "c0" };
        put(&mut out, format_args!("<g class='line {class}'>"));
        if let Some((low, high)) = mark.interval {
            let (low, high) = (frame.y(low), frame.y(high));
            put(&mut out, format_args!("<path class='range' d='M{x:.1} {low:.1}V{high:.1}'/>"));
        }
        let dot = if is_picked {
            format!("<path d='M{x:.1} {:.1}l3.4 3.4l-3.4 3.4l-3.4 -3.4z'/>", y - 3.4)
        } else {
            format!("<circle cx='{x:.1}' cy='{y:.1}' r='1.4'/>")
        };
        put(&mut out, format_args!("{dot}<title>{}</title></g>", escape(&mark.text)));
    }
    out + "</svg>"
}

/// A bar with its name above.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name.
    pub name: String,
    /// Which colour.
    pub class: usize,
    /// How long it is.
    pub value: f64,
    /// That as text.
    pub text: String,
    /// What was printed of it elsewhere.
    pub marks: Vec<PublishedMark>,
}

/// One bar for each name, with its value as text: where nothing is a number to draw lines over.
pub fn ranking(labels: &Labels, end: f64, bars: &[Bar]) -> String {
    const ROW: f64 = 30.0;
    /// Half of a mark, and a little air.
    const HALF: f64 = 9.0;
    let floor = bars.len() as f64 * ROW + 6.0;
    let (sources, depth) = published::names(bars.iter().flat_map(|bar| &bar.marks), floor);
    let mut out = begin_svg(labels, floor + depth);
    let width_of = |value: f64| (value / end * (WIDTH - 84.0)).clamp(1.0, WIDTH - 84.0);
    for (i, bar) in bars.iter().enumerate() {
        let y = i as f64 * ROW;
        let width = width_of(bar.value);
        let printed: Vec<&str> = bar.marks.iter().map(|mark| mark.shown.as_str()).collect();
        let printed = printed.join(", ");
        let room = MAX_BAR_NAME - printed.chars().count().min(MAX_BAR_NAME / 2);
        put(&mut out, text_at((2.0, y + 12.0), "tick", "start", &short(&bar.name, room)));
        if !printed.is_empty() {
            put(&mut out, text_at((WIDTH - 2.0, y + 12.0), "name", "end", &printed));
        }
        put(
            &mut out,
            format_args!(
                "<g class='bars c{}'><rect x='2' y='{:.1}' width='{width:.1}' height='9'>\
                 <title>{}</title></rect></g>",
                bar.class % 7,
                y + 17.0,
                escape(&format!("{}: {}", bar.name, bar.text))
            ),
        );
        let mut places: Vec<f64> = bar.marks.iter().map(|m| 2.0 + width_of(m.y)).collect();
        for (mark, x) in bar.marks.iter().zip(&places) {
            put(&mut out, mark.drawn((*x, *x), y + 21.5));
        }
        // The number stands after its bar, and behind a mark that would cover it.
        let long = bar.text.chars().count() as f64 * NARROW;
        places.sort_by(f64::total_cmp);
        let after = |free: f64, x: &f64| {
            if (free - HALF..free + long + HALF).contains(x) { x + HALF } else { free }
        };
        let at = places.iter().fold(width + 8.0, after);
        put(&mut out, text_at((at, y + 25.5), "label", "start", &bar.text));
    }
    out + &sources + "</svg>"
}

fn begin_svg(labels: &Labels, height: f64) -> String {
    let Labels { id, title, description } = labels;
    format!(
        "<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-labelledby='{id}-t {id}-d'>\
         <title id='{id}-t'>{}</title><desc id='{id}-d'>{}</desc>",
        escape(title),
        escape(description)
    )
}

fn text_at((x, y): (f64, f64), class: &str, anchor: &str, text: &str) -> String {
    let text = escape(text);
    format!("<text x='{x:.1}' y='{y:.1}' class='{class}' text-anchor='{anchor}'>{text}</text>")
}

fn put(out: &mut String, piece: impl std::fmt::Display) {
    write!(out, "{piece}").expect("a string takes whatever is written");
}

/// A name that fits beside a chart.
fn short(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

/// Text for XML.
fn escape(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where texts of a class stand.
    fn baselines(svg: &str, class: &str) -> Vec<f64> {
        let of_class = svg.split("<text ").filter(|t| t.contains(&format!("class='{class}")));
        let y = |t: &str| t.split("y='").nth(1)?.split('\'').next()?.parse().ok();
        of_class.map(|t| y(t).unwrap()).collect()
    }

    #[test]
    fn names_in_a_histogram_stand_above_the_highest_bar() {
        let x = linear_axis("x", (0.0, 1.0), 2, |v| v.to_string());
        let y = linear_axis("y", (0.0, 100.0), 4, |v| v.to_string());
        let bin = Bin { ends: (0.0, 1.0), count: 100, text: String::new() };
        let rule = |x: f64| Rule { x, name: format!("at {x}") };
        let labels = Labels { id: "a".into(), title: "t".into(), description: "d".into() };
        let text = bars(&labels, (&x, &y), &[bin], &[0.1, 0.5, 0.9].map(rule), &[]);
        let labels = baselines(&text, "label");
        assert_eq!(labels.len(), 3);
        let bar = text.split("<rect ").nth(1).and_then(|t| t.split("y='").nth(1)).unwrap();
        let top: f64 = bar.split('\'').next().unwrap().parse().unwrap();
        assert!(labels.iter().all(|y| *y < top), "{labels:?} {top}");
        assert!(top < HEIGHT / 2.0, "the bars have room: {top}");
    }

    #[test]
    fn labels_do_not_cover_each_other_and_stay_inside() {
        let x = linear_axis("x", (0.0, 1.0), 2, |v| v.to_string());
        let y = linear_axis("y", (0.0, 100.0), 4, |v| v.to_string());
        let line = |y: f64| Line {
            name: format!("at <{y}>"),
            marks: vec![Mark { x: 1.0, y, interval: None, text: String::new() }],
        };
        let all: Vec<Line> = [0.0, 1.0, 2.0, 3.0, 99.0, 100.0].map(line).to_vec();
        let labels =
            Labels { id: "a".to_owned(), title: "<t>".to_owned(), description: "&".to_owned() };
        let text = lines(&labels, &x, &y, &all, &[], &[]);
        assert!(text.contains("&lt;t&gt;") && text.contains("&amp;") && !text.contains("<t>"));
        let mut ys = baselines(&text, "label");
        ys.sort_by(f64::total_cmp);
        assert_eq!(ys.len(), 6);
        assert!(ys.windows(2).all(|w| w[1] - w[0] >= LINE_HEIGHT - 0.11), "{ys:?}");
        assert!(ys[0] > 0.0 && ys[5] < HEIGHT, "{ys:?}");
    }
}
