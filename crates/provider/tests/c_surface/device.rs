//! Devices, contexts, ports and their tables.

use core::ffi::{CStr, c_int};
use core::mem::offset_of;
use core::ptr::null_mut;

use rdmalab_abi::{inline, *};
use rdmalab_provider::{diag, exports, table::table};

use crate::fixture::{errno, open};
use crate::mock::{GID, GUID, LID, Mock};

#[test]
fn a_device_keeps_its_address_from_list_to_list() {
    let t = table::<Mock>();
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut count = 0;
        let first = (t.get_device_list)(&mut count);
        assert_eq!(count, 2);
        assert!((*first.add(2)).is_null());
        let (device, other) = (*first, *first.add(1));
        (t.free_device_list)(first);
        let second = (t.get_device_list)(null_mut());
        assert_eq!((*second, *second.add(1)), (device, other));
        (t.free_device_list)(second);

        assert_eq!(CStr::from_ptr((t.get_device_name)(device)), c"mock0");
        assert_eq!(CStr::from_ptr((*device).dev_name.as_ptr()), c"uverbs0");
        assert_eq!(CStr::from_ptr((*device).ibdev_path.as_ptr()), c"/sys/class/infiniband/mock0");
        assert_eq!((t.get_device_guid)(device), GUID.to_be());
        assert_eq!(exports::ibv_get_device_index::<Mock>(other), 1);
        assert_eq!((*device).node_type, IBV_NODE_CA);
    }
}

/// The vendors' libraries read a pointer after the public structure.
#[test]
fn there_are_zeros_behind_a_device() {
    let t = table::<Mock>();
    // SAFETY: the calls are those of a correct C program; the allocation is at least that long.
    unsafe {
        let list = (t.get_device_list)(null_mut());
        let spare = IBV_DEVICE_ALLOCATION - size_of::<ibv_device>();
        let behind = (*list).add(1).cast::<u8>();
        let bytes = core::slice::from_raw_parts(behind, spare);
        assert!(bytes.iter().all(|byte| *byte == 0));
        (t.free_device_list)(list);
    }
}

