//! Regions, windows, address handles.

use core::ffi::c_int;
use core::ptr::null_mut;

use rdmalab_abi::{inline, *};
use rdmalab_provider::exports;

use crate::fixture::{ALL_RIGHTS, Fixture, RC, Wanted, errno, open, send};
use crate::mock::{GID, LID, Mock};

#[test]
fn registering_ignores_optional_rights_and_refuses_unknown_ones() {
    let (t, ctx) = open();
    let mut memory = [0u8; 64];
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let pd = (t.alloc_pd)(ctx);
        let start = memory.as_mut_ptr().cast();
        let relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
        let mr = inline::ibv_reg_mr(&t, pd, start, 64, relaxed);
        assert!(!mr.is_null());
        assert_eq!(((*mr).addr, (*mr).length, (*mr).pd), (start, 64, pd));
        assert_eq!((t.dealloc_pd)(pd), libc::EBUSY, "the region keeps it");
        assert_eq!((t.dereg_mr)(mr), 0);
        assert!((t.reg_mr)(pd, start, 64, 1 << 8).is_null());
        assert_eq!(errno(), libc::EINVAL);
        assert!((t.reg_mr)(pd, start, 0, 0).is_null());
        assert_eq!((t.dealloc_pd)(pd), 0);
        assert_eq!((t.close_device)(ctx), 0);
    }
}

#[test]
fn reregistering_tells_which_way_it_failed() {
    let (t, ctx) = open();
    let mut memory = [0u8; 64];
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let (pd, other) = ((t.alloc_pd)(ctx), (t.alloc_pd)(ctx));
        let start = memory.as_mut_ptr().cast::<core::ffi::c_void>();
        let mr = (t.reg_mr)(pd, start, 64, 1);
        let key = (*mr).rkey;
        let translation = IBV_REREG_MR_CHANGE_TRANSLATION as c_int;
        for (flags, pd, addr, length, access) in [
            (0, null_mut(), null_mut(), 0, 0),
            (8, null_mut(), null_mut(), 0, 0),
            (translation, null_mut(), null_mut(), 64, 0),
            (translation, null_mut(), start, 0, 0),
            (translation, null_mut(), start, 64, 1),
            (IBV_REREG_MR_CHANGE_PD as c_int, null_mut(), null_mut(), 0, 0),
            (IBV_REREG_MR_CHANGE_ACCESS as c_int, null_mut(), null_mut(), 0, 1 << 9),
        ] {
            let code = (t.rereg_mr)(mr, flags, pd, addr, length, access);
            assert_eq!((code, errno()), (IBV_REREG_MR_ERR_INPUT, libc::EINVAL), "{flags:#x}");
        }
        assert_eq!(((*mr).rkey, (*mr).length), (key, 64), "it is as before");
        let all = IBV_REREG_MR_FLAGS_SUPPORTED as c_int;
        assert_eq!((t.rereg_mr)(mr, all, other, start.byte_add(8), 32, 1), 0);
        assert_eq!(((*mr).addr, (*mr).length), (start.byte_add(8), 32));
        assert_eq!((*mr).pd, other);
        assert_ne!((*mr).rkey, key);
        assert_eq!((t.dealloc_pd)(pd), 0, "it does not keep its old domain");
        assert_eq!((t.dereg_mr)(mr), 0);
        assert_eq!((t.dealloc_pd)(other), 0);
        assert_eq!((t.close_device)(ctx), 0);
    }
}

#[test]
fn a_window_of_type_1_gets_a_new_key_with_each_bind() {
    let f = Fixture::new(RC);
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        assert!(inline::ibv_alloc_mw(f.pd, 3).is_null());
        assert_eq!(errno(), libc::EINVAL);
        let mw = inline::ibv_alloc_mw(f.pd, IBV_MW_TYPE_1);
        let first = (*mw).rkey;
        let mut bind = ibv_mw_bind::zeroed();
        bind.wr_id = 5;
        bind.send_flags = IBV_SEND_SIGNALED;
        bind.bind_info.mr = f.mr;
        bind.bind_info.addr = f.at(64);
        bind.bind_info.length = 8;
        bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
        assert_eq!(inline::ibv_bind_mw(f.a, mw, &mut bind), 0);
        assert_ne!((*mw).rkey, first);
        assert_eq!((*mw).rkey >> 8, first >> 8);
        let wc = f.completion();
        assert_eq!((wc.wr_id, wc.status, wc.opcode), (5, IBV_WC_SUCCESS, IBV_WC_BIND_MW));

        // The peer can write through the window, but not outside it.
        let mut sge = f.sge(0, 8);
        let mut wr = send(6, IBV_WR_RDMA_WRITE, &mut sge);
        wr.wr.rdma = ibv_send_wr_rdma { remote_addr: f.at(64), rkey: (*mw).rkey };
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_send(f.b, &mut wr, &mut bad), 0);
        assert_eq!(f.completion().status, IBV_WC_SUCCESS);
        wr.wr.rdma.remote_addr = f.at(65);
        assert_eq!(inline::ibv_post_send(f.b, &mut wr, &mut bad), 0);
        assert_eq!(f.completion().status, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(inline::ibv_dealloc_mw(mw), 0);
    }
}

