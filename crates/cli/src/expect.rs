//! `--expect`: expectations that a record is held to.

use rdmalab_experiments::{Experiment, Point};
use rdmalab_record::Record;
use rdmalab_report::expect::{Answer, Checked, Expectation};

use crate::failure::{Outcome, run as failed, usage};

/// Refuses an expectation that the points cannot support, before anything is measured.
///
/// # Errors
/// How many samples it needs.
pub fn foresee(expectations: &[Expectation], points: &[Point], repeat: u32) -> Outcome {
    // Only of these there is a sample for each message.
    let has_one_each = |p: &&Point| matches!(p.experiment, Experiment::Ping | Experiment::Oneway);
    let points = points.iter().filter(has_one_each);
    let samples =
        points.map(|p| p.messages.saturating_mul(p.runs).saturating_mul(u64::from(repeat))).min();
    let Some(samples) = samples else { return Ok(()) };
    let mut of_samples = expectations.iter().filter(|one| one.is_of_samples());
    of_samples.try_for_each(|one| one.supported_by(samples).map_err(usage))
}

/// Holds a record to its expectations: a line to standard error for each point, and a failure when
/// one does not hold.
///
/// # Errors
/// When one does not hold, or cannot be answered from this record.
pub fn check(expectations: &[Expectation], record: &Record) -> Outcome {
    let each = expectations.iter().map(|one| one.check(record).map_err(usage));
    let all: Vec<Checked> = each.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect();
    for one in &all {
        errln!("{}{}", if one.answer == Answer::Holds { "" } else { "EXPECTED " }, one.line);
    }
    let count = |answer| all.iter().filter(|one| one.answer == answer).count();
    match (count(Answer::Fails), count(Answer::CannotTell)) {
        (0, 0) => Ok(()),
        // As of what the samples cannot know.
        (0, n) => Err(usage(format!(
            "{n} of {} expectations cannot be answered: the clocks of the hosts are off by too \
             much",
            all.len()
        ))),
        (n, _) => Err(failed(format!("{n} of {} expectations do not hold", all.len()))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rdmalab_measure::{Outcome as Measured, Quantity};
    use rdmalab_record::{Device, DeviceKind, Environment, Header, Object, PointId, Writer};

    use super::*;
    use crate::failure::Failure;

    #[test]
    fn what_clocks_of_two_hosts_could_turn_ends_as_what_the_samples_cannot_know() {
        let home = tempfile::tempdir().unwrap();
        let device = Device { name: "d".to_owned(), kind: DeviceKind::System };
        let header = Header::new("oneway", Vec::new(), device);
        let mut writer = Writer::create(home.path(), header, &Environment::default()).unwrap();
        let mut measured = Measured::default();
        measured.push_series(Quantity::OneWay, "t_lat", 0, vec![20e3; 100]);
        measured.push_fact("clock_error_ns", "5000.0");
        let id = PointId {
            parameters: Object::new(),
            repetition: 0,
            order_index: 0,
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_secs(1),
        };
        writer.append(&id, &measured).unwrap();
        let record = Record::open(writer.dir()).unwrap();
        let of = |texts: &[&str]| {
            let expected: Vec<Expectation> = texts.iter().map(|t| t.parse().unwrap()).collect();
            check(&expected, &record)
        };
        assert_eq!(of(&["median<30us", "median>10us"]), Ok(()));
        assert!(matches!(of(&["median<22us", "median<30us"]), Err(Failure::Usage(_))));
        assert!(matches!(of(&["median<18us"]), Err(Failure::Usage(_))));
        // What surely does not hold comes first.
        assert!(matches!(of(&["median<22us", "median<10us"]), Err(Failure::Run(_))));
    }
}
