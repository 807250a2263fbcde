//! Every option works, and each message sent is counted.

use rdmalab_experiments::{Experiment, Inline, Memory, Op, Point, Transport, options};
use rdmalab_measure::{Outcome, Quantity};

use crate::two::{measure, point};

/// Few messages, a warm-up and two runs: the first options of all these tests.
const SMALL: &str = "messages=300 runs=2 warm-up=20";
/// The number of messages with these options.
const TOTAL: usize = 620;

fn series(outcome: &Outcome, quantity: Quantity) -> &rdmalab_measure::Series {
    let found = outcome.series.iter().find(|s| s.quantity == quantity);
    found.unwrap_or_else(|| panic!("no {quantity} in {outcome:?}"))
}

fn assert_sound(point: &Point, outcome: &Outcome) {
    let is_lossy = point.common.transport != Transport::Rc;
    if !is_lossy && outcome.count("lost").is_some() {
        assert_eq!(outcome.count("lost"), Some(0), "{point:?}");
    }
    for name in ["duplicated", "reordered", "strays"] {
        assert!(matches!(outcome.count(name), None | Some(0)), "{name} of {point:?}");
    }
    for series in &outcome.series {
        let mut counted = series.counted();
        assert!(counted.all(|s| s > 0.0 && s < 60e9), "{} {}", series.quantity, series.label);
    }
    for fact in ["device_kind", "placement", "inline_granted_bytes", "stamp_cost_ns", "port"] {
        assert!(outcome.fact(fact).is_some(), "{fact}");
    }
    assert_eq!(outcome.fact("link_layer"), Some("InfiniBand"), "where no interface is named");
    assert_eq!(outcome.fact("device_kind"), Some("soft"));
    assert_granted(point, outcome);
    let shares = outcome.figures.iter().filter(|f| f.quantity == Quantity::CpuShare);
    assert_eq!(shares.count(), 2, "{point:?}");
}

/// Checks that the run used the options that it was given.
fn assert_granted(point: &Point, outcome: &Outcome) {
    let fact = |name| outcome.fact(name).expect("a fact");
    match point.common.inline {
        Inline::On => assert_eq!(fact("inline"), "yes"),
        Inline::Off => assert_eq!(fact("inline"), "no"),
        Inline::Bytes(most) => {
            assert_eq!(fact("inline") == "yes", point.common.size_bytes <= most.into());
        }
        Inline::Auto => {}
    }
    let mtu_bytes = if point.common.mtu_bytes == 0 { 4096 } else { point.common.mtu_bytes };
    assert_eq!(fact("mtu_bytes"), mtu_bytes.to_string());
    assert_eq!(fact("gid") != "none", point.common.gid_index.is_some());
    assert_eq!(fact("placement").contains("foreign"), point.common.memory == Memory::Private);
}

fn try_each(experiment: Experiment, cases: &str, check: impl Fn(&Point, &Outcome)) {
    for case in cases.lines().map(str::trim).filter(|l| !l.is_empty()) {
        eprintln!("{experiment} {case}");
        let point = point(experiment, &format!("{SMALL} {case}"));
        let outcome = measure(&point);
        assert_sound(&point, &outcome);
        check(&point, &outcome);
    }
}

