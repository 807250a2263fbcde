//! `recvq`: each option, the samples of both ranks in order, and the search for a pattern.

use rdmalab_experiments::{Experiment, Limits, check};
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_testkit::programs;

use crate::two::{Table, at_both, device, measure, point};

const SMALL: &str = "messages=300 runs=2 warm-up=20";
const TOTAL: usize = 620;

fn trips<'a>(outcome: &'a Outcome, label: &str) -> &'a [f64] {
    let is_it = |s: &&rdmalab_measure::Series| s.label == label;
    let series = outcome.series.iter().find(is_it).expect("a series of each rank");
    assert_eq!((series.quantity, series.warm_up), (Quantity::RoundTrip, 20));
    &series.samples
}

#[test]
fn each_option_goes_through_and_both_ends_keep_all_trips() {
    let cases = "
        queue=own
        queue=srq
        op=send_imm
        op=write_imm
        queue=srq op=write_imm
        rx-depth=1 return-when=before
        rx-depth=1 return-when=after
        rx-depth=10000
        queue=srq rx-depth=16 max-sge=8
        max-sge=16
        regions=2
        regions=5 regions-by=turn
        regions=each queue=srq
        regions=each rx-depth=300
        return=all return-when=before
        return=all return-when=after
        return=half queue=srq
        return=7
        missing=1
        missing=31 return-when=before
        missing=1 return=all queue=srq
        pause=20us
        pause=20us pause-by=sleep
        poll=event
        size=100000 queue=srq
        size=1 inline=off
        memory=private
        signal-every=16 tx-depth=32
        rnr-retry=7 min-rnr-timer=5 return=all
    ";
    for case in cases.lines().map(str::trim).filter(|l| !l.is_empty()) {
        eprintln!("recvq {case}");
        let outcome = measure(&point(Experiment::RECVQ, &format!("{SMALL} {case}")));
        for label in ["rank 0", "rank 1"] {
            let trips = trips(&outcome, label);
            assert_eq!(trips.len(), TOTAL, "{case}");
            assert!(trips.iter().all(|t| *t > 0.0 && *t < 60e9), "{case}");
            let name = format!("pattern_{}", label.replace(' ', "_"));
            let said = outcome.fact(&name).expect("a pattern, or none");
            let period = outcome
                .figures
                .iter()
                .find(|f| f.quantity == Quantity::Period && f.label == label)
                .map(|f| f.value);
            match period {
                None => assert_eq!(said, "none"),
                Some(period) => assert!(said.starts_with(&format!("every {period}"))),
            }
        }
        assert_eq!(outcome.count("sent"), Some(TOTAL as u64));
        let shares = outcome.figures.iter().filter(|f| f.quantity == Quantity::CpuShare);
        assert_eq!(shares.count(), 2, "{case}");
    }
}

/// An artificial delay strikes every sixteenth message and exceeds most pauses of a busy machine.
/// Other pauses may hide it; the samples show if they do, and such a series is not judged. In the
/// others the search must find the delay with its full period, except in one run: with a few
/// pauses, about one series in a hundred is given half the period, and both ends' series have the
/// same pauses.
#[test]
fn what_strikes_at_each_sixteenth_message_is_found_at_both_ends() {
    let _turn = crate::turn();
    let point = point(Experiment::RECVQ, STRUCK);
    // Rank 1 waits twice per trip: for the message, and for the completion of its answer.
    let table = || Table { delay_ns: 3_000_000, delay_every: 32, ..Table::default() };
    let (mut judged, mut missed) = (0, Vec::new());
    for _ in 0..40 {
        let [here, there] = at_both(&table(), [&point, &point]);
        there.expect("rank 1 goes well");
        let outcome = here.expect("rank 0 goes well");
        let mut wrong = Vec::new();
        for label in ["rank 0", "rank 1"] {
            let series = outcome.series.iter().find(|s| s.label == label).expect("a series");
            if let Some(place) = struck_place(&series.samples) {
                judged += 1;
                wrong.extend(strike_is_found(&outcome, label, place).err());
            }
        }
        missed.extend((!wrong.is_empty()).then_some(wrong));
        assert!(missed.len() < 2, "{missed:?}");
        if judged >= 6 {
            return;
        }
    }
    let name = "what_strikes_at_each_sixteenth_message_is_found_at_both_ends";
    if judged == 0 && is_hidden_by_load(name) {
        return;
    }
    assert!(judged > 0, "of eighty series none was free of other pauses");
    assert!(judged > missed.iter().flatten().count(), "{missed:?}");
}

