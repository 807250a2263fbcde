//! Completions.

use rdmalab_abi as abi;

use crate::status::WcStatus;

/// The operation that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// A SEND.
    Send,
    /// A WRITE.
    RdmaWrite,
    /// A READ.
    RdmaRead,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// The invalidation of a local key.
    LocalInvalidate,
    /// The binding of a window.
    BindMw,
    /// A receive, of a SEND.
    Recv,
    /// A receive that a WRITE with immediate data consumed.
    RecvRdmaWithImm,
    /// An unknown number.
    Other(u32),
}

/// A completion. The default value is an array element to poll into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Wc(pub(crate) abi::ibv_wc);

impl Default for Wc {
    fn default() -> Self {
        Self(abi::ibv_wc::zeroed())
    }
}

impl Wc {
    /// The request's number.
    #[must_use]
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    /// How it ended; on an error only the request's number, the queue pair and the vendor's detail
    /// are valid.
    ///
    /// # Errors
    /// Any status but success.
    #[inline]
    pub fn status(&self) -> Result<(), WcStatus> {
        match WcStatus::from_raw(self.0.status) {
            None => Ok(()),
            Some(status) => Err(status),
        }
    }

    /// Whether it succeeded.
    #[must_use]
    #[inline]
    pub fn is_ok(&self) -> bool {
        self.0.status == abi::IBV_WC_SUCCESS
    }

    /// The operation that completed.
    #[must_use]
    pub fn opcode(&self) -> WcOpcode {
        match self.0.opcode {
            abi::IBV_WC_SEND => WcOpcode::Send,
            abi::IBV_WC_RDMA_WRITE => WcOpcode::RdmaWrite,
            abi::IBV_WC_RDMA_READ => WcOpcode::RdmaRead,
            abi::IBV_WC_COMP_SWAP => WcOpcode::CompareSwap,
            abi::IBV_WC_FETCH_ADD => WcOpcode::FetchAdd,
            abi::IBV_WC_LOCAL_INV => WcOpcode::LocalInvalidate,
            abi::IBV_WC_BIND_MW => WcOpcode::BindMw,
            abi::IBV_WC_RECV => WcOpcode::Recv,
            abi::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvRdmaWithImm,
            other => WcOpcode::Other(other),
        }
    }

    /// Bytes received, or read; for a datagram including the 40 bytes of the GRH.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// Immediate data, host byte order.
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        let has = self.0.wc_flags & abi::IBV_WC_WITH_IMM != 0;
        has.then(|| u32::from_be(self.0.imm_data))
    }

    /// The key of this process that a SEND with invalidate has invalidated.
    #[must_use]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        (self.0.wc_flags & abi::IBV_WC_WITH_INV != 0).then_some(self.0.imm_data)
    }

    /// Whether the receive begins with a valid GRH.
    #[must_use]
    pub fn has_grh(&self) -> bool {
        self.0.wc_flags & abi::IBV_WC_GRH != 0
    }

    /// The local queue pair.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// The sending queue pair, of a datagram.
    #[must_use]
    pub fn src_qp(&self) -> u32 {
        self.0.src_qp
    }

    /// The sender's LID, of a datagram.
    #[must_use]
    pub fn slid(&self) -> u16 {
        self.0.slid
    }

    /// The vendor's detail of an error.
    #[must_use]
    pub fn vendor_err(&self) -> u32 {
        self.0.vendor_err
    }
}
