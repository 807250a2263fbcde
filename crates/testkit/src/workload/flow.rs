//! One direction of a run: the requests posted, their results, and the results they must have.

use super::scenario::{Op, Scenario, Trouble};
use crate::sim::{At, Pair, Received, Sent};
use rdmalab_engine::backend::{PostError, RecvWr, SendWr};
use rdmalab_engine::vocab::*;
use rdmalab_wire::ids::Qpn;

/// The results that must be equal in two runs of the same scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcript {
    /// Send completions: `wr_id`, status, bytes.
    pub sent: Vec<(u64, WcStatus, u32)>,
    /// Receive completions: `wr_id`, status, bytes, immediate data.
    pub received: Vec<(u64, WcStatus, u32, u32)>,
    /// Digests of the data that READs and atomics returned.
    pub returned: Vec<u64>,
    /// Digest of the target region at the end.
    pub target: u64,
    /// The word that atomics changed, at the end.
    pub counter: u64,
}

/// One direction of a run.
#[derive(Debug)]
pub struct Flow {
    /// The sending end.
    pub at: At,
    /// The receiving end.
    pub to: At,
    ops: Vec<Op>,
    /// The buffer of each posted request.
    buffers: Vec<Sge>,
    /// Completed requests.
    completed: usize,
    /// Requests that are known to have succeeded.
    done: usize,
    /// A request failed.
    pub failed: bool,
    receives: Vec<Sge>,
    receives_done: usize,
    receives_failed: bool,
    /// Receives that succeeded. On RC, this many of the consuming requests were delivered.
    delivered: usize,
    /// Last request that was matched with a receive, plus one (UC, UD).
    matched: usize,
    target: (u64, u32),
    counter: (u64, u32),
    model: Vec<u8>,
    counter_model: u64,
    scenario: Scenario,
}

impl Flow {
    /// A direction; its target memory is allocated at the receiving end.
    pub fn new(pair: &mut Pair, at: At, scenario: &Scenario) -> Self {
        let to = pair.other(at);
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let rights = rights | Access::LOCAL_WRITE;
        let model = vec![0; scenario.target_bytes as usize];
        let target = pair.region(to, &model, rights);
        let counter = pair.region(to, &[0; 8], rights);
        Flow {
            at,
            to,
            ops: scenario.ops[at.device].clone(),
            buffers: Vec::new(),
            completed: 0,
            done: 0,
            failed: false,
            receives: Vec::new(),
            receives_done: 0,
            receives_failed: false,
            delivered: 0,
            matched: 0,
            target,
            counter,
            model,
            counter_model: 0,
            scenario: scenario.clone(),
        }
    }

    /// Whether all requests have been posted and have completed.
    pub fn is_over(&self) -> bool {
        self.completed == self.ops.len()
    }

    /// Whether all requests and receives have been posted.
    pub fn is_posted(&self) -> bool {
        self.buffers.len() == self.ops.len()
            && (self.is_over() || self.receives.len() == self.receives_wanted())
    }

    fn receives_wanted(&self) -> usize {
        self.ops.iter().filter(|op| op.opcode.consumes_receive()).count() + 2
    }

    /// Posts up to `count` receives at the receiving end.
    pub fn post_receives(&mut self, pair: &mut Pair, count: u32) {
        let grh = if self.scenario.config.qp_type == QpType::Ud { 40 } else { 0 };
        for _ in 0..count {
            let rq = pair.world.qp(self.to).qp.rq.as_ref();
            let full = rq.is_some_and(|rq| rq.len() == rq.capacity());
            if self.receives.len() == self.receives_wanted() || full {
                return;
            }
            let bytes = vec![0; self.scenario.receive_bytes as usize + grh];
            let sge = pair.buffer(self.to, &bytes);
            // Two scatter elements, so that some packets span both.
            let half = sge.length / 3;
            let sges = [
                Sge { length: half, ..sge },
                Sge { addr: sge.addr + half as u64, length: sge.length - half, ..sge },
            ];
            let wr = RecvWr { wr_id: self.receives.len() as u64, sges: &sges };
            pair.world.post_recv(self.to, &wr).expect("there is room");
            self.receives.push(sge);
        }
    }

