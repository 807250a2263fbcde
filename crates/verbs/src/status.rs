//! Completion statuses, and what they usually mean.

use rdmalab_abi as abi;

/// A completion that is not a success (IBA 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    /// The message did not fit the posted memory, or a limit.
    LocalLength,
    /// The request was not consistent with the queue pair.
    LocalQpOperation,
    /// A local key, its bounds or its rights did not allow it.
    LocalProtection,
    /// The queue pair was in the error state before the request was executed.
    WorkRequestFlushed,
    /// A window could not be bound.
    MemoryWindowBind,
    /// The responder answered with an unexpected opcode.
    BadResponse,
    /// A local key did not allow what a peer's message needed.
    LocalAccess,
    /// The responder found the request invalid.
    RemoteInvalidRequest,
    /// A remote key, its bounds or its rights did not allow it.
    RemoteAccess,
    /// The responder could not complete it.
    RemoteOperation,
    /// No answer after all retries.
    RetryExceeded,
    /// The responder had no receive, after all retries.
    RnrRetryExceeded,
    /// The operation was aborted at the responder.
    RemoteAborted,
    /// The device failed.
    Fatal,
    /// The response timed out.
    ResponseTimeout,
    /// Another error.
    General,
    /// An unknown number.
    Other(u32),
}

impl WcStatus {
    /// From the number, as in C; `None` for success.
    #[must_use]
    pub const fn from_raw(status: u32) -> Option<Self> {
        Some(match status {
            abi::IBV_WC_SUCCESS => return None,
            abi::IBV_WC_LOC_LEN_ERR => Self::LocalLength,
            abi::IBV_WC_LOC_QP_OP_ERR => Self::LocalQpOperation,
            abi::IBV_WC_LOC_PROT_ERR => Self::LocalProtection,
            abi::IBV_WC_WR_FLUSH_ERR => Self::WorkRequestFlushed,
            abi::IBV_WC_MW_BIND_ERR => Self::MemoryWindowBind,
            abi::IBV_WC_BAD_RESP_ERR => Self::BadResponse,
            abi::IBV_WC_LOC_ACCESS_ERR => Self::LocalAccess,
            abi::IBV_WC_REM_INV_REQ_ERR => Self::RemoteInvalidRequest,
            abi::IBV_WC_REM_ACCESS_ERR => Self::RemoteAccess,
            abi::IBV_WC_REM_OP_ERR => Self::RemoteOperation,
            abi::IBV_WC_RETRY_EXC_ERR => Self::RetryExceeded,
            abi::IBV_WC_RNR_RETRY_EXC_ERR => Self::RnrRetryExceeded,
            abi::IBV_WC_REM_ABORT_ERR => Self::RemoteAborted,
            abi::IBV_WC_FATAL_ERR => Self::Fatal,
            abi::IBV_WC_RESP_TIMEOUT_ERR => Self::ResponseTimeout,
            abi::IBV_WC_GENERAL_ERR => Self::General,
            other => Self::Other(other),
        })
    }

    /// The name, as in C.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LocalLength => "IBV_WC_LOC_LEN_ERR",
            Self::LocalQpOperation => "IBV_WC_LOC_QP_OP_ERR",
            Self::LocalProtection => "IBV_WC_LOC_PROT_ERR",
            Self::WorkRequestFlushed => "IBV_WC_WR_FLUSH_ERR",
            Self::MemoryWindowBind => "IBV_WC_MW_BIND_ERR",
            Self::BadResponse => "IBV_WC_BAD_RESP_ERR",
            Self::LocalAccess => "IBV_WC_LOC_ACCESS_ERR",
            Self::RemoteInvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
            Self::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
            Self::RemoteOperation => "IBV_WC_REM_OP_ERR",
            Self::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
            Self::RnrRetryExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
            Self::RemoteAborted => "IBV_WC_REM_ABORT_ERR",
            Self::Fatal => "IBV_WC_FATAL_ERR",
            Self::ResponseTimeout => "IBV_WC_RESP_TIMEOUT_ERR",
            Self::General => "IBV_WC_GENERAL_ERR",
            Self::Other(_) => "an unnamed status",
        }
    }

    /// What it means, and its likely causes, the likeliest first.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Self::LocalLength => {
                "the message is longer than the memory posted for it, or than the path MTU on UD \
                 (where a receive needs 40 bytes more, for the GRH)"
            }
            Self::LocalQpOperation => {
                "the request does not suit this queue pair: an opcode that its transport does not \
                 have, more scatter/gather elements or inline bytes than it was made with, or an \
                 address handle of another domain"
            }
            Self::LocalProtection => {
                "a local key does not cover this memory: the region was deregistered, belongs to \
                 another domain, is shorter, or lacks LOCAL_WRITE"
            }
            Self::WorkRequestFlushed => {
                "the queue pair was in the error state: look for the first completion that is not \
                 a flush, which has the cause; or the program itself moved it there"
            }
            Self::MemoryWindowBind => {
                "the window was not bound: the region below lacks MW_BIND or is bound to another \
                 domain, or the range lies outside it"
            }
            Self::BadResponse => {
                "the peer answered with something else than was asked for: the two ends disagree \
                 about the transport or the packet sequence numbers"
            }
            Self::LocalAccess => {
                "a peer's message needed memory here that the posted receive does not grant"
            }
            Self::RemoteInvalidRequest => {
                "the peer refused the request: longer than its receive, more READs and atomics \
                 under way than its max_dest_rd_atomic, or an operation that its queue pair does \
                 not allow"
            }
            Self::RemoteAccess => {
                "the peer's key does not allow it: wrong or outdated rkey, an address outside the \
                 region, a region or queue pair without REMOTE_WRITE, REMOTE_READ or \
                 REMOTE_ATOMIC, or an atomic on an address that is not a multiple of 8"
            }
            Self::RemoteOperation => {
                "the peer could not carry it out: its receive failed on a local key, or the memory \
                 was no longer mapped"
            }
            Self::RetryExceeded => {
                "no answer in the time that timeout and retry_cnt allow: the peer is dead or was \
                 stopped, its queue pair is not ready to receive or has another number, or the \
                 first packet sequence numbers do not match"
            }
            Self::RnrRetryExceeded => {
                "the peer had no receive posted in the time that rnr_retry and its min_rnr_timer \
                 allow: post more receives there, or set rnr_retry to 7 (wait for ever)"
            }
            Self::RemoteAborted => "the peer aborted the operation",
            Self::Fatal => "the device failed; it has to be opened again",
            Self::ResponseTimeout => "the peer took the request, and its response did not come",
            Self::General => "the device gives no detail; see vendor_err",
            Self::Other(_) => "a status that the specification does not define; see vendor_err",
        }
    }
}

impl std::fmt::Display for WcStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Other(number) => write!(f, "ibv_wc_status {number}: {}", self.explain()),
            _ => write!(f, "{}: {}", self.name(), self.explain()),
        }
    }
}

impl std::error::Error for WcStatus {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_name_and_words() {
        let all: Vec<WcStatus> = (0..32).filter_map(WcStatus::from_raw).collect();
        assert_eq!(all.len(), 31, "only success is no status");
        let named: Vec<&WcStatus> =
            all.iter().filter(|s| !matches!(s, WcStatus::Other(_))).collect();
        assert_eq!(named.len(), 16);
        for (i, a) in named.iter().enumerate() {
            assert!(a.explain().len() > 20 || a.name().contains("ABORT"), "{a}");
            for b in &named[i + 1..] {
                assert!(a.name() != b.name() && a.explain() != b.explain());
            }
        }
        assert!(WcStatus::Other(31).to_string().contains("31"));
    }
}
