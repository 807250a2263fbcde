//! Packets between two ends, one below the other, as arrows between two vertical lines.

use super::frame::{Labels, WIDTH, begin_svg, escape, put, short, text_at};

/// The vertical lines of the two ends; times are left of them, notes right.
const ENDS: [f64; 2] = [70.0, 246.0];
/// The height of the head, and of a row.
const HEAD: f64 = 30.0;
const ROW: f64 = 25.0;
/// The height of a row that says how much time passed.
const PAUSE: f64 = 22.0;
/// Most characters of a note.
const MAX_NOTE: usize = 20;

/// A row.
#[derive(Clone, Debug)]
pub enum Rung {
    /// A long time without a packet, in words.
    Pause(String),
    /// A packet.
    Packet(Arrow),
}

/// A packet.
#[derive(Clone, Debug, Default)]
pub struct Arrow {
    /// When it was seen, in words.
    pub time: String,
    /// Whether it goes from the left end to the right one.
    pub is_forward: bool,
    /// What it is.
    pub name: String,
    /// A remark on it.
    pub note: String,
    /// The text of the tooltip.
    pub text: String,
    /// Whether nothing answered it.
    pub is_unanswered: bool,
    /// The end, if one, at which a page was missing for it: 0 is the left one.
    pub fault: Option<usize>,
}

/// The picture; `ends` are the names of the left and the right end.
pub fn ladder(labels: &Labels, ends: [&str; 2], rungs: &[Rung]) -> String {
    let heights = rungs.iter().map(|rung| match rung {
        Rung::Pause(_) => PAUSE,
        Rung::Packet(_) => ROW,
    });
    let floor = HEAD + heights.sum::<f64>() + 8.0;
    let mut out = begin_svg(labels, floor + 4.0);
    for (x, name) in ENDS.into_iter().zip(ends) {
        put(&mut out, text_at((x, 12.0), "label", "middle", name));
    }
    let mut y = HEAD - 10.0;
    let line = |from: f64, to: f64, dashes: &str| {
        let lines = ENDS.map(|x| format!("M{x} {from:.1}V{to:.1}")).concat();
        format!("<path class='axis'{dashes} d='{lines}'/>")
    };
    for rung in rungs {
        match rung {
            Rung::Pause(text) => {
                put(&mut out, line(y, y + PAUSE, " stroke-dasharray='2 4'"));
                let middle = f64::midpoint(ENDS[0], ENDS[1]);
                put(&mut out, text_at((middle, y + PAUSE / 2.0 + 5.0), "tick", "middle", text));
                y += PAUSE;
            }
            Rung::Packet(arrow) => {
                put(&mut out, line(y, y + ROW, ""));
                y += ROW;
                packet(arrow, y - 4.0, &mut out);
            }
        }
    }
    put(&mut out, line(y, floor, ""));
    out + "</svg>"
}

fn packet(arrow: &Arrow, y: f64, out: &mut String) {
    let (from, to, ahead) = match arrow.is_forward {
        true => (ENDS[0], ENDS[1], 1.0),
        false => (ENDS[1], ENDS[0], -1.0),
    };
    let (class, dashes) = match (arrow.is_unanswered, arrow.is_forward) {
        (true, _) => ("c1", " stroke-dasharray='5 4'"),
        (false, true) => ("c0", ""),
        (false, false) => ("c2", ""),
    };
    put(out, text_at((ENDS[0] - 7.0, y + 3.5), "tick", "end", &arrow.time));
    put(out, format_args!("<g class='line {class}'>"));
    put(out, format_args!("<path class='stroke'{dashes} d='M{from} {y:.1}H{to}'/>"));
    let text = escape(&arrow.text);
    let head = format!("M{to} {y:.1}l{0} -4v8z", -7.0 * ahead);
    put(out, format_args!("<path d='{head}'><title>{text}</title></path></g>"));
    let middle = f64::midpoint(ENDS[0], ENDS[1]);
    put(out, text_at((middle, y - 4.5), "name", "middle", &arrow.name));
    if let Some(end) = arrow.fault {
        let x = ENDS[end.min(1)];
        put(out, "<g class='line c1'>");
        put(out, format_args!("<path d='M{x} {:.1}l5 5l-5 5l-5 -5z'>", y - 5.0));
        put(out, format_args!("<title>{text}</title></path></g>"));
    }
    let is_trouble = arrow.is_unanswered || arrow.fault.is_some();
    let class = if is_trouble { "c1" } else { "tick" };
    put(out, text_at((ENDS[1] + 10.0, y + 3.5), class, "start", &short(&arrow.note, MAX_NOTE)));
}

/// The width that notes have.
const _: () = assert!(ENDS[1] + 10.0 + MAX_NOTE as f64 * 6.2 <= WIDTH);