#[test]
fn oneway_with_each_option() {
    let cases = "
        op=send_imm pause=0
        op=send pause=0
        op=write pause=0
        op=write_imm pause=0
        op=write pause=0 size=9
        op=send transport=uc
        op=send_imm transport=uc
        op=write transport=uc
        op=write_imm transport=uc
        op=send transport=ud
        op=send_imm transport=ud
        op=send_imm transport=ud size=4096 inline=off
        op=send_imm inline=on pause=0
        op=send_imm inline=off pause=0
        op=send_imm inline=100 size=101
        op=send_imm signal-every=max pause=0 tx-depth=50
        op=write signal-every=7 pause=0 tx-depth=50
        op=send_imm poll-send=event
        op=send_imm poll-recv=event
        op=send_imm poll=event pause=0
        op=send_imm poll=event pause=0 transport=uc
        op=send_imm poll=event transport=ud
        op=send_imm burst=30 pause=1000
        op=send_imm burst=30 pause=0
        op=send_imm burst=100 pause=2ms
        op=send_imm pause=1000 pause-by=sleep
        op=send_imm pause=5500 pause-by=spin touch=no
        op=send_imm stamps=send,recv,comp,post inline=off
        op=write_imm stamps=send,recv,comp pause=0
        op=write_imm stamps=send,recv transport=uc
        op=send_imm stamps=send,recv transport=ud
        op=send_imm size=32K pause=0 rx-depth=8
        op=write size=1M pause=0 rx-depth=3 tx-depth=2
        op=send size=100K pause=0 rx-depth=1 tx-depth=1
        op=send_imm memory=private mtu=256 size=1000 pause=0
        op=send_imm gid-index=1 sl=3 port=1 seed=9 timeout=18 retry-cnt=3 rnr-retry=6
        op=send_imm flow=none rx-depth=2 tx-depth=4 min-rnr-timer=1 pause=0
    ";
    try_each(Experiment::ONEWAY, cases, |point, outcome| {
        assert_eq!(outcome.count("sent"), Some(TOTAL as u64));
        // An expectation of the user applies to the first series of the experiment.
        assert_eq!(outcome.series[0].quantity, Quantity::OneWay);
        let t_lat = series(outcome, Quantity::OneWay);
        assert_eq!((t_lat.samples.len(), t_lat.warm_up), (TOTAL, 20));
        let lost = outcome.count("lost").unwrap() as usize;
        assert_eq!(t_lat.samples.iter().filter(|s| s.is_nan()).count(), lost);
        let stamps = point.get("stamps").expect("an option of it");
        if stamps.contains("comp")
            && point.common.signal_every == rdmalab_experiments::Signal::Every(1)
        {
            let t_comp = series(outcome, Quantity::CompletionTime);
            assert_eq!((t_comp.samples.len(), t_comp.warm_up), (TOTAL, 20));
        }
        if stamps.contains("send") {
            let from_copy = series(outcome, Quantity::OneWayFromCopy);
            assert_eq!(from_copy.samples.len(), TOTAL);
        }
    });
}

#[test]
fn ping_with_each_option() {
    let cases = "
        op=send
        op=send_imm
        op=write
        op=write_imm
        op=read
        op=write_read
        op=write_read unsignalled=read
        op=write_read unsignalled=neither
        op=write_read unsignalled=write poll-send=event
        op=write_read unsignalled=read poll=event
        op=read poll=event
        op=fetch_add size=8
        op=cmp_swap size=8 poll=event qps=2
        op=send poll=event
        op=write_imm poll-recv=event
        op=send poll-send=event
        op=write poll-send=event
        op=send transport=uc
        op=send transport=ud size=1
        op=send_imm transport=ud poll=event
        op=write transport=uc size=1
        op=write_imm transport=uc
        op=send inline=on size=200
        op=send inline=off
        op=write inline=off size=1 signal-every=max tx-depth=3
        op=send signal-every=10
        op=send pause=1000
        op=read pause=1000 pause-by=sleep outstanding-reads=4
        op=send size=100K mtu=1024
        op=send memory=private
        op=read memory=private size=4096
        op=send tx-depth=1 rx-depth=1
        op=send gid-index=0 touch=no
        op=send sge=4
        op=write_read sge=3 size=1000 inline=off
    ";
    try_each(Experiment::PING, cases, |point, outcome| {
        let trips = series(outcome, Quantity::RoundTrip);
        assert_eq!((trips.samples.len(), trips.warm_up), (TOTAL, 20));
        assert_eq!(outcome.count("sent"), Some(TOTAL as u64));
        let half = outcome.figures.iter().find(|f| f.quantity == Quantity::HalfRoundTrip);
        assert_eq!(half.is_some(), !point.common.op.reads());
        if let Some(half) = half {
            let mean = trips.counted().sum::<f64>() / trips.counted().count() as f64;
            assert!((half.value * 2.0 - mean).abs() < 1e-6 * mean);
        }
    });
}

