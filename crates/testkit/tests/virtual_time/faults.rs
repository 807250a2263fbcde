//! Faults and the timers of reliable connections in virtual time: what a disturbed packet costs is
//! what the rule and the adapter's timers say.

use rdmalab_experiments::{Experiment, sweep};
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_sim::{Profile, SHIPPED, Simulation, find};

use crate::lab::{device_of, model, outcome, run_point_on};

/// The results of rank 0 under fault rules.
fn disturbed(profile: &Profile, rules: &str, options: &[(&str, &str)]) -> Outcome {
    timed(profile, rules, options).0
}

/// The results of rank 0 under fault rules, and the virtual time of the run, ns.
fn timed(profile: &Profile, rules: &str, options: &[(&str, &str)]) -> (Outcome, f64) {
    let points = sweep(Experiment::PING, options).unwrap();
    let simulation = Simulation::new(profile, 2, Default::default());
    let simulation = simulation.with_faults(rules, 0).unwrap();
    let device = device_of(&simulation);
    let run = |rank: &_| rdmalab_experiments::run(rank, &device, &points[0]);
    let (mut outcomes, report) = simulation.run(run);
    (outcomes.remove(0).unwrap(), report.time.ns())
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
        assert!((plain + 1e3..=2.0 * T_TR_NS).contains(&scanned), "{rules}: {scanned} ns");
    }
}

/// A lost datagram costs the time that `--lost-after` names, and its round trip has no time.
#[test]
fn a_lost_datagram_is_waited_for_as_long_as_asked() {
    let profile = find("connectx4").unwrap();
    let found = |lost_after| {
        let unreliable = [("transport", "ud"), ("lost-after", lost_after)];
        timed(&profile, "drop nth 6 of send", &[&TEN[..], &unreliable].concat())
    };
    let [short, long] = ["1ms", "3ms"].map(found);
    // One message in each direction.
    let lost = |of: &Outcome| of.counts.iter().find(|c| c.name == "lost").unwrap().value;
    assert_eq!((lost(&short.0), lost(&long.0)), (2, 2));
    let added = long.1 - short.1;
    let look = 4.0 * profile.parameters.poll_empty_ns.ns();
    assert!((added - 4e6).abs() <= look, "{added} ns for two waits that are 2 ms longer");
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

/// The only thing that a rule changes is what it meets: packets move one by one, and still a turn
/// of a long message takes the engines once.
#[test]
fn a_rule_that_meets_nothing_changes_nothing() {
    for (name, _) in SHIPPED {
        let profile = find(name).unwrap();
        for (op, size, mtu) in
            [("send", "32", "0"), ("write", "256K", "256"), ("read", "100K", "0")]
        {
            let short = [("messages", "5"), ("warm-up", "1")];
            let options = [&[("op", op), ("size", size), ("mtu", mtu)][..], &short].concat();
            let plain = range_ns(&outcome(&profile, 2, Experiment::PING, &options)).0;
            let ruled = range_ns(&disturbed(&profile, "drop nth 9999999 of send", &options)).0;
            let off = ruled / plain - 1.0;
            // Where two turns meet, single packets overlap a little more.
            assert!(off.abs() < 0.03, "{name} {op} {size}: {plain} and {ruled} ns");
        }
    }
}

/// More packets than rules remember, each of which may be lost again and again.
#[test]
fn long_messages_arrive_in_spite_of_losses() {
    let options = [("op", "write"), ("size", "1M"), ("mtu", "256"), ("messages", "20")];
    let options = [&options[..], &[("warm-up", "0"), ("timeout", "1")]].concat();
    let mut profile = find("connectx4").unwrap();
    profile.set("ack_timeout_min_code", 0.0).unwrap();
    let found = disturbed(&profile, "seed=7; drop 0.1% of request", &options);
    assert_eq!((found.cut_short.as_deref(), found.count("sent")), (None, Some(20)));
}

#[test]
fn many_delayed_packets_wait_and_none_is_lost() {
    let profile = find("connectx4").unwrap();
    let options = [("op", "write"), ("size", "32M"), ("messages", "3"), ("warm-up", "0")];
    let options = [&options[..], &[("transport", "uc")]].concat();
    let plain = range_ns(&outcome(&profile, 2, Experiment::PING, &options)).1;
    let delayed = range_ns(&disturbed(&profile, "delay 5ms of request", &options)).1;
    let added = delayed - plain;
    assert!((added / 10e6 - 1.0).abs() < 0.02, "{added} ns for two delays of 5 ms");
}

#[test]
fn each_repetition_and_each_connection_meets_other_faults() {
    let options = [("messages", "200"), ("warm-up", "0")];
    let point = sweep(Experiment::PING, &options).unwrap().remove(0);
    let profile = find("connectx4").unwrap();
    let of = |repetition| {
        let point = point.clone().repeated(repetition);
        let stream = point.common.stream;
        let change = |simulation: Simulation| simulation.with_faults("drop 2%", stream).unwrap();
        let found = run_point_on(&profile, 2, &point, change).remove(0).unwrap();
        let series = found.series.iter().find(|s| s.quantity == Quantity::RoundTrip).unwrap();
        series.counted().collect::<Vec<_>>()
    };
    assert_eq!(of(0), of(0));
    assert_ne!(of(0), of(1));
    // A connection's packets are a flow of their own, also if the one before has ended.
    let point = sweep(Experiment::CONNECT, &[("runs", "20")]).unwrap().remove(0);
    let simulation = Simulation::new(&profile, 2, Default::default());
    let simulation = simulation.with_faults("drop first of write", 0).unwrap();
    let device = device_of(&simulation);
    let (_, report) = simulation.run(|rank| rdmalab_experiments::run(rank, &device, &point));
    assert!(report.disturbed.iter().sum::<u64>() >= 20, "{:?}", report.disturbed);
}
