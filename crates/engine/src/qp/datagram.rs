//! The responder's rules for unreliable connections and datagrams: it sends no acknowledgement and
//! drops requests that do not fit.

use super::inbound::Inbound;
use super::recv_queue::TakeRecv;
use super::responder::{GRH_BYTES, PlacementTarget};
use super::{Accept, DropReason, Env, Qp};
use crate::train::{Train, TrainFlags, TrainKind};
use crate::vocab::{Access, WcStatus};

impl Qp {
    /// A request on an unreliable connection (IBA vol. 1, 9.8.2): a gap ends the message in
    /// progress, and the next first packet begins afresh.
    pub(super) fn accept_uc<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        if !matches!(train.kind, TrainKind::Send | TrainKind::Write)
            || train.flags.has(TrainFlags::INV)
        {
            return Accept::Drop(DropReason::NotForUs);
        }
        // Restored if the train stalls, so that the same state is found when it is offered again.
        let (epsn, inbound) = (self.resp.epsn, self.resp.inbound);
        let begins = train.flags.has(TrainFlags::FIRST);
        if begins {
            self.resp.inbound = Inbound::None;
        } else if train.first_psn != epsn || matches!(inbound, Inbound::None) {
            self.resp.inbound = Inbound::Skip;
        }
        self.resp.epsn = train.last_psn().add(1);
        if matches!(self.resp.inbound, Inbound::Skip) || !self.shape_is_sound(train) {
            return self.break_message(DropReason::Broken);
        }
        let accepted = match train.kind {
            TrainKind::Send => self.accept_uc_send(train, begins, env),
            _ => self.accept_uc_write(train, begins, env),
        };
        if matches!(accepted, Accept::Stall) {
            (self.resp.epsn, self.resp.inbound) = (epsn, inbound);
        }
        accepted
    }

    fn break_message(&mut self, reason: DropReason) -> Accept {
        self.resp.inbound = Inbound::Skip;
        Accept::Drop(reason)
    }

    fn accept_uc_send<E: Env>(&mut self, train: &Train, begins: bool, env: &mut E) -> Accept {
        let received = match self.resp.inbound {
            Inbound::None if begins => 0,
            Inbound::Send { received } => received,
            _ => return self.break_message(DropReason::Broken),
        };
        if begins {
            match self.take_receive(env) {
                TakeRecv::Taken => {}
                TakeRecv::NotFetched => return Accept::Stall,
                TakeRecv::Empty => return self.break_message(DropReason::NoReceive),
            }
        }
        debug_assert!(self.resp.holds_receive(), "a message goes on without a receive");
        let after = received + train.payload_bytes as u64;
        if after > self.resp.held.capacity {
            let dropped = self.drop_too_long(env);
            self.resp.inbound = Inbound::Skip;
            return dropped;
        }
        let target = match train.payload_bytes {
            0 => PlacementTarget::Nothing,
            _ => PlacementTarget::Receive { offset: received },
        };
        let room = self.resp.held.capacity - received;
        if self.placeable(&target, train.payload_bytes, room, env) < train.payload_bytes {
            return self.break_message(DropReason::PageFault);
        }
        let ends = train.flags.has(TrainFlags::LAST);
        self.resp.inbound = if ends { Inbound::None } else { Inbound::Send { received: after } };
        self.placement(train, target, 0, train.payload_bytes, after)
    }

    /// Drops a message that is longer than the receive WQE that it took; the QP stays as it is.
    /// A WQE of its own queue stays posted: the next message takes it (IBA vol. 1, 9.9.6.3,
    /// class D). A WQE of an SRQ cannot go back into the queue, which other QPs have taken from
    /// since: it completes with an error (class E).
    #[cold]
    fn drop_too_long<E: Env>(&mut self, env: &mut E) -> Accept {
        if self.rq.is_none() {
            self.end_receive(WcStatus::LocLenErr, env);
        }
        Accept::Drop(DropReason::TooLong)
    }

    fn accept_uc_write<E: Env>(&mut self, train: &Train, begins: bool, env: &mut E) -> Accept {
        let state = match self.resp.inbound {
            Inbound::None if begins => match self.begin_write(train, env) {
                Ok(state) => state,
                Err(_) => return self.break_message(DropReason::Broken),
            },
            state => state,
        };
        let Inbound::Write { next_addr, rkey, received, total } = state else {
            return self.break_message(DropReason::Broken);
        };
        let bytes = train.payload_bytes;
        let after = received + bytes as u64;
        let ends = train.flags.has(TrainFlags::LAST);
        if after > total || ends != (after == total) {
            return self.break_message(DropReason::Broken);
        }
        let target = if bytes == 0 {
            PlacementTarget::Nothing
        } else {
            match self.check_key(rkey, Access::REMOTE_WRITE, next_addr, bytes as u64, env) {
                Ok((host_addr, entry)) => PlacementTarget::Memory { host_addr, entry },
                Err(_) => return self.break_message(DropReason::Broken),
            }
        };
        if self.placeable(&target, bytes, total - received, env) < bytes {
            return self.break_message(DropReason::PageFault);
        }
        if ends && train.flags.has(TrainFlags::IMM) {
            match self.take_receive(env) {
                TakeRecv::Taken => {}
                TakeRecv::NotFetched => return Accept::Stall,
                TakeRecv::Empty => return self.break_message(DropReason::NoReceive),
            }
        }
        self.resp.inbound = if ends {
            Inbound::None
        } else {
            let next_addr = next_addr.wrapping_add(bytes as u64);
            Inbound::Write { next_addr, rkey, received: after, total }
        };
        self.placement(train, target, 0, bytes, total)
    }

    /// A datagram (IBA vol. 1, 9.8.3): one packet, after 40 bytes for the routing header.
    pub(super) fn accept_ud<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        let whole = TrainFlags::FIRST | TrainFlags::LAST;
        if train.kind != TrainKind::Send
            || train.flags.0 & whole != whole
            || train.flags.has(TrainFlags::INV)
            || train.packets != 1
            || train.payload_bytes > self.mtu.bytes()
        {
            return Accept::Drop(DropReason::NotForUs);
        }
        if train.qkey != self.attr.qkey {
            return Accept::Drop(DropReason::QKey);
        }
        match self.take_receive(env) {
            TakeRecv::Taken => {}
            TakeRecv::NotFetched => return Accept::Stall,
            TakeRecv::Empty => return Accept::Drop(DropReason::NoReceive),
        }
        let bytes = GRH_BYTES + train.payload_bytes;
        if bytes as u64 > self.resp.held.capacity {
            return self.drop_too_long(env);
        }
        // The routing header lies before the payload.
        let from_start = PlacementTarget::Receive { offset: 0 };
        if self.placeable(&from_start, bytes, bytes.into(), env) < bytes {
            return Accept::Drop(DropReason::PageFault);
        }
        let target = PlacementTarget::Receive { offset: GRH_BYTES as u64 };
        self.placement(train, target, 0, train.payload_bytes, bytes as u64)
    }
}