#[test]
fn blast_with_each_option() {
    let cases = "
        op=send
        op=send_imm
        op=write
        op=write_imm
        op=read
        op=read outstanding-reads=1 size=100
        op=fetch_add size=8
        op=cmp_swap size=8 outstanding-reads=1 qps=2 signal-every=8
        op=send buffers=1
        op=write buffers=1 size=8
        op=write list=8 size=64
        op=write list=all size=64
        op=send list=33 size=64 rx-depth=33
        op=write_imm signal-every=32 size=16
        op=write signal-every=max size=16 list=48
        op=send qps=5 buffers=17 size=64 rx-depth=10
        op=write_imm qps=3 list=4 signal-every=max size=64
        op=read qps=2 size=64
        op=send poll=event size=64
        op=write poll=event
        op=read poll=event
        op=send transport=uc size=64
        op=write transport=uc size=64
        op=write_imm transport=uc size=64
        op=send transport=ud size=64
        op=send_imm transport=ud size=64 rx-depth=16
        op=send transport=ud size=64 qps=2 poll=event
        op=send_imm transport=ud size=64 flow=none
        op=send size=64 flow=none rx-depth=8 min-rnr-timer=1
        op=send size=64 stamp-every=100
        op=write size=64 stamp-every=100
        op=send inline=on size=64 memory=private
        op=send size=256K buffers=4 tx-depth=4
        op=send size=1 mtu=256 gid-index=1 sl=1
        op=write_imm sge=32 size=1000
    ";
    try_each(Experiment::BLAST, cases, |point, outcome| {
        assert_eq!(outcome.count("sent"), Some(600));
        let of = |quantity| {
            let found = outcome.figures.iter().find(|f| f.quantity == quantity);
            found.unwrap_or_else(|| panic!("no {quantity}")).value
        };
        let (rate, bandwidth) = (of(Quantity::Rate), of(Quantity::Bandwidth));
        assert!(rate > 0.0 && (bandwidth / rate - point.common.size_bytes as f64).abs() < 1e-3);
        assert!((of(Quantity::MessageTime) * rate / 1e9 - 1.0).abs() < 1e-9);
        let runs = outcome.series.iter().find(|s| s.label == "runs").expect("a sample a run");
        assert_eq!(runs.samples.len(), 2);
        let silent = matches!(point.common.op, Op::Write | Op::Read | Op::FetchAdd | Op::CmpSwap);
        let counts_there = !silent;
        let at = if counts_there { "receiver" } else { "sender" };
        assert_eq!(outcome.fact("counted_at"), Some(at));
        if counts_there && point.common.transport == Transport::Rc {
            assert_eq!(outcome.count("received"), Some(600));
        }
        let stamp_every = point.get("stamp-every").expect("an option of it");
        if stamp_every != "0" {
            let label = format!("every {stamp_every}");
            let found = outcome.series.iter().find(|s| s.label == label).expect("stamps");
            assert!((4..=6).contains(&found.samples.len()), "{}", found.samples.len());
        }
    });
}

/// What arrives is as it was sent, with each operation.
#[test]
fn an_intact_payload_is_not_called_damaged() {
    let check = |_: &Point, outcome: &Outcome| {
        assert_eq!(outcome.count("damaged"), Some(0));
        assert!(outcome.warnings.iter().any(|text| text.starts_with("--verify")), "{outcome:?}");
    };
    let ping = "
        verify=yes op=send qps=2
        verify=yes op=send_imm transport=ud size=16
        verify=yes op=write size=1000
        verify=yes op=write_imm transport=uc
        verify=yes op=read qps=2
        verify=yes op=write_read unsignalled=read size=333
        verify=yes op=fetch_add size=8 qps=2
        verify=yes op=cmp_swap size=8
    ";
    try_each(Experiment::PING, ping, check);
    let blast = "
        verify=yes op=send size=100 list=8 qps=2
        verify=yes op=send_imm transport=ud size=64 rx-depth=16
        verify=yes op=send size=5001 buffers=4 rx-depth=3 threads=2
        verify=yes op=send transport=uc size=64 bidirectional=yes
        verify=yes op=send transport=ud size=16 rate=100000
    ";
    try_each(Experiment::BLAST, blast, check);
}

