//! Extended CQs and QPs.

use core::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdmalab_abi::{inline::*, *};
use rdmalab_provider::diag;

use crate::fixture::{Fixture, RC, Wanted, errno, send};

/// Every send operation of RC.
const RC_OPS: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV;

const EX: Wanted = Wanted { send_ops: Some(RC_OPS), ..RC };

/// An extended CQ, and a QP pair whose sends complete there.
fn extended_cq(f: &Fixture, wc_flags: u64, flags: u32) -> *mut ibv_cq_ex {
    let mut init = ibv_cq_init_attr_ex::zeroed();
    (init.cqe, init.wc_flags, init.flags) = (16, wc_flags, flags);
    init.comp_mask = if flags == 0 { 0 } else { IBV_CQ_INIT_ATTR_MASK_FLAGS };
    // SAFETY: the calls are those of a correct C program.
    unsafe { ibv_create_cq_ex(f.ctx, &mut init) }
}

/// Makes `count` completions in an extended CQ by flushing a QP; returns the QP.
fn flushed(f: &Fixture, cq: *mut ibv_cq_ex, count: u64) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr::zeroed();
    (init.send_cq, init.recv_cq, init.qp_type) = (cq.cast(), cq.cast(), IBV_QPT_RC);
    init.cap.max_recv_wr = 8;
    init.cap.max_recv_sge = 1;
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let qp = (f.t.create_qp)(f.pd, &mut init);
        assert!(!qp.is_null());
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_INIT;
        assert_eq!((f.t.modify_qp)(qp, &mut attr, 1), 0);
        for wr_id in 0..count {
            f.receive(qp, wr_id, f.sge(0, 1));
        }
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!((f.t.modify_qp)(qp, &mut attr, 1), 0);
        qp
    }
}

#[test]
fn completions_are_read_field_by_field() {
    let f = Fixture::new(RC);
    let wanted = IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    let cq = extended_cq(&f, wanted, 0);
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let qp = flushed(&f, cq, 3);
        let mut attr = ibv_poll_cq_attr { comp_mask: 1 };
        assert_eq!(ibv_start_poll(cq, &mut attr), libc::EINVAL);
        attr.comp_mask = 0;
        assert_eq!(ibv_start_poll(cq, &mut attr), 0);
        let mut last_time = 0;
        for wr_id in 0..3 {
            assert_eq!(((*cq).wr_id, (*cq).status), (wr_id, IBV_WC_WR_FLUSH_ERR));
            assert_eq!(ibv_wc_read_opcode(cq), IBV_WC_RECV);
            assert_eq!(ibv_wc_read_qp_num(cq), (*qp).qp_num);
            assert_eq!(ibv_wc_read_vendor_err(cq), 0);
            let time = ibv_wc_read_completion_ts(cq);
            assert!(time > last_time);
            last_time = time;
            // A field that was not requested reads as 0, and the diagnosis says so.
            assert_eq!(ibv_wc_read_slid(cq), 0);
            assert!(diag::last_error().is_some_and(|e| e.contains("wc_flags")));
            let expected = if wr_id == 2 { libc::ENOENT } else { 0 };
            assert_eq!(ibv_next_poll(cq), expected);
        }
        ibv_end_poll(cq);
        assert_eq!(ibv_start_poll(cq, &mut attr), libc::ENOENT);
        // No end_poll follows ENOENT; the CQ can be polled again.
        assert_eq!(ibv_start_poll(cq, &mut attr), libc::ENOENT);
        assert_eq!((f.t.destroy_qp)(qp), 0);
        assert_eq!((f.t.destroy_cq)(cq.cast()), 0);
    }
}

