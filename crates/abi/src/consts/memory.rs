//! Memory regions, windows, domains, shared receive queues.

consts! {
    MEMORY_CONSTANTS;

    /// Rights of a region, a window or a QP.
    ibv_access_flags: u32 {
        IBV_ACCESS_LOCAL_WRITE = 1, "The adapter may write here for this process.";
        IBV_ACCESS_REMOTE_WRITE = 1 << 1, "Peers may write.";
        IBV_ACCESS_REMOTE_READ = 1 << 2, "Peers may read.";
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3, "Peers may do atomics.";
        IBV_ACCESS_MW_BIND = 1 << 4, "Windows may be bound.";
        IBV_ACCESS_ZERO_BASED = 1 << 5, "Peers' addresses count from 0.";
        IBV_ACCESS_ON_DEMAND = 1 << 6, "Pages are fetched when needed.";
        IBV_ACCESS_HUGETLB = 1 << 7, "The pages are huge.";
        IBV_ACCESS_RELAXED_ORDERING = 1 << 20, "Writes may become visible in any order.";
        IBV_ACCESS_OPTIONAL_RANGE = 0x3ff0_0000, "The bits that a device may ignore.";
    }

    /// Kind of a window.
    ibv_mw_type: u32 {
        IBV_MW_TYPE_1 = 1, "Bound by a verb; the key is the library's.";
        IBV_MW_TYPE_2 = 2, "Bound by a work request; the key is partly the program's.";
    }

    /// Which attributes of a region to change.
    ibv_rereg_mr_flags: u32 {
        IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0, "The memory.";
        IBV_REREG_MR_CHANGE_PD = 1 << 1, "The domain.";
        IBV_REREG_MR_CHANGE_ACCESS = 1 << 2, "The rights.";
        IBV_REREG_MR_FLAGS_SUPPORTED = 7, "All of these.";
    }

    /// How changing a region failed.
    ibv_rereg_mr_err_code: i32 {
        IBV_REREG_MR_ERR_INPUT = -1, "Wrong input; the region is as before.";
        IBV_REREG_MR_ERR_DONT_FORK_NEW = -2, "New memory refused; the region is as before.";
        IBV_REREG_MR_ERR_DO_FORK_OLD = -3, "Changed, but the old memory is not released.";
        IBV_REREG_MR_ERR_CMD = -4, "The region must not be used any more.";
        IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5, "The same, and new memory is not released.";
    }

    /// Advice about memory that pages on demand.
    ibv_advise_mr_advice: u32 {
        IBV_ADVISE_MR_ADVICE_PREFETCH = 0, "Fetch for reading.";
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1, "Fetch for writing.";
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2, "Fetch what is present.";
    }

    /// Flags of advice.
    ibv_advise_mr_flags: u32 {
        IBV_ADVISE_MR_FLAG_FLUSH = 1 << 0, "Return only when it is done.";
    }

    /// Which attributes of a shared receive queue to change.
    ibv_srq_attr_mask: u32 {
        IBV_SRQ_MAX_WR = 1 << 0, "Its size.";
        IBV_SRQ_LIMIT = 1 << 1, "Its limit.";
    }

    /// Kind of a shared receive queue.
    ibv_srq_type: u32 {
        IBV_SRQT_BASIC = 0, "Basic.";
        IBV_SRQT_XRC = 1, "For XRC.";
        IBV_SRQT_TM = 2, "With tag matching.";
    }

    /// Which optional fields of `ibv_srq_init_attr_ex` are valid.
    ibv_srq_init_attr_mask: u32 {
        IBV_SRQ_INIT_ATTR_TYPE = 1 << 0, "`srq_type`.";
        IBV_SRQ_INIT_ATTR_PD = 1 << 1, "`pd`.";
        IBV_SRQ_INIT_ATTR_XRCD = 1 << 2, "`xrcd`.";
        IBV_SRQ_INIT_ATTR_CQ = 1 << 3, "`cq`.";
        IBV_SRQ_INIT_ATTR_TM = 1 << 4, "`tm_cap`.";
        IBV_SRQ_INIT_ATTR_RESERVED = 1 << 5, "The first bit without a meaning.";
    }

    /// Which fields of `ibv_xrcd_init_attr` are valid.
    ibv_xrcd_init_attr_mask: u32 {
        IBV_XRCD_INIT_ATTR_FD = 1 << 0, "`fd`.";
        IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1, "`oflags`.";
        IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2, "The first bit without a meaning.";
    }

    /// Which fields of `ibv_parent_domain_init_attr` are valid.
    ibv_parent_domain_init_attr_mask: u32 {
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0, "`alloc` and `free`.";
        IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1, "`pd_context`.";
    }
}
