//! On-Demand Paging in virtual time: what a fault costs is what the adapter's parameters say, and
//! packet damming and the flood come from mechanisms that can be switched off.

use rdmalab_rank::Rank;
use rdmalab_sim::{Profile, SimRank, Simulation};
use rdmalab_verbs::{Device, SendRequest};

use crate::lab::{Endpoint, Shape, connect, device_of, lab, model};

/// The pause after an RNR NAK of the usual code, 12.
const RNR_NS: f64 = 640_000.0;
/// T_tr of the usual time-out code, 14.
const T_TR_NS: f64 = 67_108_864.0;
/// Bytes of a message.
const BYTES: usize = 100;

/// Whose memory is paged on demand: that of rank 0, which posts, and that of rank 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Paged {
    client: bool,
    server: bool,
}

const NONE: Paged = Paged { client: false, server: false };
const CLIENT: Paged = Paged { client: true, server: false };
const SERVER: Paged = Paged { client: false, server: true };

#[derive(Clone, Copy, Debug)]
enum Op {
    Read,
    Write,
}

/// An adapter with these parameters, of which a page takes 100 us to come.
fn adapter(changes: &[(&str, f64)]) -> Profile {
    let usual = [("odp_resolve_ns", 100_000.0), ("odp_repeat_ns", 500_000.0)];
    let calls = [("post_ns", 100.0), ("mmio_ns", 200.0)];
    model(&[&usual, &calls, changes].concat())
}

/// Rank 0 posts requests, request i on queue pair i modulo `qps` and at offset 100 i, each after a
/// pause from the one before. Returns when each one completed after the first post, ns.
fn completed_ns(profile: &Profile, paged: Paged, qps: usize, posts: &[(Op, u64)]) -> Vec<f64> {
    completed_in(lab(profile, 2), paged, qps, posts)
}

/// The same in this simulation of two ranks.
fn completed_in(
    (simulation, device): (Simulation, Device),
    paged: Paged,
    qps: usize,
    posts: &[(Op, u64)],
) -> Vec<f64> {
    let (results, _) = simulation.run(|rank| {
        let on_demand = if rank.index() == 0 { paged.client } else { paged.server };
        let bytes = posts.len() * BYTES;
        // Each queue pair has memory of its own.
        let ends: Vec<Endpoint> = (0..qps)
            .map(|_| connect(rank, &device, Shape { bytes, on_demand, ..Shape::default() }))
            .collect();
        match rank.index() {
            0 => {
                let times = post_all(rank, &ends, posts);
                rank.barrier()?;
                Ok(times)
            }
            _ => {
                rank.barrier()?;
                Ok(Vec::new())
            }
        }
    });
    results.into_iter().next().unwrap().unwrap_or_else(|why| panic!("{paged:?}: {why}"))
}

fn post_all(rank: &SimRank, ends: &[Endpoint], posts: &[(Op, u64)]) -> Vec<f64> {
    let begin = rank.now();
    let mut times = vec![f64::NAN; posts.len()];
    let mut left = posts.len();
    let look = |rank: &SimRank, times: &mut Vec<f64>| {
        let found = ends.iter().find_map(|end| end.send_cq.poll_one().unwrap());
        let wc = found?;
        assert!(wc.is_ok(), "{wc:?}");
        times[wc.wr_id() as usize] = rank.clock().ns_between(begin, rank.now());
        Some(())
    };
    for (index, (op, pause_ns)) in posts.iter().enumerate() {
        let until = rank.clock().ns_between(begin, rank.now()) as u64 + pause_ns;
        loop {
            let now = rank.clock().ns_between(begin, rank.now()) as u64;
            let Some(rest) = until.checked_sub(now).filter(|rest| *rest > 0) else { break };
            if rank.spin_for(rest, || look(rank, &mut times)).unwrap().is_some() {
                left -= 1;
            }
        }
        let (end, at) = (&ends[index % ends.len()], index * BYTES);
        let sges = [end.mr.sge(at, BYTES)];
        let request = match op {
            Op::Read => SendRequest::read(&sges, &end.peer, at as u64),
            Op::Write => SendRequest::write(&sges, &end.peer, at as u64),
        };
        end.qp.post_send(&[request.wr_id(index as u64).signaled()]).unwrap();
    }
    while left > 0 {
        rank.spin(|| look(rank, &mut times)).unwrap();
        left -= 1;
    }
    times
}

fn one(profile: &Profile, paged: Paged, op: Op) -> f64 {
    completed_ns(profile, paged, 1, &[(op, 0)])[0]
}

