//! What a queue pair counts over its whole life, for people who ask what a program did.

/// Numbers of a queue pair since it was made; RESET keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that completed with success, signalled or not: SENDs, WRITEs, READs, atomics.
    pub messages: u64,
    /// Bytes of their payload.
    pub bytes: u64,
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
            bytes,
            repeated_packets,
            time_outs,
            sequence_naks,
            rnr_naks,
            failed_requests,
        } = other;
        for (sum, more) in [
            (&mut self.messages, messages),
            (&mut self.bytes, bytes),
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
