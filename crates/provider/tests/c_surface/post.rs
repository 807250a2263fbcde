//! Posting through `ibv_context.ops`, and the QPs and SRQs for it.

use core::ffi::c_int;
use core::ptr::{self, null_mut};

use rdmalab_abi::{inline, *};
use rdmalab_provider::diag;

use crate::fixture::{Fixture, RC, Wanted, errno, init_attr, send};

#[test]
fn a_message_arrives_with_its_immediate_data() {
    let mut f = Fixture::new(RC);
    f.write(0, b"hello");
    f.receive(f.b, 7, f.sge(100, 64));
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut sge = f.sge(0, 5);
        let mut wr = send(8, IBV_WR_SEND_WITH_IMM, &mut sge);
        wr.imm_data = 0x0102_0304u32.to_be();
        let mut bad = ptr::dangling_mut();
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut bad), 0);
        let received = f.completion();
        assert_eq!((received.wr_id, received.opcode, received.byte_len), (7, IBV_WC_RECV, 5));
        assert_eq!(received.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
        assert_eq!(u32::from_be(received.imm_data), 0x0102_0304);
        assert_eq!(received.qp_num, (*f.b).qp_num);
        let sent = f.completion();
        assert_eq!((sent.wr_id, sent.opcode, sent.qp_num), (8, IBV_WC_SEND, (*f.a).qp_num));
        assert_eq!(&f.read::<5>(100), b"hello");
        assert_eq!(inline::ibv_poll_cq(f.cq, 0, null_mut()), 0);
        assert_eq!(inline::ibv_poll_cq(f.cq, -1, null_mut()), 0);
    }
}

#[test]
fn inline_bytes_may_be_reused_at_once() {
    let f = Fixture::new(RC);
    f.receive(f.b, 1, f.sge(100, 64));
    let mut bytes = *b"inline";
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut sge = ibv_sge { addr: bytes.as_ptr() as u64, length: 6, lkey: 0 };
        let mut wr = send(2, IBV_WR_SEND, &mut sge);
        wr.send_flags |= IBV_SEND_INLINE;
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut null_mut()), 0);
        bytes.fill(0);
        assert_eq!(f.completion().byte_len, 6);
        f.completion();
        assert_eq!(&f.read::<6>(100), b"inline");
    }
    assert_eq!(bytes, [0; 6]);
}

/// READ and the atomics have their operands at different offsets of the union.
#[test]
fn one_sided_operations_find_their_operands() {
    let mut f = Fixture::new(RC);
    f.write(8, &7u64.to_ne_bytes());
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let rkey = (*f.mr).rkey;
        let mut sge = f.sge(64, 8);
        let mut read = send(1, IBV_WR_RDMA_READ, &mut sge);
        read.wr.rdma = ibv_send_wr_rdma { remote_addr: f.at(8), rkey };
        let mut add = send(2, IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sge);
        let (remote_addr, compare_add, swap) = (f.at(8), 5, 0);
        add.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey };
        let mut swap = send(3, IBV_WR_ATOMIC_CMP_AND_SWP, &mut sge);
        swap.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add: 12, swap: 99, rkey };
        for (wr, opcode, seen) in [
            (&mut read, IBV_WC_RDMA_READ, 7u64),
            (&mut add, IBV_WC_FETCH_ADD, 7),
            (&mut swap, IBV_WC_COMP_SWAP, 12),
        ] {
            assert_eq!(inline::ibv_post_send(f.a, wr, &mut null_mut()), 0);
            let wc = f.completion();
            assert_eq!((wc.wr_id, wc.status, wc.opcode), (wr.wr_id, IBV_WC_SUCCESS, opcode));
            assert_eq!(u64::from_ne_bytes(f.read::<8>(64)), seen);
        }
        assert_eq!(u64::from_ne_bytes(f.read::<8>(8)), 99);
    }
}

#[test]
fn keys_are_invalidated_here_and_there() {
    let f = Fixture::new(RC);
    let mut memory = [0u8; 16];
    f.receive(f.b, 1, f.sge(100, 8));
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let start = memory.as_mut_ptr().cast();
        let (one, two) = ((f.t.reg_mr)(f.pd, start, 8, 1), (f.t.reg_mr)(f.pd, start, 8, 1));
        let mut sge = f.sge(0, 1);
        let mut wr = send(2, IBV_WR_SEND_WITH_INV, &mut sge);
        wr.imm_data = (*one).rkey;
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut null_mut()), 0);
        let wc = f.completion();
        assert_eq!(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
        assert_eq!(wc.imm_data, (*one).rkey);
        f.completion();
        let mut wr = send(3, IBV_WR_LOCAL_INV, &mut sge);
        (wr.num_sge, wr.imm_data) = (0, (*two).rkey);
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut null_mut()), 0);
        assert_eq!(f.completion().opcode, IBV_WC_LOCAL_INV);
        for mr in [one, two] {
            assert_eq!((f.t.dereg_mr)(mr), 0);
        }
    }
}

