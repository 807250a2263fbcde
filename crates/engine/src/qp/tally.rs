//! What a queue pair counts over its whole life, for people who ask what a program did.

use rdmalab_wire::ids::Psn;

/// Numbers of a queue pair since it was made; RESET keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that completed with success, signalled or not: SENDs, WRITEs, READs, atomics. Of
    /// 2^32 without a RESET it begins anew.
    pub messages: u64,
    /// Request packets that were sent again; a READ or an atomic is one packet.
    pub repeated_packets: u64,
    /// Time-outs of acknowledgements: the last one, which fails a request, counts too.
    pub time_outs: u64,
    /// PSN sequence error NAKs that arrived.
    pub sequence_naks: u64,
    /// RNR NAKs that arrived.
    pub rnr_naks: u64,
    /// Requests that ended with an error; those that were flushed behind them do not count.
    pub failed_requests: u64,
}

impl Tally {
    /// Adds the numbers of another queue pair.
    pub fn add(&mut self, other: &Tally) {
        // Named one by one, so that a new field is not forgotten.
        let Tally {
            messages,
            repeated_packets,
            time_outs,
            sequence_naks,
            rnr_naks,
            failed_requests,
        } = other;
        for (sum, more) in [
            (&mut self.messages, messages),
            (&mut self.repeated_packets, repeated_packets),
            (&mut self.time_outs, time_outs),
            (&mut self.sequence_naks, sequence_naks),
            (&mut self.rnr_naks, rnr_naks),
            (&mut self.failed_requests, failed_requests),
        ] {
            *sum = sum.saturating_add(*more);
        }
    }
}

/// What a queue pair keeps of it, and what else only disturbed ones need. Messages are counted by
/// the position in the send queue, so that none costs time.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// All but the messages since the last RESET.
    pub(super) tally: Tally,
    /// Requests that completed since then and are no messages: flushed, failed, or local ones.
    pub(super) others: u32,
    /// What was sent before this PSN is repeated because of a page fault. A response that comes
    /// late for that reason spends no retry.
    pub(super) repeats_to: Option<Psn>,
}

impl Counted {
    /// The whole tally when so many requests have completed since the last RESET.
    pub(super) fn with(&self, completed: u32) -> Tally {
        let new = u64::from(completed.saturating_sub(self.others));
        Tally { messages: self.tally.messages + new, ..self.tally }
    }

    /// The send queue begins anew after so many completed requests.
    pub(super) fn reset(&mut self, completed: u32) {
        *self = Counted { tally: self.with(completed), others: 0, repeats_to: None };
    }
}
