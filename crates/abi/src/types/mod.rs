//! The structures, one file for each family of objects.

mod cm;
mod context;
mod cq;
mod device;
mod domain;
mod event;
mod kernel;
mod mr;
mod qp;
mod srq;
mod wr;

pub use cm::*;
pub use context::*;
pub use cq::*;
pub use device::*;
pub use domain::*;
pub use event::*;
pub use kernel::*;
pub use mr::*;
pub use qp::*;
pub use srq::*;
pub use wr::*;

use crate::layout::{CLayout, Layout};

/// The fields that rdma-core 44 does not have, as (type, field).
pub const NEWER_THAN_44: &[(&str, &str)] = &[
    ("ibv_port_attr", "active_speed_ex"),
    ("ibv_qp_ex", "wr_flush"),
    ("verbs_context", "_newer"),
    ("verbs_context", "reg_mr_ex"),
    ("verbs_context", "dealloc_dmah"),
    ("verbs_context", "alloc_dmah"),
];

/// Every layout of this crate, for the comparison with the C header.
pub const ALL_LAYOUTS: &[Layout] = &[
    <ibv_context_ops as CLayout>::LAYOUT,
    <ibv_context as CLayout>::LAYOUT,
    <ibv_values_ex as CLayout>::LAYOUT,
    <verbs_context as CLayout>::LAYOUT,
    <ibv_comp_channel as CLayout>::LAYOUT,
    <ibv_cq as CLayout>::LAYOUT,
    <ibv_cq_ex as CLayout>::LAYOUT,
    <ibv_poll_cq_attr as CLayout>::LAYOUT,
    <ibv_cq_init_attr_ex as CLayout>::LAYOUT,
    <ibv_moderate_cq as CLayout>::LAYOUT,
    <ibv_modify_cq_attr as CLayout>::LAYOUT,
    <ibv_gid as CLayout>::LAYOUT,
    <ibv_gid_global as CLayout>::LAYOUT,
    <ibv_gid_entry as CLayout>::LAYOUT,
    <ibv_device as CLayout>::LAYOUT,
    <ibv_device_attr as CLayout>::LAYOUT,
    <ibv_query_device_ex_input as CLayout>::LAYOUT,
    <ibv_odp_caps as CLayout>::LAYOUT,
    <ibv_odp_transport_caps as CLayout>::LAYOUT,
    <ibv_tso_caps as CLayout>::LAYOUT,
    <ibv_rss_caps as CLayout>::LAYOUT,
    <ibv_packet_pacing_caps as CLayout>::LAYOUT,
    <ibv_tm_caps as CLayout>::LAYOUT,
    <ibv_cq_moderation_caps as CLayout>::LAYOUT,
    <ibv_pci_atomic_caps as CLayout>::LAYOUT,
    <ibv_device_attr_ex as CLayout>::LAYOUT,
    <ibv_port_attr as CLayout>::LAYOUT,
    <ibv_pd as CLayout>::LAYOUT,
    <ibv_td as CLayout>::LAYOUT,
    <ibv_td_init_attr as CLayout>::LAYOUT,
    <ibv_parent_domain_init_attr as CLayout>::LAYOUT,
    <ibv_xrcd as CLayout>::LAYOUT,
    <ibv_xrcd_init_attr as CLayout>::LAYOUT,
    <ibv_global_route as CLayout>::LAYOUT,
    <ibv_grh as CLayout>::LAYOUT,
    <ibv_ah_attr as CLayout>::LAYOUT,
    <ibv_ah as CLayout>::LAYOUT,
    <ibv_async_event as CLayout>::LAYOUT,
    <ibv_async_event_element as CLayout>::LAYOUT,
    <ib_uverbs_global_route as CLayout>::LAYOUT,
    <ib_uverbs_ah_attr as CLayout>::LAYOUT,
    <ib_uverbs_qp_attr as CLayout>::LAYOUT,
    <ib_user_path_rec as CLayout>::LAYOUT,
    <ibv_sa_path_rec as CLayout>::LAYOUT,
    <ibv_mr as CLayout>::LAYOUT,
    <ibv_mw as CLayout>::LAYOUT,
    <ibv_mw_bind_info as CLayout>::LAYOUT,
    <ibv_mw_bind as CLayout>::LAYOUT,
    <ibv_qp as CLayout>::LAYOUT,
    <ibv_qp_ex as CLayout>::LAYOUT,
    <ibv_qp_cap as CLayout>::LAYOUT,
    <ibv_qp_init_attr as CLayout>::LAYOUT,
    <ibv_rx_hash_conf as CLayout>::LAYOUT,
    <ibv_qp_init_attr_ex as CLayout>::LAYOUT,
    <ibv_qp_open_attr as CLayout>::LAYOUT,
    <ibv_qp_attr as CLayout>::LAYOUT,
    <ibv_qp_rate_limit_attr as CLayout>::LAYOUT,
    <ibv_ece as CLayout>::LAYOUT,
    <ibv_srq as CLayout>::LAYOUT,
    <ibv_srq_attr as CLayout>::LAYOUT,
    <ibv_srq_init_attr as CLayout>::LAYOUT,
    <ibv_tm_cap as CLayout>::LAYOUT,
    <ibv_srq_init_attr_ex as CLayout>::LAYOUT,
    <ibv_sge as CLayout>::LAYOUT,
    <ibv_data_buf as CLayout>::LAYOUT,
    <ibv_recv_wr as CLayout>::LAYOUT,
    <ibv_send_wr as CLayout>::LAYOUT,
    <ibv_send_wr_wr as CLayout>::LAYOUT,
    <ibv_send_wr_rdma as CLayout>::LAYOUT,
    <ibv_send_wr_atomic as CLayout>::LAYOUT,
    <ibv_send_wr_ud as CLayout>::LAYOUT,
    <ibv_send_wr_qp_type as CLayout>::LAYOUT,
    <ibv_send_wr_xrc as CLayout>::LAYOUT,
    <ibv_send_wr_bind_mw_tso as CLayout>::LAYOUT,
    <ibv_send_wr_bind_mw as CLayout>::LAYOUT,
    <ibv_send_wr_tso as CLayout>::LAYOUT,
    <ibv_ops_wr as CLayout>::LAYOUT,
    <ibv_ops_wr_tm as CLayout>::LAYOUT,
    <ibv_ops_wr_tm_add as CLayout>::LAYOUT,
    <ibv_wc as CLayout>::LAYOUT,
    <ibv_wc_tm_info as CLayout>::LAYOUT,
    <rdma_ib_addr as CLayout>::LAYOUT,
    <rdma_addr as CLayout>::LAYOUT,
    <rdma_route as CLayout>::LAYOUT,
    <rdma_event_channel as CLayout>::LAYOUT,
    <rdma_cm_id as CLayout>::LAYOUT,
    <rdma_conn_param as CLayout>::LAYOUT,
    <rdma_ud_param as CLayout>::LAYOUT,
    <rdma_cm_event_param as CLayout>::LAYOUT,
    <rdma_cm_event as CLayout>::LAYOUT,
    <rdma_addrinfo as CLayout>::LAYOUT,
    <rdma_cm_join_mc_attr_ex as CLayout>::LAYOUT,
];
