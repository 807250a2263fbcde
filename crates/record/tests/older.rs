//! A record that an older program began can be read, but this version adds nothing to it.

use std::fs;
use std::time::{Duration, SystemTime};

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_record::{
    Device, DeviceKind, Environment, Header, Object, PointId, Record, Skipped, Writer,
};

fn id(order_index: u64) -> PointId {
    PointId {
        parameters: Object::new(),
        repetition: 0,
        order_index,
        started: SystemTime::UNIX_EPOCH,
        elapsed: Duration::from_secs(1),
    }
}

#[test]
fn a_record_of_an_older_version_gets_no_lines_of_this_one() {
    let parent = tempfile::tempdir().unwrap();
    let device = Device { name: "d".to_owned(), kind: DeviceKind::Soft, profile: None };
    let header = Header::new("ping", Vec::new(), device);
    let mut writer = Writer::create(parent.path(), header, &Environment::default()).unwrap();
    let mut outcome = Outcome::default();
    outcome.push_series(Quantity::RoundTrip, "", 0, vec![1.0; 30]);
    writer.append(&id(0), &outcome).unwrap();
    let dir = writer.dir().to_owned();
    let resumed = || Writer::resume(&Record::open(&dir).unwrap()).unwrap();
    resumed().append(&id(1), &outcome).unwrap();
    let path = dir.join("record.json");
    let header = fs::read_to_string(&path).unwrap();
    let older = header.replace("\"schema_version\": 5", "\"schema_version\": 4");
    assert_ne!(older, header);
    fs::write(&path, older).unwrap();
    let before = Record::open(&dir).unwrap();
    let mut writer = resumed();
    let skipped = Skipped {
        order_index: 2,
        repetition: 0,
        parameters: Object::new(),
        reason: "none".to_owned(),
    };
    let tries = [
        writer.may_grow(),
        writer.append(&id(2), &outcome).map(drop),
        writer.skip(&skipped),
        writer.conclude(&[]),
    ];
    for refused in tries {
        let said = refused.unwrap_err().to_string();
        for part in ["a record of version 4", "adds points of version 5", "in another directory"] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
    }
    let after = Record::open(&dir).unwrap();
    assert_eq!((after.points.len(), after.points), (2, before.points));
    assert_eq!((after.skipped.len(), after.findings), (0, None));
}