    /// Posts up to `count` sends. Stops at a full queue, and checks that it refuses a send.
    pub fn post_sends(&mut self, pair: &mut Pair, count: u32) {
        for _ in 0..count {
            let Some(op) = self.ops.get(self.buffers.len()).cloned() else {
                return;
            };
            let sim = pair.world.qp(self.at);
            let full =
                self.buffers.len() as u32 - sim.freed >= self.scenario.config.cap.max_send_wr;
            if full {
                let ud = Some(crate::sim::datagram_to(self.at_qpn(pair), 0));
                let wr = SendWr { ud, ..crate::sim::blank(0, WrOpcode::Send) };
                let refused = pair.world.post_send(self.at, &wr);
                assert_eq!(refused, Err(PostError::QueueFull));
                return;
            }
            let buffer = self.post_send(pair, &op);
            self.buffers.push(buffer);
        }
    }

    fn post_send(&self, pair: &mut Pair, op: &Op) -> Sge {
        let bytes = match op.data.is_empty() {
            true => vec![0; op.length as usize],
            false => op.data.clone(),
        };
        let mut sge = pair.buffer(self.at, &bytes);
        let (mut addr, mut rkey) = (self.target.0 + op.offset as u64, self.target.1);
        if matches!(op.opcode, WrOpcode::CmpSwap | WrOpcode::FetchAdd) {
            (addr, rkey) = self.counter;
        }
        match op.trouble {
            Some(Trouble::RemoteKey) => rkey ^= 0x0100_0000,
            Some(Trouble::LocalKey) => sge.lkey ^= 0x0100_0000,
            _ => {}
        }
        let imm_or_rkey = match op.opcode {
            WrOpcode::SendInv => self.make_window(pair, self.to),
            WrOpcode::LocalInv => self.make_window(pair, self.at),
            _ => op.imm,
        };
        let sges = split(&sge, op.elements);
        let peer = pair.world.qp(self.to).qp.qpn;
        let qkey = self.scenario.config.attr.qkey;
        let datagram = self.scenario.config.qp_type == QpType::Ud;
        let wr = SendWr {
            wr_id: self.buffers.len() as u64,
            opcode: op.opcode,
            flags: op.flags,
            imm_or_rkey,
            sges: if op.opcode.is_local() { &[] } else { &sges },
            remote_addr: addr,
            rkey,
            compare_add: op.compare_add,
            swap: op.swap,
            ud: datagram.then(|| crate::sim::datagram_to(peer, qkey)),
            bind: None,
        };
        let position = pair.world.post_send(self.at, &wr).expect("there is room");
        assert_eq!(position as usize, self.buffers.len());
        sge
    }

    fn at_qpn(&self, pair: &Pair) -> Qpn {
        pair.world.qp(self.at).qp.qpn
    }

    fn make_window(&self, pair: &mut Pair, owner: At) -> u32 {
        let qpn = pair.world.qp(owner).qp.qpn;
        pair.device(owner).window(0, 1, Access::REMOTE_READ, qpn)
    }

    /// Checks the new completions of the receiving end's CQ.
    pub fn judge_received(&mut self, pair: &mut Pair) {
        for got in pair.device(self.to).poll_received(self.to.qp) {
            let wc = got.wc;
            assert_eq!(wc.wr_id as usize, self.receives_done, "receives complete in order");
            self.receives_done += 1;
            if wc.status != WcStatus::Success {
                self.judge_failed_receive(pair, wc.status);
                continue;
            }
            assert!(!self.receives_failed, "a receive went well after one that did not");
            let index = match self.scenario.config.qp_type {
                QpType::Rc => self.next_consumer(),
                _ => self.find_sent(pair, &got),
            };
            assert!(index < self.buffers.len(), "a message that was not sent yet");
            self.judge_message(pair, index, &got);
            self.delivered += 1;
        }
    }

