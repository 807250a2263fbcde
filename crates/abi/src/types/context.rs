//! The open device and its two tables of operations.

use super::{
    ibv_alloc_dm_attr, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device, ibv_device_attr,
    ibv_device_attr_ex, ibv_dm, ibv_dmah, ibv_dmah_init_attr, ibv_modify_cq_attr, ibv_mr,
    ibv_mr_init_attr, ibv_mw, ibv_mw_bind, ibv_ops_wr, ibv_parent_domain_init_attr, ibv_pd,
    ibv_port_attr, ibv_qp, ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_qp_rate_limit_attr,
    ibv_query_device_ex_input, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr_ex,
    ibv_td, ibv_td_init_attr, ibv_wc, ibv_xrcd, ibv_xrcd_init_attr,
};
use core::ffi::{c_int, c_uint, c_void};
use libc::{pthread_mutex_t, timespec};

/// The value of `abi_compat` in an [`ibv_context`] that is part of a [`verbs_context`].
pub const VERBS_ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

opaque! {
    ibv_flow, "A steering rule, seen only behind a pointer.";
    ibv_flow_attr, "How to make a steering rule, seen only behind a pointer.";
    ibv_flow_action, "An action of a rule, seen only behind a pointer.";
    ibv_flow_action_esp_attr, "How to make an ESP action, seen only behind a pointer.";
    ibv_counters, "A set of counters, seen only behind a pointer.";
    ibv_counters_init_attr, "How to make counters, seen only behind a pointer.";
    ibv_counter_attach_attr, "Which counter to attach, seen only behind a pointer.";
    ibv_wq, "A work queue without a QP, seen only behind a pointer.";
    ibv_wq_init_attr, "How to make a work queue, seen only behind a pointer.";
    ibv_wq_attr, "How to change a work queue, seen only behind a pointer.";
    ibv_rwq_ind_table, "A table of receive queues, seen only behind a pointer.";
    ibv_rwq_ind_table_init_attr, "How to make such a table, seen only behind a pointer.";
    verbs_ex_private, "The stock library's own part of a context.";
}

