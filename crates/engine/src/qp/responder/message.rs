//! Requests that carry data, on a reliable connection: SEND into a receive WQE, WRITE into memory.

use super::{Placement, PlacementTarget};
use crate::qp::inbound::Inbound;
use crate::qp::recv_queue::TakeRecv;
use crate::qp::responder_state::NotReady;
use crate::qp::send_queue::MAX_MESSAGE_BYTES;
use crate::qp::{Accept, Env, Qp};
use crate::train::{Train, TrainFlags};
use crate::vocab::*;
use rdmalab_wire::aeth::NakCode;
use rdmalab_wire::ids::Psn;

impl Qp {
    #[inline]
    pub(in crate::qp) fn accept_send<E: Env>(
        &mut self,
        train: &Train,
        skip: u32,
        env: &mut E,
    ) -> Accept {
        let begins = train.flags.has(TrainFlags::FIRST) && skip == 0;
        let received = match (begins, self.resp.inbound) {
            (true, Inbound::None) => 0,
            (false, Inbound::Send { received }) => received,
            _ => return self.refuse(self.resp.epsn, NakCode::InvalidRequest, env),
        };
        if !self.shape_is_sound(train) {
            return self.refuse(self.resp.epsn, NakCode::InvalidRequest, env);
        }
        if begins {
            match self.take_receive(env) {
                TakeRecv::Taken => {}
                TakeRecv::NotFetched => return Accept::Stall,
                TakeRecv::Empty => {
                    return self.answer_rnr(train.first_psn, NotReady::NoReceive, env);
                }
            }
        }
        let skip_bytes = skip * self.mtu.bytes();
        let bytes = train.payload_bytes - skip_bytes;
        if received + bytes as u64 > self.resp.held.capacity {
            let room = self.resp.held.capacity - received;
            let whole = (room >> self.mtu.shift()) as u32;
            return self.receive_too_short(self.resp.epsn.add(whole), env);
        }
        let state = Inbound::Send { received };
        let target = match bytes {
            0 => PlacementTarget::Nothing,
            _ => PlacementTarget::Receive { offset: received },
        };
        // How long the message is shows only at its end.
        let room = self.resp.held.capacity - received;
        let present = self.placeable(&target, bytes, room, env);
        if present < bytes {
            let (packets, reason) =
                (present >> self.mtu.shift(), NotReady::NoPage { is_read: false });
            return self.place_until_rnr(train, (skip, packets), (state, target), reason, env);
        }
        let ends = train.flags.has(TrainFlags::LAST);
        self.resp.inbound = if ends { Inbound::None } else { state.after(bytes) };
        self.placement(train, target, skip_bytes, bytes, received + bytes as u64)
    }

    /// Advances over the train and says where its payload goes.
    #[inline]
    pub(in crate::qp) fn placement(
        &mut self,
        train: &Train,
        target: PlacementTarget,
        skip_bytes: u32,
        bytes: u32,
        message_bytes: u64,
    ) -> Accept {
        let last_psn = train.last_psn();
        debug_assert!(
            self.qp_type != QpType::Rc || last_psn.is_at_or_after(self.resp.epsn),
            "a packet is taken twice: the expected PSN goes back"
        );
        debug_assert!(
            skip_bytes + bytes == train.payload_bytes,
            "a part of the payload is neither skipped nor placed"
        );
        debug_assert!(
            !matches!(target, PlacementTarget::Receive { .. }) || self.resp.holds,
            "payload goes into a receive that was never taken"
        );
        self.resp.epsn = last_psn.add(1);
        self.resp.nak_sent = false;
        let ends = train.flags.has(TrainFlags::LAST);
        self.resp.in_flight = true;
        Accept::Place(Placement {
            generation: self.generation,
            target,
            skip_bytes,
            bytes,
            last_psn,
            ends,
            message_bytes: message_bytes as u32,
            refused: None,
        })
    }

    /// Whether payload and packet count of the train agree: all packets full but the last of the
    /// message (IBA vol. 1, 9.7.4.1.3).
    #[inline]
    pub(in crate::qp) fn shape_is_sound(&self, train: &Train) -> bool {
        let ends = train.flags.has(TrainFlags::LAST);
        if ends {
            self.mtu.packets(train.payload_bytes) == train.packets
        } else {
            train.payload_bytes as u64 == (train.packets as u64) << self.mtu.shift()
        }
    }

    #[cold]
    pub(super) fn answer_rnr<E: Env>(&mut self, psn: Psn, reason: NotReady, env: &mut E) -> Accept {
        if self.resp.nak_sent {
            // The requester has paused and sent it again, so it gets another RNR NAK.
            self.resp.nak_sent = false;
        }
        self.push_rnr_nak(psn, reason, env);
        self.resp.nak_sent = true;
        Accept::Done
    }

    /// The message is longer than the receive WQE (IBA vol. 1, 9.7.5.2.4 and table 57).
    #[cold]
    fn receive_too_short<E: Env>(&mut self, psn: Psn, env: &mut E) -> Accept {
        self.end_receive(WcStatus::LocLenErr, env);
        self.end_with_nak(psn, NakCode::InvalidRequest, env);
        Accept::Done
    }