    fn judge_failed_receive(&mut self, pair: &Pair, status: WcStatus) {
        assert_eq!(pair.state(self.to), QpState::Err);
        let has = |trouble, opcode: Option<WrOpcode>| {
            let matches = |op: &Op| opcode.is_none_or(|opcode| op.opcode == opcode);
            self.ops.iter().any(|op| op.trouble == Some(trouble) && matches(op))
        };
        // Only the first one says why.
        let is_cause = !self.receives_failed
            && match status {
                WcStatus::LocLenErr => has(Trouble::TooLong, None),
                WcStatus::LocAccessErr => has(Trouble::RemoteKey, Some(WrOpcode::WriteImm)),
                _ => false,
            };
        assert!(status == WcStatus::WrFlushErr || is_cause, "receive ended with {status:?}");
        self.receives_failed = true;
    }

    /// The request whose message the next receive holds, on RC.
    fn next_consumer(&self) -> usize {
        let consumers = self.ops.iter().enumerate().filter(|(_, op)| op.opcode.consumes_receive());
        consumers.map(|(index, _)| index).nth(self.delivered).expect("one more message than sent")
    }

    /// The first request that matches a received message, on UC and UD. Requests before the last
    /// match count only if the link repeats or reorders.
    fn find_sent(&mut self, pair: &Pair, got: &Received) -> usize {
        let begin = if self.scenario.disorder() { 0 } else { self.matched };
        let found = (begin..self.buffers.len()).find(|index| self.fits(pair, *index, got));
        let index = found.unwrap_or_else(|| panic!("nothing sent fits {got:?}"));
        self.matched = index + 1;
        index
    }

    fn fits(&self, pair: &Pair, index: usize, got: &Received) -> bool {
        let (op, wc) = (&self.ops[index], &got.wc);
        let with_imm = matches!(op.opcode, WrOpcode::SendImm | WrOpcode::WriteImm);
        op.opcode.consumes_receive()
            && wc.byte_len == op.length + self.grh()
            && got.solicited == op.flags.contains(SendFlags::SOLICITED)
            && with_imm == wc.wc_flags.contains(WcFlags::WITH_IMM)
            && (!with_imm || wc.imm_or_rkey == op.imm)
            && (op.opcode == WrOpcode::WriteImm) == (wc.opcode == WcOpcode::RecvRdmaWithImm)
            && (op.opcode == WrOpcode::WriteImm || self.received_bytes(pair, op) == op.data)
    }

    fn grh(&self) -> u32 {
        if self.scenario.config.qp_type == QpType::Ud { 40 } else { 0 }
    }