/// Both ends count what they sent and received.
#[test]
fn both_directions_at_once() {
    let cases = "
        bidirectional=yes op=send size=64 rx-depth=10
        bidirectional=yes op=write_imm qps=3 list=4 signal-every=max size=64
        bidirectional=yes op=write buffers=1 size=8
        bidirectional=yes op=read
        bidirectional=yes op=fetch_add size=8
        bidirectional=yes op=send transport=uc size=64
        bidirectional=yes op=send_imm transport=ud size=64 rx-depth=16
        bidirectional=yes op=send flow=none rx-depth=8 min-rnr-timer=1 size=64
    ";
    try_each(Experiment::BLAST, cases, |point, outcome| {
        assert_eq!(outcome.count("sent"), Some(1200));
        let of = |quantity, label| {
            let mut all = outcome.figures.iter();
            let found = all.find(|f| f.quantity == quantity && f.label == label);
            found.unwrap_or_else(|| panic!("no {quantity} {label}")).value
        };
        for quantity in [Quantity::Rate, Quantity::Bandwidth] {
            // Both together take the time of the slower one.
            let each = [of(quantity, "0 to 1"), of(quantity, "1 to 0")];
            let most = (each[0] + each[1]) * 1.000_001;
            assert!(of(quantity, "") > 0.0 && of(quantity, "") <= most, "{outcome:?}");
        }
        let runs = outcome.series.iter().find(|s| s.label == "runs").expect("a sample a run");
        assert_eq!(runs.samples.len(), 2);
        let arrive = (!point.common.op.is_unnoticed()).then_some(1200);
        if point.common.transport == Transport::Rc {
            assert_eq!(outcome.count("received"), arrive);
        } else {
            let came = outcome.count("received").unwrap() + outcome.count("lost").unwrap();
            assert_eq!(Some(came), arrive);
        }
    });
}

/// How many messages fit the time depends on the machine: the number is the same everywhere in a
/// result.
#[test]
fn a_time_decides_how_many_messages_a_run_has() {
    for (experiment, options) in [
        (Experiment::PING, "duration=20ms runs=2 warm-up=7"),
        (Experiment::BLAST, "duration=20ms runs=3 warm-up=7 size=64 op=send"),
        (Experiment::ONEWAY, "duration=20ms runs=2 warm-up=0 pause=0"),
        (Experiment::PING, "duration=20ms runs=1 warm-up=0 threads=2 rate=1000"),
    ] {
        let point = point(experiment, options);
        let outcome = measure(&point);
        let of_a_run: u64 = outcome.fact("messages_of_a_run").unwrap().parse().unwrap();
        let threads = u64::from(point.common.threads);
        let counted = of_a_run * point.common.runs;
        let warm_up = if experiment == Experiment::BLAST { 0 } else { point.common.warm_up };
        assert_eq!(outcome.count("sent"), Some((counted + warm_up) * threads), "{options}");
        let is_short = |text: &String| text.starts_with("--duration");
        assert!(!outcome.warnings.iter().any(is_short), "{outcome:?}");
    }
}

/// Fails if an option is missing in the lists above. `--link` and `--sim` work on simulated devices
/// only, so the command's tests use them.
#[test]
fn no_option_is_forgotten() {
    let text = [
        include_str!("options.rs"),
        include_str!("calls.rs"),
        include_str!("loads.rs"),
        include_str!("recvq.rs"),
        include_str!("fan.rs"),
        include_str!("process.rs"),
        include_str!("../../../cli/tests/simulated.rs"),
    ]
    .concat();
    for option in options() {
        let name = option.name;
        let is_used =
            [format!("{name}="), format!("\"--{name}\"")].iter().any(|it| text.contains(it));
        assert!(is_used, "no test uses --{name}");
    }
}
