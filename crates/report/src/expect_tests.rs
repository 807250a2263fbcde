use super::*;
use crate::model::test_points;

fn read(text: &str) -> Result<Expectation, String> {
    text.parse()
}

#[test]
fn the_grammar_has_quantities_metrics_relations_and_units() {
    let one = read("round trip p99.9 <= 1.5 us").unwrap();
    assert_eq!((one.name.as_str(), one.relation), ("round trip", Relation::NotAbove));
    assert_eq!((one.metric, one.bound), (Metric::Quantile(0.999), 1500.0));
    for (text, metric, bound) in [
        ("median<5ms", Metric::Quantile(0.5), 5e6),
        ("p99<5us", Metric::Quantile(0.99), 5e3),
        ("mean<700ns", Metric::Mean, 700.0),
        ("max<1s", Metric::Max, 1e9),
        ("loss<=0.1%", Metric::Loss, 0.001),
        ("rate>1.5M/s", Metric::Figure(Quantity::Rate), 1.5e6),
        ("rate>=20/s", Metric::Figure(Quantity::Rate), 20.0),
        ("bandwidth>100Gb/s", Metric::Figure(Quantity::Bandwidth), 12.5e9),
        ("bandwidth>2GB/s", Metric::Figure(Quantity::Bandwidth), 2e9),
        ("missed<1%", Metric::Figure(Quantity::MissedShare), 0.01),
        ("duplicate<=0.5%", Metric::Figure(Quantity::DuplicateShare), 0.005),
    ] {
        let one = read(text).unwrap();
        assert_eq!(one.metric, metric, "{text}");
        assert!((one.bound / bound - 1.0).abs() < 1e-12, "{text}: {}", one.bound);
        assert_eq!(one.to_string(), text);
    }
}

