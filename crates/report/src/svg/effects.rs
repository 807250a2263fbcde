//! Charts of comparisons: an effect with its interval for each point, and a shift with its band.

use super::axis::Axis;
use super::frame::{
    BOTTOM, Frame, HEIGHT, LEFT, Labels, MAX_BAR_NAME, Mark, NARROW, RIGHT, TOP, WIDTH, begin_svg,
    escape, put, shape, short, text_at,
};

/// An effect.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The point at which it was measured.
    pub name: String,
    /// A description, shown as the tooltip.
    pub text: String,
    /// A short word for it, such as a verdict.
    pub word: String,
    /// The effect; NaN if there is none.
    pub value: f64,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
    /// Whether the effect is certain: its mark is full, otherwise hollow.
    pub is_sure: bool,
}

/// Height of a row: its name above, its whisker below.
const ROW: f64 = 34.0;
/// Room for the words at the right end.
const WORD: f64 = 118.0;

/// One row for each effect over a common axis. At `neutral` there is no difference; `slack` has the
/// ends of the range in which differences do not matter.
pub fn effects(
    labels: &Labels,
    x: &Axis,
    neutral: f64,
    slack: (f64, f64),
    rows: &[Effect],
) -> String {
    let floor = rows.len() as f64 * ROW + 8.0;
    let mut out = begin_svg(labels, floor + 36.0);
    let right = WIDTH - WORD;
    let at = |value: f64| 8.0 + x.part(value) * (right - 8.0);
    let (low, high) = (at(slack.0), at(slack.1));
    put(
        &mut out,
        format_args!(
            "<rect class='slack' x='{low:.1}' y='0' width='{:.1}' height='{floor:.1}'/>\
             <path class='rule' d='M{:.1} 0V{floor:.1}'/>",
            high - low,
            at(neutral)
        ),
    );
    for (i, row) in rows.iter().enumerate() {
        let y = i as f64 * ROW;
        put(&mut out, text_at((8.0, y + 13.0), "tick", "start", &short(&row.name, MAX_BAR_NAME)));
        let class = if row.is_sure { "c1" } else { "c0 hollow" };
        put(&mut out, format_args!("<g class='line {class}'>"));
        let y = y + 24.0;
        if let Some((low, high)) = row.interval {
            let (low, high) = (at(low), at(high));
            put(
                &mut out,
                format_args!(
                    "<path class='whisker' d='M{low:.1} {y:.1}H{high:.1}M{low:.1} {0:.1}v6\
                     M{high:.1} {0:.1}v6'/>",
                    y - 3.0
                ),
            );
        }
        if row.value.is_finite() {
            put(&mut out, shape(0, at(row.value), y, &row.text));
        }
        put(&mut out, format_args!("<title>{}</title></g>", escape(&row.text)));
        put(&mut out, text_at((right + 8.0, y + 3.5), "label", "start", &row.word));
    }
    put(&mut out, format_args!("<path class='axis' d='M8 {floor:.1}H{right:.1}'/>"));
    let mut free = f64::NEG_INFINITY;
    for (value, text) in &x.ticks {
        let half = text.chars().count() as f64 * NARROW / 2.0;
        let place = at(*value).clamp(half, WIDTH - half);
        if place - half > free {
            put(&mut out, format_args!("<path class='axis' d='M{:.1} {floor:.1}v4'/>", at(*value)));
            put(&mut out, text_at((place, floor + 15.0), "tick", "middle", text));
            free = place + half + 8.0;
        }
    }
    let middle = f64::midpoint(8.0, right);
    put(&mut out, text_at((middle, floor + 31.0), "name", "middle", &x.label));
    out + "</svg>"
}

/// A line with a band around it, and a horizontal rule at `neutral`.
pub fn band(labels: &Labels, x: &Axis, y: &Axis, neutral: f64, marks: &[Mark]) -> String {
    let frame = Frame { x, y, right: RIGHT, top: TOP };
    let mut out = begin_svg(labels, HEIGHT);
    frame.axes(&mut out);
    let level = frame.y(neutral);
    put(
        &mut out,
        format_args!("<path class='rule' d='M{:.1} {level:.1}H{:.1}'/>", LEFT, WIDTH - RIGHT),
    );
    let known = || marks.iter().filter_map(|m| Some((frame.x(m.x), m.interval?)));
    let upper = known().map(|(x, (_, high))| format!("{x:.1} {:.1}", frame.y(high)));
    let lower = known().map(|(x, (low, _))| format!("{x:.1} {:.1}", frame.y(low)));
    let mut edge: Vec<String> = upper.collect();
    edge.extend(lower.collect::<Vec<_>>().into_iter().rev());
    out.push_str("<g class='line c0'>");
    if !edge.is_empty() {
        put(&mut out, format_args!("<path class='band' d='M{}Z'/>", edge.join("L")));
    }
    let line: Vec<String> =
        marks.iter().map(|m| format!("{:.1} {:.1}", frame.x(m.x), frame.y(m.y))).collect();
    put(&mut out, format_args!("<path class='stroke' d='M{}'/>", line.join("L")));
    for mark in marks {
        put(&mut out, shape(0, frame.x(mark.x), frame.y(mark.y), &mark.text));
    }
    debug_assert!(level < HEIGHT - BOTTOM + 1.0, "the rule lies in the chart");
    out + "</g></svg>"
}
