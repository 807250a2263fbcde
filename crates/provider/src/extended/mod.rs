//! The optional operations, in the structure before the context that programs hold a pointer to.

mod advise;
mod create;
mod query;

use rdmalab_abi::verbs_context;
use rdmalab_engine::backend::Backend;

use crate::stubs;

/// Fills every slot that has a name.
///
/// # Safety
/// `table` is a context that is not used elsewhere yet.
pub(crate) unsafe fn fill<B: Backend>(table: *mut verbs_context) {
    // SAFETY: by the contract there is no other reference to it.
    let t = unsafe { &mut *table };
    t.query_port = Some(query::query_port::<B>);
    t.query_device_ex = Some(query::query_device_ex::<B>);
    t.query_rt_values = Some(query::query_rt_values::<B>);
    t.create_cq_ex = Some(create::create_cq_ex::<B>);
    t.create_qp_ex = Some(create::create_qp_ex::<B>);
    t.create_srq_ex = Some(create::create_srq_ex::<B>);
    t.advise_mr = Some(advise::advise_mr::<B>);

    t.reg_mr_ex = Some(stubs::reg_mr_ex);
    t.dealloc_dmah = Some(stubs::dealloc_dmah);
    t.alloc_dmah = Some(stubs::alloc_dmah);
    t.alloc_null_mr = Some(stubs::alloc_null_mr);
    t.read_counters = Some(stubs::read_counters);
    t.attach_counters_point_flow = Some(stubs::attach_counters_point_flow);
    t.create_counters = Some(stubs::create_counters);
    t.destroy_counters = Some(stubs::destroy_counters);
    t.reg_dm_mr = Some(stubs::reg_dm_mr);
    t.alloc_dm = Some(stubs::alloc_dm);
    t.free_dm = Some(stubs::free_dm);
    t.modify_flow_action_esp = Some(stubs::modify_flow_action_esp);
    t.destroy_flow_action = Some(stubs::destroy_flow_action);
    t.create_flow_action_esp = Some(stubs::create_flow_action_esp);
    t.modify_qp_rate_limit = Some(stubs::modify_qp_rate_limit);
    t.alloc_parent_domain = Some(stubs::alloc_parent_domain);
    t.dealloc_td = Some(stubs::dealloc_td);
    t.alloc_td = Some(stubs::alloc_td);
    t.modify_cq = Some(stubs::modify_cq);
    t.post_srq_ops = Some(stubs::post_srq_ops);
    t.destroy_rwq_ind_table = Some(stubs::destroy_rwq_ind_table);
    t.create_rwq_ind_table = Some(stubs::create_rwq_ind_table);
    t.destroy_wq = Some(stubs::destroy_wq);
    t.modify_wq = Some(stubs::modify_wq);
    t.create_wq = Some(stubs::create_wq);
    t.ibv_destroy_flow = Some(stubs::destroy_flow);
    t.ABI_placeholder2 = Some(stubs::flow_alias);
    t.ibv_create_flow = Some(stubs::create_flow);
    t.ABI_placeholder1 = Some(stubs::flow_alias);
    t.open_qp = Some(stubs::open_qp);
    t.get_srq_num = Some(stubs::get_srq_num);
    t.open_xrcd = Some(stubs::open_xrcd);
    t.close_xrcd = Some(stubs::close_xrcd);
}
