//! Forms of a run record for people and scripts: tables, histograms, CSV, JSON, perftest's text,
//! and a page that needs only a browser. This crate reads records and runs nothing; the same record
//! gives the same text.
//!
//! The parameters of a point come from the record: this crate knows no experiments. Two rules hold
//! in all forms: every number is shown with the kind of its device, and a percentile that the
//! samples do not support is not shown as a number.
#![forbid(unsafe_code)]

mod chart;
mod charts;
pub mod compare;
mod contents;
mod csv_text;
mod curves;
mod delivery;
mod diagnosis;
pub mod expect;
mod grid;
pub mod histogram;
mod histograms;
mod json;
mod machine;
mod markdown;
mod model;
mod packets;
mod page;
mod perftest;
mod pictures;
mod published;
mod ranking;
mod side_by_side;
mod study;
mod study_sweep;
mod study_terms;
mod study_text;
mod study_values;
mod svg;
mod table;
mod value;
mod warnings;

pub use contents::{contents_markdown, contents_text};
pub use csv_text::{csv, csv_of};
pub use diagnosis::diagnosis_page;
pub use histogram::{Histogram, Scale};
pub use json::json;
pub use markdown::markdown;
pub use packets::diagnose;
pub use page::{page, pages};
pub use perftest::{Perftest, perftest};
pub use pictures::{Picture, pictures};
pub use study::{OtherCondition, study_page};
pub use study_text::{study_csv, study_json, study_markdown};
pub use study_values::study_values_csv;
pub use table::{Style, Table};
pub use warnings::warnings;
