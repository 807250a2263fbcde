//! What IBA leaves open to adapters.

/// The behaviour of an adapter where IBA leaves it open. It is the same for all queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The least code of a local ACK time-out: smaller ones are taken for it. A device reports it
    /// as `local_ca_ack_delay`.
    pub ack_timeout_min_code: u8,
    /// The wait after an RNR NAK, in percent of what the NAK asks for; 100 or more (IBA vol. 1,
    /// 9.7.5.2.8).
    pub rnr_wait_percent: u32,
    /// Whether responses that arrive during that wait are discarded.
    pub discards_while_paused: bool,
    /// Whether a READ that was answered with an RNR NAK for a page fault is served once the page is
    /// there, without waiting for the repeated request.
    pub serves_faulted_reads: bool,
    /// The pause after a response found a page missing, ns.
    pub page_fault_pause_ns: u64,
}

impl Default for Adapter {
    fn default() -> Self {
        Adapter {
            ack_timeout_min_code: 0,
            rnr_wait_percent: 100,
            discards_while_paused: false,
            serves_faulted_reads: false,
            // About what fukuoka2021 (4.2) saw of a ConnectX-4.
            page_fault_pause_ns: 500_000,
        }
    }
}
