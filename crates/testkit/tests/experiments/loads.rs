//! Open-loop loads, and several threads.

use rdmalab_experiments::{Experiment, load_rates};
use rdmalab_measure::{Outcome, Quantity, Series};

use crate::two::{Table, at_both, measure, point, refused, traffic};

const DUE: &str = "from the intended start";

fn series<'a>(outcome: &'a Outcome, label: &str) -> &'a Series {
    let found = outcome.series.iter().find(|s| s.label == label);
    found.unwrap_or_else(|| panic!("no {label} in {:?}", outcome.counts))
}

fn figure(outcome: &Outcome, label: &str) -> f64 {
    let of =
        |f: &&rdmalab_measure::outcome::Figure| f.quantity == Quantity::Rate && f.label == label;
    outcome.figures.iter().find(of).unwrap_or_else(|| panic!("no rate {label:?}")).value
}

#[test]
fn what_is_offered_is_what_was_asked_for() {
    for (experiment, options) in [
        (Experiment::ONEWAY, "op=send_imm"),
        (Experiment::ONEWAY, "op=write"),
        (Experiment::ONEWAY, "op=send transport=ud poll=event"),
        (Experiment::PING, "op=send"),
        (Experiment::PING, "op=read"),
        (Experiment::BLAST, "op=send size=64 buffers=8"),
        (Experiment::BLAST, "op=send size=64 buffers=8 qps=3"),
        (Experiment::BLAST, "op=send_imm size=64 buffers=8 transport=ud qps=2"),
        (Experiment::BLAST, "op=send size=64 buffers=8 transport=ud qps=2"),
        (Experiment::BLAST, "op=send size=8 transport=uc rx-depth=3"),
        (Experiment::BLAST, "op=send size=5000 buffers=3 transport=uc signal-every=2"),
        (Experiment::BLAST, "op=write_imm size=64 transport=uc"),
        (Experiment::BLAST, "op=write size=64 buffers=8 qps=2"),
        (Experiment::BLAST, "op=write size=64 buffers=8 signal-every=4"),
        (Experiment::BLAST, "op=read size=64 buffers=4 poll=event"),
    ] {
        let all = "messages=500 runs=2 warm-up=20 rate=5000 arrivals=constant";
        let outcome = measure(&point(experiment, &format!("{all} {options}")));
        let offered = figure(&outcome, "offered");
        assert!((offered / 5000.0 - 1.0).abs() < 1e-3, "{experiment} {options}: {offered}");
        let achieved = figure(&outcome, "achieved");
        // No request completes before it is due.
        assert!(achieved > 0.0 && achieved <= offered, "{experiment} {options}: {achieved}");
        let due = series(&outcome, DUE);
        assert_eq!((due.samples.len(), due.warm_up), (1020, 20));
        let lossless = !options.contains("transport");
        assert!(due.samples.iter().all(|ns| *ns > 0.0 || !lossless && ns.is_nan()), "{options}");
        let own = outcome.series.iter().find(|s| s.quantity == due.quantity && s.label != DUE);
        // No request starts before it is due.
        let pairs = own.into_iter().flat_map(|own| own.samples.iter().zip(&due.samples));
        assert!(pairs.clone().all(|(own, due)| due.is_nan() || due >= own), "{options}");
        assert_eq!(pairs.count() > 0, experiment != Experiment::BLAST, "{experiment} {options}");
        if experiment == Experiment::BLAST {
            let is_noticed = outcome.fact("counted_at") == Some("receiver");
            let lost = due.samples.iter().filter(|ns| ns.is_nan()).count() as u64;
            assert_eq!(outcome.count("lost"), is_noticed.then_some(lost), "{options}");
        }
    }
}

