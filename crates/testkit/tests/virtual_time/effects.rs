//! Effects of adapters that the studies found: each comes out of a component, and is gone without
//! it; and each parameter matters somewhere.

use rdmalab_experiments::Experiment;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_sim::{Parameters, Profile, find};

use crate::lab::{Case, measured, outcome};

/// The median of a series, in its unit.
fn median(outcome: &Outcome, quantity: Quantity) -> f64 {
    let series = outcome.series.iter().find(|series| series.quantity == quantity).unwrap();
    let mut samples: Vec<f64> = series.counted().collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn with(profile: &str, changes: &[(&str, f64)]) -> Profile {
    let mut profile = find(profile).unwrap();
    changes.iter().for_each(|(name, value)| profile.set(name, *value).unwrap());
    profile
}

/// The one-way time of a message of `size` bytes on a profile.
fn one_way_ns(profile: &Profile, size: &str, inline: &str) -> f64 {
    let options = [
        ("messages", "100"),
        ("runs", "1"),
        ("transport", "uc"),
        ("size", size),
        ("inline", inline),
    ];
    median(&outcome(profile, 2, Experiment::ONEWAY, &options), Quantity::OneWay)
}

/// mordkovich2013: with a shared queue of 32 a round trip is slow every 16th time and slower every
/// 32nd; the own queue, whose WQEs are half as long, every 32nd.
#[test]
fn reading_receive_wqes_in_chunks_makes_a_pattern() {
    let slow = |changes: &[(&str, f64)], queue| {
        let profile = with("connectx2", changes);
        let options = [("messages", "320"), ("warm-up", "0"), ("queue", queue), ("rx-depth", "32")];
        let found = outcome(&profile, 2, Experiment::RECVQ, &options);
        let trips = found.series.iter().find(|s| s.quantity == Quantity::RoundTrip).unwrap();
        let mut sorted = trips.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let base = sorted[sorted.len() / 2];
        let slow = trips.samples.iter().enumerate().filter(|(_, trip)| **trip > base + 500.0);
        slow.map(|(index, _)| index % 32).collect::<std::collections::BTreeSet<_>>()
    };
    // The first round trip reads the first chunk. Then the last ones of each turn are slow, and in
    // a shared queue, whose WQEs are twice as long, those of each half.
    let shared = slow(&[], "srq");
    assert!(shared.contains(&15) && shared.contains(&31), "{shared:?}");
    assert!(shared.iter().all(|place| [0, 14, 15, 30, 31].contains(place)), "{shared:?}");
    let own = slow(&[], "own");
    assert!(own.contains(&31) && own.iter().all(|place| [0, 30, 31].contains(place)), "{own:?}");
    assert!(slow(&[("recv_chunk_bytes", 0.0)], "srq").is_empty(), "gone with its component");
}

/// potter2018: inline saves one read over the bus for small messages, and loses at the first size
/// that does not fit a write of the WQE to the adapter.
#[test]
fn inline_wins_while_the_wqe_fits_blue_flame_and_then_loses() {
    let profile = find("connectx4").unwrap();
    let gain = |profile: &Profile, size| {
        one_way_ns(profile, size, "off") - one_way_ns(profile, size, "on")
    };
    let read_ns = profile.parameters.bus_read_ns.ns();
    assert!((gain(&profile, "32") - read_ns).abs() < 25.0, "{}", gain(&profile, "32"));
    assert!(gain(&profile, "128") > 0.0 && gain(&profile, "256") < 0.0);
    // Without BlueFlame the WQE has to be read either way.
    let without = with("connectx4", &[("blue_flame", 0.0)]);
    assert!((gain(&without, "32") - read_ns).abs() < 25.0);
    let free = with("connectx4", &[("bus_read_ns", 0.0)]);
    assert!(gain(&free, "32") < 25.0, "{}", gain(&free, "32"));
}

/// potter2018's published medians, within the tolerances that it gives.
#[test]
fn the_values_that_connectx4_was_calibrated_with_come_out() {
    let profile = find("connectx4").unwrap();
    let busy = |inline: &str| one_way_ns(&profile, "32", inline);
    let event = {
        let options = [("messages", "100"), ("runs", "1"), ("inline", "off"), ("poll", "event")];
        median(&outcome(&profile, 2, Experiment::ONEWAY, &options), Quantity::OneWay)
    };
    let copied = {
        let options = [
            ("messages", "100"),
            ("runs", "1"),
            ("transport", "uc"),
            ("inline", "off"),
            ("stamps", "send,recv"),
        ];
        let found = outcome(&profile, 2, Experiment::ONEWAY, &options);
        median(&found, Quantity::OneWayFromCopy)
    };
    for (what, found, published, tolerance) in [
        ("inline.off.median", busy("off"), 1264.0, 0.03),
        ("inline.on.median", busy("on"), 906.0, 0.03),
        ("event.rc.median", event, 3608.0, 0.05),
        ("send_ts.median_from_send", copied, 726.0, 0.03),
    ] {
        let off = found / published - 1.0;
        assert!(off.abs() <= tolerance, "{what}: {found} ns, published {published} ns");
    }
}

/// potter2018: with busy polling a message after a pause of a second takes a fifth longer, and with
/// events more than twice as long.
#[test]
fn a_message_after_a_pause_is_slower() {
    let time = |poll: &str, pause: &str, post_cold_ns: f64| {
        let profile = with("connectx4", &[("post_cold_ns", post_cold_ns)]);
        let options = [
            ("messages", "50"),
            ("runs", "1"),
            ("inline", "off"),
            ("poll", poll),
            ("pause", pause),
        ];
        median(&outcome(&profile, 2, Experiment::ONEWAY, &options), Quantity::OneWay)
    };
    let calibrated = find("connectx4").unwrap().parameters.post_cold_ns.ns();
    // The published times with a pause are those without it, times 1.2 and 2.2.
    for (poll, published) in [("busy", 1269.0 * 1.2), ("event", 3608.0 * 2.2)] {
        let found = time(poll, "1s", calibrated);
        assert!((found / published - 1.0).abs() <= 0.05, "{poll}: {found} ns, not {published} ns");
    }
    let without = time("busy", "1s", 0.0) / time("busy", "0", 0.0);
    assert!((without - 1.0).abs() < 0.02, "without the part: {without}");
    // A pause below the bound costs nothing.
    let short = time("busy", "50us", calibrated) / time("busy", "0", calibrated);
    assert!((short - 1.0).abs() < 0.02, "after 50 us: {short}");
}

/// viertel2006: more queue pairs than contexts in the cache cost time for each peer.
#[test]
fn a_cache_of_contexts_costs_from_its_size_on() {
    let per_peer = |sets: f64, ranks: usize| {
        let profile = with(
            "ideal",
            &[("context_sets", sets), ("context_ways", 1.0), ("context_miss_ns", 3000.0)],
        );
        let options = [("messages", "20"), ("warm-up", "5")];
        let found = outcome(&profile, ranks, Experiment::FAN, &options);
        median(&found, Quantity::RoundTrip) / (ranks - 1) as f64
    };
    assert!(per_peer(8.0, 20) > per_peer(0.0, 20) + 1000.0);
    assert!((per_peer(64.0, 20) - per_peer(0.0, 20)).abs() < 1.0);
}

/// viertel2006: a multicast starts all READs of one adapter at once, so that each but the first
/// waits for those before it; after a message for each, they begin one after the other.
#[test]
fn reads_after_a_multicast_begin_at_once() {
    let gap_ns = 3000.0;
    let profile = with("infinihost", &[("read_answer_gap_ns", gap_ns)]);
    let longest = |ranks: usize, to: &str| {
        let options = [("op", "read"), ("to", to), ("size", "1"), ("messages", "20")];
        let found = outcome(&profile, ranks, Experiment::FAN, &options);
        assert_eq!(found.count("lost"), Some(0), "{:?}", found.counts);
        let of_it = |s: &&rdmalab_measure::Series| s.label == "n:1";
        found.series.iter().find(of_it).unwrap().counted().fold(f64::INFINITY, f64::min)
    };
    let (one, nine) = (longest(2, "group"), longest(10, "group"));
    // Times end with a look at the completion queue, which takes 60 ns.
    assert!((nine - one - 8.0 * gap_ns).abs() <= 60.0, "{one} ns of one, {nine} ns of nine");
    assert_eq!(longest(2, "each"), one);
    assert!(longest(10, "each") < nine - 2.0 * gap_ns);
}

/// Points that together use every part of an adapter.
const BATTERY: &[Case] = &[
    (
        Experiment::ONEWAY,
        2,
        &[("runs", "1"), ("poll", "event"), ("inline", "on"), ("pause", "1ms")],
    ),
    (
        Experiment::ONEWAY,
        2,
        &[("runs", "1"), ("inline", "off"), ("size", "4K"), ("stamps", "send,recv,comp")],
    ),
    (Experiment::PING, 2, &[("op", "read"), ("size", "64K")]),
    (Experiment::PING, 2, &[("op", "write"), ("size", "256"), ("inline", "on")]),
    (
        Experiment::BLAST,
        2,
        &[("size", "16"), ("list", "4"), ("inline", "on"), ("signal-every", "4")],
    ),
    (Experiment::BLAST, 2, &[("size", "32K"), ("op", "read"), ("outstanding-reads", "16")]),
    (Experiment::OVERHEAD, 2, &[]),
    (Experiment::MR, 2, &[]),
    (Experiment::CONNECT, 2, &[]),
    (Experiment::RECVQ, 2, &[("queue", "srq"), ("rx-depth", "32")]),
    (Experiment::RECVQ, 2, &[("queue", "own"), ("rx-depth", "32")]),
    (Experiment::TIMEOUT, 2, &[("timeout", "2")]),
    (Experiment::FAN, 9, &[]),
    (Experiment::FAN, 9, &[("op", "read")]),
    (Experiment::FAN, 9, &[("transport", "ud"), ("to", "group")]),
    // At the limits of the device.
    (Experiment::PING, 2, &[("size", "912"), ("inline", "on")]),
    (Experiment::BLAST, 2, &[("size", "16"), ("tx-depth", "16000")]),
    (Experiment::RECVQ, 2, &[("queue", "own"), ("max-sge", "32"), ("rx-depth", "32")]),
];

/// The results of the battery; a point that is refused counts with its reason.
fn battery(profile: &Profile) -> Vec<String> {
    let one = |(experiment, ranks, options): &Case| {
        let mut options = options.to_vec();
        if *experiment != Experiment::CONNECT {
            options.push(("messages", "100"));
        }
        let mut results = measured(profile, *ranks, *experiment, &options);
        format!("{:?}", results.swap_remove(0))
    };
    BATTERY.iter().map(one).collect()
}

#[test]
fn each_parameter_matters_somewhere() {
    // A model in which everything is switched on.
    let base = with(
        "connectx2",
        &[
            ("context_sets", 4.0),
            ("context_miss_ns", 100.0),
            ("wake_cold_ns", 9000.0),
            ("wake_cold_after_ns", 900_000.0),
            ("switch_between_two", 1.0),
            ("recv_stride_bytes", 32.0),
            ("mtu_bytes", 2048.0),
            ("ack_timeout_min_code", 3.0),
            ("interrupts_per_s", 1000.0),
            ("interrupt_ns", 2000.0),
            ("leaf_ports", 4.0),
            ("leaf_uplinks", 2.0),
        ],
    );
    let before = battery(&base);
    let mut idle = Vec::new();
    // Only queue pairs with messages of different lengths notice the length of a turn; see
    // `contention.rs`. No receive is late here; see
    // `a_wait_after_an_rnr_nak_is_as_long_as_the_adapter_makes_it`. All messages come from or go to
    // rank 0; see `messages_to_another_leaf_share_the_links_to_their_spine`.
    let elsewhere = ["turn_bytes", "rnr_wait_percent", "leaf_uplinks"];
    // `paging.rs` has the parameters of On-Demand Paging and packet damming, one by one.
    let of_paging = |name: &str| {
        name.starts_with("odp_") || name.starts_with("damming_") || name == "rnr_discards_responses"
    };
    let is_here = |name: &str| !elsewhere.contains(&name) && !of_paging(name);
    for parameter in Parameters::ALL.iter().filter(|found| is_here(found.name)) {
        let value = base.parameters.get(parameter.name).unwrap();
        // Another value nearby, or of two values the other.
        let other = match (parameter.is_whole, parameter.max) {
            (true, 1.0) => 1.0 - value,
            (true, _) if parameter.name.starts_with("max_") => value / 2.0,
            (true, _) if value * 2.0 <= parameter.max && value > 0.0 => value * 2.0,
            (true, _) => (value / 2.0).max(parameter.min),
            (false, _) => value * 1.5 + 500.0,
        };
        let changed = battery(&with_base(&base, parameter.name, other));
        if changed == before {
            idle.push(format!("{} = {other} instead of {value}", parameter.name));
        }
    }
    assert!(idle.is_empty(), "these change nothing: {idle:#?}");
}

fn with_base(base: &Profile, name: &str, value: f64) -> Profile {
    let mut profile = base.clone();
    profile.set(name, value).unwrap();
    profile
}
