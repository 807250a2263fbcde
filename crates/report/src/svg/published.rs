//! Marks of published values among our lines and bars: hollow, larger, and in the colour of the
//! line that they belong to. The shape shows how far the value can be trusted.

use rdmalab_study::Reliability;

use super::frame::{BOTTOM, Frame, HEIGHT, LEGEND_ROW, escape, put, short, text_at};

/// The longest name; each has its own row.
const MAX_NAME: usize = 57;

/// A published value.
#[derive(Clone, Debug)]
pub struct PublishedMark {
    /// The line that it belongs to, if any.
    pub line: Option<usize>,
    /// The x position: a place, or a range.
    pub ends: (f64, f64),
    /// The y position.
    pub y: f64,
    /// How far it can be trusted.
    pub kind: Reliability,
    /// Its name in the legend.
    pub name: String,
    /// The number as text, for charts that have no axis for it.
    pub shown: String,
    /// The text of the tooltip.
    pub text: String,
    /// Whether the x axis has the value: then a vertical line marks it.
    pub is_upright: bool,
}

impl PublishedMark {
    /// The mark at these places of the chart.
    pub(super) fn drawn(&self, (from, to): (f64, f64), y: f64) -> String {
        let level = format!("M{from:.1} {y:.1}H{to:.1}");
        self.marked(Some(level).filter(|_| to > from), (f64::midpoint(from, to), y))
    }

    /// The mark at this height in a chart whose x axis has the value. If the value is beyond the
    /// axis, an arrow points to it.
    pub(super) fn upright(&self, frame: &Frame, y: f64) -> String {
        let value = self.ends.0;
        let x = frame.x(value);
        if frame.x.holds(value) {
            return self.marked(Some(format!("M{x:.1} {:.1}V{y:.1}", HEIGHT - BOTTOM)), (x, y));
        }
        // The mark is moved into the chart, so that there is room for its shape and arrow.
        let is_below = value < frame.x.ends.0;
        let (inside, anchor) = if is_below { (1.0, "start") } else { (-1.0, "end") };
        let arrow =
            if is_below { format!("← {}", self.shown) } else { format!("{} →", self.shown) };
        let at = (x + inside * 12.0, y + 3.5);
        self.marked(None, (x + inside * 4.0, y)) + &text_at(at, "label", anchor, &arrow)
    }

    /// Its name, beside its vertical line.
    pub(super) fn label(&self, frame: &Frame, y: f64) -> String {
        if !frame.x.holds(self.ends.0) {
            return String::new();
        }
        let at = frame.x(self.ends.0);
        let (shift, anchor) = frame.beside(at);
        text_at((at + 2.0 * shift, y + 3.5), "label", anchor, &self.shown)
    }

    fn marked(&self, path: Option<String>, (x, y): (f64, f64)) -> String {
        let class = self.line.map_or(String::new(), |line| format!(" c{}", line % 7));
        let mut out = format!("<g class='pub{class}'>");
        if let Some(path) = path {
            put(&mut out, format_args!("<path class='level' d='{path}'/>"));
        }
        put(&mut out, shape(self.kind, x, y));
        put(&mut out, format_args!("<title>{}</title></g>", escape(&self.text)));
        out
    }
}

/// A diamond is a value for comparison, a square a condition, a cross a contested value.
pub(super) fn shape(kind: Reliability, x: f64, y: f64) -> String {
    match kind {
        Reliability::Calibration => {
            format!("<path d='M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z'/>", y - 5.5)
        }
        Reliability::Context => format!("<path d='M{:.1} {:.1}h8v8h-8z'/>", x - 4.0, y - 4.0),
        Reliability::Contested => {
            format!("<path d='M{:.1} {:.1}l9 9m0 -9l-9 9'/>", x - 4.5, y - 4.5)
        }
    }
}

/// The names of published values, each once, in rows from `top` on, and the height of these rows.
pub(super) fn names<'a>(all: impl Iterator<Item = &'a PublishedMark>, top: f64) -> (String, f64) {
    let mut known: Vec<&PublishedMark> = Vec::new();
    for one in all {
        if !known.iter().any(|other| other.name == one.name) {
            known.push(one);
        }
    }
    let mut out = String::new();
    for (i, one) in known.iter().enumerate() {
        let y = top + 10.0 + i as f64 * LEGEND_ROW;
        put(&mut out, format_args!("<g class='pub'>{}</g>", shape(one.kind, 11.0, y)));
        put(&mut out, text_at((26.0, y + 3.5), "name", "start", &short(&one.name, MAX_NAME)));
    }
    let depth = if known.is_empty() { 0.0 } else { known.len() as f64 * LEGEND_ROW + 6.0 };
    (out, depth)
}
