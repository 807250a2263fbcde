//! `--expect`: expectations about the points of a record.

use rdmalab_experiments::Point;
use rdmalab_record::Record;
use rdmalab_report::expect::{Answer, Checked, Expectation};

use crate::failure::{Outcome, for_each, run as failed, usage};

/// Refuses, before anything is measured, an expectation that the points cannot decide.
///
/// # Errors
/// The quantities that the points measure, or the number of samples that the expectation needs.
pub fn foresee(expectations: &[Expectation], points: &[Point], repeat: u32) -> Outcome {
    for point in points {
        let (name, quantities) = (point.experiment().name(), point.quantities());
        let mut all = expectations.iter();
        all.try_for_each(|one| one.foreseen_in(name, &quantities).map_err(usage))?;
    }
    // Only these experiments keep a sample for each message. How many fit a time is not known yet.
    let counts =
        |point: &&Point| point.experiment().samples_each() && point.common.duration_ns == 0;
    let points = points.iter().filter(counts);
    let samples = points
        .map(|p| p.common.messages.saturating_mul(p.common.runs).saturating_mul(u64::from(repeat)))
        .min();
    let Some(samples) = samples else { return Ok(()) };
    let mut of_samples = expectations.iter().filter(|one| one.is_of_samples());
    of_samples.try_for_each(|one| one.supported_by(samples).map_err(usage))
}

/// Checks the expectations on a record. Prints a line to standard error for each point.
///
/// # Errors
/// An expectation does not hold or cannot be decided. If it names a quantity that the record does
/// not have, this is a usage error.
pub fn check(expectations: &[Expectation], record: &Record) -> Outcome {
    let each = expectations.iter().map(|one| one.check(record).map_err(usage));
    let all: Vec<Checked> = each.collect::<Outcome<Vec<_>>>()?.into_iter().flatten().collect();
    for one in &all {
        errln!("{}{}", if one.answer == Answer::Holds { "" } else { "EXPECTED " }, one.line);
    }
    let count = |answer| all.iter().filter(|one| one.answer == answer).count();
    match (count(Answer::Fails), count(Answer::CannotTell)) {
        (0, 0) => Ok(()),
        (0, n) => {
            Err(failed(format!("{n} of {} expectations cannot be answered: see above", all.len())))
        }
        (n, 0) => Err(failed(format!("{n} of {} expectations do not hold", all.len()))),
        (n, open) => Err(failed(format!(
            "{n} of {} expectations do not hold, and {open} cannot be answered",
            all.len()
        ))),
    }
}

/// Checks the expectations on each record.
///
/// # Errors
/// As [`check`], for all records together.
pub fn check_all(expectations: &[Expectation], records: &[Record]) -> Outcome {
    if expectations.is_empty() {
        return Ok(());
    }
    for_each(records, |record| check(expectations, record))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use rdmalab_measure::{Outcome as Measured, Quantity};
    use rdmalab_record::{Device, DeviceKind, Environment, Header, Object, PointId, Writer};

    use super::*;
    use crate::failure::Failure;

    /// A record with one point, and its directory.
    fn record(measured: &Measured) -> (tempfile::TempDir, Record) {
        let home = tempfile::tempdir().unwrap();
        let device = Device { name: "d".to_owned(), kind: DeviceKind::System, profile: None };
        let header = Header::new("oneway", Vec::new(), device);
        let mut writer = Writer::create(home.path(), header, &Environment::default()).unwrap();
        let id = PointId {
            parameters: Object::new(),
            repetition: 0,
            order_index: 0,
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_secs(1),
        };
        writer.append(&id, measured).unwrap();
        let record = Record::open(writer.dir()).unwrap();
        (home, record)
    }

    #[test]
    fn what_clocks_of_two_hosts_could_turn_is_the_runs_matter() {
        let mut measured = Measured::default();
        measured.push_series(Quantity::OneWay, "t_lat", 0, vec![20e3; 100]);
        measured.push_fact("clock_error_ns", "5000.0");
        let (_home, record) = record(&measured);
        let of = |texts: &[&str]| {
            let expected: Vec<Expectation> = texts.iter().map(|t| t.parse().unwrap()).collect();
            check(&expected, &record)
        };
        assert_eq!(of(&["median<30us", "median>10us"]), Ok(()));
        let open = |n: u32| format!("{n} of 2 expectations cannot be answered: see above");
        assert_eq!(of(&["median<22us", "median<30us"]), Err(failed(open(1))));
        assert_eq!(of(&["median<22us", "median<18us"]), Err(failed(open(2))));
        let both = "1 of 2 expectations do not hold, and 1 cannot be answered";
        assert_eq!(of(&["median<22us", "median<10us"]), Err(failed(both)));
        // A quantity that the record does not have is a usage error.
        assert!(matches!(of(&["round trip median<10us"]), Err(Failure::Usage(_))));
    }

    #[test]
    fn what_a_run_could_not_measure_is_no_wrong_call_and_nothing_else_is_judged() {
        let of = |text: &str, measured: &Measured| {
            let (_home, record) = record(measured);
            check(&[text.parse().unwrap()], &record)
        };
        let mut hidden = Measured::default();
        hidden.warn_of_hidden("t_lat", "the clocks are off");
        hidden.push_series(Quantity::CompletionTime, "t_lat_comp", 0, vec![900.0; 1000]);
        let open = Err(failed("1 of 1 expectations cannot be answered: see above"));
        // The first quantity is missing; the next one must not be used instead.
        assert_eq!(of("median<5us", &hidden), open);
        assert_eq!(of("one-way p99<5us", &hidden), open);
        // Another series has the same label.
        assert_eq!(of("t_lat median<5us", &hidden), open);
        assert_eq!(of("t_lat_comp median<5us", &hidden), Ok(()));
        assert_eq!(of("completion median<5us", &hidden), Ok(()));
        assert!(matches!(of("round trip median<5us", &hidden), Err(Failure::Usage(_))));
        // All messages were lost, or too many for the percentile.
        let mut lost = Measured::default();
        lost.push_series(Quantity::RoundTrip, "", 0, vec![f64::NAN; 2000]);
        assert_eq!(of("median<5us", &lost), open);
        assert_eq!(of("rate>1/s", &lost), open);
        let mut few = vec![1000.0; 1999];
        few[..1500].fill(f64::NAN);
        lost.series.clear();
        lost.push_series(Quantity::RoundTrip, "", 0, few);
        assert_eq!(of("p99<5us", &lost), open);
        assert_eq!(of("median<5us", &lost), Ok(()));
        // There are too few messages for p99.99 even without losses.
        assert!(matches!(of("p99.99<5us", &lost), Err(Failure::Usage(_))));
    }
}
