//! Records for the tests of this crate.

use std::time::{Duration, SystemTime};

use rdmalab_measure::Outcome;
use rdmalab_record::{Device, DeviceKind, Environment, Finding, Header, PointId, Record, Writer};
use serde_json::Value;

/// The sentences of the findings of a record with these points.
pub fn of(experiment: &str, points: Vec<(Value, Outcome)>) -> Vec<String> {
    all(experiment, points).into_iter().map(|finding| finding.sentence).collect()
}

/// The findings of a record with these points.
pub fn all(experiment: &str, points: Vec<(Value, Outcome)>) -> Vec<Finding> {
    let home = tempfile::tempdir().unwrap();
    let device = Device { name: "d".to_owned(), kind: DeviceKind::Soft, profile: None };
    let header = Header::new(experiment, Vec::new(), device);
    let mut writer = Writer::create(home.path(), header, &Environment::default()).unwrap();
    for (order, (parameters, outcome)) in points.into_iter().enumerate() {
        let id = PointId {
            parameters: parameters.as_object().unwrap().clone(),
            repetition: 0,
            order_index: order as u64,
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_secs(1),
        };
        writer.append(&id, &outcome).unwrap();
    }
    crate::find(&Record::open(writer.dir()).unwrap())
}

/// Samples around a value.
pub fn around(value: f64) -> Vec<f64> {
    (0..101).map(|i| value * (0.99 + 0.0002 * f64::from(i))).collect()
}
