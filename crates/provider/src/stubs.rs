//! Table slots for operations that no device of this project supports. Each reports `EOPNOTSUPP` by
//! its own convention; with an empty slot a header would do the same, or crash.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use rdmalab_abi::*;

use crate::answer;

/// Declares functions that report `EOPNOTSUPP`: as their result, or by null and `errno`.
macro_rules! missing {
    ($($verb:literal $name:ident($($ty:ty),*) $(-> *mut $object:ty)?;)*) => {$(
        missing!(@one $verb $name($($ty),*) $(-> *mut $object)?);
    )*};
    (@one $verb:literal $name:ident($($ty:ty),*)) => {
        #[doc = concat!("`", $verb, "`: refused.")]
        pub(crate) unsafe extern "C-unwind" fn $name($(_: $ty),*) -> c_int {
            answer::number($verb, &answer::not_here($verb))
        }
    };
    (@one $verb:literal $name:ident($($ty:ty),*) -> *mut $object:ty) => {
        #[doc = concat!("`", $verb, "`: refused.")]
        pub(crate) unsafe extern "C-unwind" fn $name($(_: $ty),*) -> *mut $object {
            answer::number($verb, &answer::not_here($verb));
            ptr::null_mut()
        }
    };
}

missing! {
    "ibv_reg_mr_ex" reg_mr_ex(*mut ibv_pd, *mut ibv_mr_init_attr) -> *mut ibv_mr;
    "ibv_dealloc_dmah" dealloc_dmah(*mut ibv_dmah);
    "ibv_alloc_dmah" alloc_dmah(*mut ibv_context, *mut ibv_dmah_init_attr) -> *mut ibv_dmah;
    "ibv_alloc_null_mr" alloc_null_mr(*mut ibv_pd) -> *mut ibv_mr;
    "ibv_read_counters" read_counters(*mut ibv_counters, *mut u64, u32, u32);
    "ibv_attach_counters_point_flow" attach_counters_point_flow(
        *mut ibv_counters, *mut ibv_counter_attach_attr, *mut ibv_flow
    );
    "ibv_create_counters" create_counters(
        *mut ibv_context, *mut ibv_counters_init_attr
    ) -> *mut ibv_counters;
    "ibv_destroy_counters" destroy_counters(*mut ibv_counters);
    "ibv_reg_dm_mr" reg_dm_mr(*mut ibv_pd, *mut ibv_dm, u64, usize, c_uint) -> *mut ibv_mr;
    "ibv_alloc_dm" alloc_dm(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm;
    "ibv_free_dm" free_dm(*mut ibv_dm);
    "ibv_modify_flow_action_esp" modify_flow_action_esp(
        *mut ibv_flow_action, *mut ibv_flow_action_esp_attr
    );
    "ibv_destroy_flow_action" destroy_flow_action(*mut ibv_flow_action);
    "ibv_create_flow_action_esp" create_flow_action_esp(
        *mut ibv_context, *mut ibv_flow_action_esp_attr
    ) -> *mut ibv_flow_action;
    "ibv_modify_qp_rate_limit" modify_qp_rate_limit(*mut ibv_qp, *mut ibv_qp_rate_limit_attr);
    "ibv_alloc_parent_domain" alloc_parent_domain(
        *mut ibv_context, *mut ibv_parent_domain_init_attr
    ) -> *mut ibv_pd;
    "ibv_dealloc_td" dealloc_td(*mut ibv_td);
    "ibv_alloc_td" alloc_td(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td;
    "ibv_modify_cq" modify_cq(*mut ibv_cq, *mut ibv_modify_cq_attr);
    "ibv_destroy_rwq_ind_table" destroy_rwq_ind_table(*mut ibv_rwq_ind_table);
    "ibv_create_rwq_ind_table" create_rwq_ind_table(
        *mut ibv_context, *mut ibv_rwq_ind_table_init_attr
    ) -> *mut ibv_rwq_ind_table;
    "ibv_destroy_wq" destroy_wq(*mut ibv_wq);
    "ibv_modify_wq" modify_wq(*mut ibv_wq, *mut ibv_wq_attr);
    "ibv_create_wq" create_wq(*mut ibv_context, *mut ibv_wq_init_attr) -> *mut ibv_wq;
    "ibv_destroy_flow" destroy_flow(*mut ibv_flow);
    "ibv_create_flow" create_flow(*mut ibv_qp, *mut ibv_flow_attr) -> *mut ibv_flow;
    "ibv_open_qp" open_qp(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp;
    "ibv_get_srq_num" get_srq_num(*mut ibv_srq, *mut u32);
    "ibv_open_xrcd" open_xrcd(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd;
    "ibv_close_xrcd" close_xrcd(*mut ibv_xrcd);
}

/// A slot of the first ABI, which no header calls.
pub(crate) unsafe extern "C-unwind" fn compat() -> *mut c_void {
    answer::set_errno(libc::ENOSYS);
    ptr::null_mut()
}

/// The oldest alias of `ibv_create_flow` or `ibv_destroy_flow`, whose prototype was lost.
pub(crate) unsafe extern "C-unwind" fn flow_alias() {
    answer::set_errno(libc::EOPNOTSUPP);
}

/// `ibv_post_srq_ops`: refused at its first request.
pub(crate) unsafe extern "C-unwind" fn post_srq_ops(
    _: *mut ibv_srq,
    op: *mut ibv_ops_wr,
    bad_op: *mut *mut ibv_ops_wr,
) -> c_int {
    if !bad_op.is_null() {
        // SAFETY: a pointer that is not null is the caller's variable.
        unsafe { *bad_op = op };
    }
    answer::number("ibv_post_srq_ops", &answer::not_here("ibv_post_srq_ops"))
}
