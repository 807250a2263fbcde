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
const REGIONS_PER_THREAD: usize = 8;

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

/// How long calls of one kind took, ns.
#[derive(Default)]
struct Times {
    calls: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Times {
    fn measure(&self, call: impl FnOnce() -> VerbsResult<()>) {
        let began = Instant::now();
        call().expect("it ends");
        let took_ns = began.elapsed().as_nanos() as u64;
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(took_ns, Ordering::Relaxed);
        self.longest_ns.fetch_max(took_ns, Ordering::Relaxed);
    }

    fn print(&self, what: &str) {
        let calls = self.calls.load(Ordering::Relaxed);
        let us = |ns: &AtomicU64| ns.load(Ordering::Relaxed) as f64 / 1e3;
        let (mean, most) = (us(&self.total_ns) / calls as f64, us(&self.longest_ns));
        println!("{calls} {what}: {mean:.1} us on average, {most:.1} us at most");
    }
}

/// All 10 112 queue pairs exist at one time. Half of them write to their peers within the process,
/// so that each destruction has a peer to wait for. Regions are deregistered while they do. With
/// `--nocapture` it prints how long both took.
#[test]
fn ten_thousand_are_made_used_and_destroyed_by_64_threads() {
    let node = Node::open(0);
    let mem = node.mem(THREADS * PAIRS_PER_THREAD * 8, Kind::Heap);
    let all_made = Barrier::new(THREADS);
    let (destructions, deregistrations) = (Times::default(), Times::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (node, mem, all_made) = (&node, &mem, &all_made);
            let (destructions, deregistrations) = (&destructions, &deregistrations);
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
                    if index < REGIONS_PER_THREAD {
                        let region = node.register(mem.at, 8, ALL_RIGHTS).mr;
                        deregistrations.measure(|| SoftNic::dereg_mr(&region));
                    }
                }
                for end in pairs.iter().flatten() {
                    destructions.measure(|| SoftNic::destroy_qp(&end.qp));
                }
                // Their places are free again.
                let again = make();
                SoftNic::destroy_qp(&again.qp).expect("it is destroyed");
            });
        }
    });
    destructions.print("destructions by 64 threads");
    deregistrations.print("deregistrations by 64 threads");
}