/// `bad_wr` points to the first request that was not accepted, whichever layer refused it.
#[test]
fn a_refused_request_is_pointed_at() {
    let f = Fixture::new(RC);
    // SAFETY: the calls are those of a correct C program, but for what is to be refused.
    unsafe {
        let mut sges = [f.sge(0, 1), f.sge(1, 1), f.sge(2, 1)];
        let fresh = || {
            let mut sge = f.sge(0, 1);
            let mut wrs: [ibv_send_wr; 4] =
                core::array::from_fn(|i| send(i as u64, IBV_WR_RDMA_WRITE, &mut sge));
            for wr in &mut wrs {
                wr.wr.rdma = ibv_send_wr_rdma { remote_addr: f.at(64), rkey: (*f.mr).rkey };
            }
            wrs
        };
        type Spoil = fn(&mut ibv_send_wr);
        let cases: [(&str, Spoil, c_int); 5] = [
            ("an unknown opcode", |wr| wr.opcode = 77, libc::EINVAL),
            ("an IP checksum", |wr| wr.send_flags |= IBV_SEND_IP_CSUM, libc::EINVAL),
            ("a negative count", |wr| wr.num_sge = -1, libc::EINVAL),
            ("elements from nowhere", |wr| wr.sg_list = null_mut(), libc::EINVAL),
            ("more elements than the QP has", |wr| wr.num_sge = 3, libc::EINVAL),
        ];
        for (name, spoil, number) in cases {
            let mut wrs = fresh();
            for wr in &mut wrs {
                wr.sg_list = sges.as_mut_ptr();
            }
            spoil(&mut wrs[2]);
            let base = wrs.as_mut_ptr();
            for i in 0..3 {
                (*base.add(i)).next = base.add(i + 1);
            }
            let mut bad = null_mut();
            assert_eq!(inline::ibv_post_send(f.a, base, &mut bad), number, "{name}");
            assert_eq!(bad, base.add(2), "{name}");
            assert!(diag::last_error().is_some_and(|e| e.starts_with("ibv_post_send: ")));
            for i in 0..2 {
                assert_eq!(f.completion().wr_id, i, "those before it were taken: {name}");
            }
            f.no_completion();
            // A program that passes no `bad_wr`.
            assert_eq!(inline::ibv_post_send(f.a, base.add(2), null_mut()), number, "{name}");
        }
    }
}

#[test]
fn a_full_queue_says_enomem_until_a_completion_is_polled() {
    let f = Fixture::new(Wanted { max_send_wr: 3, ..RC });
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut sge = f.sge(0, 1);
        let mut wrs: [ibv_send_wr; 4] =
            core::array::from_fn(|i| send(i as u64, IBV_WR_RDMA_WRITE, &mut sge));
        let base = wrs.as_mut_ptr();
        for i in 0..4 {
            (*base.add(i)).wr.rdma = ibv_send_wr_rdma { remote_addr: f.at(64), rkey: (*f.mr).rkey };
            (*base.add(i)).next = if i < 3 { base.add(i + 1) } else { null_mut() };
        }
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_send(f.a, base, &mut bad), libc::ENOMEM);
        assert_eq!(bad, base.add(3));
        assert_eq!(f.completion().wr_id, 0);
        assert_eq!(inline::ibv_post_send(f.a, bad, &mut bad), 0);
    }
}

#[test]
fn receives_are_refused_in_their_place() {
    let f = Fixture::new(RC);
    // SAFETY: the calls are those of a correct C program, but for what is to be refused.
    unsafe {
        let mut sges = [f.sge(0, 1); 3];
        let mut second = ibv_recv_wr::zeroed();
        (second.sg_list, second.num_sge) = (sges.as_mut_ptr(), 3);
        let mut first = ibv_recv_wr::zeroed();
        (first.sg_list, first.num_sge, first.next) = (sges.as_mut_ptr(), 1, &mut second);
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_recv(f.a, &mut first, &mut bad), libc::EINVAL);
        assert!(ptr::eq(bad, &second));
        second.num_sge = -5;
        assert_eq!(inline::ibv_post_recv(f.a, &mut second, &mut bad), libc::EINVAL);
        assert!(ptr::eq(bad, &second));
        assert_eq!(inline::ibv_post_recv(f.a, null_mut(), &mut bad), 0, "an empty list");
    }
}