    /// The data in the newest completed receive, as long as those of `op`.
    fn received_bytes<'a>(&self, pair: &'a Pair, op: &Op) -> &'a [u8] {
        let sge = self.receives[self.receives_done - 1];
        let memory = &pair.world.devices[self.to.device].memory;
        memory.read(sge.addr + self.grh() as u64, op.length as usize)
    }

    fn judge_message(&self, pair: &Pair, index: usize, got: &Received) {
        let (op, wc) = (&self.ops[index], got.wc);
        assert_eq!(wc.byte_len, op.length + self.grh(), "bytes of message {index}");
        assert_eq!(got.solicited, op.flags.contains(SendFlags::SOLICITED));
        let (opcode, flags) = match op.opcode {
            WrOpcode::WriteImm => (WcOpcode::RecvRdmaWithImm, WcFlags::WITH_IMM),
            WrOpcode::SendImm => (WcOpcode::Recv, WcFlags::WITH_IMM),
            WrOpcode::SendInv => (WcOpcode::Recv, WcFlags::WITH_INV),
            _ => (WcOpcode::Recv, WcFlags::NONE),
        };
        assert_eq!((wc.opcode, wc.wc_flags), (opcode, flags), "message {index}");
        if flags == WcFlags::WITH_IMM {
            assert_eq!(wc.imm_or_rkey, op.imm, "message {index}");
        }
        if op.opcode != WrOpcode::WriteImm {
            assert!(self.received_bytes(pair, op) == op.data, "payload of message {index}");
        }
    }

    /// Checks the new completions of the sending end's CQ; call [`Flow::judge_received`] first.
    pub fn judge_sent(&mut self, pair: &mut Pair) {
        for Sent { wc, sq_free_to } in pair.device(self.at).poll_sent(self.at.qp) {
            let index = wc.wr_id as usize;
            assert_eq!(sq_free_to as usize, index + 1);
            assert!(index >= self.completed, "request {index} completes twice or out of order");
            let sig_all = self.scenario.config.sq_sig_all;
            for silent in self.completed..index {
                assert!(!self.failed, "request {silent} was not flushed");
                assert!(!self.ops[silent].signaled(sig_all), "request {silent} did not complete");
                self.went_well(pair, silent);
            }
            self.completed = index + 1;
            if wc.status == WcStatus::Success {
                assert!(!self.failed, "request {index} went well after a failure");
                assert!(self.ops[index].signaled(sig_all));
                assert_eq!(wc.opcode, self.ops[index].opcode.completion());
                self.went_well(pair, index);
            } else {
                self.judge_failure(pair, index, wc.status);
            }
        }
    }

    fn judge_failure(&mut self, pair: &Pair, index: usize, status: WcStatus) {
        if self.failed {
            assert_eq!(status, WcStatus::WrFlushErr, "request {index}");
            return;
        }
        self.failed = true;
        let scenario = &self.scenario;
        // A failure in the other direction may have put the peer, or this queue pair, into ERR.
        let peer_failed = scenario.spoiled() || scenario.is_harsh();
        let explained = match status {
            WcStatus::WrFlushErr | WcStatus::RetryExcErr => {
                peer_failed || scenario.config.attr.rnr_retry < 7
            }
            WcStatus::RnrRetryExcErr => scenario.config.attr.rnr_retry < 7,
            status => self.ops[index].trouble.is_some_and(|trouble| trouble.status() == status),
        };
        assert!(explained, "request {index} ended with {status:?}");
        let expected = match scenario.config.qp_type {
            QpType::Rc => QpState::Err,
            _ => QpState::Sqe,
        };
        assert_eq!(pair.state(self.at), expected);
    }

    /// Records that the request at `index` succeeded, and checks its effect.
    fn went_well(&mut self, pair: &Pair, index: usize) {
        assert_eq!(index, self.done);
        let op = self.ops[index].clone();
        assert_eq!(op.trouble, None, "request {index} should have failed");
        self.done = index + 1;
        if self.scenario.config.qp_type != QpType::Rc {
            return;
        }
        if op.opcode.consumes_receive() {
            let taken = self.ops[..index].iter().filter(|op| op.opcode.consumes_receive()).count();
            assert!(self.delivered > taken, "request {index} completed before it was received");
        }
        let memory = &pair.world.devices[self.at.device].memory;
        let returned = memory.read(self.buffers[index].addr, op.length as usize);
        match op.opcode {
            WrOpcode::Write | WrOpcode::WriteImm => {
                self.model[op.offset as usize..][..op.data.len()].copy_from_slice(&op.data);
            }
            WrOpcode::Read => {
                let range = op.offset as usize..(op.offset + op.length) as usize;
                let allowed = self.allowed(range, index + 1);
                let fits = allowed.iter().zip(returned).all(|(set, byte)| set.contains(byte));
                assert!(fits, "READ {index} returned what was never there");
            }
            WrOpcode::CmpSwap | WrOpcode::FetchAdd => {
                let before = self.counter_model.to_ne_bytes();
                assert_eq!(returned, before, "atomic {index} was executed twice or not at all");
                self.counter_model = after(&op, self.counter_model);
            }
            _ => {}
        }
    }

    /// The values that each byte of the target in `range` may have now: the one from the completed
    /// requests, and those that posted requests from index `later` on write.
    fn allowed(&self, range: core::ops::Range<usize>, later: usize) -> Vec<Vec<u8>> {
        let mut sets: Vec<Vec<u8>> =
            self.model[range.clone()].iter().map(|byte| vec![*byte]).collect();
        for op in &self.ops[later.min(self.buffers.len())..self.buffers.len()] {
            if matches!(op.opcode, WrOpcode::Write | WrOpcode::WriteImm) {
                for (i, byte) in op.data.iter().enumerate() {
                    let at = op.offset as usize + i;
                    if range.contains(&at) {
                        sets[at - range.start].push(*byte);
                    }
                }
            }
        }
        sets
    }

    /// Checks the final state, when nothing moves any more.
    pub fn judge_end(&self, pair: &Pair) {
        let (sender, receiver) = (pair.world.qp(self.at), pair.world.qp(self.to));
        assert!(sender.is_quiet() && receiver.is_quiet(), "something is still in flight");
        assert!(self.is_over(), "{} of {} completed", self.completed, self.ops.len());
        assert!(sender.qp.send_idle());
        let target = self.target_bytes(pair);
        let rc = self.scenario.config.qp_type == QpType::Rc;
        if rc && !self.failed && !self.receives_failed {
            assert_eq!(self.done, self.ops.len());
            assert_eq!(self.delivered + 2, self.receives_wanted());
            assert!(target == self.model, "the target holds something else than was written");
            assert_eq!(self.counter_now(pair), self.counter_model);
            let lane = self.scenario.knobs.lane > 0;
            if !lane {
                assert_eq!(sender.qp.next_new_psn(), receiver.qp.expected_psn());
            }
            return;
        }
        let later = if rc { self.done } else { 0 };
        let allowed = self.allowed(0..self.model.len(), later);
        let fits = allowed.iter().zip(&target).all(|(set, byte)| set.contains(byte));
        assert!(fits, "the target holds what nobody wrote");
        let mut value = self.counter_model;
        let mut values = vec![value];
        for op in &self.ops[self.done..] {
            value = after(op, value);
            values.push(value);
        }
        assert!(values.contains(&self.counter_now(pair)));
    }

    fn target_bytes(&self, pair: &Pair) -> Vec<u8> {
        let memory = &pair.world.devices[self.to.device].memory;
        memory.read(self.target.0, self.model.len()).to_vec()
    }

    fn counter_now(&self, pair: &Pair) -> u64 {
        pair.world.devices[self.to.device].memory.word(self.counter.0)
    }

    /// The results to be compared with those of another run.
    pub fn transcript(&self, pair: &Pair) -> Transcript {
        let memory = &pair.world.devices[self.at.device].memory;
        let returned = self.ops.iter().zip(&self.buffers).take(self.done);
        let returned = returned
            .filter(|(op, _)| op.opcode.is_read_or_atomic())
            .map(|(op, sge)| digest(memory.read(sge.addr, op.length as usize)));
        let sent = pair.world.qp(self.at).sent().iter();
        let received = pair.world.qp(self.to).received().iter();
        Transcript {
            sent: sent.map(|s| (s.wc.wr_id, s.wc.status, s.wc.byte_len)).collect(),
            received: received
                .map(|r| (r.wc.wr_id, r.wc.status, r.wc.byte_len, self.without_keys(&r.wc)))
                .collect(),
            returned: returned.collect(),
            target: digest(&self.target_bytes(pair)),
            counter: self.counter_now(pair),
        }
    }

    /// The immediate data of a completion, else 0: an invalidated rkey differs from run to run.
    fn without_keys(&self, wc: &Wc) -> u32 {
        if wc.wc_flags.contains(WcFlags::WITH_IMM) { wc.imm_or_rkey } else { 0 }
    }
}

/// FNV-1a: a short digest to compare contents.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ *byte as u64).wrapping_mul(0x100_0000_01b3)
    })
}

/// The value that an atomic stores if it finds `value`.
fn after(op: &Op, value: u64) -> u64 {
    match op.opcode {
        WrOpcode::FetchAdd => value.wrapping_add(op.compare_add),
        WrOpcode::CmpSwap if value == op.compare_add => op.swap,
        _ => value,
    }
}

/// Cuts a scatter/gather element into about `count` parts.
fn split(sge: &Sge, count: u32) -> Vec<Sge> {
    let part = (sge.length / count).max(1);
    let mut out = Vec::new();
    let mut from = 0;
    while from < sge.length {
        let last = out.len() as u32 + 1 == count;
        let length = if last { sge.length - from } else { part.min(sge.length - from) };
        out.push(Sge { addr: sge.addr + from as u64, length, lkey: sge.lkey });
        from += length;
    }
    out
}