/// A sender with a full queue posts late, and the time from the intended start includes that delay.
#[test]
fn a_blast_counts_what_waits_for_a_slow_end() {
    let _turn = crate::turn();
    for (op, buffers) in [("send", 2), ("send_imm", 2), ("write_imm", 4)] {
        let text = "messages=40 runs=1 warm-up=0 rate=1000 arrivals=constant size=64 rx-depth=2";
        let blast = point(Experiment::BLAST, &format!("{text} op={op} buffers={buffers}"));
        let table = Table { delay_ns: 6_000_000, ..Table::default() };
        let [here, there] = at_both(&table, [&blast, &blast]);
        there.expect("rank 1 goes well");
        let outcome = here.expect("rank 0 goes well");
        let due = series(&outcome, DUE);
        // At most two in 6 ms: the last message is due after 39 ms and received after 120 ms.
        assert!(due.samples.len() == 40 && due.samples[39] > 10e6, "{op}: {:?}", due.samples);
        // Compare with the shortest: a busy machine may delay any other message, even the first.
        let shortest = due.samples.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(due.samples[39] > 2.0 * shortest, "{op}: {:?}", due.samples);
        let (offered, achieved) = (figure(&outcome, "offered"), figure(&outcome, "achieved"));
        assert!(achieved < 0.9 * offered, "{op}: {achieved} of {offered}");
    }
}

#[test]
fn a_datagram_that_says_nothing_of_itself_has_no_time() {
    let text = "messages=200 runs=1 warm-up=0 rate=20000 transport=ud op=send";
    let outcome = measure(&point(Experiment::BLAST, &format!("{text} size=7")));
    assert!(outcome.series.iter().all(|s| s.label != DUE));
    let says = "messages of 7 bytes have no room for the number that tells which one arrived; \
                choose --size 8 or more, --op send_imm";
    assert!(outcome.warnings.iter().any(|w| w.contains(says)), "{outcome:?}");
    assert!(outcome.count("lost").is_some());
    // A datagram with room for its number has a time.
    let outcome = measure(&point(Experiment::BLAST, &format!("{text} size=8")));
    assert_eq!(series(&outcome, DUE).samples.len(), 200);
    assert_eq!(outcome.warnings, Vec::<String>::new());
}

/// Credits on UD are messages too, and use the same receives as the measured messages.
#[test]
fn credits_fit_into_receives_of_one_byte() {
    for experiment in [Experiment::BLAST, Experiment::ONEWAY] {
        let text = "messages=4000 runs=1 warm-up=0 transport=ud op=send_imm size=1 rx-depth=64";
        let outcome = measure(&point(experiment, text));
        let warnings = &outcome.warnings;
        assert!(warnings.iter().all(|w| !w.contains("LEN_ERR")), "{warnings:?}");
    }
}

#[test]
fn poisson_arrivals_have_their_rate_on_average() {
    let text = "messages=4000 runs=1 warm-up=0 rate=20000 arrivals=poisson seed=3";
    let outcome = measure(&point(Experiment::ONEWAY, text));
    let offered = figure(&outcome, "offered");
    // The mean of 4000 exponential gaps is off by more than a tenth in one of 10^9 seeds.
    assert!((offered / 20000.0 - 1.0).abs() < 0.1, "{offered}");
}

/// A receiver that needs 2 ms for each message cannot keep up with one message per ms. The growing
/// wait is part of the time from the intended start.
#[test]
fn what_waits_for_a_slow_end_is_counted() {
    let _turn = crate::turn();
    let text = "messages=40 runs=1 warm-up=0 rate=1000 arrivals=constant";
    let ping = point(Experiment::PING, text);
    let table = Table { delay_ns: 2_000_000, ..Table::default() };
    let [here, there] = at_both(&table, [&ping, &ping]);
    there.expect("rank 1 goes well");
    let outcome = here.expect("rank 0 goes well");
    let due = series(&outcome, DUE);
    // The last message is due after 39 ms, and its round trip ends after 80 ms.
    let last = due.samples[39];
    assert!(last > 40e6, "{last}");
    // Compare with the shortest: a busy machine may delay any other trip, even the first.
    let trips = outcome.series.iter().find(|s| s.label.is_empty()).expect("round trips");
    let trip = trips.samples.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(last > 5.0 * trip, "{last} after {trip}");
    let (offered, achieved) = (figure(&outcome, "offered"), figure(&outcome, "achieved"));
    assert!(achieved < 0.6 * offered, "{achieved} of {offered}");
}