#[test]
fn an_extended_queue_is_also_a_plain_one() {
    let f = Fixture::new(RC);
    let cq = extended_cq(&f, IBV_WC_STANDARD_FLAGS, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let qp = flushed(&f, cq, 3);
        assert_eq!(ibv_start_poll(cq, null_mut()), 0);
        ibv_end_poll(cq);
        let mut wcs = [ibv_wc::zeroed(); 4];
        assert_eq!(ibv_poll_cq(ibv_cq_ex_to_cq(cq), 4, wcs.as_mut_ptr()), 2);
        assert_eq!((wcs[0].wr_id, wcs[1].wr_id), (1, 2));
        assert_eq!((*cq).cqe, 16);
        assert_eq!((f.t.destroy_qp)(qp), 0);
        assert_eq!((f.t.destroy_cq)(cq.cast()), 0);
    }
}

#[test]
fn an_extended_queue_refuses_what_it_cannot_read() {
    let f = Fixture::new(RC);
    for flag in [
        IBV_WC_EX_WITH_CVLAN,
        IBV_WC_EX_WITH_FLOW_TAG,
        IBV_WC_EX_WITH_TM_INFO,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
        1 << 40,
    ] {
        assert!(extended_cq(&f, flag, 0).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
    assert!(extended_cq(&f, 0, 4).is_null());
    assert_eq!(errno(), libc::EOPNOTSUPP);
}

/// From `start_poll` to `end_poll` a thread has the CQ for itself.
#[test]
fn threads_take_turns_at_an_extended_queue() {
    let f = Fixture::new(RC);
    let cq = extended_cq(&f, IBV_WC_STANDARD_FLAGS, 0);
    let qp = flushed(&f, cq, 8);
    let address = cq.expose_provenance();
    let (inside, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let cq: *mut ibv_cq_ex = core::ptr::with_exposed_provenance_mut(address);
                for _ in 0..200 {
                    // SAFETY: the calls are those of a correct C program, which may poll from
                    // several threads.
                    unsafe {
                        if ibv_start_poll(cq, null_mut()) == 0 {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            seen.fetch_add(1 << (4 * (*cq).wr_id), Ordering::SeqCst);
                            std::thread::yield_now();
                            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                            ibv_end_poll(cq);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(seen.into_inner(), 0x1111_1111, "each once");
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        assert_eq!((f.t.destroy_qp)(qp), 0);
        assert_eq!((f.t.destroy_cq)(cq.cast()), 0);
    }
}

#[test]
fn a_batch_is_posted_in_order_and_its_buffers_are_free_at_once() {
    let f = Fixture::new(EX);
    for wr_id in 0..3 {
        f.receive(f.b, 10 + wr_id, f.sge(1000 + 100 * wr_id as usize, 100));
    }
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let qp = (f.t.qp_to_qp_ex)(f.a);
        assert!(!qp.is_null());
        for round in 0..2 {
            let mut text = *b"firstsecond";
            ibv_wr_start(qp);
            (*qp).wr_id = 1;
            // The flag has no meaning here; only the setters make a request inline.
            (*qp).wr_flags = IBV_SEND_INLINE;
            ibv_wr_send_imm(qp, 77);
            ibv_wr_set_inline_data(qp, text.as_mut_ptr().cast(), 5);
            text[..5].fill(0);
            (*qp).wr_id = 2;
            (*qp).wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_send(qp);
            let pieces = [
                ibv_data_buf { addr: text.as_mut_ptr().byte_add(5).cast(), length: 3 },
                ibv_data_buf { addr: null_mut(), length: 0 },
                ibv_data_buf { addr: text.as_mut_ptr().byte_add(8).cast(), length: 3 },
            ];
            ibv_wr_set_inline_data_list(qp, 3, pieces.as_ptr());
            text.fill(0);
            if round == 0 {
                ibv_wr_abort(qp);
                f.no_completion();
                continue;
            }
            (*qp).wr_id = 3;
            ibv_wr_rdma_write(qp, (*f.mr).rkey, f.at(2000));
            ibv_wr_set_sge(qp, (*f.mr).lkey, f.at(1000), 5);
            assert_eq!(ibv_wr_complete(qp), 0);
        }
        assert_eq!((f.completion().imm_data, f.completion().byte_len), (77, 6));
        assert_eq!((f.completion().wr_id, f.completion().wr_id), (2, 3));
        f.no_completion();
        assert_eq!(&f.read::<5>(1000), b"first");
        assert_eq!(&f.read::<6>(1100), b"second");
        assert_eq!(&f.read::<5>(2000), b"first", "the write came after the send");
    }
}

#[test]
fn every_operation_of_rc_can_be_built() {
    let mut f = Fixture::new(EX);
    f.write(8, &7u64.to_ne_bytes());
    f.receive(f.b, 50, f.sge(3000, 8));
    f.receive(f.b, 51, f.sge(3000, 8));
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let qp = (f.t.qp_to_qp_ex)(f.a);
        let (lkey, rkey) = ((*f.mr).lkey, (*f.mr).rkey);
        let mw = ibv_alloc_mw(f.pd, IBV_MW_TYPE_2);
        let info = ibv_mw_bind_info {
            mr: f.mr,
            addr: f.at(512),
            length: 8,
            mw_access_flags: IBV_ACCESS_REMOTE_READ,
        };
        let key = ibv_inc_rkey((*mw).rkey);
        let reply = [f.sge(64, 4), f.sge(68, 4)];
        let post = |wr_id, build: &dyn Fn()| {
            ibv_wr_start(qp);
            announce(qp, wr_id, IBV_SEND_SIGNALED);
            build();
            assert_eq!(ibv_wr_complete(qp), 0, "{wr_id}");
            let wc = f.completion();
            assert_eq!((wc.wr_id, wc.status), (wr_id, IBV_WC_SUCCESS));
            wc.opcode
        };
        let data = || ibv_wr_set_sge_list(qp, 2, reply.as_ptr());
        let opcode = post(1, &|| (ibv_wr_rdma_read(qp, rkey, f.at(8)), data()).1);
        assert_eq!((opcode, f.read::<8>(64)), (IBV_WC_RDMA_READ, 7u64.to_ne_bytes()));
        let opcode = post(2, &|| (ibv_wr_atomic_fetch_add(qp, rkey, f.at(8), 1), data()).1);
        assert_eq!((opcode, f.read::<8>(8)), (IBV_WC_FETCH_ADD, 8u64.to_ne_bytes()));
        let opcode = post(3, &|| (ibv_wr_atomic_cmp_swp(qp, rkey, f.at(8), 8, 3), data()).1);
        assert_eq!((opcode, f.read::<8>(8)), (IBV_WC_COMP_SWAP, 3u64.to_ne_bytes()));
        assert_eq!(post(4, &|| ibv_wr_bind_mw(qp, mw, key, &info)), IBV_WC_BIND_MW);
        post(5, &|| (ibv_wr_rdma_read(qp, key, f.at(512)), data()).1);
        assert_eq!(post(6, &|| ibv_wr_local_inv(qp, key)), IBV_WC_LOCAL_INV);

        ibv_wr_start(qp);
        announce(qp, 7, IBV_SEND_SIGNALED);
        ibv_wr_rdma_write_imm(qp, rkey, f.at(600), 5);
        ibv_wr_set_sge(qp, lkey, f.at(8), 8);
        (*qp).wr_id = 8;
        ibv_wr_send_inv(qp, key);
        assert_eq!(ibv_wr_complete(qp), 0);
        let wc = f.completion();
        assert_eq!((wc.wr_id, wc.opcode, wc.imm_data), (50, IBV_WC_RECV_RDMA_WITH_IMM, 5));
        assert_eq!(f.completion().opcode, IBV_WC_RDMA_WRITE);
        let wc = f.completion();
        assert_eq!((wc.wr_id, wc.wc_flags, wc.imm_data), (51, IBV_WC_WITH_INV, key));
        assert_eq!(f.completion().wr_id, 8);
        assert_eq!(ibv_dealloc_mw(mw), 0);
    }
}

/// Sets `wr_id` and flags of a QP, as a program does before an operation.
///
/// # Safety
/// `qp` is alive.
unsafe fn announce(qp: *mut ibv_qp_ex, wr_id: u64, flags: u32) {
    // SAFETY: by the contract.
    unsafe { ((*qp).wr_id, (*qp).wr_flags) = (wr_id, flags) };
}

/// Adds a flag to a QP, as a program does before an operation.
///
/// # Safety
/// `qp` is alive.
unsafe fn add_flag(qp: *mut ibv_qp_ex, flag: u32) {
    // SAFETY: by the contract.
    unsafe { (*qp).wr_flags |= flag };
}

/// `wr_complete` reports an error in any request, and then none of the batch was posted.
#[test]
fn a_wrong_batch_fails_as_a_whole() {
    let f = Fixture::new(Wanted { send_ops: Some(IBV_QP_EX_WITH_RDMA_WRITE), ..RC });
    // SAFETY: the calls are those of a correct C program, but for what is to be refused.
    unsafe {
        let qp = (f.t.qp_to_qp_ex)(f.a);
        let good = || {
            ibv_wr_rdma_write(qp, (*f.mr).rkey, f.at(64));
            ibv_wr_set_sge(qp, (*f.mr).lkey, f.at(0), 1);
        };
        let mut bytes = [0u8; 65];
        let sges = [f.sge(0, 1); 3];
        let start = bytes.as_mut_ptr();
        let write_only = || ibv_wr_rdma_write(qp, (*f.mr).rkey, f.at(64));
        let cases: [(&str, &mut dyn FnMut(), i32); 9] = [
            ("not granted", &mut || ibv_wr_send(qp), libc::EINVAL),
            ("a setter too many", &mut || ibv_wr_set_sge(qp, 0, 0, 0), libc::EINVAL),
            (
                "too long inline",
                &mut || (write_only(), ibv_wr_set_inline_data(qp, start.cast(), 65)).1,
                libc::EINVAL,
            ),
            (
                "too many elements",
                &mut || (write_only(), ibv_wr_set_sge_list(qp, 3, sges.as_ptr())).1,
                libc::EINVAL,
            ),
            (
                "an IP checksum",
                &mut || {
                    add_flag(qp, IBV_SEND_IP_CSUM);
                    good();
                },
                libc::EINVAL,
            ),
            (
                "no window",
                &mut || {
                    ibv_wr_bind_mw(qp, null_mut(), 0, core::ptr::null());
                },
                libc::EINVAL,
            ),
            ("too many", &mut || (0..8).for_each(|_| good()), libc::ENOMEM),
            (
                "TSO",
                &mut || {
                    (*qp).wr_send_tso.expect("it is there")(qp, null_mut(), 0, 0);
                },
                libc::EOPNOTSUPP,
            ),
            (
                "a flush",
                &mut || {
                    (*qp).wr_flush.expect("it is there")(qp, 0, 0, 0, 0, 0);
                },
                libc::EOPNOTSUPP,
            ),
        ];
        for (name, spoil, number) in cases {
            ibv_wr_start(qp);
            announce(qp, 1, IBV_SEND_SIGNALED);
            good();
            spoil();
            assert_eq!(ibv_wr_complete(qp), number, "{name}");
            assert!(diag::last_error().is_some_and(|e| e.starts_with("ibv_wr_complete: ")));
            f.no_completion();
        }
    }
}

#[test]
fn a_failed_batch_spoils_nothing() {
    let f = Fixture::new(Wanted { send_ops: Some(IBV_QP_EX_WITH_RDMA_WRITE), ..RC });
    // SAFETY: the calls are those of a correct C program, but for what is to be refused.
    unsafe {
        let qp = (f.t.qp_to_qp_ex)(f.a);
        // A setter before any request.
        ibv_wr_start(qp);
        ibv_wr_set_sge(qp, 0, 0, 0);
        assert_eq!(ibv_wr_complete(qp), libc::EINVAL);
        // The QP still works.
        ibv_wr_start(qp);
        announce(qp, 1, IBV_SEND_SIGNALED);
        ibv_wr_rdma_write(qp, (*f.mr).rkey, f.at(64));
        ibv_wr_set_sge(qp, (*f.mr).lkey, f.at(0), 1);
        assert_eq!(ibv_wr_complete(qp), 0);
        assert_eq!(f.completion().status, IBV_WC_SUCCESS);
        assert!((f.t.qp_to_qp_ex)(f.a) == f.a.cast());
        // `ibv_post_send` works as well.
        let mut sge = f.sge(0, 1);
        let mut wr = send(9, IBV_WR_RDMA_WRITE, &mut sge);
        wr.wr.rdma = ibv_send_wr_rdma { remote_addr: f.at(64), rkey: (*f.mr).rkey };
        assert_eq!(ibv_post_send(f.a, &mut wr, &mut null_mut()), 0);
        assert_eq!(f.completion().wr_id, 9);
    }
}

/// If the backend refuses a request, the whole batch is refused: by the manual page, none of the
/// requests was posted then.
#[test]
fn a_batch_that_does_not_fit_is_not_begun() {
    let f = Fixture::new(Wanted { send_ops: Some(IBV_QP_EX_WITH_RDMA_WRITE), ..RC });
    // SAFETY: the calls are those of a correct C program, but for what is to be refused.
    unsafe {
        let qp = (f.t.qp_to_qp_ex)(f.a);
        let mut slots = ibv_qp_attr::zeroed();
        let mut init = ibv_qp_init_attr::zeroed();
        assert_eq!((f.t.query_qp)(f.a, &mut slots, 0, &mut init), 0);
        let slots = u64::from(init.cap.max_send_wr);
        let post = |numbers: core::ops::Range<u64>, flags| {
            ibv_wr_start(qp);
            for wr_id in numbers {
                announce(qp, wr_id, flags);
                ibv_wr_rdma_write(qp, (*f.mr).rkey, f.at(64));
                ibv_wr_set_sge(qp, (*f.mr).lkey, f.at(0), 1);
            }
            ibv_wr_complete(qp)
        };
        // One slot is occupied until a later completion is polled.
        assert_eq!(post(0..1, 0), 0);
        assert_eq!(post(1..slots + 1, IBV_SEND_SIGNALED), libc::ENOMEM);
        assert!(diag::last_error().is_some_and(|e| e.ends_with("none was posted")));
        f.no_completion();
        // If one of the batch had been posted, these would not fit.
        assert_eq!(post(1..slots, IBV_SEND_SIGNALED), 0);
        for wr_id in 1..slots {
            assert_eq!(f.completion().wr_id, wr_id);
        }
        f.no_completion();
    }
}

#[test]
fn a_datagram_is_built_with_its_address() {
    let mut f =
        Fixture::new(Wanted { qp_type: IBV_QPT_UD, send_ops: Some(IBV_QP_EX_WITH_SEND), ..RC });
    f.write(0, b"to you");
    f.receive(f.b, 1, f.sge(100, 46));
    // SAFETY: the calls are those of a correct C program, but for what is to be refused.
    unsafe {
        let mut attr = ibv_ah_attr::zeroed();
        attr.port_num = 1;
        let ah = (f.t.create_ah)(f.pd, &mut attr);
        let qp = (f.t.qp_to_qp_ex)(f.a);
        announce(qp, 2, IBV_SEND_SIGNALED);
        for (ah, number) in [(null_mut(), libc::EINVAL), (ah, 0)] {
            ibv_wr_start(qp);
            ibv_wr_send(qp);
            ibv_wr_set_ud_addr(qp, ah, (*f.b).qp_num, 0);
            ibv_wr_set_sge(qp, (*f.mr).lkey, f.at(0), 6);
            assert_eq!(ibv_wr_complete(qp), number);
        }
        assert_eq!((f.completion().wr_id, f.completion().wr_id), (1, 2));
        assert_eq!(&f.read::<6>(140), b"to you");
        assert_eq!((f.t.destroy_ah)(ah), 0);
    }
}