#[test]
fn a_qp_tells_how_it_was_made_and_where_it_is() {
    let f = Fixture::new(RC);
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut attr = ibv_qp_attr::zeroed();
        let mut init = ibv_qp_init_attr::zeroed();
        assert_eq!((f.t.query_qp)(f.a, &mut attr, IBV_QP_STATE as c_int, &mut init), 0);
        assert_eq!((attr.qp_state, attr.dest_qp_num), (IBV_QPS_RTS, (*f.b).qp_num));
        assert_eq!((init.send_cq, init.recv_cq, init.qp_type), (f.cq, f.cq, IBV_QPT_RC));
        assert_eq!((init.qp_context, (*f.a).qp_context.addr()), ((*f.a).qp_context, 0x99));
        assert_eq!((init.cap.max_inline_data, init.cap.max_send_wr), (64, 8));

        attr.qp_state = 42;
        let state = IBV_QP_STATE as c_int;
        assert_eq!((f.t.modify_qp)(f.a, &mut attr, state), libc::EINVAL);
        assert_eq!((f.t.modify_qp)(f.a, &mut attr, 1 << 21), libc::EINVAL);
        assert_eq!((*f.a).state, IBV_QPS_RTS, "a refused change changes nothing");
        // Without its mask bit the state field may have any value.
        attr.timeout = 9;
        assert_eq!((f.t.modify_qp)(f.a, &mut attr, IBV_QP_TIMEOUT as c_int), 0);
        assert_eq!((f.t.query_qp)(f.a, &mut attr, 0, null_mut()), 0);
        assert_eq!(attr.timeout, 9);
        assert!((f.t.qp_to_qp_ex)(f.a).is_null(), "it was not made for ibv_wr_*");
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let f = Fixture::new(RC);
    // SAFETY: the calls are those of a correct C program, but for what is to be refused.
    unsafe {
        let attempt = |change: fn(&mut ibv_qp_init_attr_ex)| {
            let mut init = init_attr(f.cq, null_mut(), RC);
            (init.pd, init.comp_mask) = (f.pd, IBV_QP_INIT_ATTR_PD);
            change(&mut init);
            assert!(inline::ibv_create_qp_ex(&f.t, f.ctx, &mut init).is_null());
            errno()
        };
        assert_eq!(attempt(|i| i.qp_type = IBV_QPT_RAW_PACKET), libc::EOPNOTSUPP);
        assert_eq!(attempt(|i| i.send_cq = null_mut()), libc::EINVAL);
        assert_eq!(attempt(|i| i.cap.max_send_wr = 65), libc::EINVAL);
        assert_eq!(attempt(|i| i.comp_mask |= IBV_QP_INIT_ATTR_XRCD), libc::EOPNOTSUPP);
        assert_eq!(attempt(|i| i.comp_mask = 0), libc::EINVAL);
        let tso = |i: &mut ibv_qp_init_attr_ex| {
            i.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            i.send_ops_flags = IBV_QP_EX_WITH_TSO;
        };
        assert_eq!(attempt(tso), libc::EOPNOTSUPP);
        let read_on_uc = |i: &mut ibv_qp_init_attr_ex| {
            i.qp_type = IBV_QPT_UC;
            i.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            i.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ;
        };
        assert_eq!(attempt(read_on_uc), libc::EOPNOTSUPP);

        for (cqe, vector) in [(0, 0), (-1, 0), (1, 1), (1, -1), (2000, 0)] {
            let cq = (f.t.create_cq)(f.ctx, cqe, null_mut(), null_mut(), vector);
            assert!(cq.is_null(), "{cqe} {vector}");
            assert_eq!(errno(), libc::EINVAL);
        }
        assert_eq!((f.t.destroy_cq)(f.cq), libc::EBUSY);
        assert_eq!((f.t.destroy_comp_channel)(f.channel), libc::EBUSY);
        assert_eq!((*f.channel).refcnt, 1);
        assert_eq!((f.t.resize_cq)(f.cq, 0), libc::EINVAL);
        assert_eq!((f.t.resize_cq)(f.cq, 300), 0);
        assert_eq!((*f.cq).cqe, 512);
    }
}

#[test]
fn a_shared_queue_serves_and_is_queried() {
    let f = Fixture::new(Wanted { with_srq: true, ..RC });
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut sge = f.sge(100, 8);
        let mut wr = ibv_recv_wr { wr_id: 4, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        assert_eq!(inline::ibv_post_srq_recv(f.srq, &mut wr, &mut null_mut()), 0);
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_recv(f.b, &mut wr, &mut bad), libc::EINVAL);
        assert!(ptr::eq(bad, &wr));
        let mut sge = f.sge(0, 8);
        let mut wr = send(5, IBV_WR_SEND, &mut sge);
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut null_mut()), 0);
        assert_eq!(f.completion().wr_id, 4);
        f.completion();

        let mut attr = ibv_srq_attr::zeroed();
        assert_eq!((f.t.query_srq)(f.srq, &mut attr), 0);
        assert_eq!((attr.max_wr, attr.srq_limit), (16, 0));
        assert_eq!((f.t.modify_srq)(f.srq, &mut attr, 4), libc::EINVAL);
        let mut number = 0;
        assert_eq!(inline::ibv_get_srq_num(f.srq, &mut number), libc::EOPNOTSUPP);

        let mut ex = ibv_srq_init_attr_ex::zeroed();
        (ex.pd, ex.attr.max_wr, ex.srq_type) = (f.pd, 1, IBV_SRQT_XRC);
        ex.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
        assert!(inline::ibv_create_srq_ex(&f.t, f.ctx, &mut ex).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        ex.srq_type = IBV_SRQT_BASIC;
        let create = (*inline::verbs_get_ctx(f.ctx)).create_srq_ex.expect("it is there");
        let srq = create(f.ctx, &mut ex);
        assert!(!srq.is_null());
        assert_eq!((f.t.destroy_srq)(srq), 0);
        assert_eq!((f.t.destroy_srq)(f.srq), libc::EBUSY);
    }
}