/// Programs of each rdma-core release find the operations at the distances that they know.
#[test]
fn a_context_has_its_operations_at_their_distances() {
    let (t, ctx) = open();
    // SAFETY: the calls are those of a correct C program; the slots lie in front of the context.
    unsafe {
        assert_eq!((*ctx).abi_compat, VERBS_ABI_IS_EXTENDED);
        let before = |bytes: usize| ctx.byte_sub(bytes).cast::<usize>().read();
        assert_eq!(before(8), 696, "sz");
        for (name, distance) in [
            ("create_qp_ex", 56),
            ("query_device_ex", 104),
            ("create_cq_ex", 120),
            ("query_port", 320),
        ] {
            assert_ne!(before(distance), 0, "{name}");
        }
        // A program of release 44 checks this before a call: its own size minus the offset.
        let (old_size, old_offset) = (648, 648 - 328 - 320);
        assert!(before(8) >= old_size - old_offset);
        let all = inline::verbs_get_ctx(ctx).cast::<usize>();
        let named = offset_of!(verbs_context, reg_mr_ex)..offset_of!(verbs_context, context);
        let may_be_zero =
            [offset_of!(verbs_context, r#priv), offset_of!(verbs_context, _ABI_placeholder3)];
        for at in named.step_by(8).filter(|at| !may_be_zero.contains(at)) {
            assert_ne!(all.byte_add(at).read(), 0, "slot at {at}");
        }
        let ops = (&raw const (*ctx).ops).cast::<usize>();
        for slot in 0..size_of::<ibv_context_ops>() / 8 {
            assert_ne!(ops.add(slot).read(), 0, "ops slot {slot}");
        }
        assert!((*ctx).async_fd >= 0);
        assert_eq!(((*ctx).cmd_fd, (*ctx).num_comp_vectors), (-1, 1));
        assert_eq!((t.close_device)(ctx), 0);
    }
}

#[test]
fn a_context_with_objects_stays_open() {
    let (t, ctx) = open();
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let pd = (t.alloc_pd)(ctx);
        assert_eq!((t.close_device)(ctx), -1);
        assert_eq!(errno(), libc::EBUSY);
        assert!(diag::last_error().is_some_and(|e| e.starts_with("ibv_close_device: ")));
        assert_eq!((t.dealloc_pd)(pd), 0);
        assert_eq!((t.close_device)(ctx), 0);
        assert!((t.open_device)(null_mut()).is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
}

#[test]
fn a_device_tells_what_it_can_do() {
    let (t, ctx) = open();
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut attr = ibv_device_attr::zeroed();
        assert_eq!((t.query_device)(ctx, &mut attr), 0);
        assert_eq!(CStr::from_ptr(attr.fw_ver.as_ptr()), c"1.2.3");
        assert_eq!((attr.node_guid, attr.max_qp_wr), (GUID.to_be(), 64));
        assert_eq!(attr.max_ah, c_int::MAX, "2^32 - 1 does not become -1");

        let mut ex = ibv_device_attr_ex::zeroed();
        assert_eq!(inline::ibv_query_device_ex(&t, ctx, core::ptr::null(), &mut ex), 0);
        assert_eq!(ex.hca_core_clock, 1_000_000);
        assert_eq!(ex.completion_timestamp_mask, u64::MAX);
        assert_eq!((ex.odp_caps.general_caps, ex.raw_packet_caps), (0, 0));
        assert_eq!(ex.phys_port_cnt_ex, 1);
        let input = ibv_query_device_ex_input { comp_mask: 1 };
        let op = (*inline::verbs_get_ctx(ctx)).query_device_ex.expect("it is there");
        assert_eq!(op(ctx, &input, &mut ex, size_of_val(&ex)), libc::EINVAL);

        // A program with a shorter structure, and one with a longer structure.
        let mut bytes = [0xaau8; 512];
        assert_eq!(op(ctx, core::ptr::null(), bytes.as_mut_ptr().cast(), 240), 0);
        assert!(bytes[240..].iter().all(|byte| *byte == 0xaa));
        assert_eq!(op(ctx, core::ptr::null(), bytes.as_mut_ptr().cast(), 480), 0);
        assert!(bytes[400..480].iter().all(|byte| *byte == 0));
        assert!(bytes[480..].iter().all(|byte| *byte == 0xaa));

        let mut values = ibv_values_ex::zeroed();
        values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | IBV_VALUES_MASK_RESERVED;
        assert_eq!(inline::ibv_query_rt_values_ex(ctx, &mut values), 0);
        assert_eq!(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
        assert!(values.raw_clock.tv_nsec >= 1000 && values.raw_clock.tv_sec == 0);
        assert_eq!((t.close_device)(ctx), 0);
    }
}

#[test]
fn the_exported_port_query_writes_48_bytes() {
    let (t, ctx) = open();
    // SAFETY: the calls are those of a correct C program; the buffers are long enough.
    unsafe {
        let mut bytes = [0xaau8; 64];
        assert_eq!((t.query_port)(ctx, 1, bytes.as_mut_ptr().cast()), 0);
        assert!(bytes[48..].iter().all(|byte| *byte == 0xaa));
        assert_eq!(bytes[46], IBV_LINK_LAYER_INFINIBAND);

        let op = (*inline::verbs_get_ctx(ctx)).query_port.expect("it is there");
        assert_eq!(op(ctx, 1, bytes.as_mut_ptr().cast(), 52), 0);
        assert_eq!(bytes[48..52], [0; 4]);
        assert!(bytes[52..].iter().all(|byte| *byte == 0xaa));

        let mut attr = ibv_port_attr::zeroed();
        assert_eq!(inline::ibv_query_port(&t, ctx, 1, &mut attr), 0);
        assert_eq!((attr.state, attr.lid, attr.gid_tbl_len), (IBV_PORT_ACTIVE, LID, 3));
        assert_eq!(inline::ibv_query_port(&t, ctx, 2, &mut attr), libc::EINVAL);
        assert_eq!((t.close_device)(ctx), 0);
    }
}

#[test]
fn tables_of_the_port() {
    let (t, ctx) = open();
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut gid = ibv_gid::zeroed();
        assert_eq!((t.query_gid)(ctx, 1, 1, &mut gid), 0);
        assert_eq!(gid.raw, GID);
        assert_eq!((t.query_gid)(ctx, 1, 0, &mut gid), -1);
        assert_eq!(errno(), libc::ENODATA);

        let mut entry = ibv_gid_entry::zeroed();
        assert_eq!(inline::ibv_query_gid_ex(&t, ctx, 1, 1, &mut entry), 0);
        assert_eq!((entry.gid_index, entry.port_num, entry.ndev_ifindex), (1, 1, 7));
        assert_eq!(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
        assert_eq!(inline::ibv_query_gid_ex(&t, ctx, 1, 0, &mut entry), libc::ENODATA);
        assert_eq!(inline::ibv_query_gid_ex(&t, ctx, 257, 1, &mut entry), libc::EINVAL);
        assert_eq!((t.query_gid_ex)(ctx, 1, 1, &mut entry, 1, 32), libc::EINVAL);

        let mut entries = [ibv_gid_entry::zeroed(); 2];
        let all = exports::_ibv_query_gid_table::<Mock>;
        assert_eq!(all(ctx, entries.as_mut_ptr(), 2, 0, size_of::<ibv_gid_entry>()), 1);
        assert_eq!((entries[0].gid_index, entries[1].gid_index), (1, 0));
        let none = all(ctx, entries.as_mut_ptr(), 0, 0, size_of::<ibv_gid_entry>());
        assert_eq!(none, -(libc::EINVAL as isize));

        let mut kind = 9;
        assert_eq!(exports::ibv_query_gid_type::<Mock>(ctx, 1, 1, &mut kind), 0);
        assert_eq!(kind, 1, "sysfs numbers RoCE version 2 as 1");

        let mut pkey = 0;
        assert_eq!((t.query_pkey)(ctx, 1, 0, &mut pkey), 0);
        assert_eq!(pkey, 0x8001u16.to_be());
        assert_eq!((t.query_pkey)(ctx, 1, 1, &mut pkey), -1);
        assert_eq!(exports::ibv_get_pkey_index::<Mock>(ctx, 1, 0x8001u16.to_be()), 0);
        assert_eq!(exports::ibv_get_pkey_index::<Mock>(ctx, 1, 0xffff), -1);
        assert_eq!((t.close_device)(ctx), 0);
    }
}

#[test]
fn what_is_not_there_says_so() {
    let (t, ctx) = open();
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let pd = (t.alloc_pd)(ctx);
        assert!(inline::ibv_alloc_null_mr(pd).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert!(inline::ibv_alloc_td(ctx, &mut ibv_td_init_attr::zeroed()).is_null());
        assert!(inline::ibv_open_xrcd(ctx, &mut ibv_xrcd_init_attr::zeroed()).is_null());
        let mut sge = ibv_sge::zeroed();
        assert_eq!(inline::ibv_advise_mr(pd, 0, 0, &mut sge, 1), libc::EOPNOTSUPP);
        assert_eq!(inline::ibv_advise_mr(pd, 0, 0, null_mut(), 0), libc::EINVAL);
        assert!(exports::ibv_import_device::<Mock>(3).is_null());
        assert!(exports::ibv_reg_dmabuf_mr::<Mock>(pd, 0, 1, 0, 3, 1).is_null());
        assert_eq!(exports::ibv_query_ece::<Mock>(null_mut(), null_mut()), libc::EOPNOTSUPP);
        let last = diag::last_error().expect("a verb has failed");
        assert!(last.contains("ibv_query_ece"), "{last}");
        assert_eq!((t.dealloc_pd)(pd), 0);
        assert_eq!((t.close_device)(ctx), 0);
    }
}
