//! The charts of a record as separate files.

use rdmalab_record::Record;

use crate::chart::Scope;
use crate::charts;
use crate::model::{Model, device_line};
use crate::packets::ladders;

const STYLE: &str = include_str!("page/style.css");

/// A chart as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// A name for the file, without its ending.
    pub name: String,
    /// The contents of the file: SVG with its style inside.
    pub svg: String,
}

/// All charts of a record, each with its caption and the kind of its device.
#[must_use]
pub fn pictures(record: &Record) -> Vec<Picture> {
    let model = Model::of(record);
    let mut all = Vec::new();
    for (i, group) in model.groups().iter().enumerate() {
        all.extend(charts::of_group(&model, group, &format!("g{i}"), &Scope::default()));
    }
    all.extend(charts::of_figures(&model, "", &Scope::default()));
    all.extend(ladders(record, ""));
    let device = device_line(record);
    let each = all.into_iter().enumerate().map(|(i, chart)| Picture {
        name: format!("{:02}-{}", i + 1, plain(&chart.caption)),
        svg: alone(&chart.svg, &device),
    });
    each.collect()
}

/// An SVG element of a page as a document: with a name space, a style, and the kind of device.
fn alone(svg: &str, device: &str) -> String {
    let Some((head, rest)) = svg.split_once('>') else { return svg.to_owned() };
    let rest = rest.strip_suffix("</svg>").unwrap_or(rest);
    let head = head.replacen("<svg", "<svg xmlns='http://www.w3.org/2000/svg' class='alone'", 1);
    // A style in XML must not contain `<` or `&`; this one has neither.
    format!(
        "{head}><style>{STYLE} svg.alone {{ background: var(--panel); font-family: sans-serif; }}\
         </style>{rest}<metadata>{}</metadata></svg>\n",
        device.replace('&', "&amp;").replace('<', "&lt;")
    )
}

/// Letters, digits and dashes.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(keep).collect();
    let words: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(60).collect()
}
