//! Faults and the timers of reliable connections in virtual time: what a disturbed packet costs is
//! what the rule and the adapter's timers say.

use rdmalab_experiments::{Experiment, sweep};
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_sim::{Profile, find};

use crate::lab::{device_of, model, outcome};

/// The results of rank 0 under fault rules.
fn disturbed(profile: &Profile, rules: &str, options: &[(&str, &str)]) -> Outcome {
    let points = sweep(Experiment::PING, options).unwrap();
    let simulation = rdmalab_sim::Simulation::new(profile, 2, Default::default());
    let simulation = simulation.with_faults(rules).unwrap();
    let device = device_of(&simulation);
    let run = |rank: &_| rdmalab_experiments::run(rank, &device, &points[0]);
    simulation.run(run).0.remove(0).unwrap()
}

const TEN: [(&str, &str); 5] =
    [("messages", "10"), ("warm-up", "2"), ("size", "32"), ("timeout", "4"), ("retry-cnt", "7")];
/// T_tr of code 4, ns.
const T_TR_NS: f64 = 65_536.0;

/// The shortest and the longest round trip, ns.
fn range_ns(outcome: &Outcome) -> (f64, f64) {
    let series = outcome.series.iter().find(|s| s.quantity == Quantity::RoundTrip).unwrap();
    let samples = series.counted();
    samples.fold((f64::MAX, 0.0), |(least, most), ns| (least.min(ns), f64::max(most, ns)))
}

#[test]
fn a_delay_of_packets_adds_itself() {
    let profile = find("connectx4").unwrap();
    let plain = range_ns(&outcome(&profile, 2, Experiment::PING, &TEN)).0;
    let delayed = range_ns(&disturbed(&profile, "delay 3us of send", &TEN)).0;
    let added = delayed - plain;
    // A poll that finds nothing may end up to its time later, at each end.
    let look = 2.0 * profile.parameters.poll_empty_ns.ns();
    assert!((added - 6_000.0).abs() <= look, "{added} ns for two delays of 3 us");
}

/// The longest round trip, one of whose packets is lost, over the shortest one.
fn cost_of_loss_ns(profile: &Profile, rules: &str) -> f64 {
    let (least, most) = range_ns(&disturbed(profile, rules, &TEN));
    most - least
}

#[test]
fn a_lost_request_costs_the_time_out_of_the_adapter() {
    // Rules count the packets of each flow: the sixth message is lost in both directions.
    for rules in ["drop nth 6 of send", "corrupt nth 6 of send"] {
        let of = |changes: &[(&str, f64)]| {
            let all = [&[("post_ns", 100.0), ("mmio_ns", 200.0)], changes].concat();
            cost_of_loss_ns(&model(&all), rules) / 2.0
        };
        let plain = of(&[]);
        assert!((plain - T_TR_NS).abs() < 1_000.0, "{rules}: {plain} ns");
        let least = of(&[("ack_timeout_min_code", 6.0)]);
        assert!((least - 4.0 * T_TR_NS).abs() < 1_000.0, "{rules}: {least} ns");
        // Smaller codes than that of the queue pair change nothing.
        assert_eq!(of(&[("ack_timeout_min_code", 3.0)]), plain, "{rules}");
        let scanned = of(&[("ack_timeout_scan", 1.0)]);
        assert!((T_TR_NS..=2.0 * T_TR_NS).contains(&scanned), "{rules}: {scanned} ns");
    }
}

/// The time-out that `timeout` finds: of the first attempt and of all.
#[test]
fn the_least_code_of_an_adapter_is_seen_by_its_experiment() {
    let t_o_ns = |profile: &Profile, code: &str| {
        let options = [("messages", "20"), ("timeout", code), ("retry-cnt", "7")];
        let found = outcome(profile, 2, Experiment::TIMEOUT, &options);
        let series = found.series.iter().find(|s| s.quantity == Quantity::Timeout).unwrap();
        series.counted().sum::<f64>() / series.counted().count() as f64
    };
    let profile = find("connectx4").unwrap();
    assert_eq!(profile.parameters.ack_timeout_min_code, 16);
    let t_tr_ns = |code: u32| 4096.0 * f64::from(1u32 << code);
    for (code, acts_like) in [("1", 16), ("16", 16), ("18", 18)] {
        let ratio = t_o_ns(&profile, code) / t_tr_ns(acts_like);
        assert!((1.5..=2.0).contains(&ratio), "code {code}: T_o is {ratio} T_tr({acts_like})");
    }
    let mut without = profile;
    without.set("ack_timeout_min_code", 0.0).unwrap();
    without.set("ack_timeout_scan", 0.0).unwrap();
    let ratio = t_o_ns(&without, "1") / t_tr_ns(1);
    assert!((1.0..1.5).contains(&ratio), "gone with its component: {ratio}");
}

#[test]
fn a_wait_after_an_rnr_nak_is_as_long_as_the_adapter_makes_it() {
    let wait_ns = |percent| {
        let profile = model(&[("rnr_wait_percent", percent)]);
        cost_of_loss_ns(&profile, "rnr-nak nth 6 of send")
    };
    let (plain, twice, thrice) = (wait_ns(100.0), wait_ns(200.0), wait_ns(300.0));
    let (second, third) = (twice - plain, thrice - twice);
    assert!(second > 5_000.0 && (second - third).abs() < 5.0, "{plain} {twice} {thrice} ns");
    assert!((plain - second).abs() < 1_000.0, "the wait itself: {plain}, {second} ns");
}
