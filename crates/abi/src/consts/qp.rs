//! Queue pairs.

consts! {
    QP_CONSTANTS;

    /// Transport service of a queue pair.
    ibv_qp_type: u32 {
        IBV_QPT_RC = 2, "Reliable connection.";
        IBV_QPT_UC = 3, "Unreliable connection.";
        IBV_QPT_UD = 4, "Unreliable datagram.";
        IBV_QPT_RAW_PACKET = 8, "Raw Ethernet packets.";
        IBV_QPT_XRC_SEND = 9, "Sending end of XRC.";
        IBV_QPT_XRC_RECV = 10, "Receiving end of XRC.";
        IBV_QPT_DRIVER = 0xff, "The vendor's own.";
    }

    /// State of a queue pair (IBA 10.3.1).
    ibv_qp_state: u32 {
        IBV_QPS_RESET = 0, "New.";
        IBV_QPS_INIT = 1, "Receives can be posted.";
        IBV_QPS_RTR = 2, "Ready to receive.";
        IBV_QPS_RTS = 3, "Ready to send.";
        IBV_QPS_SQD = 4, "The send queue drains, or has drained.";
        IBV_QPS_SQE = 5, "A send failed; receives go on.";
        IBV_QPS_ERR = 6, "Everything is flushed.";
        IBV_QPS_UNKNOWN = 7, "Not known.";
    }

    /// State of path migration.
    ibv_mig_state: u32 {
        IBV_MIG_MIGRATED = 0, "On the path that is in use.";
        IBV_MIG_REARM = 1, "Arming the alternate path.";
        IBV_MIG_ARMED = 2, "The alternate path is ready.";
    }

    /// Which fields of `ibv_qp_attr` a call uses.
    ibv_qp_attr_mask: u32 {
        IBV_QP_STATE = 1 << 0, "`qp_state`.";
        IBV_QP_CUR_STATE = 1 << 1, "`cur_qp_state`.";
        IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2, "`en_sqd_async_notify`.";
        IBV_QP_ACCESS_FLAGS = 1 << 3, "`qp_access_flags`.";
        IBV_QP_PKEY_INDEX = 1 << 4, "`pkey_index`.";
        IBV_QP_PORT = 1 << 5, "`port_num`.";
        IBV_QP_QKEY = 1 << 6, "`qkey`.";
        IBV_QP_AV = 1 << 7, "`ah_attr`.";
        IBV_QP_PATH_MTU = 1 << 8, "`path_mtu`.";
        IBV_QP_TIMEOUT = 1 << 9, "`timeout`.";
        IBV_QP_RETRY_CNT = 1 << 10, "`retry_cnt`.";
        IBV_QP_RNR_RETRY = 1 << 11, "`rnr_retry`.";
        IBV_QP_RQ_PSN = 1 << 12, "`rq_psn`.";
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13, "`max_rd_atomic`.";
        IBV_QP_ALT_PATH = 1 << 14, "The alternate path.";
        IBV_QP_MIN_RNR_TIMER = 1 << 15, "`min_rnr_timer`.";
        IBV_QP_SQ_PSN = 1 << 16, "`sq_psn`.";
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17, "`max_dest_rd_atomic`.";
        IBV_QP_PATH_MIG_STATE = 1 << 18, "`path_mig_state`.";
        IBV_QP_CAP = 1 << 19, "`cap`.";
        IBV_QP_DEST_QPN = 1 << 20, "`dest_qp_num`.";
        IBV_QP_RATE_LIMIT = 1 << 25, "`rate_limit`.";
    }

    /// Which optional fields of `ibv_qp_init_attr_ex` are valid.
    ibv_qp_init_attr_mask: u32 {
        IBV_QP_INIT_ATTR_PD = 1 << 0, "`pd`.";
        IBV_QP_INIT_ATTR_XRCD = 1 << 1, "`xrcd`.";
        IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2, "`create_flags`.";
        IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3, "`max_tso_header`.";
        IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4, "`rwq_ind_tbl`.";
        IBV_QP_INIT_ATTR_RX_HASH = 1 << 5, "`rx_hash_conf`.";
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6, "`send_ops_flags`.";
    }

    /// Options of a queue pair.
    ibv_qp_create_flags: u32 {
        IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1, "Its multicasts do not come back to it.";
        IBV_QP_CREATE_SCATTER_FCS = 1 << 8, "The checksum is received too.";
        IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9, "VLAN tags are removed.";
        IBV_QP_CREATE_SOURCE_QPN = 1 << 10, "It sends under another number.";
        IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11, "Writes are padded to the cache line.";
    }

    /// Operations that will be posted through `ibv_wr_*`.
    ibv_qp_create_send_ops_flags: u64 {
        IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0, "WRITE.";
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1, "WRITE with immediate data.";
        IBV_QP_EX_WITH_SEND = 1 << 2, "SEND.";
        IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3, "SEND with immediate data.";
        IBV_QP_EX_WITH_RDMA_READ = 1 << 4, "READ.";
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5, "Compare-and-swap.";
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6, "Fetch-and-add.";
        IBV_QP_EX_WITH_LOCAL_INV = 1 << 7, "Local invalidation.";
        IBV_QP_EX_WITH_BIND_MW = 1 << 8, "Binding of windows.";
        IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9, "SEND with invalidate.";
        IBV_QP_EX_WITH_TSO = 1 << 10, "Segmented send.";
        IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12, "Atomic write.";
    }

    /// Which fields of `ibv_qp_open_attr` are valid.
    ibv_qp_open_attr_mask: u32 {
        IBV_QP_OPEN_ATTR_NUM = 1 << 0, "`qp_num`.";
        IBV_QP_OPEN_ATTR_XRCD = 1 << 1, "`xrcd`.";
        IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2, "`qp_context`.";
        IBV_QP_OPEN_ATTR_TYPE = 1 << 3, "`qp_type`.";
        IBV_QP_OPEN_ATTR_RESERVED = 1 << 4, "The first bit without a meaning.";
    }
}