#[test]
fn what_is_wrong_with_one_is_said_in_a_line() {
    for (text, part) in [
        ("", "no < or >"),
        ("p99", "no < or >"),
        ("p99=5us", "no < or >"),
        ("p100<5us", "not a metric"),
        ("p99.9999999999999<5us", "not a metric"),
        ("p0.0000000000001<5us", "not a metric"),
        ("p-1<5us", "not a metric"),
        ("speed<5us", "not a metric"),
        ("p99<5", "one of ns, us, ms, s"),
        ("p99<us", "one of ns"),
        ("p99<-5us", "one of ns"),
        ("p99<5GB/s", "not a bound for this metric"),
        ("rate>5us", "one of G/s, M/s, k/s, /s"),
        ("bandwidth>5%", "Gb/s"),
        ("loss<5us", "one of %"),
        ("missed>1/s", "one of %"),
        ("p99<>5us", "not a bound for this metric"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
    }
}

/// The name and the value that an expectation finds in runs with these rates.
fn found(text: &str, runs: &[&[(&str, f64)]]) -> Result<(String, f64), String> {
    let points: Vec<Point> = runs.iter().map(|rates| test_points::point(rates)).collect();
    let parameters = rdmalab_record::Object::new();
    let row = Row { parameters: &parameters, points: points.iter().collect() };
    match read(text)?.figure(&row, Quantity::Rate) {
        Ok(found) => Ok((found.name, found.value)),
        Err(Missing::Asked(why) | Missing::Unmeasured(why)) => Err(why),
    }
}

#[test]
fn one_rate_is_judged_and_never_what_was_offered() {
    let paced: &[&[(&str, f64)]] =
        &[&[("offered", 9e6), ("achieved", 4e6)], &[("offered", 9e6), ("achieved", 6e6)]];
    let is = |name: &str, value| Ok((name.to_owned(), value));
    assert_eq!(found("rate>1M/s", paced), is("rate, achieved", 5e6));
    assert_eq!(found("offered rate>1M/s", paced), is("rate, offered", 9e6));
    // With threads, the total has the first label, and each thread has a label.
    let threads: &[&[(&str, f64)]] = &[&[
        ("offered", 9e6),
        ("offered, thread 0", 5e6),
        ("offered, thread 1", 4e6),
        ("achieved", 6e6),
        ("achieved, thread 0", 4e6),
        ("achieved, thread 1", 2e6),
    ]];
    assert_eq!(found("rate>1M/s", threads), is("rate, achieved", 6e6));
    assert_eq!(found("offered rate>1M/s", threads), is("rate, offered", 9e6));
    assert_eq!(found("thread 1 rate>1M/s", threads), is("rate, achieved, thread 1", 2e6));
    let blast: &[&[(&str, f64)]] = &[&[("thread 0", 1e6), ("thread 1", 2e6), ("", 3e6)]];
    assert_eq!(found("rate>1M/s", blast), is("rate", 3e6));
    let none = found("rate>1M/s", &[&[("offered", 9e6)]]).unwrap_err();
    assert!(none.contains("it has: rate, offered"), "{none}");
    assert!(found("rate>1M/s", &[&[]]).unwrap_err().contains("`blast` does"));
}

#[test]
fn a_rate_and_its_interval_are_of_the_same_number() {
    let runs = [5e6, 5e6, 5e6, 5e6, 0.1e6].map(|rate| test_points::point(&[("", rate)]));
    let parameters = rdmalab_record::Object::new();
    let row = Row { parameters: &parameters, points: runs.iter().collect() };
    let one = read("rate>2M/s").unwrap();
    let found = one.figure(&row, Quantity::Rate).ok().unwrap();
    let interval = found.interval.unwrap();
    assert!((found.value - 4.02e6).abs() < 1.0 && interval.covers(found.value));
    assert!((found.value - interval.low - (interval.high - found.value)).abs() < 1.0);
    let line = one.checked(&found, "").line;
    assert!(line.contains("the mean of 5 runs") && line.contains("measure more"), "{line}");
}

#[test]
fn what_the_clocks_of_two_hosts_could_turn_is_not_said() {
    let of = |text: &str, value: f64, clock_error_ns: f64| {
        let interval = Some(Interval { low: value - 10.0, high: value + 10.0, confidence: 0.95 });
        let (name, remark) = ("median".to_owned(), String::new());
        let quantity = Quantity::OneWay;
        let found = Observed { value, interval, name, quantity, clock_error_ns, remark };
        let Checked { answer, line } = read(text).unwrap().checked(&found, "");
        (answer, line)
    };
    for (text, value, answer) in [
        ("median<22us", 20e3, Answer::CannotTell),
        ("median<22us", 24e3, Answer::CannotTell),
        ("median<22us", 16e3, Answer::Holds),
        ("median<22us", 28e3, Answer::Fails),
        ("median>=22us", 20e3, Answer::CannotTell),
    ] {
        assert_eq!(of(text, value, 5e3).0, answer, "{text} {value}");
        assert_ne!(of(text, value, 0.0).0, Answer::CannotTell);
    }
    let (_, line) = of("median<22us", 20e3, 5e3);
    assert!(line.contains("off by 5.00 us") && line.contains("cannot be decided"), "{line}");
    // The interval of the samples reaches beyond the bound; the clock error alone does not.
    let (answer, line) = of("median<22us", 16.995e3, 5e3);
    assert!(answer == Answer::Holds && line.contains("includes the bound"), "{line}");
}

#[test]
fn counts_of_any_size_are_added() {
    let mut point = test_points::point(&[]);
    for name in ["lost", "sent"] {
        let name = name.to_owned();
        point.counts.push(rdmalab_measure::outcome::Count { name, value: u64::MAX });
    }
    let parameters = rdmalab_record::Object::new();
    let row = Row { parameters: &parameters, points: vec![&point; 3] };
    assert_eq!(read("loss<1%").unwrap().loss(&row).ok().unwrap().value, 1.0);
}

#[test]
fn a_tail_needs_its_samples() {
    let error = read("p99.99<5us").unwrap().supported_by(1000).unwrap_err();
    assert!(error.contains("p99.99 needs 100 000 samples"), "{error}");
    assert!(error.contains("there are 1 000") && error.contains("--messages"), "{error}");
    assert_eq!(read("p99.99<5us").unwrap().supported_by(100_000), Ok(()));
    assert_eq!(read("max<5us").unwrap().supported_by(1), Ok(()));
}
