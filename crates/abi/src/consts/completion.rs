//! Completions, completion queues, events.

consts! {
    COMPLETION_CONSTANTS;

    /// How a work request ended (IBA 11.6.2).
    ibv_wc_status: u32 {
        IBV_WC_SUCCESS = 0, "It succeeded.";
        IBV_WC_LOC_LEN_ERR = 1, "The message did not fit the posted memory, or a limit.";
        IBV_WC_LOC_QP_OP_ERR = 2, "The request was not consistent with the QP.";
        IBV_WC_LOC_EEC_OP_ERR = 3, "The same for an end-to-end context (RD).";
        IBV_WC_LOC_PROT_ERR = 4, "A local key, its bounds or its rights did not allow it.";
        IBV_WC_WR_FLUSH_ERR = 5, "The QP was in the error state when its turn came.";
        IBV_WC_MW_BIND_ERR = 6, "A window could not be bound.";
        IBV_WC_BAD_RESP_ERR = 7, "The responder answered with an unexpected opcode.";
        IBV_WC_LOC_ACCESS_ERR = 8, "A local key did not allow what a peer's message needed.";
        IBV_WC_REM_INV_REQ_ERR = 9, "The responder found the request invalid.";
        IBV_WC_REM_ACCESS_ERR = 10, "A remote key, its bounds or its rights did not allow it.";
        IBV_WC_REM_OP_ERR = 11, "The responder could not complete it.";
        IBV_WC_RETRY_EXC_ERR = 12, "No answer after all retries.";
        IBV_WC_RNR_RETRY_EXC_ERR = 13, "The responder had no receive, after all retries.";
        IBV_WC_LOC_RDD_VIOL_ERR = 14, "RD domains did not match.";
        IBV_WC_REM_INV_RD_REQ_ERR = 15, "The responder found the RD request invalid.";
        IBV_WC_REM_ABORT_ERR = 16, "The operation was aborted.";
        IBV_WC_INV_EECN_ERR = 17, "No such end-to-end context (RD).";
        IBV_WC_INV_EEC_STATE_ERR = 18, "Wrong state of an end-to-end context (RD).";
        IBV_WC_FATAL_ERR = 19, "The device failed.";
        IBV_WC_RESP_TIMEOUT_ERR = 20, "The response timed out.";
        IBV_WC_GENERAL_ERR = 21, "Another error.";
        IBV_WC_TM_ERR = 22, "Tag matching failed.";
        IBV_WC_TM_RNDV_INCOMPLETE = 23, "The rendezvous has to be finished by the program.";
    }

    /// The operation that completed.
    ibv_wc_opcode: u32 {
        IBV_WC_SEND = 0, "A SEND.";
        IBV_WC_RDMA_WRITE = 1, "A WRITE.";
        IBV_WC_RDMA_READ = 2, "A READ.";
        IBV_WC_COMP_SWAP = 3, "A compare-and-swap.";
        IBV_WC_FETCH_ADD = 4, "A fetch-and-add.";
        IBV_WC_BIND_MW = 5, "The binding of a window.";
        IBV_WC_LOCAL_INV = 6, "The invalidation of a local key.";
        IBV_WC_TSO = 7, "A segmented send.";
        IBV_WC_ATOMIC_WRITE = 9, "An atomic write.";
        IBV_WC_RECV = 128, "A receive; this bit is set in the codes of all receives.";
        IBV_WC_RECV_RDMA_WITH_IMM = 129, "A receive that a WRITE with immediate data used up.";
        IBV_WC_TM_ADD = 130, "A tag was added.";
        IBV_WC_TM_DEL = 131, "A tag was removed.";
        IBV_WC_TM_SYNC = 132, "A tag list was synchronised.";
        IBV_WC_TM_RECV = 133, "A tagged message.";
        IBV_WC_TM_NO_TAG = 134, "A message that no tag matched.";
        IBV_WC_DRIVER1 = 135, "The vendor's first own code.";
        IBV_WC_DRIVER2 = 136, "The vendor's second own code.";
        IBV_WC_DRIVER3 = 137, "The vendor's third own code.";
    }

    /// Flags of a completion.
    ibv_wc_flags: u32 {
        IBV_WC_GRH = 1 << 0, "A global route header precedes the payload.";
        IBV_WC_WITH_IMM = 1 << 1, "Immediate data is valid.";
        IBV_WC_IP_CSUM_OK = 1 << 2, "The IP checksum is right.";
        IBV_WC_WITH_INV = 1 << 3, "A key was invalidated.";
        IBV_WC_TM_SYNC_REQ = 1 << 4, "The tag list needs synchronising.";
        IBV_WC_TM_MATCH = 1 << 5, "A tag matched.";
        IBV_WC_TM_DATA_VALID = 1 << 6, "The data is in the tagged buffer.";
    }

    /// The fields of completions that a program will read.
    ibv_create_cq_wc_flags: u64 {
        IBV_WC_EX_WITH_BYTE_LEN = 1 << 0, "The length.";
        IBV_WC_EX_WITH_IMM = 1 << 1, "Immediate data.";
        IBV_WC_EX_WITH_QP_NUM = 1 << 2, "The local QP.";
        IBV_WC_EX_WITH_SRC_QP = 1 << 3, "The sending QP.";
        IBV_WC_EX_WITH_SLID = 1 << 4, "The sender's LID.";
        IBV_WC_EX_WITH_SL = 1 << 5, "The service level.";
        IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6, "The path bits.";
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7, "The adapter's time.";
        IBV_WC_EX_WITH_CVLAN = 1 << 8, "The VLAN tag.";
        IBV_WC_EX_WITH_FLOW_TAG = 1 << 9, "The tag of the flow.";
        IBV_WC_EX_WITH_TM_INFO = 1 << 10, "Tag matching.";
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11, "The time of day.";
        IBV_WC_STANDARD_FLAGS = 0x7f, "All that an `ibv_wc` has.";
        IBV_CREATE_CQ_SUP_WC_FLAGS = 0xfff, "All that the header knows.";
    }

    /// Which optional fields of `ibv_cq_init_attr_ex` are valid.
    ibv_cq_init_attr_mask: u32 {
        IBV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 0, "`flags`.";
        IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1, "`parent_domain`.";
    }

    /// How a completion queue is used.
    ibv_create_cq_attr_flags: u32 {
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1 << 0, "By one thread at a time.";
        IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1, "Overflow is not to be noticed.";
    }

    /// Which attributes of a completion queue to change.
    ibv_cq_attr_mask: u32 {
        IBV_CQ_ATTR_MODERATE = 1 << 0, "Moderation of events.";
        IBV_CQ_ATTR_RESERVED = 1 << 1, "The first bit without a meaning.";
    }

    /// Asynchronous events (IBA 11.6.3).
    ibv_event_type: u32 {
        IBV_EVENT_CQ_ERR = 0, "A completion queue overflowed.";
        IBV_EVENT_QP_FATAL = 1, "A QP failed and is in the error state.";
        IBV_EVENT_QP_REQ_ERR = 2, "A QP received an invalid request.";
        IBV_EVENT_QP_ACCESS_ERR = 3, "A QP received a request without the rights.";
        IBV_EVENT_COMM_EST = 4, "A QP in RTR received its first packet.";
        IBV_EVENT_SQ_DRAINED = 5, "A send queue has drained.";
        IBV_EVENT_PATH_MIG = 6, "The alternate path is in use.";
        IBV_EVENT_PATH_MIG_ERR = 7, "The alternate path could not be used.";
        IBV_EVENT_DEVICE_FATAL = 8, "The device failed.";
        IBV_EVENT_PORT_ACTIVE = 9, "A port came up.";
        IBV_EVENT_PORT_ERR = 10, "A port went down.";
        IBV_EVENT_LID_CHANGE = 11, "A LID changed.";
        IBV_EVENT_PKEY_CHANGE = 12, "The P_Key table changed.";
        IBV_EVENT_SM_CHANGE = 13, "The subnet manager changed.";
        IBV_EVENT_SRQ_ERR = 14, "An SRQ failed.";
        IBV_EVENT_SRQ_LIMIT_REACHED = 15, "An SRQ holds fewer receives than its limit.";
        IBV_EVENT_QP_LAST_WQE_REACHED = 16, "A QP in error takes no more from its SRQ.";
        IBV_EVENT_CLIENT_REREGISTER = 17, "The subnet manager wants subscriptions again.";
        IBV_EVENT_GID_CHANGE = 18, "The GID table changed.";
        IBV_EVENT_WQ_FATAL = 19, "A work queue failed.";
    }
}

/// Bit number of the checksum flag in `ibv_wc_flags`.
pub const IBV_WC_IP_CSUM_OK_SHIFT: u32 = 2;
