//! What a queue pair counts over its whole life, for people who ask what a program did.

use rdmalab_wire::aeth::{NakCode, Syndrome};
use rdmalab_wire::ids::Psn;

use crate::train::{Train, TrainKind};

/// Numbers of a queue pair since it was made; RESET keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that completed with success, signalled or not: SENDs, WRITEs, READs, atomics. Of
    /// 2^32 without a RESET it begins anew.
    pub messages: u64,
    /// Request packets that were sent, also those that were sent again; a READ or an atomic is one
    /// packet. One whose payload cannot be read counts too.
    pub request_packets: u64,
    /// Request packets that were sent again.
    pub repeated_packets: u64,
    /// Time-outs of acknowledgements: the last one, which fails a request, counts too.
    pub time_outs: u64,
    /// PSN sequence error NAKs that arrived.
    pub sequence_naks: u64,
    /// RNR NAKs that arrived.
    pub rnr_naks: u64,
    /// Requests that ended with an error; those that were flushed behind them do not count.
    pub failed_requests: u64,
    /// Packets of the responses to READs and atomics that were sent.
    pub response_packets: u64,
    /// Acknowledgements that were sent.
    pub acks_sent: u64,
    /// RNR NAKs that were sent.
    pub rnr_naks_sent: u64,
    /// PSN sequence error NAKs that were sent.
    pub sequence_naks_sent: u64,
}

impl Tally {
    /// Each number with its name.
    pub fn named(&self) -> [(&'static str, u64); 11] {
        let mut all = *self;
        all.each().map(|(name, number)| (name, *number))
    }

    /// Adds the numbers of another queue pair.
    pub fn add(&mut self, other: &Tally) {
        for ((_, sum), (_, more)) in self.each().into_iter().zip(other.named()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// What was counted since an earlier state.
    #[must_use]
    pub fn since(mut self, earlier: &Tally) -> Tally {
        for ((_, number), (_, before)) in self.each().into_iter().zip(earlier.named()) {
            *number = number.saturating_sub(before);
        }
        self
    }

    /// Counts a response to a READ or an atomic, or a NAK.
    pub(super) fn count_response(&mut self, train: &Train) {
        match (train.kind, train.syndrome) {
            (TrainKind::Ack, Syndrome::RnrNak(_)) => self.rnr_naks_sent += 1,
            (TrainKind::Ack, Syndrome::Nak(NakCode::PsnSequenceError)) => {
                self.sequence_naks_sent += 1;
            }
            // Another NAK ends the connection.
            (TrainKind::Ack, _) => {}
            _ => self.response_packets += u64::from(train.packets),
        }
    }

    fn each(&mut self) -> [(&'static str, &mut u64); 11] {
        // Named one by one, so that a new field is not forgotten.
        let Tally {
            messages,
            request_packets,
            repeated_packets,
            time_outs,
            sequence_naks,
            rnr_naks,
            failed_requests,
            response_packets,
            acks_sent,
            rnr_naks_sent,
            sequence_naks_sent,
        } = self;
        [
            ("messages", messages),
            ("request_packets", request_packets),
            ("repeated_packets", repeated_packets),
            ("time_outs", time_outs),
            ("rnr_naks", rnr_naks),
            ("sequence_naks", sequence_naks),
            ("failed_requests", failed_requests),
            ("response_packets", response_packets),
            ("acks_sent", acks_sent),
            ("rnr_naks_sent", rnr_naks_sent),
            ("sequence_naks_sent", sequence_naks_sent),
        ]
    }
}

/// What a queue pair keeps of it, and what else only disturbed ones need. Messages are counted by
/// the position in the send queue, so that none costs time.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// All but the messages since the last RESET, and but the packets that the requester and the
    /// responder send all the time, which they count themselves.
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
