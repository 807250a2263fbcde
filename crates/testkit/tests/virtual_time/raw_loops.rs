//! Loops that a program makes itself, around the clock or a poll: they are right, and reported if
//! they are slow to simulate.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_sim::{RawLoop, Report, SimRank, find};
use rdmalab_verbs::{Cq, SendRequest, Wc};

use crate::lab::{Shape, connect, lab};

/// A way to wait until a time, in ps.
type Way = fn(&SimRank, u64) -> Result<(), Stopped>;

/// A millisecond, much more than a look takes.
const LONG_NS: u64 = 1_000_000;

/// Rank 1 waits in a way for a message that rank 0 posts late: at which time it found it, in ps,
/// and what was reported.
fn found_at(wait: impl Fn(&SimRank, &Cq) -> Result<Wc, Stopped>) -> (u64, Report) {
    let (simulation, device) = lab(&find("connectx4").unwrap(), 2);
    let (results, report) = simulation.run(|rank| {
        let end = connect(rank, &device, Shape::default());
        if rank.index() == 0 {
            rank.think(LONG_NS)?;
            let sges = [end.mr.sge(0, 8)];
            let write = SendRequest::write(&sges, &end.peer, 0).with_imm(7);
            end.qp.post_send(&[write.signaled()]).unwrap();
            crate::lab::wait(rank, &end.send_cq);
        } else {
            end.qp.post_recv(&[rdmalab_verbs::RecvRequest::new(&[])]).unwrap();
            wait(rank, &end.recv_cq)?;
        }
        Ok(rank.now().0)
    });
    (*results[1].as_ref().unwrap(), report)
}

#[test]
fn a_loop_around_a_poll_finds_the_same_at_the_same_time_and_is_reported() {
    let look = |cq: &Cq| cq.poll_one().unwrap();
    let (spun, report) = found_at(|rank, cq| rank.spin(|| look(cq)));
    assert_eq!(report.raw_loops, []);
    let raw = |_: &SimRank, cq: &Cq| loop {
        if let Some(found) = look(cq) {
            return Ok(found);
        }
    };
    let (looped, report) = found_at(raw);
    assert_eq!(looped, spun);
    let [RawLoop { rank: 1, call, calls }] = &report.raw_loops[..] else { panic!("{report:?}") };
    assert_eq!(call, "a poll that found nothing");
    assert!(*calls > 10_000, "{report:?}");
    // One that spins without time, again and again.
    let slices = |rank: &SimRank, cq: &Cq| loop {
        if let Some(found) = rank.spin_for(0, || look(cq))? {
            return Ok(found);
        }
    };
    let (sliced, report) = found_at(slices);
    assert_eq!((sliced, report.raw_loops.len()), (spun, 1));
}

#[test]
fn a_loop_around_the_clock_ends_in_time_and_is_reported() {
    // The bare loop, a look that takes stamps, and the word for it.
    let ways: [Way; 3] = [
        |rank, until_ps| {
            while rank.now().0 < until_ps {}
            Ok(())
        },
        |rank, until_ps| rank.spin(|| (rank.now().0 >= until_ps).then_some(())),
        |rank, until_ps| rank.busy_until(rdmalab_measure::Stamp(until_ps), || Ok(false)).map(drop),
    ];
    for (index, way) in ways.into_iter().enumerate() {
        let (simulation, _) = lab(&find("connectx4").unwrap(), 1);
        let (results, report) = simulation.run(|rank| {
            let begin = rank.now().0;
            way(rank, begin + LONG_NS * 1000)?;
            // One stamp more.
            Ok(rank.now().0 - begin)
        });
        let took_ns = results[0].clone().unwrap() as f64 / 1e3;
        let stamp_ns = find("connectx4").unwrap().parameters.stamp_ns.ns();
        let late_ns = took_ns - LONG_NS as f64;
        assert!((0.0..=2.0 * stamp_ns).contains(&late_ns), "{index}: {late_ns} ns late");
        match &report.raw_loops[..] {
            [] => assert_eq!(index, 2),
            [RawLoop { rank: 0, call, .. }] => {
                assert_eq!((call.as_str(), index < 2), ("`now`", true))
            }
            other => panic!("{index}: {other:?}"),
        }
    }
}

/// What is looked for in memory takes time too, so that a loop around it ends.
#[test]
fn a_loop_of_looks_at_memory_without_time_ends() {
    let (simulation, _) = lab(&find("connectx4").unwrap(), 1);
    let (results, report) = simulation.run(|rank| {
        for _ in 0..20_000 {
            rank.spin_for(0, || None::<()>)?;
        }
        Ok(())
    });
    assert_eq!(results, [Ok(())]);
    assert!(report.time.ns() >= 20_000.0, "{report:?}");
    assert_eq!(report.raw_loops[0].call, "`spin_for` without time");
}

/// The cost of a stamp is measured by many in a row.
#[test]
fn stamps_to_know_their_cost_are_no_loop() {
    let (simulation, _) = lab(&find("connectx4").unwrap(), 1);
    let (_, report) = simulation.run(|rank| {
        rank.stamp_cost(50_000);
        rank.think(1)
    });
    assert_eq!(report.raw_loops, []);
}
