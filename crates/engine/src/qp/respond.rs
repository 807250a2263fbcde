//! The responses of the responder: data of READs, values of atomics, NAKs, and acknowledgements
//! last.

use super::responder::Response;
use super::responder_state::{Pending, PendingRead};
use super::{CopyError, Env, Qp};
use crate::train::{TrainFlags, TrainKind};
use crate::vocab::{Access, AsyncEventType, QpState, QpType};
use rdmalab_wire::aeth::{NakCode, Syndrome};
use rdmalab_wire::ids::{Msn, Psn};

impl Qp {
    /// Whether [`Qp::next_response`] would return something, unless that waits for a page or is a
    /// NAK that is held back.
    #[inline]
    pub fn has_response(&self) -> bool {
        self.resp.ack.is_some() || !self.resp.pending.is_empty()
    }

    /// Whether the only response is an acknowledgement, which may as well follow the requests that
    /// are sent next.
    #[inline]
    pub fn has_only_ack(&self) -> bool {
        self.resp.ack.is_some() && self.resp.pending.is_empty()
    }

    /// The PSN and the MSN of the acknowledgement that is due, if it is the only response. A driver
    /// that sends it by a short way calls [`Qp::retire_ack`] after that.
    #[inline(always)]
    pub fn only_ack(&self) -> Option<(Psn, Msn)> {
        let psn = self.resp.ack.filter(|_| self.resp.pending.is_empty())?;
        let sends = self.qp_type == QpType::Rc && self.state != QpState::Reset;
        sends.then_some((psn, self.resp.msn))
    }

    /// The acknowledgement of [`Qp::only_ack`] was sent.
    #[inline(always)]
    pub fn retire_ack(&mut self) {
        self.resp.ack = None;
        self.resp.acks += 1;
    }

    /// Whether the next response carries data. All others fit into a slot or packet without
    /// payload, so a driver can send them even if its link has no room for data.
    #[inline]
    pub fn answers_with_data(&self) -> bool {
        matches!(self.resp.pending.front(), Some(Pending::Read(read)) if read.left > 0)
    }

    /// The next answer to send, with at most `max_payload` bytes (at least one MTU) in one train.
    #[inline]
    pub fn next_response<E: Env>(&mut self, max_payload: u32, env: &mut E) -> Option<Response> {
        if self.qp_type != QpType::Rc || self.state == QpState::Reset {
            return None;
        }
        if self.resp.pending.is_empty() {
            let psn = self.resp.ack.take()?;
            self.resp.acks += 1;
            let train = self.response(TrainKind::Ack, psn, Syndrome::ACK);
            return Some(Response { train, data: None });
        }
        if self.resp.waits_for_page {
            return None;
        }
        let response = self.next_pending(max_payload, env)?;
        self.counted.tally.count_response(&response.train);
        Some(response)
    }

    fn next_pending<E: Env>(&mut self, max_payload: u32, env: &mut E) -> Option<Response> {
        if let Some(Pending::HeldNak(..)) = self.resp.pending.front() {
            return None;
        }
        match self.resp.pending.pop_front()? {
            Pending::Nak(train) | Pending::HeldNak(train, _) | Pending::Atomic { train, .. } => {
                Some(Response { train, data: None })
            }
            Pending::Read(read) => self.next_of_read(read, max_payload, env),
        }
    }

    fn next_of_read<E: Env>(
        &mut self,
        read: PendingRead,
        max_payload: u32,
        env: &mut E,
    ) -> Option<Response> {
        debug_assert!(
            self.mtu.packets(read.left) == read.packets,
            "what is left of a READ does not fill its PSNs: {read:?}"
        );
        let limit = max_payload.max(self.mtu.bytes());
        let bytes = if read.left > limit {
            limit >> self.mtu.shift() << self.mtu.shift()
        } else {
            read.left
        };
        let checked = match bytes {
            0 => Ok(None),
            _ => self
                .check_key(read.rkey, Access::REMOTE_READ, read.addr, bytes as u64, env)
                .map(Some),
        };
        let Ok(found) = checked else {
            // The region was deregistered while its data was being sent. Later responses are
            // discarded, since they would overtake the NAK.
            self.resp.pending.clear();
            self.end_with_nak(read.psn, NakCode::RemoteAccessError, env);
            return self.next_pending(max_payload, env);
        };
        let present = match found {
            Some(found) => self.present_at(found, bytes.into(), read.left.into(), env) as u32,
            None => bytes,
        };
        let bytes =
            if present < bytes { present >> self.mtu.shift() << self.mtu.shift() } else { bytes };
        if bytes == 0 && read.left > 0 {
            self.resp.waits_for_page = true;
            self.resp.pending.push_front(Pending::Read(read));
            return None;
        }
        let mut train = self.response(TrainKind::ReadResponse, read.psn, Syndrome::ACK);
        train.msn = read.msn;
        train.payload_bytes = bytes;
        let ends = bytes == read.left;
        train.packets = if ends { read.packets } else { bytes >> self.mtu.shift() };
        let first = if read.first { TrainFlags::FIRST } else { 0 };
        train.flags = TrainFlags(first | if ends { TrainFlags::LAST } else { 0 });
        debug_assert!(self.shape_is_sound(&train), "a response has no such train: {train:?}");
        if !ends {
            debug_assert!(train.packets < read.packets, "no PSN is left for the rest: {read:?}");
            self.resp.pending.push_front(Pending::Read(PendingRead {
                addr: read.addr.wrapping_add(bytes as u64),
                left: read.left - bytes,
                psn: read.psn.add(train.packets),
                packets: read.packets - train.packets,
                first: false,
                ..read
            }));
        }
        Some(Response { train, data: found })
    }

    /// Ends the QP with a NAK because the data of a READ response cannot be read from memory.
    #[cold]
    pub fn fail_read<E: Env>(&mut self, psn: Psn, _error: CopyError, env: &mut E) {
        self.resp.pending.clear();
        self.end_with_nak(psn, NakCode::RemoteOperationalError, env);
        env.event(AsyncEventType::QpFatal);
    }
}
