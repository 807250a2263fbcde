//! Charts as SVG. They are small, so that their text is legible on a telephone and in three columns
//! of a wide screen. They have classes instead of colours, so that the page's light and dark style
//! applies. A title and a description serve readers who cannot see them.
//!
//! Hand-written: a plotting library's SVG has fixed colours and sizes, and no names or classes.

mod axis;
mod effects;
mod frame;
mod heat;
mod ladder;
mod published;

pub use axis::{Axis, binary_axis, is_wide, linear_axis, log_axis, reaching, value_axis};
pub use effects::{Effect, band, effects};
pub use frame::{Labels, Line, Mark, Rule};
pub use heat::{HeatCell, heat};
pub use ladder::{Arrow, Rung, ladder};
pub use published::PublishedMark;

use frame::{
    BOTTOM, CHARACTER, Frame, HEIGHT, LEGEND_ROW, LINE_HEIGHT, MAX_BAR_NAME, MAX_BESIDE,
    MAX_LEGEND, NARROW, RIGHT, TOP, WIDTH, begin_svg, escape, put, shape, short, text_at,
};

/// A bar of a histogram.
#[derive(Clone, Debug)]
pub struct Bin {
    /// Its ends.
    pub ends: (f64, f64),
    /// Samples in it.
    pub count: u64,
    /// The text of the tooltip.
    pub text: String,
}

/// Lines over a common x, each with its name at its end, or below the chart if names are long;
/// vertical lines at named places; and published values.
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

/// The legend of lines with their marks below the chart, and the height of it.
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

/// The names of lines at their ends, moved apart so that they do not overlap.
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
    // Names that were moved below the floor are moved up again, the lowest first.
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

/// Bars over bins whose `edges` lie on the x axis, and vertical lines at named places and at
/// published values.
pub fn bars(
    labels: &Labels,
    (x, y): (&Axis, &Axis),
    bins: &[Bin],
    rules: &[Rule],
    printed: &[PublishedMark],
) -> String {
    // Names of vertical lines are above all bars, if the bars have enough room below.
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
        // The bar of one sample among a million is still visible.
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

/// Samples over time: for each mark a line from its least to its largest, and a dot at its middle.
/// The `picked` marks are diamonds of another colour, with their text. All others are drawn as one
/// element: an element for each makes a page of many charts several times as large.
pub fn columns(labels: &Labels, x: &Axis, y: &Axis, marks: &[Mark], picked: &[usize]) -> String {
    let frame = Frame { x, y, right: RIGHT, top: TOP };
    let mut out = begin_svg(labels, HEIGHT);
    frame.axes(&mut out);
    let (mut ranges, mut dots) = ([String::new(), String::new()], String::new());
    let mut diamonds = String::new();
    for (i, mark) in marks.iter().enumerate() {
        let (x, y) = (frame.x(mark.x), frame.y(mark.y));
        let is_picked = picked.contains(&i);
        if let Some((low, high)) = mark.interval {
            let (low, high) = (frame.y(low), frame.y(high));
            put(&mut ranges[usize::from(is_picked)], format_args!("M{x:.1} {low:.1}V{high:.1}"));
        }
        if is_picked {
            let diamond = format!("M{x:.1} {:.1}l3.4 3.4l-3.4 3.4l-3.4 -3.4z", y - 3.4);
            let text = escape(&mark.text);
            put(&mut diamonds, format_args!("<path d='{diamond}'><title>{text}</title></path>"));
        } else {
            put(&mut dots, format_args!("M{x:.1} {y:.1}h0"));
        }
    }
    let path = |class: &str, d: &str| match d {
        "" => String::new(),
        d => format!("<path class='{class}' d='{d}'/>"),
    };
    let [others, own] = ranges.map(|d| path("range", &d));
    let dots = path("dots", &dots);
    put(&mut out, format_args!("<g class='line c0'>{others}{dots}</g>"));
    out + &format!("<g class='line c1'>{own}{diamonds}</g></svg>")
}

/// A bar with its name above.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name.
    pub name: String,
    /// The class of its colour.
    pub class: usize,
    /// Its length.
    pub value: f64,
    /// The value as text.
    pub text: String,
    /// Published values for the bar.
    pub marks: Vec<PublishedMark>,
}

/// One bar for each name, with its value as text.
pub fn ranking(labels: &Labels, end: f64, bars: &[Bar]) -> String {
    const ROW: f64 = 30.0;
    /// Half of a mark, and some space.
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
        // The number is behind its bar, and behind a mark that would cover it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The y positions of texts of a class.
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