/// The parts of a time are added up within some looks of the processor and the adapter's own time.
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 3_000.0, "{found} ns instead of {expected} ns");
}

#[test]
fn a_fault_at_the_server_costs_the_nak_and_the_pause() {
    let plain = one(&adapter(&[]), NONE, Op::Read);
    assert!(plain < 3_000.0);
    for (op, delay) in [(Op::Read, "odp_read_nak_ns"), (Op::Write, "odp_nak_ns")] {
        near(one(&adapter(&[]), SERVER, op), RNR_NS);
        near(one(&adapter(&[(delay, 90_000.0)]), SERVER, op), 90_000.0 + RNR_NS);
        near(one(&adapter(&[("rnr_wait_percent", 300.0)]), SERVER, op), 3.0 * RNR_NS);
        // A page that takes longer is asked for again and again.
        near(one(&adapter(&[("odp_resolve_ns", 1_000_000.0)]), SERVER, op), 2.0 * RNR_NS);
    }
    // The answer comes with the page, and nobody has to ask again; but an adapter may discard it.
    let serves = ("odp_serves_faulted_reads", 1.0);
    near(one(&adapter(&[serves]), SERVER, Op::Read), 100_000.0);
    let discards = adapter(&[serves, ("rnr_discards_responses", 1.0)]);
    near(one(&discards, SERVER, Op::Read), RNR_NS);
}

#[test]
fn a_fault_at_the_client_repeats_a_read_and_holds_back_a_write() {
    near(one(&adapter(&[]), CLIENT, Op::Read), 500_000.0);
    near(one(&adapter(&[("odp_repeat_ns", 80_000.0)]), CLIENT, Op::Read), 160_000.0);
    near(one(&adapter(&[]), CLIENT, Op::Write), 100_000.0);
    // The second access finds the page.
    let twice = completed_ns(&adapter(&[]), CLIENT, 1, &[(Op::Write, 0), (Op::Write, 300_000)]);
    near(twice[1], 300_000.0);
}

#[test]
fn an_adapter_without_on_demand_paging_refuses_the_region() {
    let (simulation, device) = lab(&model(&[]), 2);
    let (results, _) = simulation.run(|_| {
        let pd = device.open().unwrap().alloc_pd().unwrap();
        let buffer = rdmalab_verbs::Buffer::private(4096).unwrap();
        let refused = pd.register(&buffer, rdmalab_verbs::Access::ON_DEMAND).map(drop);
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("has no On-Demand Paging"), "{why}");
        Ok(())
    });
    assert!(results.iter().all(Result::is_ok));
}

/// What the adapter of fukuoka2021 does, in small: a READ that is served when its page comes, but
/// whose response is discarded, so that the repeated request is served once more.
const DAMMING: [(&str, f64); 3] =
    [("odp_serves_faulted_reads", 1.0), ("rnr_discards_responses", 1.0), ("damming_ns", 50_000.0)];

#[test]
fn a_read_that_is_posted_during_the_pause_is_dammed() {
    let two = |profile: &Profile, pause_ns| {
        completed_ns(profile, SERVER, 1, &[(Op::Read, 0), (Op::Read, pause_ns)])[1]
    };
    let adapter_with = |left_out: &str| {
        let changes: Vec<_> = DAMMING.into_iter().filter(|(name, _)| *name != left_out).collect();
        adapter(&changes)
    };
    let dams = adapter_with("");
    // It leaves behind the repeated READ, and arrives while that is served: nobody says so.
    near(two(&dams, 300_000), RNR_NS + 50_000.0 + T_TR_NS);
    // Posted after the pause it is answered at once; together with the first it is repeated too.
    near(two(&dams, 1_000_000), 1_000_000.0);
    // Without any one of the parts there is no time-out.
    for (name, _) in DAMMING {
        assert!(two(&adapter_with(name), 300_000) < 2.0 * RNR_NS, "{name}");
    }
}

#[test]
fn a_later_request_reveals_what_was_dammed() {
    let third = |pause_ns| {
        let posts = [(Op::Read, 0), (Op::Read, 300_000), (Op::Read, pause_ns)];
        completed_ns(&adapter(&DAMMING), SERVER, 1, &posts)[2]
    };
    // It arrives after the service: a NAK for the sequence error, and all is sent again.
    near(third(700_000), 1_000_000.0);
    // It is lost with the second one.
    assert!(third(200_000) > T_TR_NS);
}