layout! {
    /// The operations that the header calls without a check. The `_compat_` slots remain from the
    /// first ABI; the stock library fills `_compat_query_device` and leaves the others null.
    #[derive(Clone, Copy)]
    struct ibv_context_ops: 256 {
        0 _compat_query_device: op!((
            context: *mut ibv_context, device_attr: *mut ibv_device_attr
        ) -> c_int), "`ibv_query_device`.";
        8 _compat_query_port: op!((
            context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr
        ) -> c_int), "Unused.";
        16 _compat_alloc_pd: op!(() -> *mut c_void), "Unused.";
        24 _compat_dealloc_pd: op!(() -> *mut c_void), "Unused.";
        32 _compat_reg_mr: op!(() -> *mut c_void), "Unused.";
        40 _compat_rereg_mr: op!(() -> *mut c_void), "Unused.";
        48 _compat_dereg_mr: op!(() -> *mut c_void), "Unused.";
        56 alloc_mw: op!((pd: *mut ibv_pd, mw_type: u32) -> *mut ibv_mw), "`ibv_alloc_mw`.";
        64 bind_mw: op!((qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int),
            "`ibv_bind_mw`.";
        72 dealloc_mw: op!((mw: *mut ibv_mw) -> c_int), "`ibv_dealloc_mw`.";
        80 _compat_create_cq: op!(() -> *mut c_void), "Unused.";
        88 poll_cq: op!((cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int),
            "`ibv_poll_cq`: how many were read, or negative.";
        96 req_notify_cq: op!((cq: *mut ibv_cq, solicited_only: c_int) -> c_int),
            "`ibv_req_notify_cq`.";
        104 _compat_cq_event: op!(() -> *mut c_void), "Unused.";
        112 _compat_resize_cq: op!(() -> *mut c_void), "Unused.";
        120 _compat_destroy_cq: op!(() -> *mut c_void), "Unused.";
        128 _compat_create_srq: op!(() -> *mut c_void), "Unused.";
        136 _compat_modify_srq: op!(() -> *mut c_void), "Unused.";
        144 _compat_query_srq: op!(() -> *mut c_void), "Unused.";
        152 _compat_destroy_srq: op!(() -> *mut c_void), "Unused.";
        160 post_srq_recv: op!((
            srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr
        ) -> c_int), "`ibv_post_srq_recv`.";
        168 _compat_create_qp: op!(() -> *mut c_void), "Unused.";
        176 _compat_query_qp: op!(() -> *mut c_void), "Unused.";
        184 _compat_modify_qp: op!(() -> *mut c_void), "Unused.";
        192 _compat_destroy_qp: op!(() -> *mut c_void), "Unused.";
        200 post_send: op!((
            qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr
        ) -> c_int), "`ibv_post_send`.";
        208 post_recv: op!((
            qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr
        ) -> c_int), "`ibv_post_recv`.";
        216 _compat_create_ah: op!(() -> *mut c_void), "Unused.";
        224 _compat_destroy_ah: op!(() -> *mut c_void), "Unused.";
        232 _compat_attach_mcast: op!(() -> *mut c_void), "Unused.";
        240 _compat_detach_mcast: op!(() -> *mut c_void), "Unused.";
        248 _compat_async_event: op!(() -> *mut c_void), "Unused.";
    }

    /// An open device.
    #[derive(Clone, Copy)]
    struct ibv_context: 328 {
        0 device: *mut ibv_device, "The device.";
        8 ops: ibv_context_ops, "The operations that every device has.";
        264 cmd_fd: c_int, "The kernel's file for commands, or -1.";
        268 async_fd: c_int, "Readable when there are asynchronous events. Programs poll it.";
        272 num_comp_vectors: c_int, "Interrupt vectors for completions.";
        280 mutex: pthread_mutex_t, "The library's.";
        320 abi_compat: *mut c_void, "[`VERBS_ABI_IS_EXTENDED`] within a [`verbs_context`].";
    }

    /// The values of a device's clock.
    #[derive(Clone, Copy)]
    struct ibv_values_ex: 24 {
        0 comp_mask: u32, "Bits of `ibv_values_mask`: asked for, and answered.";
        8 raw_clock: timespec, "Ticks of the device's clock, in `tv_nsec`.";
    }

    /// The optional operations, in front of the context that programs hold a pointer to.
    ///
    /// It grows at the front: an operation never changes its distance from the context, and a
    /// program finds out from `sz` whether it exists. The slots before `query_port` are newer than
    /// rdma-core 44.
    #[derive(Clone, Copy)]
    struct verbs_context: 696 {
        0 _newer: [op!(()); 3], "The newest slots, which nothing here fills.";
        24 reg_mr_ex: op!((
            pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr
        ) -> *mut ibv_mr), "`ibv_reg_mr_ex`.";
        32 dealloc_dmah: op!((dmah: *mut ibv_dmah) -> c_int), "`ibv_dealloc_dmah`.";
        40 alloc_dmah: op!((
            context: *mut ibv_context, attr: *mut ibv_dmah_init_attr
        ) -> *mut ibv_dmah), "`ibv_alloc_dmah`.";
        48 query_port: op!((
            context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr, attr_len: usize
        ) -> c_int), "`ibv_query_port`; writes no more than `attr_len` bytes.";
        56 advise_mr: op!((
            pd: *mut ibv_pd, advice: u32, flags: u32, sg_list: *mut ibv_sge, num_sges: u32
        ) -> c_int), "`ibv_advise_mr`.";
        64 alloc_null_mr: op!((pd: *mut ibv_pd) -> *mut ibv_mr), "`ibv_alloc_null_mr`.";
        72 read_counters: op!((
            counters: *mut ibv_counters, values: *mut u64, ncounters: u32, flags: u32
        ) -> c_int), "`ibv_read_counters`.";
        80 attach_counters_point_flow: op!((
            counters: *mut ibv_counters, attr: *mut ibv_counter_attach_attr, flow: *mut ibv_flow
        ) -> c_int), "`ibv_attach_counters_point_flow`.";
        88 create_counters: op!((
            context: *mut ibv_context, attr: *mut ibv_counters_init_attr
        ) -> *mut ibv_counters), "`ibv_create_counters`.";
        96 destroy_counters: op!((counters: *mut ibv_counters) -> c_int),
            "`ibv_destroy_counters`.";
        104 reg_dm_mr: op!((
            pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: c_uint
        ) -> *mut ibv_mr), "`ibv_reg_dm_mr`.";
        112 alloc_dm: op!((
            context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr
        ) -> *mut ibv_dm), "`ibv_alloc_dm`.";
        120 free_dm: op!((dm: *mut ibv_dm) -> c_int), "`ibv_free_dm`.";
        128 modify_flow_action_esp: op!((
            action: *mut ibv_flow_action, attr: *mut ibv_flow_action_esp_attr
        ) -> c_int), "`ibv_modify_flow_action_esp`.";
        136 destroy_flow_action: op!((action: *mut ibv_flow_action) -> c_int),
            "`ibv_destroy_flow_action`.";
        144 create_flow_action_esp: op!((
            context: *mut ibv_context, attr: *mut ibv_flow_action_esp_attr
        ) -> *mut ibv_flow_action), "`ibv_create_flow_action_esp`.";
        152 modify_qp_rate_limit: op!((
            qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr
        ) -> c_int), "`ibv_modify_qp_rate_limit`.";
        160 alloc_parent_domain: op!((
            context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr
        ) -> *mut ibv_pd), "`ibv_alloc_parent_domain`.";
        168 dealloc_td: op!((td: *mut ibv_td) -> c_int), "`ibv_dealloc_td`.";
        176 alloc_td: op!((
            context: *mut ibv_context, attr: *mut ibv_td_init_attr
        ) -> *mut ibv_td), "`ibv_alloc_td`.";
        184 modify_cq: op!((cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int),
            "`ibv_modify_cq`.";
        192 post_srq_ops: op!((
            srq: *mut ibv_srq, op: *mut ibv_ops_wr, bad_op: *mut *mut ibv_ops_wr
        ) -> c_int), "`ibv_post_srq_ops`.";
        200 destroy_rwq_ind_table: op!((table: *mut ibv_rwq_ind_table) -> c_int),
            "`ibv_destroy_rwq_ind_table`.";
        208 create_rwq_ind_table: op!((
            context: *mut ibv_context, attr: *mut ibv_rwq_ind_table_init_attr
        ) -> *mut ibv_rwq_ind_table), "`ibv_create_rwq_ind_table`.";
        216 destroy_wq: op!((wq: *mut ibv_wq) -> c_int), "`ibv_destroy_wq`.";
        224 modify_wq: op!((wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int), "`ibv_modify_wq`.";
        232 create_wq: op!((
            context: *mut ibv_context, attr: *mut ibv_wq_init_attr
        ) -> *mut ibv_wq), "`ibv_create_wq`.";
        240 query_rt_values: op!((
            context: *mut ibv_context, values: *mut ibv_values_ex
        ) -> c_int), "`ibv_query_rt_values_ex`.";
        248 create_cq_ex: op!((
            context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex
        ) -> *mut ibv_cq_ex), "`ibv_create_cq_ex`.";
        256 r#priv: *mut verbs_ex_private, "The library's.";
        264 query_device_ex: op!((
            context: *mut ibv_context, input: *const ibv_query_device_ex_input,
            attr: *mut ibv_device_attr_ex, attr_size: usize
        ) -> c_int), "`ibv_query_device_ex`; writes no more than `attr_size` bytes.";
        272 ibv_destroy_flow: op!((flow: *mut ibv_flow) -> c_int), "`ibv_destroy_flow`.";
        280 ABI_placeholder2: op!(()), "A copy of `ibv_destroy_flow` for the first programs.";
        288 ibv_create_flow: op!((
            qp: *mut ibv_qp, attr: *mut ibv_flow_attr
        ) -> *mut ibv_flow), "`ibv_create_flow`.";
        296 ABI_placeholder1: op!(()), "A copy of `ibv_create_flow` for the first programs.";
        304 open_qp: op!((
            context: *mut ibv_context, attr: *mut ibv_qp_open_attr
        ) -> *mut ibv_qp), "`ibv_open_qp`.";
        312 create_qp_ex: op!((
            context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex
        ) -> *mut ibv_qp), "`ibv_create_qp_ex`.";
        320 get_srq_num: op!((srq: *mut ibv_srq, srq_num: *mut u32) -> c_int),
            "`ibv_get_srq_num`.";
        328 create_srq_ex: op!((
            context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex
        ) -> *mut ibv_srq), "`ibv_create_srq_ex`.";
        336 open_xrcd: op!((
            context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr
        ) -> *mut ibv_xrcd), "`ibv_open_xrcd`.";
        344 close_xrcd: op!((xrcd: *mut ibv_xrcd) -> c_int),
            "`ibv_close_xrcd`, which the header calls without asking.";
        352 _ABI_placeholder3: u64, "Zero.";
        360 sz: usize, "`sizeof` this structure, as the allocating side knows it.";
        368 context: ibv_context, "What programs hold a pointer to.";
    }
}