/// Whether the machine is too busy for this test to see anything; if so, prints that it is skipped.
fn is_hidden_by_load(test: &str) -> bool {
    let load = load_of_a_processor();
    let is_hidden = load > 3.0;
    if is_hidden {
        programs::skipped(test, format!("a load of {load} on each processor hides it"));
    }
    is_hidden
}

/// The load average per processor.
fn load_of_a_processor() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    load / std::thread::available_parallelism().map_or(1, usize::from) as f64
}

/// Without the artificial delay no peak of its height is ever found: pauses due to other programs
/// have no period, unless they hit most samples. (The device itself has a pattern: every 16, 64 or
/// 128 messages some work takes it microseconds.)
#[test]
fn what_does_not_strike_is_never_found() {
    let _turn = crate::turn();
    let mut judged = 0;
    for run in 0..40 {
        let outcome = measure(&point(Experiment::RECVQ, STRUCK));
        let mut trips = outcome.series.iter().filter(|s| s.quantity == Quantity::RoundTrip);
        if trips.any(|series| slow(&series.samples).count() * 100 > series.samples.len()) {
            continue;
        }
        let mut peaks = outcome.figures.iter().filter(|f| f.quantity == Quantity::PeakHeight);
        assert!(peaks.all(|f| !HEIGHTS.contains(&f.value)), "run {run}: {:?}", outcome.facts);
        judged += 1;
        if judged == 5 {
            return;
        }
    }
    if judged == 0 && is_hidden_by_load("what_does_not_strike_is_never_found") {
        return;
    }
    assert!(judged > 0, "of forty runs none was free of pauses");
}

/// The range of the peak that the delay makes, in nanoseconds.
const HEIGHTS: std::ops::Range<f64> = 2.5e6..60e6;
const STRUCK: &str = "messages=400 runs=1 warm-up=20 size=64";

/// Indices of the slow samples.
fn slow(samples: &[f64]) -> impl Iterator<Item = usize> {
    samples.iter().enumerate().filter(|(_, ns)| **ns > HEIGHTS.start / 2.0).map(|(i, _)| i)
}

/// The position within each sixteen samples, from the very first message, that is slow. `None` if
/// more than one sample in a hundred does not fit that.
fn struck_place(samples: &[f64]) -> Option<usize> {
    let mut found = [0; 16];
    slow(samples).for_each(|i| found[i % 16] += 1);
    let place = (0..16).max_by_key(|place| found[*place]).expect("places");
    let fast = (place..samples.len()).step_by(16).count() - found[place];
    let others = found.iter().sum::<usize>() - found[place] + fast;
    (others * 100 <= samples.len()).then_some(place)
}

/// Checks the pattern that was found; an error if its period is wrong.
fn strike_is_found(outcome: &Outcome, label: &str, place: usize) -> Result<(), String> {
    let of = |quantity| {
        let found = outcome.figures.iter().find(|f| f.quantity == quantity && f.label == label);
        found.unwrap_or_else(|| panic!("{label}: no {quantity} in {:?}", outcome.facts)).value
    };
    // The device may add a pattern with a longer period.
    let period = of(Quantity::Period);
    if period % 16.0 != 0.0 {
        return Err(format!("{label}: a period of {period}"));
    }
    let height = of(Quantity::PeakHeight);
    assert!(HEIGHTS.contains(&height), "{label}: {height}");
    let said = outcome.fact(&format!("pattern_{}", label.replace(' ', "_"))).expect("a fact");
    let turns = (0..period as usize / 16).map(|turn| format!(" at {}", place + 16 * turn));
    assert!(turns.into_iter().any(|at| said.contains(&at)), "{said}: {place}");
    Ok(())
}

#[test]
fn what_a_queue_cannot_be_is_said_before() {
    let context = device().open().expect("the soft device opens");
    let limits = Limits::query(&context, 1).expect("limits");
    let too_much = format!("max-sge={}", limits.max_srq_sge + 1);
    for (options, start) in [
        ("transport=uc", "--transport uc"),
        ("op=write", "--op write"),
        ("missing=32", "--missing 32"),
        ("missing=31 return=2", "--return 2"),
        ("regions=33", "--regions 33"),
        ("rx-depth=16384 size=1G", "--rx-depth 16384"),
        (&format!("queue=srq {too_much}"), "--max-sge"),
    ] {
        let said =
            check(&point(Experiment::RECVQ, options), &limits).expect_err(options).to_string();
        assert!(said.starts_with(start), "{options}: {said}");
    }
    assert_eq!(check(&point(Experiment::RECVQ, "missing=31 return=all"), &limits), Ok(()));
}
