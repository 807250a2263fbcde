//! Made-up measurements, in memory.
#![allow(dead_code)] // Each test uses a part.

use std::path::PathBuf;

use rdmalab_record::{Device, DeviceKind, Finding, Header, Object, Point, Record};
use rdmalab_study::{SweepResult, SweepState};

/// A complete record with these points and findings, and nothing else.
pub fn record(kind: DeviceKind, points: Vec<Point>, findings: Vec<Finding>) -> Record {
    let device = Device { name: "made up".to_owned(), kind, profile: None };
    Record {
        dir: PathBuf::new(),
        header: Header::new("made up", Vec::new(), device),
        environment: Object::new(),
        points,
        findings: Some(findings),
        skipped: Vec::new(),
        damaged_points: 0,
        damage: Vec::new(),
    }
}

/// The result of a figure that has one sweep.
pub fn part(figure: &str, record: Record) -> SweepResult {
    let state = SweepState::Measured(Box::new(record));
    SweepResult { figure: figure.to_owned(), sweep: String::new(), line: Vec::new(), state }
}
