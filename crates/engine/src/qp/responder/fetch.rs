//! Requests that are answered with data: READ and the atomics.

use super::{AtomicJob, AtomicOp, MAX_PENDING_RESPONSES};
use crate::mr::KeyEntry;
use crate::qp::inbound::Inbound;
use crate::qp::responder_state::{AtomicResult, NotReady, Pending, PendingRead, ServedRead};
use crate::qp::send_queue::MAX_MESSAGE_BYTES;
use crate::qp::{Accept, CopyError, DropReason, Env, Qp};
use crate::train::{Train, TrainKind};
use crate::vocab::*;
use rdmalab_wire::aeth::{NakCode, Syndrome};

impl Qp {
    /// Whether `max_dest_rd_atomic` READs and atomics wait for their first answer to be sent. A
    /// requester that keeps to its `max_rd_atomic` never sees this (IBA vol. 1, 9.7.4.1.2).
    fn resources_are_taken(&self) -> bool {
        let taken = self.resp.pending.iter().filter(|pending| pending.takes_resource()).count();
        taken >= self.attr.max_dest_rd_atomic as usize
    }

    pub(in crate::qp) fn accept_read<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        if !matches!(self.resp.inbound, Inbound::None)
            || train.dma_bytes as u64 > MAX_MESSAGE_BYTES
            || self.resources_are_taken()
        {
            return self.refuse(self.resp.epsn, NakCode::InvalidRequest, env);
        }
        self.queue_read(train, false, env)
    }

    /// The memory that a READ of at least one byte asks for.
    pub(in crate::qp) fn read_of<E: Env>(
        &self,
        train: &Train,
        env: &E,
    ) -> Result<(u64, KeyEntry), NakCode> {
        let (rkey, addr, bytes) = (train.rkey.0, train.remote_addr, train.dma_bytes.into());
        self.check_key(rkey, Access::REMOTE_READ, addr, bytes, env)
    }

    pub(in crate::qp) fn queue_read<E: Env>(
        &mut self,
        train: &Train,
        repeated: bool,
        env: &mut E,
    ) -> Accept {
        let bytes = train.dma_bytes as u64;
        if bytes == 0 && !self.attr.qp_access_flags.contains(Access::REMOTE_READ) {
            return self.refuse(train.first_psn, NakCode::RemoteAccessError, env);
        }
        if bytes > 0 {
            match self.read_of(train, env) {
                Err(code) => return self.refuse(train.first_psn, code, env),
                Ok(found) => {
                    let present = self.present_at(found, bytes, bytes, env);
                    if present < bytes {
                        return self.answer_faulted_read(train, present, repeated, env);
                    }
                }
            }
        }
        if self.resp.pending.len() >= MAX_PENDING_RESPONSES {
            return Accept::Drop(DropReason::TooManyResponses);
        }
        if !repeated {
            // The response implies the pending acknowledgement.
            self.resp.ack = None;
            self.resp.epsn = train.first_psn.add(train.packets);
            self.resp.msn = self.resp.msn.next();
            self.resp.nak_sent = false;
            self.keep_read(train);
        }
        self.push_pending(Pending::Read(PendingRead {
            addr: train.remote_addr,
            rkey: train.rkey.0,
            left: train.dma_bytes,
            psn: train.first_psn,
            packets: train.packets,
            first: true,
            repeated,
            msn: self.resp.msn,
        }))
    }

    /// Keeps what a READ asked for as long as its requester may repeat it: for the next
    /// `max_dest_rd_atomic` READs.
    fn keep_read(&mut self, train: &Train) {
        let kept = self.attr.max_dest_rd_atomic.max(1) as usize;
        while self.resp.reads.len() >= kept {
            self.resp.reads.pop_front();
        }
        self.resp.reads.push_back(ServedRead {
            psn: train.first_psn,
            packets: train.packets,
            addr: train.remote_addr,
            rkey: train.rkey.0,
            bytes: train.dma_bytes,
        });
    }

    pub(in crate::qp) fn accept_atomic<E: Env>(&mut self, train: &Train, env: &mut E) -> Accept {
        let psn = self.resp.epsn;
        if !matches!(self.resp.inbound, Inbound::None)
            || !train.remote_addr.is_multiple_of(8)
            || self.resources_are_taken()
        {
            return self.refuse(psn, NakCode::InvalidRequest, env);
        }
        if self.resp.pending.len() >= MAX_PENDING_RESPONSES {
            return Accept::Drop(DropReason::TooManyResponses);
        }
        let found = self.check_key(train.rkey.0, Access::REMOTE_ATOMIC, train.remote_addr, 8, env);
        let (host_addr, entry) = match found {
            Ok(found) => found,
            Err(code) => return self.refuse(psn, code, env),
        };
        if !host_addr.is_multiple_of(8) {
            return self.refuse(psn, NakCode::InvalidRequest, env);
        }
        if self.present_at((host_addr, entry), 8, 8, env) < 8 {
            return self.answer_rnr(psn, NotReady::NoPage { is_read: false }, env);
        }
        let op = match train.kind {
            TrainKind::CmpSwap => {
                AtomicOp::CmpSwap { compare: train.compare, swap: train.swap_add }
            }
            _ => AtomicOp::FetchAdd { add: train.swap_add },
        };
        self.resp.ack = None;
        self.resp.epsn = psn.add(1);
        self.resp.nak_sent = false;
        self.resp.in_flight = true;
        Accept::Atomic(AtomicJob { generation: self.generation, op, host_addr, entry, psn })
    }

    /// Retires an atomic that was executed and found `original`, or whose memory was unreachable.
    pub fn retire_atomic<E: Env>(
        &mut self,
        job: &AtomicJob,
        result: Result<u64, CopyError>,
        env: &mut E,
    ) {
        if job.generation != self.generation {
            return;
        }
        debug_assert!(self.resp.in_flight, "an atomic is retired twice");
        self.resp.in_flight = false;
        let Ok(original) = result else {
            self.end_with_nak(job.psn, NakCode::RemoteOperationalError, env);
            env.event(AsyncEventType::QpFatal);
            return;
        };
        self.resp.msn = self.resp.msn.next();
        let msn = self.resp.msn;
        let kept = self.attr.max_dest_rd_atomic.max(1) as usize;
        while self.resp.atomics.len() >= kept {
            self.resp.atomics.pop_front();
        }
        self.resp.atomics.push_back(AtomicResult { psn: job.psn, original, msn });
        debug_assert!(
            self.resp.atomics.len() <= kept,
            "more results of atomics are kept than max_dest_rd_atomic"
        );
        let mut reply = self.response(TrainKind::AtomicResponse, job.psn, Syndrome::ACK);
        reply.swap_add = original;
        let pushed = self.push_pending(Pending::Atomic { train: reply, repeated: false });
        debug_assert!(matches!(pushed, Accept::Done), "an executed atomic is never answered");
    }
}
