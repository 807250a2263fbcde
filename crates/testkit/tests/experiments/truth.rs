//! Whether the times are true, and what happens when things go wrong.

use rdmalab_experiments::{Experiment, Limits, Point, check};
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::Stopped;

use crate::two::{Table, at_both, device, measure, point, traffic};

/// The shortest sample: other load on the machine only adds time.
fn shortest(outcome: &Outcome, quantity: Quantity) -> f64 {
    let series = outcome.series.iter().find(|s| s.quantity == quantity).expect("that quantity");
    series.counted().fold(f64::MAX, f64::min)
}

fn median(outcome: &Outcome, quantity: Quantity) -> f64 {
    let series = outcome.series.iter().find(|s| s.quantity == quantity).expect("that quantity");
    let mut samples: Vec<f64> = series.counted().collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Runs a point whose rank 1 sees everything that it waits for `delay_ns` late.
fn late(point: &Point, delay_ns: u64) -> Outcome {
    let table = Table { delay_ns, ..Table::default() };
    let [here, there] = at_both(&table, [point, point]);
    there.expect("rank 1 goes well");
    here.expect("rank 0 goes well")
}

#[test]
fn a_receiver_that_is_late_shows_in_the_one_way_time() {
    let _turn = crate::turn();
    let delay_ns = 3_000_000;
    for options in ["op=send_imm", "op=write", "op=send transport=ud"] {
        let text = format!("messages=30 runs=1 warm-up=0 pause=4ms pause-by=spin {options}");
        let point = point(Experiment::ONEWAY, &text);
        // A message that arrives before rank 1 waits for it is not late, so take the median.
        let t_lat = median(&late(&point, delay_ns), Quantity::OneWay);
        assert!(t_lat >= delay_ns as f64, "{options}: {t_lat}");
        let without = shortest(&measure(&point), Quantity::OneWay);
        assert!(without < delay_ns as f64, "{options}: {without}");
    }
}

#[test]
fn a_server_that_is_late_shows_in_the_round_trip() {
    let _turn = crate::turn();
    let delay_ns = 2_000_000;
    for options in ["op=send", "op=write", "op=write_imm"] {
        let text = format!("messages=30 runs=1 warm-up=0 {options}");
        let point = point(Experiment::PING, &text);
        let trip = median(&late(&point, delay_ns), Quantity::RoundTrip);
        let without = shortest(&measure(&point), Quantity::RoundTrip);
        let ok = trip >= delay_ns as f64 && without < delay_ns as f64;
        assert!(ok, "{options}: {without} without, {trip} with");
    }
}

#[test]
fn a_pause_takes_its_time_and_is_in_no_sample() {
    let _turn = crate::turn();
    let pause_ns = 5_000_000.0;
    for (experiment, quantity, by) in [
        (Experiment::PING, Quantity::RoundTrip, "spin"),
        (Experiment::PING, Quantity::RoundTrip, "sleep"),
        (Experiment::ONEWAY, Quantity::OneWay, "spin"),
        (Experiment::ONEWAY, Quantity::OneWay, "sleep"),
    ] {
        let text = format!("messages=40 runs=1 warm-up=0 pause=5ms pause-by={by}");
        let start = std::time::Instant::now();
        let outcome = measure(&point(experiment, &text));
        let took_ns = start.elapsed().as_nanos() as f64;
        assert!(took_ns >= 39.0 * pause_ns, "{experiment} {by}: {took_ns}");
        let shortest = shortest(&outcome, quantity);
        assert!(shortest < pause_ns, "{experiment} {by}: {shortest}");
    }
}

#[test]
fn who_is_interrupted_keeps_what_was_measured() {
    for experiment in traffic() {
        // Three exchanges come first (options, kind of address, connection), then one before each
        // part. In the sixth exchange at least one part is done.
        let table = Table { stop_in_round: 6, ..Table::default() };
        let point = point(experiment, "messages=100 runs=1000 warm-up=0 size=64");
        let [here, there] = at_both(&table, [&point, &point]);
        let (here, there) = (here.expect("an outcome"), there.expect("an outcome"));
        assert_eq!(here.cut_short.as_deref(), Some("interrupted"), "{experiment}");
        assert_eq!(there.cut_short.as_deref(), Some("interrupted"), "{experiment}");
        let sent = here.count("sent").expect("a count");
        assert!((200..100_000).contains(&sent), "{experiment}: {sent}");
        assert!(here.series.iter().all(|s| !s.samples.is_empty()), "{experiment}");
    }
}

#[test]
fn two_ends_that_differ_say_in_what() {
    let ours = point(Experiment::PING, "size=32");
    let theirs = point(Experiment::PING, "size=64");
    let [here, there] = at_both(&Table::default(), [&ours, &theirs]);
    let (Err(Stopped::Failed(here)), Err(Stopped::Failed(there))) = (here, there) else {
        panic!("both fail");
    };
    assert!(here.contains("size=32 at rank 0, size=64 at rank 1"), "{here}");
    assert!(there.contains("size=64 at rank 1, size=32 at rank 0"), "{there}");
}

#[test]
fn the_device_says_its_limits() {
    let context = device().open().expect("the soft device opens");
    let limits = Limits::query(&context, 1).expect("limits");
    assert_eq!((limits.kind.as_str(), limits.device.as_str()), ("soft", "soft0"));
    assert_eq!((limits.max_qp_wr, limits.max_inline_bytes), (16384, 1024));
    assert_eq!((limits.active_mtu_bytes, limits.max_rd_atomic), (4096, 16));
    for experiment in Experiment::all().filter(|e| *e != Experiment::ODP) {
        assert_eq!(check(&Point::default_for(experiment), &limits), Ok(()));
    }
    let too_much = point(Experiment::PING, "inline=on size=1025");
    let [here, there] = at_both(&Table::default(), [&too_much, &too_much]);
    let error = here.expect_err("too much").to_string();
    let says = error.starts_with("--inline on: soft0") && error.contains("1024 bytes");
    assert!(says && there.is_err(), "{error}");
}
