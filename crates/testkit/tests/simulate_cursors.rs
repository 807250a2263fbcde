//! The queues compared with simple models: free slots, waiting WQEs, and their order.

use std::collections::VecDeque;

use proptest::prelude::*;
use rdmalab_engine::backend::{PostError, RecvWr, SendWr};
use rdmalab_engine::qp::recv_queue::{HeldRecv, RecvQueue, SharedRecvQueue, TakeRecv};
use rdmalab_engine::qp::send_queue::SendQueue;
use rdmalab_engine::vocab::*;
use rdmalab_testkit::sim::blank;

#[derive(Clone, Copy, Debug)]
enum RecvOp {
    Post(u8),
    Fetch(u8),
    Take,
    Resize(u8),
}

fn recv_op() -> impl Strategy<Value = RecvOp> {
    prop_oneof![
        4 => (0u8..4).prop_map(RecvOp::Post),
        2 => (0u8..9).prop_map(RecvOp::Fetch),
        4 => Just(RecvOp::Take),
        1 => (0u8..20).prop_map(RecvOp::Resize),
    ]
}

fn list(wr_id: u64, count: u8) -> Vec<Sge> {
    (0..count).map(|i| Sge { addr: wr_id, length: 10 + i as u32, lkey: i as u32 }).collect()
}

proptest! {
    #[test]
    fn a_receive_queue_is_a_bounded_fifo(
        capacity in 0u32..9,
        ops in prop::collection::vec(recv_op(), 0..200),
    ) {
        let mut queue = RecvQueue::new(PdId(1), capacity, 2);
        let mut model: VecDeque<(u64, u8)> = VecDeque::new();
        let (mut capacity, mut fetched, mut next) = (capacity as usize, 0, 0);
        let mut held = HeldRecv::EMPTY;
        for op in ops {
            match op {
                RecvOp::Post(count) => {
                    let sges = list(next, count);
                    let expected = match (model.len() >= capacity, count > 2) {
                        (true, _) => Err(PostError::QueueFull),
                        (_, true) => Err(PostError::TooManySges),
                        _ => Ok(()),
                    };
                    prop_assert_eq!(queue.push(&RecvWr { wr_id: next, sges: &sges }), expected);
                    if expected.is_ok() {
                        model.push_back((next, count));
                        next += 1;
                    }
                }
                RecvOp::Fetch(count) => {
                    queue.fetch(count as u32);
                    fetched = model.len().min(fetched + count as usize);
                }
                RecvOp::Take => {
                    let expected = match (model.is_empty(), fetched) {
                        (true, _) => TakeRecv::Empty,
                        (_, 0) => TakeRecv::NotFetched,
                        _ => TakeRecv::Taken,
                    };
                    prop_assert_eq!(queue.take(&mut held), expected);
                    if expected == TakeRecv::Taken {
                        let (wr_id, count) = model.pop_front().unwrap();
                        fetched -= 1;
                        let sges = list(wr_id, count);
                        prop_assert_eq!(held.wr_id, wr_id);
                        prop_assert_eq!(held.sges(), &sges[..]);
                        let bytes: u64 = sges.iter().map(|sge| sge.length as u64).sum();
                        prop_assert_eq!(held.capacity, bytes);
                    }
                }
                RecvOp::Resize(size) if size as usize >= model.len() => {
                    queue = queue.resized(size as u32);
                    capacity = size as usize;
                }
                RecvOp::Resize(_) => {}
            }
            prop_assert_eq!(queue.len() as usize, model.len());
            prop_assert_eq!(queue.unfetched() as usize, model.len() - fetched);
        }
    }

    #[test]
    fn a_shared_queue_tells_its_limit_once_per_arming(
        ops in prop::collection::vec(0u8..5, 0..200),
    ) {
        let mut srq = SharedRecvQueue::new(PdId(1), 8, 1, 3);
        let (mut waiting, mut armed) = (0u32, 3);
        let mut held = HeldRecv::EMPTY;
        for op in ops {
            if op < 2 && waiting < 8 {
                srq.queue.push(&RecvWr { wr_id: 0, sges: &[] }).unwrap();
                srq.queue.fetch_all();
                waiting += 1;
            } else if op == 2 {
                srq.arm_limit(2);
                armed = 2;
            } else if waiting > 0 {
                waiting -= 1;
                let due = waiting < armed;
                prop_assert_eq!(srq.take(&mut held), (TakeRecv::Taken, due));
                if due {
                    armed = 0;
                }
            }
            prop_assert_eq!(srq.limit(), armed);
        }
    }

    #[test]
    fn a_send_queue_frees_slots_as_completions_are_polled(
        capacity in 0u32..10,
        ops in prop::collection::vec((0u8..3, 0u8..4), 0..200),
    ) {
        let cap = QpCap {
            max_send_wr: capacity,
            max_send_sge: 2,
            max_inline_data: 16,
            ..QpCap::default()
        };
        let mut queue = SendQueue::new(&cap, false);
        let mut freed = 0;
        for (op, count) in ops {
            match op {
                0 => {
                    let wr_id = queue.posted as u64;
                    let sges = list(wr_id, count);
                    let wr = SendWr { sges: &sges, ..blank(wr_id, WrOpcode::Send) };
                    let full = queue.posted - freed >= capacity;
                    match queue.push(&wr, false, freed) {
                        Ok(position) => {
                            prop_assert!(!full && count <= 2);
                            prop_assert_eq!(queue.wqe(position).wr_id, wr_id);
                        }
                        Err(PostError::QueueFull) => prop_assert!(full),
                        Err(error) => {
                            prop_assert_eq!(error, PostError::TooManySges);
                            prop_assert!(!full && count > 2);
                        }
                    }
                }
                // The engine starts and completes a WQE; the program polls.
                1 => {
                    queue.fetch_all();
                    queue.begun = (queue.oldest + count as u32).min(queue.posted);
                    queue.oldest = queue.begun;
                }
                _ => freed = (freed + count as u32).min(queue.oldest),
            }
            prop_assert!(queue.outstanding() <= capacity);
            for position in queue.oldest..queue.posted {
                // The queue has not overwritten a slot that is still in use.
                prop_assert_eq!(queue.wqe(position).wr_id, position as u64);
                let mine = queue.sges(position).iter().all(|sge| sge.addr == position as u64);
                prop_assert!(mine);
            }
        }
    }
}