/// Runs an experiment with several threads, and checks that each sent its messages and has results.
fn of_threads(experiment: Experiment, threads: u64, options: &str) -> Outcome {
    let text = format!("messages=300 runs=2 warm-up=10 threads={threads} {options}");
    let outcome = measure(&point(experiment, &text));
    let each = if experiment == Experiment::BLAST { 600 } else { 610 };
    assert_eq!(outcome.count("sent"), Some(threads * each), "{experiment} {options}");
    for thread in 0..threads {
        let label = format!("thread {thread}");
        let own = outcome.series.iter().filter(|s| s.label.ends_with(&label));
        assert!(own.count() > 0, "{experiment} {options}: {label}");
    }
    outcome
}

#[test]
fn each_thread_has_its_results_and_all_have_them_together() {
    for (experiment, options) in [
        (Experiment::ONEWAY, "op=send_imm pause=0"),
        (Experiment::ONEWAY, "op=write rate=3000"),
        (Experiment::PING, "op=send"),
        (Experiment::PING, "op=read"),
        (Experiment::BLAST, "op=send size=64 buffers=8"),
        (Experiment::BLAST, "op=write size=64 buffers=8 qps=2"),
        (Experiment::BLAST, "op=send_imm size=64 transport=ud"),
    ] {
        let outcome = of_threads(experiment, 3, options);
        if experiment == Experiment::BLAST {
            let each: f64 = (0..3).map(|i| figure(&outcome, &format!("thread {i}"))).sum();
            assert!((figure(&outcome, "") / each - 1.0).abs() < 1e-9);
        } else {
            let first = &outcome.series[0];
            assert_eq!((first.samples.len(), first.warm_up), (1830, 30), "{options}");
        }
    }
}

#[test]
fn threads_share_queue_pairs() {
    for (experiment, options) in [
        (Experiment::ONEWAY, "op=write pause=0 size=100 tx-depth=8 rx-depth=8"),
        (Experiment::ONEWAY, "op=write rate=3000 qps=2"),
        (Experiment::PING, "op=write transport=uc"),
        (Experiment::PING, "op=read"),
        (Experiment::PING, "op=write_read unsignalled=read tx-depth=12"),
        (Experiment::BLAST, "op=write size=64 buffers=16 qps=2 tx-depth=64"),
        (Experiment::BLAST, "op=write size=64 buffers=8 list=4 signal-every=8 tx-depth=32"),
        (Experiment::BLAST, "op=read size=64 buffers=8"),
        // The immediate data or the payload tell to which thread a message belongs.
        (Experiment::ONEWAY, "op=send_imm pause=0"),
        (Experiment::ONEWAY, "op=send pause=0 size=100 qps=2 rx-depth=32"),
        (Experiment::ONEWAY, "op=write_imm rate=3000"),
        (Experiment::ONEWAY, "op=send rate=3000 poll=event"),
        (Experiment::PING, "op=send size=8"),
        (Experiment::PING, "op=send transport=uc qps=2"),
        (Experiment::PING, "op=send_imm poll=event"),
        (Experiment::PING, "op=write_imm poll=event transport=uc"),
        (Experiment::PING, "op=read poll=event"),
        (Experiment::BLAST, "op=send size=64 buffers=16 qps=2"),
        (Experiment::BLAST, "op=send size=64 buffers=8 list=4 rx-depth=20 poll=event"),
        (Experiment::BLAST, "op=send_imm size=64 buffers=8 rx-depth=16"),
        (Experiment::BLAST, "op=write_imm size=5000 buffers=8 rate=4000"),
        (Experiment::BLAST, "op=send size=64 buffers=8 rate=4000"),
        (Experiment::BLAST, "op=write size=64 buffers=8 poll=event"),
    ] {
        let outcome = of_threads(experiment, 4, &format!("share-qp=yes {options}"));
        for name in ["lost", "duplicated", "strays"] {
            assert!(matches!(outcome.count(name), None | Some(0)), "{name}: {options}");
        }
        if !options.contains("qps") {
            assert!(matches!(outcome.count("reordered"), None | Some(0)), "{experiment} {options}");
        }
        assert_eq!(outcome.fact("queue_pairs_of_a_thread"), Some("of all"));
    }
}