    pub(in crate::qp) fn accept_write<E: Env>(
        &mut self,
        train: &Train,
        skip: u32,
        env: &mut E,
    ) -> Accept {
        let psn = self.resp.epsn;
        let begins = train.flags.has(TrainFlags::FIRST) && skip == 0;
        let sound = match (begins, self.resp.inbound) {
            (true, Inbound::None) => train.dma_bytes as u64 <= MAX_MESSAGE_BYTES,
            (false, Inbound::Write { .. }) => true,
            _ => false,
        };
        if !sound || !self.shape_is_sound(train) {
            return self.refuse(psn, NakCode::InvalidRequest, env);
        }
        let state = if begins {
            match self.begin_write(train, env) {
                Ok(state) => state,
                Err(code) => return self.refuse_write(train, skip, code, env),
            }
        } else {
            self.resp.inbound
        };
        self.continue_write(train, skip, state, env)
    }

    /// Refuses a WRITE for its key or address. If the packet has immediate data, the receive that
    /// it would have completed ends with a local access error (IBA vol. 1, 11.6.2).
    #[cold]
    fn refuse_write<E: Env>(
        &mut self,
        train: &Train,
        skip: u32,
        code: NakCode,
        env: &mut E,
    ) -> Accept {
        let has_immediate = train.packets == skip + 1 && train.flags.has(TrainFlags::IMM);
        if has_immediate {
            match self.take_receive(env) {
                TakeRecv::Taken => self.end_receive(WcStatus::LocAccessErr, env),
                TakeRecv::NotFetched => return Accept::Stall,
                TakeRecv::Empty => {}
            }
        }
        self.refuse(self.resp.epsn, code, env)
    }

    pub(in crate::qp) fn begin_write<E: Env>(
        &mut self,
        train: &Train,
        env: &mut E,
    ) -> Result<Inbound, NakCode> {
        let total = train.dma_bytes as u64;
        if total > 0 {
            self.check_key(train.rkey.0, Access::REMOTE_WRITE, train.remote_addr, total, env)?;
        } else if !self.attr.qp_access_flags.contains(Access::REMOTE_WRITE) {
            return Err(NakCode::RemoteAccessError);
        }
        Ok(Inbound::Write { next_addr: train.remote_addr, rkey: train.rkey.0, received: 0, total })
    }

    fn continue_write<E: Env>(
        &mut self,
        train: &Train,
        skip: u32,
        state: Inbound,
        env: &mut E,
    ) -> Accept {
        let Inbound::Write { next_addr, rkey, received, total } = state else {
            return self.refuse(self.resp.epsn, NakCode::InvalidRequest, env);
        };
        let skip_bytes = skip * self.mtu.bytes();
        let bytes = train.payload_bytes - skip_bytes;
        let ends = train.flags.has(TrainFlags::LAST);
        let after = received + bytes as u64;
        if after > total || ends != (after == total) {
            return self.refuse(self.resp.epsn, NakCode::InvalidRequest, env);
        }
        let target = if bytes == 0 {
            PlacementTarget::Nothing
        } else {
            match self.check_key(rkey, Access::REMOTE_WRITE, next_addr, bytes as u64, env) {
                Ok((host_addr, entry)) => PlacementTarget::Memory { host_addr, entry },
                Err(code) => return self.refuse_write(train, skip, code, env),
            }
        };
        let present = self.placeable(&target, bytes, total - received, env);
        if present < bytes {
            let (packets, reason) =
                (present >> self.mtu.shift(), NotReady::NoPage { is_read: false });
            return self.place_until_rnr(train, (skip, packets), (state, target), reason, env);
        }
        if ends && train.flags.has(TrainFlags::IMM) {
            match self.take_receive(env) {
                TakeRecv::Taken => {}
                TakeRecv::NotFetched => return Accept::Stall,
                // Only the last packet needs a receive.
                TakeRecv::Empty => {
                    let packets = train.packets - skip - 1;
                    let reason = NotReady::NoReceive;
                    return self.place_until_rnr(
                        train,
                        (skip, packets),
                        (state, target),
                        reason,
                        env,
                    );
                }
            }
        }
        self.resp.inbound = if ends { Inbound::None } else { state.after(bytes) };
        self.placement(train, target, skip_bytes, bytes, total)
    }

    /// Takes only the first `packets` packets of the train after `skip` duplicates, and answers the
    /// next one with an RNR NAK: it needs a receive that is not posted, or a page that is missing.
    #[cold]
    fn place_until_rnr<E: Env>(
        &mut self,
        train: &Train,
        (skip, packets): (u32, u32),
        (state, target): (Inbound, PlacementTarget),
        reason: NotReady,
        env: &mut E,
    ) -> Accept {
        let refused = train.first_psn.add(skip + packets);
        if packets == 0 {
            return self.answer_rnr(refused, reason, env);
        }
        let bytes = packets << self.mtu.shift();
        debug_assert!(
            skip * self.mtu.bytes() + bytes <= train.payload_bytes,
            "more is placed than arrived"
        );
        self.resp.inbound = state.after(bytes);
        self.resp.epsn = refused;
        self.resp.in_flight = true;
        Accept::Place(Placement {
            generation: self.generation,
            target,
            skip_bytes: skip * self.mtu.bytes(),
            bytes,
            last_psn: refused.sub(1),
            ends: false,
            message_bytes: 0,
            refused: Some((refused, reason)),
        })
    }
}
