//! Thousands of queue pairs in one process, made and destroyed by many threads.

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use support::node::*;

const THREADS: usize = 64;
const PAIRS_PER_THREAD: usize = 79;

const SMALL: Setup = Setup {
    cap: QpCap {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    },
    cqe: 2,
    ..Setup::new(QpType::Rc)
};

/// All 10 112 queue pairs exist at one time. Half of them write to their peers within the process,
/// so that each destruction has a peer to wait for. With `--nocapture` it prints what a destruction
/// took.
#[test]
fn ten_thousand_are_made_used_and_destroyed_by_64_threads() {
    let node = Node::open(0);
    let mem = node.mem(THREADS * PAIRS_PER_THREAD * 8, Kind::Heap);
    let all_made = Barrier::new(THREADS);
    let (total_ns, longest_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (node, mem, all_made) = (&node, &mem, &all_made);
            let (total_ns, longest_ns) = (&total_ns, &longest_ns);
            scope.spawn(move || {
                let (send_cq, recv_cq) = (node.cq(2, None, 1), node.cq(2, None, 2));
                let make = || node.endpoint_on(&SMALL, &send_cq, &recv_cq, None);
                let pairs: Vec<[Endpoint; 2]> =
                    (0..PAIRS_PER_THREAD).map(|_| [make(), make()]).collect();
                all_made.wait();
                for (index, [first, second]) in pairs.iter().enumerate() {
                    first.connect(second.address());
                    second.connect(first.address());
                    let offset = (thread * PAIRS_PER_THREAD + index) * 8;
                    let sges = [mem.sge(offset, 8)];
                    let to = mem.addr() + offset as u64;
                    first.send(rdma(WrOpcode::Write, &sges, to, mem.rkey));
                    assert_eq!(wait(&send_cq).status, WcStatus::Success);
                }
                for end in pairs.iter().flatten() {
                    let began = Instant::now();
                    SoftNic::destroy_qp(&end.qp).expect("it is destroyed");
                    let took_ns = began.elapsed().as_nanos() as u64;
                    total_ns.fetch_add(took_ns, Ordering::Relaxed);
                    longest_ns.fetch_max(took_ns, Ordering::Relaxed);
                }
                // Their places are free again.
                let again = make();
                SoftNic::destroy_qp(&again.qp).expect("it is destroyed");
            });
        }
    });
    let count = (THREADS * PAIRS_PER_THREAD * 2) as u64;
    println!(
        "{count} QPs, {THREADS} threads: a destruction took {:.1} us on average, {:.1} us at most",
        total_ns.into_inner() as f64 / 1e3 / count as f64,
        longest_ns.into_inner() as f64 / 1e3
    );
}
