//! The fabric: switches on the way, and links that messages share.

use rdmalab_experiments::Experiment;
use rdmalab_measure::{Quantity, Stamp};
use rdmalab_rank::Rank;
use rdmalab_verbs::{RecvRequest, SendRequest};

use crate::lab::{Shape, connect_to, lab, measured, model, outcome, wait};

/// Fast processors, so that the fabric is what takes time.
const FABRIC: [(&str, f64); 3] =
    [("link_mb_per_s", 1000.0), ("switch_ns", 100.0), ("propagation_ns", 10.0)];

fn round_trip_ns(changes: &[(&str, f64)]) -> f64 {
    let options = [("messages", "20"), ("warm-up", "2"), ("transport", "uc")];
    let profile = model(&[&FABRIC, changes].concat());
    let found = outcome(&profile, 2, Experiment::PING, &options);
    let trips = found.series.iter().find(|series| series.quantity == Quantity::RoundTrip).unwrap();
    trips.counted().fold(f64::MAX, f64::min)
}

#[test]
fn each_switch_on_the_way_adds_its_time() {
    let one = round_trip_ns(&[("switch_between_two", 1.0)]);
    let direct = round_trip_ns(&[]);
    let tree = round_trip_ns(&[("leaf_ports", 1.0), ("leaf_uplinks", 2.0)]);
    // Both ways; a switch cuts through, and has one more cable.
    let (first, second) = (one - direct, tree - one);
    assert!((first - 2.0 * 110.0).abs() <= 2.0, "a switch: {first} ns");
    assert!((second - 2.0 * 2.0 * 110.0).abs() <= 2.0, "two more: {second} ns");
}

/// Ranks 0 and 1 of one leaf send to ranks 2 and 3 of another one at the same time; returns how
/// long the slower one takes, ns.
fn crossing_ns(uplinks: f64) -> f64 {
    const BYTES: usize = 1 << 20;
    let shape = [("leaf_ports", 2.0), ("leaf_uplinks", uplinks)];
    let (simulation, device) = lab(&model(&[&FABRIC[..], &shape].concat()), 4);
    let (results, _) = simulation.run(|rank| {
        let shape = Shape { bytes: BYTES, ..Shape::default() };
        let end = connect_to(rank, &device, shape, (rank.index() + 2) % 4);
        let sges = [end.mr.sge(0, BYTES)];
        if rank.index() >= 2 {
            end.qp.post_recv(&[RecvRequest::new(&sges)]).unwrap();
        }
        rank.barrier()?;
        let begin = rank.now();
        if rank.index() >= 2 {
            wait(rank, &end.recv_cq);
        } else {
            end.qp.post_send(&[SendRequest::send(&sges).signaled()]).unwrap();
            wait(rank, &end.send_cq);
        }
        let Stamp(took) = Stamp(rank.now().0 - begin.0);
        rank.barrier()?;
        Ok(took)
    });
    results.into_iter().map(|took| took.unwrap() as f64 / 1e3).fold(0.0, f64::max)
}

#[test]
fn messages_to_another_leaf_share_the_links_to_their_spine() {
    let (shared, apart) = (crossing_ns(1.0), crossing_ns(2.0));
    let alone_ns = (1 << 20) as f64;
    assert!((apart / alone_ns - 1.0).abs() < 0.01, "{apart} ns by links of their own");
    // By turns of 64 KiB, so that both end within one of them.
    assert!((shared / alone_ns - 2.0).abs() < 0.07, "{shared} ns by one link");
}

#[test]
fn a_multicast_reaches_all_leaves() {
    let options = [("transport", "ud"), ("to", "group"), ("messages", "50")];
    for (ports, uplinks) in [(0.0, 0.0), (4.0, 2.0), (3.0, 1.0), (1.0, 0.0)] {
        let shape = [("leaf_ports", ports), ("leaf_uplinks", uplinks)];
        let profile = model(&[&FABRIC[..], &shape].concat());
        for (rank, found) in measured(&profile, 10, Experiment::FAN, &options).iter().enumerate() {
            let found = found.as_ref().unwrap_or_else(|why| panic!("rank {rank}: {why}"));
            assert_eq!(found.cut_short, None);
            if rank == 0 {
                assert_eq!(found.count("lost"), Some(0), "{ports} {uplinks}");
            }
        }
    }
}