/// An adapter of the model and the quirk of `--faults` are one rule: what one of them loses, the
/// other one loses as well.
#[test]
fn the_quirk_loses_what_the_component_loses() {
    /// Both serve a repeated READ for 50 us; the range of a quirk is not empty.
    const QUIRK: &str = "damming 50us..50001ns";
    /// A rule for nothing.
    const UNMET: &str = "drop of atomic";
    let read = |pause_ns| (Op::Read, pause_ns);
    let two = [read(0), read(300_000)];
    let three = [read(0), read(300_000), read(700_000)];
    let all_three = [read(0), read(300_000), read(200_000)];
    // (Name, whose page is missing, other rules, posts, time-outs that the last post waits for.)
    let sequences: [(_, _, _, &[(Op, u64)], f64); 7] = [
        ("a page of the server", SERVER, "", &two, 1.0),
        ("revealed", SERVER, "", &three, 0.0),
        ("not revealed", SERVER, "", &all_three, 1.0),
        ("a page of the client", CLIENT, "", &two, 1.0),
        // The third response to the first READ is dropped: both READs are repeated again.
        ("lost twice", SERVER, "; drop nth 2 of read-response", &two, 2.0),
        ("an RNR NAK of a rule", NONE, "; rnr-nak nth 1 of read", &two, 1.0),
        ("nothing", NONE, "", &two, 0.0),
    ];
    let component = adapter(&DAMMING);
    let mut quirk = component.clone();
    quirk.set("damming_ns", 0.0).unwrap();
    for (name, paged, rules, posts, time_outs) in sequences {
        let times = [(&component, UNMET), (&quirk, QUIRK)].map(|(profile, damming)| {
            let simulation = Simulation::new(profile, 2, Default::default());
            let simulation = simulation.with_faults(&format!("{damming}{rules}"), 0).unwrap();
            let device = device_of(&simulation);
            completed_in((simulation, device), paged, 1, posts)
        });
        for (of_component, of_quirk) in times[0].iter().zip(&times[1]) {
            assert!((of_component - of_quirk).abs() < 3_000.0, "{name}: {times:?}");
        }
        let waited = (times[0].last().unwrap() / T_TR_NS).floor();
        assert_eq!(waited, time_outs, "{name}: {times:?}");
    }
}

#[test]
fn queue_pairs_with_a_fault_context_learn_of_the_page_one_by_one() {
    let finished = |contexts| {
        let profile = adapter(&[
            ("odp_fault_contexts", contexts),
            ("odp_resume_ns", 2_000_000.0),
            ("odp_repeat_ns", 500_000.0),
        ]);
        let mut times = completed_ns(&profile, CLIENT, 16, &[(Op::Read, 0); 16]);
        times.sort_by(f64::total_cmp);
        times
    };
    let without = finished(0.0);
    assert!(without[15] < 600_000.0, "{without:?}");
    let flooded = finished(4.0);
    // Twelve find the page at their first repetition; the others wait for their own resume.
    assert!(flooded[11] < 600_000.0, "{flooded:?}");
    for (place, time) in flooded[12..].iter().enumerate() {
        let resumed = 100_000.0 + 2_000_000.0 * (place + 1) as f64;
        assert!((resumed..resumed + 510_000.0).contains(time), "{place}: {flooded:?}");
    }
}

#[test]
fn pages_that_come_at_random_times_differ_by_seed_only() {
    let profile = adapter(&[("odp_resolve_mean_ns", 300_000.0), ("odp_repeat_ns", 10_000.0)]);
    assert!(profile.parameters.has_paging_noise() && !profile.parameters.has_noise());
    assert_eq!(first_read_ns(&profile, 1), first_read_ns(&profile, 1));
    assert_ne!(first_read_ns(&profile, 1), first_read_ns(&profile, 2));
    // The service of the repeated READ is drawn, too.
    let changes = [&DAMMING[..], &[("damming_mean_ns", 20_000.0)]].concat();
    let dams = adapter(&changes);
    assert_ne!(first_read_ns(&dams, 1), first_read_ns(&dams, 2));
}

/// When a READ to a server whose page is missing completes, ns.
fn first_read_ns(profile: &Profile, seed: u64) -> f64 {
    let (simulation, device) = lab(profile, 2);
    let (results, _) = simulation.with_seed(seed).run(|rank| {
        let on_demand = rank.index() == 1;
        let end = connect(rank, &device, Shape { on_demand, ..Shape::default() });
        let times = match rank.index() {
            0 => post_all(rank, std::slice::from_ref(&end), &[(Op::Read, 0)]),
            _ => Vec::new(),
        };
        rank.barrier()?;
        Ok(times)
    });
    results.into_iter().next().unwrap().unwrap()[0]
}
