//! Experiments on single calls, memory and connections.

use rdmalab_experiments::{Experiment, Point};
use rdmalab_measure::{Outcome, Quantity, Series};

use crate::two::{Table, at_both, measure, point, refused};

fn series<'a>(outcome: &'a Outcome, label: &str) -> &'a Series {
    let found = outcome.series.iter().find(|s| s.label == label);
    found.unwrap_or_else(|| panic!("no {label} in {outcome:?}"))
}

fn median(outcome: &Outcome, label: &str) -> f64 {
    let mut samples: Vec<f64> = series(outcome, label).counted().collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn each(experiment: Experiment, cases: &str, see: impl Fn(&Point, &Outcome)) {
    for case in cases.lines().map(str::trim).filter(|l| !l.is_empty()) {
        eprintln!("{experiment} {case}");
        let point = point(experiment, case);
        let outcome = measure(&point);
        for series in &outcome.series {
            assert!(series.counted().all(|s| (0.0..60e9).contains(&s)), "{case}: {}", series.label);
        }
        assert_eq!(outcome.fact("device_kind"), Some("soft"));
        assert!(outcome.fact("stamp_cost_ns").is_some());
        see(&point, &outcome);
    }
}

/// The calls that `overhead` measures.
const CALLS: [&str; 4] = ["post_send", "post_recv", "poll_cq, hit", "poll_cq, miss"];

#[test]
fn overhead_with_each_option() {
    let cases = "
        messages=200 runs=2 warm-up=20 list=1
        messages=200 runs=2 warm-up=20 list=16 op=write
        messages=200 runs=2 warm-up=20 list=4 op=read outstanding-reads=4
        messages=200 runs=2 warm-up=20 list=4 op=fetch_add size=8 outstanding-reads=4
        messages=200 runs=2 warm-up=20 list=256
        messages=200 runs=2 warm-up=20 list=3 op=write_imm transport=uc
        messages=200 runs=2 warm-up=0 list=5 op=send_imm transport=ud rx-depth=10
        messages=200 runs=2 warm-up=20 list=7 inline=off memory=private size=5000 touch=no
    ";
    each(Experiment::OVERHEAD, cases, |point, outcome| {
        let all = (point.common.messages * 2 + point.common.warm_up) as usize;
        for label in ["nothing, two stamps", "post_send", "post_recv"] {
            let found = series(outcome, label);
            assert_eq!((found.samples.len(), found.warm_up), (all, point.common.warm_up as usize));
        }
        let hits = series(outcome, "poll_cq, hit").samples.len();
        let partial = outcome.count("partial_polls").unwrap() as usize;
        assert_eq!((hits + partial, hits > 0), (all / 2, true), "{point:?}");
        assert_eq!(series(outcome, "whole list").samples.len(), all / 2);
        assert_eq!(outcome.count("sent"), Some((all as u64) * u64::from(point.common.list)));
        // Each call takes at least as long as two time stamps with nothing between them.
        let holds = |outcome: &Outcome| {
            let nothing = median(outcome, "nothing, two stamps");
            CALLS.iter().all(|call| median(outcome, call) >= nothing)
        };
        // A poll of an empty CQ costs so little more that a processor which slows down between the
        // two measurements can reverse the order. So try once more.
        assert!(holds(outcome) || holds(&measure(point)), "{point:?}");
    });
}

#[test]
fn a_longer_list_costs_more() {
    let of =
        |list: u32| measure(&point(Experiment::OVERHEAD, &format!("messages=500 list={list}")));
    let (one, many) = (of(1), of(200));
    for call in ["post_send", "post_recv", "poll_cq, hit"] {
        let (one, many) = (median(&one, call), median(&many, call));
        assert!(many > 2.0 * one, "{call}: {one} ns for one, {many} ns for 200");
    }
}

#[test]
fn mr_registers_and_copies() {
    let cases = "
        messages=50 runs=2 warm-up=5 size=4096
        messages=50 runs=2 warm-up=5 size=1
        messages=20 runs=1 warm-up=0 size=100K memory=device touch=no
    ";
    each(Experiment::MR, cases, |point, outcome| {
        let all = point.common.total() as usize;
        for label in ["register", "deregister", "copy"] {
            assert_eq!(series(outcome, label).samples.len(), all);
        }
        let [a, b, both] = ["register", "deregister", "register + deregister"]
            .map(|label| series(outcome, label).samples[0]);
        assert!((a + b - both).abs() < 0.01 * both);
    });
    let copy = |size: &str| {
        let text = format!("messages=20 warm-up=2 size={size}");
        median(&measure(&point(Experiment::MR, &text)), "copy")
    };
    let (small, large) = (copy("4K"), copy("16M"));
    assert!(large > 100.0 * small, "{small} ns for 4 KiB, {large} ns for 16 MiB");
}

#[test]
fn connections_are_made_one_by_one_and_together() {
    let cases = "
        qps=1 runs=3
        qps=5 runs=2 list=2 tx-depth=4 rx-depth=4
        qps=40 runs=2 list=all by=plain
        qps=1000 runs=1 list=100 tx-depth=2 rx-depth=2
        qps=3 runs=2 transport=uc gid-index=1 mtu=1024 sl=2
    ";
    each(Experiment::CONNECT, cases, |point, outcome| {
        let all = u64::from(point.common.qps) * point.common.runs;
        assert_eq!(outcome.count("connections"), Some(all));
        for step in ["create + INIT", "RTR + RTS", "destroy"] {
            assert_eq!(series(outcome, step).samples.len() as u64, all, "{step}");
        }
        let list = if point.common.list == 0 { point.common.qps } else { point.common.list };
        let lists = u64::from(point.common.qps.div_ceil(list)) * point.common.runs;
        assert_eq!(series(outcome, "of a list, until it is used").samples.len() as u64, lists);
        let rate = outcome.figures.iter().find(|f| f.quantity == Quantity::Rate).unwrap().value;
        let whole: f64 = series(outcome, "of a list, until it is used").samples.iter().sum();
        assert!((rate * whole / 1e9 - all as f64).abs() < 1e-6 * all as f64);
    });
}

#[test]
fn connections_are_made_by_the_manager_too() {
    let cases = "
        by=rdma_cm qps=1 runs=3
        by=rdma_cm qps=5 runs=2 list=2 tx-depth=4 rx-depth=4
        by=rdma_cm qps=300 runs=1 list=all min-rnr-timer=1
        by=rdma_cm qps=1000 runs=1 list=100 tx-depth=2 rx-depth=2
    ";
    each(Experiment::CONNECT, cases, |point, outcome| {
        let all = u64::from(point.common.qps) * point.common.runs;
        assert_eq!(outcome.count("connections"), Some(all));
        assert_eq!(outcome.fact("by"), Some("rdma_cm"));
        for step in ["address", "route", "request until established", "disconnect", "destroy"] {
            let samples = &series(outcome, step).samples;
            assert_eq!(samples.len() as u64, all, "{step}");
            assert!(samples.iter().all(|ns| *ns > 0.0), "{step}");
        }
        let list = if point.common.list == 0 { point.common.qps } else { point.common.list };
        let whole = &series(outcome, "of a list, until it is used").samples;
        assert_eq!(
            whole.len() as u64,
            u64::from(point.common.qps.div_ceil(list)) * point.common.runs
        );
        let rate = outcome.figures.iter().find(|f| f.quantity == Quantity::Rate).unwrap().value;
        assert!((rate * whole.iter().sum::<f64>() / 1e9 - all as f64).abs() < 1e-6 * all as f64);
    });
    // GID 0 is link-local, so it is no address to which a connection manager can connect.
    let point = point(Experiment::CONNECT, "by=rdma_cm gid-index=0");
    let [said, _] = at_both(&Table::default(), [&point, &point]);
    let said = said.expect_err("no address").to_string();
    assert!(said.contains("choose another --gid-index"), "{said}");
}

#[test]
fn a_time_out_is_what_its_code_says() {
    let cases = "
        messages=3 timeout=8 retry-cnt=0
        messages=3 timeout=8 retry-cnt=3
        messages=2 runs=2 timeout=12 retry-cnt=1 limit=30s
        messages=2 timeout=1 retry-cnt=7 gid-index=1
        messages=2 timeout=8 retry-cnt=1 absent=lid
    ";
    each(Experiment::TIMEOUT, cases, |point, outcome| {
        let nominal_ns = (4096u64 << point.common.timeout) as f64;
        let each = series(outcome, "T_o");
        assert_eq!(each.samples.len() as u64, point.common.messages * point.common.runs);
        // No request fails before its time-out.
        assert!(each.samples.iter().all(|ns| *ns >= nominal_ns), "{nominal_ns}: {each:?}");
        let whole = &series(outcome, "until it fails").samples;
        let attempts = f64::from(point.common.retry_cnt) + 1.0;
        assert!((whole[0] - attempts * each.samples[0]).abs() < 1.0);
        let told = outcome.figures.iter().find(|f| f.quantity == Quantity::Timeout).unwrap();
        assert_eq!(told.value, nominal_ns);
    });
}

/// Such a time-out is a finding about the device: it neither ends a sweep nor repeats the point.
#[test]
fn a_time_out_beyond_the_limit_is_an_outcome() {
    let point = point(Experiment::TIMEOUT, "messages=3 timeout=8 retry-cnt=0 limit=20ms");
    let table = Table { is_slow: true, ..Table::default() };
    let [here, there] = at_both(&table, [&point, &point]);
    there.expect("rank 1 goes well");
    let outcome = here.expect("rank 0 goes well");
    assert_eq!(outcome.cut_short, None);
    let counts = ["failed", "longer_than_limit"].map(|name| outcome.count(name));
    assert_eq!(counts, [Some(0), Some(1)]);
    assert!(outcome.warnings[0].contains("did not fail within 0.020 s"), "{outcome:?}");
    assert!(series(&outcome, "T_o").samples.is_empty());
}

#[test]
fn trials_have_all_their_operations() {
    let cases = "
        op=read
        op=write operations=70 size=300 qps=3 runs=3
        op=send operations=9 qps=4 interval=20us
        op=read second-op=send operations=3 second-page=other warm=but_first runs=2
        op=send second-op=read operations=40 warm=but_first size=1000 qps=2 outstanding-reads=2
        op=write operations=1 size=1M runs=1
    ";
    let each_on = |point: &Point, outcome: &Outcome| {
        let number = |name| point.get(name).unwrap().parse::<u64>().unwrap();
        let (runs, operations) = (point.common.runs, number("operations"));
        let of = |quantity, label: &str| {
            let mut all = outcome.series.iter();
            let found = all.find(|s| s.quantity == quantity && s.label == label);
            found.map_or(0, |series| series.counted().count() as u64)
        };
        assert_eq!(of(Quantity::ExecutionTime, "trials"), runs);
        assert_eq!(of(Quantity::CompletionTime, ""), runs * operations);
        let pages = (0..99).map(|page| of(Quantity::ExecutionTime, &format!("page {page}")));
        let of_pages = if operations < 32 { 0 } else { runs * operations };
        assert_eq!(pages.sum::<u64>(), of_pages);
        let counts = ["trials", "failed", "flushed"].map(|name| outcome.count(name));
        assert_eq!(counts, [Some(runs), Some(0), Some(0)]);
        // The pauses between the posts are part of the execution time.
        let least_ns = (number("interval") * (operations - 1)) as f64;
        assert!(outcome.series[0].counted().all(|ns| ns >= least_ns), "{outcome:?}");
    };
    let cases = cases.lines().map(|case| match case.trim() {
        "" => String::new(),
        case => format!("fault=none {case}\n"),
    });
    each(Experiment::ODP, &cases.collect::<String>(), each_on);
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    refused(&[
        (Experiment::ODP, "", "soft0 has no on-demand paging"),
        (Experiment::ODP, "fault=client", "--profile connectx4"),
        (Experiment::ODP, "fault=none op=send_imm", "choose one of these"),
        (Experiment::ODP, "fault=none timeout=0", "choose 1 to 31"),
        (Experiment::ODP, "fault=none operations=1 second-op=read", "--operations 2 or more"),
        (Experiment::ODP, "fault=none operations=1 second-page=other", "--operations 2 or more"),
        (Experiment::ODP, "fault=none warm=but_first", "choose --second-page other"),
        (Experiment::ODP, "fault=none warm=but_first size=4096", ""),
        (Experiment::ODP, "fault=none operations=16384", ""),
        (Experiment::ODP, "fault=none operations=16385", "or more --qps"),
        (Experiment::ODP, "fault=none operations=16385 qps=2", ""),
        (Experiment::ODP, "fault=none operations=1M qps=100 runs=1000", "the limit is"),
        (Experiment::ODP, "fault=none outstanding-reads=17", "at most 16 outstanding READs"),
        (Experiment::ODP, "fault=none op=write outstanding-reads=17", ""),
        (Experiment::TIMEOUT, "timeout=0", "0 disables the time-out"),
        (Experiment::TIMEOUT, "timeout=31", "or a --limit above 17593s"),
        (Experiment::TIMEOUT, "timeout=20 retry-cnt=7", ""),
        (Experiment::TIMEOUT, "timeout=20 retry-cnt=7 limit=20s", "choose fewer --retry-cnt"),
        (Experiment::TIMEOUT, "timeout=27 retry-cnt=7", "a --limit above 4399s"),
        (Experiment::TIMEOUT, "absent=lid gid-index=0", "choose queue_pair"),
        (Experiment::CONNECT, "by=rdma_cm transport=uc", "choose --transport rc"),
        (Experiment::CONNECT, "transport=ud", "no connection"),
        (Experiment::OVERHEAD, "list=all", "lists have a fixed length here"),
        (Experiment::OVERHEAD, "list=400", "--rx-depth 800"),
        (Experiment::OVERHEAD, "list=600 op=write", "larger --tx-depth"),
        (Experiment::OVERHEAD, "op=write_read", "write_read posts twice"),
        (Experiment::MR, "size=1M", ""),
        (Experiment::RPC, "call=write transport=uc", "choose --transport rc"),
        (Experiment::RPC, "size=1G", "memory is limited to"),
    ]);
}