/// Datagrams may be lost; a lost datagram of one thread does not count as lost by another.
#[test]
fn threads_share_queue_pairs_for_datagrams() {
    for (experiment, options) in [
        (Experiment::ONEWAY, "op=send"),
        (Experiment::ONEWAY, "op=send_imm poll=event"),
        (Experiment::PING, "op=send"),
        (Experiment::BLAST, "op=send_imm size=64 buffers=8"),
        (Experiment::BLAST, "op=send size=64 buffers=8 rate=3000"),
    ] {
        let options = format!("share-qp=yes transport=ud {options}");
        let outcome = of_threads(experiment, 2, &options);
        let (sent, lost) = (outcome.count("sent"), outcome.count("lost"));
        assert!(lost < sent, "{experiment} {options}: {lost:?} of {sent:?}");
        for name in ["duplicated", "strays"] {
            assert!(matches!(outcome.count(name), None | Some(0)), "{name}: {options}");
        }
    }
}

/// Threads fill a send queue of the device's largest size and signal as few requests as they can. A
/// thread that used more than its share would be refused (`ENOMEM`).
#[test]
fn threads_have_their_share_of_a_send_queue() {
    let text = "op=write size=8 messages=20000 runs=1 warm-up=0 pause=0 tx-depth=16384 \
                rx-depth=16384 signal-every=max threads=4 share-qp=yes";
    let outcome = measure(&point(Experiment::ONEWAY, text));
    assert_eq!(outcome.count("sent"), Some(80_000));
}

#[test]
fn what_cannot_be_shared_is_refused_with_what_can() {
    refused(&[
        (
            Experiment::BLAST,
            "share-qp=yes op=write",
            "--share-qp yes: it needs at least two threads",
        ),
        (Experiment::BLAST, "share-qp=yes op=send size=7 threads=2", "choose 8 or more, or --op"),
        (Experiment::BLAST, "share-qp=yes op=send size=8 threads=2", ""),
        (Experiment::PING, "share-qp=yes op=send threads=4 rx-depth=3", "choose 4 or more"),
        (
            Experiment::BLAST,
            "share-qp=yes op=send_imm threads=2 messages=20M",
            "can count 67108862",
        ),
        (Experiment::PING, "share-qp=yes op=read threads=64 tx-depth=128", "choose 192 or more"),
        (
            Experiment::BLAST,
            "share-qp=yes op=write buffers=64 threads=4 tx-depth=128",
            "in the share of each thread",
        ),
    ]);
}