#[test]
fn an_address_handle_keeps_its_domain() {
    let (t, ctx) = open();
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let pd = (t.alloc_pd)(ctx);
        let mut attr = ibv_ah_attr::zeroed();
        attr.port_num = 2;
        assert!((t.create_ah)(pd, &mut attr).is_null());
        assert_eq!(errno(), libc::EINVAL);
        attr.port_num = 1;
        let ah = (t.create_ah)(pd, &mut attr);
        assert_eq!(((*ah).pd, (*ah).context), (pd, ctx));
        assert_eq!((t.dealloc_pd)(pd), libc::EBUSY);
        assert_eq!((t.destroy_ah)(ah), 0);
        assert_eq!((t.dealloc_pd)(pd), 0);
        assert_eq!((t.close_device)(ctx), 0);
    }
}

#[test]
fn a_datagram_can_be_answered() {
    let mut f = Fixture::new(Wanted { qp_type: IBV_QPT_UD, ..RC });
    f.write(0, b"question");
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut attr = ibv_ah_attr::zeroed();
        attr.port_num = 1;
        attr.dlid = LID;
        attr.sl = 3;
        let ah = (f.t.create_ah)(f.pd, &mut attr);
        f.receive(f.b, 1, f.sge(1024, 48));
        let mut sge = f.sge(0, 8);
        let mut wr = send(2, IBV_WR_SEND, &mut sge);
        wr.wr.ud = ibv_send_wr_ud { ah, remote_qpn: (*f.b).qp_num, remote_qkey: 0 };
        let mut bad = null_mut();
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut bad), 0);
        let mut wc = f.completion();
        assert_eq!((wc.opcode, wc.byte_len, wc.src_qp), (IBV_WC_RECV, 48, (*f.a).qp_num));
        assert_eq!(&f.read::<8>(1024 + 40), b"question");
        assert_eq!(f.completion().wr_id, 2);

        let grh = f.at(1024) as *mut ibv_grh;
        let mut back = ibv_ah_attr::zeroed();
        let init = exports::ibv_init_ah_from_wc::<Mock>;
        assert_eq!(init(f.ctx, 1, &mut wc, grh, &mut back), 0);
        assert_eq!((back.dlid, back.sl, back.is_global, back.port_num), (LID, 3, 1, 1));
        assert_eq!((back.grh.sgid_index, back.grh.flow_label), (1, 7));
        assert_eq!((back.grh.dgid.raw, back.grh.traffic_class), (GID, 1));
        let answer = exports::ibv_create_ah_from_wc::<Mock>(f.pd, &mut wc, grh, 1);
        assert!(!answer.is_null());
        assert_eq!((f.t.destroy_ah)(answer), 0);

        // These bytes are no valid header.
        f.write(1024, &[0; 40]);
        assert_eq!(init(f.ctx, 1, &mut wc, grh, &mut back), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert!(exports::ibv_create_ah_from_wc::<Mock>(f.pd, &mut wc, grh, 1).is_null());

        // A datagram without an address handle is refused; the null pointer is not followed.
        wr.wr.ud.ah = null_mut();
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut bad), libc::EINVAL);
        assert!(core::ptr::eq(bad, &wr));
        assert_eq!((f.t.destroy_ah)(ah), 0);
    }
}

#[test]
fn a_group_is_left_before_the_qp_goes() {
    let f = Fixture::new(Wanted { qp_type: IBV_QPT_UD, ..RC });
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut group = ibv_gid { raw: GID };
        assert_eq!((f.t.attach_mcast)(f.a, &group, 0), libc::EINVAL);
        group.raw[0] = 0xff;
        assert_eq!((f.t.attach_mcast)(f.a, &group, 0), 0);
        assert_eq!((f.t.destroy_qp)(f.a), libc::EBUSY);
        assert_eq!((f.t.detach_mcast)(f.a, &group, 0), 0);
        assert_eq!((f.t.detach_mcast)(f.a, &group, 0), libc::EINVAL);
    }
}

#[test]
fn a_zero_based_region_starts_at_0() {
    let f = Fixture::new(RC);
    let mut memory = [0u8; 8];
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let rights = ALL_RIGHTS | IBV_ACCESS_ZERO_BASED;
        let mr = (f.t.reg_mr)(f.pd, memory.as_mut_ptr().cast(), 8, rights as c_int);
        let mut sge = f.sge(0, 8);
        let mut wr = send(1, IBV_WR_RDMA_WRITE, &mut sge);
        wr.wr.rdma = ibv_send_wr_rdma { remote_addr: 0, rkey: (*mr).rkey };
        assert_eq!(inline::ibv_post_send(f.a, &mut wr, &mut null_mut()), 0);
        assert_eq!(f.completion().status, IBV_WC_SUCCESS);
        assert_eq!((f.t.dereg_mr)(mr), 0);
    }
}
