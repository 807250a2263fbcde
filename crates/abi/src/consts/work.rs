//! Work requests.

consts! {
    WORK_CONSTANTS;

    /// Operations of send requests.
    ibv_wr_opcode: u32 {
        IBV_WR_RDMA_WRITE = 0, "WRITE.";
        IBV_WR_RDMA_WRITE_WITH_IMM = 1, "WRITE with immediate data.";
        IBV_WR_SEND = 2, "SEND.";
        IBV_WR_SEND_WITH_IMM = 3, "SEND with immediate data.";
        IBV_WR_RDMA_READ = 4, "READ.";
        IBV_WR_ATOMIC_CMP_AND_SWP = 5, "Compare-and-swap.";
        IBV_WR_ATOMIC_FETCH_AND_ADD = 6, "Fetch-and-add.";
        IBV_WR_LOCAL_INV = 7, "Invalidates a local key.";
        IBV_WR_BIND_MW = 8, "Binds a window of type 2.";
        IBV_WR_SEND_WITH_INV = 9, "SEND that invalidates a key of the peer.";
        IBV_WR_TSO = 10, "Segmented send.";
        IBV_WR_DRIVER1 = 11, "The vendor's own.";
        IBV_WR_ATOMIC_WRITE = 15, "Writes 8 bytes at once.";
    }

    /// Flags of send requests.
    ibv_send_flags: u32 {
        IBV_SEND_FENCE = 1 << 0, "After all earlier READs and atomics.";
        IBV_SEND_SIGNALED = 1 << 1, "With a completion.";
        IBV_SEND_SOLICITED = 1 << 2, "With a solicited event at the peer.";
        IBV_SEND_INLINE = 1 << 3, "The bytes are taken when it is posted.";
        IBV_SEND_IP_CSUM = 1 << 4, "With an IP checksum.";
    }

    /// Operations of tag-matching requests.
    ibv_ops_wr_opcode: u32 {
        IBV_WR_TAG_ADD = 0, "Adds a tag.";
        IBV_WR_TAG_DEL = 1, "Removes a tag.";
        IBV_WR_TAG_SYNC = 2, "Synchronises the list.";
    }

    /// Flags of tag-matching requests.
    ibv_ops_flags: u32 {
        IBV_OPS_SIGNALED = 1 << 0, "With a completion.";
        IBV_OPS_TM_SYNC = 1 << 1, "With synchronisation.";
    }
}
