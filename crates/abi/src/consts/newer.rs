//! Constants newer than rdma-core 44. Its header does not have them, so no test compares them.

consts! {
    NEWER_CONSTANTS;

    /// Memory placement of a flush.
    ibv_placement_type: u8 {
        IBV_FLUSH_GLOBAL = 1 << 0, "Visible to everyone.";
        IBV_FLUSH_PERSISTENT = 1 << 1, "Safe without power.";
    }

    /// How much a flush covers.
    ibv_selectivity_level: u8 {
        IBV_FLUSH_RANGE = 0, "A range of a region.";
        IBV_FLUSH_MR = 1, "The whole region.";
    }
}

use super::{ibv_access_flags, ibv_wc_opcode, ibv_wr_opcode};

/// A flush completed.
pub const IBV_WC_FLUSH: ibv_wc_opcode = 8;
/// A flush.
pub const IBV_WR_FLUSH: ibv_wr_opcode = 14;
/// Peers may flush to global visibility.
pub const IBV_ACCESS_FLUSH_GLOBAL: ibv_access_flags = 1 << 8;
/// Peers may flush to persistence.
pub const IBV_ACCESS_FLUSH_PERSISTENT: ibv_access_flags = 1 << 9;
/// Flushes will be posted (`ibv_qp_create_send_ops_flags`).
pub const IBV_QP_EX_WITH_FLUSH: u64 = 1 << 11;