#[test]
fn messages_take_several_queue_pairs_in_turns() {
    for (experiment, options) in [
        (Experiment::ONEWAY, "op=send_imm pause=0"),
        (Experiment::ONEWAY, "op=send pause=0 size=5000 rx-depth=16 tx-depth=8"),
        (Experiment::ONEWAY, "op=write pause=0 size=100K rx-depth=8 tx-depth=8"),
        (Experiment::ONEWAY, "op=write_imm pause=0 stamps=send,recv,comp"),
        (Experiment::ONEWAY, "op=send_imm signal-every=max pause=0 tx-depth=9 poll=event"),
        (Experiment::ONEWAY, "op=send_imm burst=7 pause=1000"),
        (Experiment::ONEWAY, "op=send transport=ud"),
        (Experiment::ONEWAY, "op=send_imm transport=uc rate=20000"),
        (Experiment::PING, "op=send"),
        (Experiment::PING, "op=write signal-every=5 tx-depth=10"),
        (Experiment::PING, "op=write_imm poll=event"),
        (Experiment::PING, "op=read"),
        (Experiment::PING, "op=write_read unsignalled=read"),
        (Experiment::PING, "op=send_imm transport=ud"),
    ] {
        let text = format!("messages=200 runs=2 warm-up=15 qps=3 {options}");
        let outcome = measure(&point(experiment, &text));
        assert_eq!(outcome.count("sent"), Some(415), "{options}");
        if !options.contains("transport") {
            assert_eq!(outcome.count("lost"), Some(0), "{experiment} {options}");
        }
        for name in ["duplicated", "strays"] {
            assert!(matches!(outcome.count(name), None | Some(0)), "{name}: {options}");
        }
        for series in
            outcome.series.iter().filter(|s| !options.contains("max") || s.label == "t_lat")
        {
            assert_eq!((series.samples.len(), series.warm_up), (415, 15), "{options}");
            assert!(series.counted().all(|s| s > 0.0), "{options}: {}", series.label);
        }
    }
}

#[test]
fn who_is_interrupted_keeps_what_all_threads_have() {
    for experiment in traffic() {
        let table = Table { stop_in_round: 8, ..Table::default() };
        let point = point(experiment, "messages=100 runs=1000 warm-up=0 size=64 threads=2");
        let [here, there] = at_both(&table, [&point, &point]);
        let (here, there) = (here.expect("an outcome"), there.expect("an outcome"));
        assert_eq!(here.cut_short.as_deref(), Some("interrupted"), "{experiment}");
        assert_eq!(there.cut_short.as_deref(), Some("interrupted"), "{experiment}");
        assert!(here.series.iter().any(|s| s.label.contains("thread 1")), "{experiment}");
    }
}

/// One thread is told to stop earlier than the other, so it has fewer samples, in fewer rounds of 1
/// MiB. No thread begins a part that not all threads begin.
#[test]
fn threads_with_unequal_numbers_of_messages_keep_what_they_have() {
    let table = Table { stop_threads_after: vec![1000, u64::MAX], ..Table::default() };
    let text = "op=send_imm size=8 messages=50000 runs=3 warm-up=0 pause=0 threads=2";
    let point = point(Experiment::ONEWAY, text);
    let [here, there] = at_both(&table, [&point, &point]);
    let (here, there) = (here.expect("an outcome"), there.expect("an outcome"));
    assert_eq!(here.cut_short.as_deref(), Some("interrupted"));
    assert_eq!(there.cut_short.as_deref(), Some("interrupted"));
    // Maybe no message of the stopped thread arrived, so check only the sender's samples.
    assert_eq!(series(&here, "t_lat, thread 0").samples.len(), 1000);
    assert_eq!(series(&here, "t_lat, thread 1").counted().count(), 50_000);
}

#[test]
fn what_makes_no_sense_is_refused() {
    refused(&[
        (Experiment::ONEWAY, "rate=1000 burst=5", "--burst 5: it cannot be combined"),
        (Experiment::BLAST, "rate=1000 list=4 buffers=4", "--list 4: it cannot be combined"),
        (Experiment::ONEWAY, "threads=2 stamps=send,recv", "--threads 1"),
        (Experiment::BLAST, "threads=64 qps=300 buffers=300 rx-depth=64", "16384"),
        (Experiment::PING, "threads=64 messages=1M", "choose fewer"),
        (Experiment::BLAST, "rate=1000 messages=20M runs=2", "choose fewer"),
        (Experiment::BLAST, "messages=20M runs=2", ""),
        (Experiment::ONEWAY, "rate=sweep", ""),
    ]);
    let sweep = point(Experiment::ONEWAY, "rate=sweep");
    let [here, _] = at_both(&Table::default(), [&sweep, &sweep]);
    assert!(here.expect_err("no rate").to_string().contains("sweep"));
    assert!(load_rates(1e5).len() >= 10);
}
