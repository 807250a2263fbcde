//! The experiment `odp` on simulated adapters: a fault costs what the adapter says, and a time-out
//! is counted where one is.

use rdmalab_experiments::Experiment;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_sim::Profile;

use crate::lab::{measured, model, outcome};

/// An adapter whose pages come after 100 us, and which loses requests while it serves a READ again.
fn adapter(damming_ns: f64) -> Profile {
    model(&[
        ("odp_resolve_ns", 100_000.0),
        ("odp_repeat_ns", 500_000.0),
        ("odp_serves_faulted_reads", 1.0),
        ("rnr_discards_responses", 1.0),
        ("damming_ns", damming_ns),
        ("post_ns", 100.0),
        ("mmio_ns", 200.0),
    ])
}

fn odp(profile: &Profile, options: &[(&str, &str)]) -> Outcome {
    let usual = [("size", "100"), ("runs", "3"), ("timeout", "10"), ("min-rnr-timer", "14")];
    outcome(profile, 2, Experiment::ODP, &[&usual, options].concat())
}

/// The execution times, ns.
fn times_ns(found: &Outcome) -> Vec<f64> {
    let series = found.series.iter().find(|s| s.quantity == Quantity::ExecutionTime);
    series.expect("execution times").counted().collect()
}

#[test]
fn each_trial_faults_anew_where_it_is_asked_to() {
    let profile = adapter(0.0);
    let of = |fault: &str| times_ns(&odp(&profile, &[("fault", fault), ("operations", "1")]));
    let [none, client, server] = ["none", "client", "server"].map(of);
    for times in [&none, &client, &server] {
        assert_eq!(times.len(), 3, "{times:?}");
    }
    assert!(none.iter().all(|ns| *ns < 100_000.0), "{none:?}");
    assert!(client.iter().all(|ns| (500_000.0..600_000.0).contains(ns)), "{client:?}");
    // The RNR code 14 is 1.28 ms.
    assert!(server.iter().all(|ns| (1_280_000.0..1_400_000.0).contains(ns)), "{server:?}");
}

#[test]
fn a_lost_request_is_counted_as_a_time_out() {
    let two = [("fault", "both"), ("interval", "1ms")];
    let counted = |found: &Outcome| found.count("trials_with_time_out");
    let (lost, kept) = (odp(&adapter(80_000.0), &two), odp(&adapter(0.0), &two));
    assert_eq!((counted(&lost), counted(&kept)), (Some(3), Some(0)));
    let share = |found: &Outcome| {
        let figure = found.figures.iter().find(|f| f.quantity == Quantity::TimeoutShare);
        figure.map(|figure| figure.value)
    };
    assert_eq!((share(&lost), share(&kept)), (Some(1.0), Some(0.0)));
    // Nothing has failed, and T_tr of the code 10 is in each of these times.
    assert_eq!(lost.count("failed"), Some(0));
    assert!(times_ns(&lost).iter().all(|ns| *ns > 4_194_304.0), "{lost:?}");
    // When the second one is posted after all that, nothing is lost.
    let later = odp(&adapter(80_000.0), &[("fault", "both"), ("interval", "3ms")]);
    assert_eq!(counted(&later), Some(0));
}

#[test]
fn a_page_that_is_warm_does_not_fault() {
    let profile = adapter(0.0);
    let with = |warm: &'static str| {
        let apart = [("second-page", "other"), ("interval", "2ms"), ("op", "write")];
        let found = odp(&profile, &[&apart[..], &[("fault", "server"), ("warm", warm)]].concat());
        let each = found.series.iter().find(|s| s.quantity == Quantity::CompletionTime);
        each.expect("completion times").samples.clone()
    };
    let is_fault = |ns: &f64| *ns > 1_280_000.0;
    let faults = |samples: &[f64]| samples.iter().map(is_fault).collect::<Vec<_>>();
    assert_eq!(faults(&with("none")), [true; 6]);
    assert_eq!(faults(&with("but_first")), [true, false, true, false, true, false]);
}

#[test]
fn a_request_that_fails_is_counted_and_the_next_trial_goes_on() {
    let options = [("fault", "server"), ("rnr-retry", "0"), ("operations", "3"), ("op", "write")];
    let found = odp(&adapter(0.0), &options);
    assert_eq!(
        ["trials", "failed", "flushed"].map(|name| found.count(name)),
        [Some(3), Some(3), Some(6)]
    );
    assert!(times_ns(&found).is_empty());
    assert!(found.warnings.iter().any(|said| said.contains("failed after all retries")));
}

#[test]
fn an_adapter_without_paging_is_refused() {
    let results = measured(&model(&[]), 2, Experiment::ODP, &[("fault", "client")]);
    for result in results {
        let why = result.expect_err("no paging").to_string();
        assert!(why.contains("has no on-demand paging"), "{why}");
    }
}
