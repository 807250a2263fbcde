//! The common part of rank 0 and the others: posting messages, taking those that arrived, and
//! posting receives again.

use std::sync::atomic::Ordering;

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{AddressHandle, MULTICAST_QPN, RecvRequest, SendRequest, Sge, Wc};

use super::options::{Cast, Direction, Fan};
use super::shape::{NOTE_BYTES, Schedule, Shape, done, mark};
use crate::common::completions::failed;
use crate::common::connection::QKEY;
use crate::common::links::Links;
use crate::common::params::{Common, Op, Transport};

/// From this immediate value on, a message says that a part is over.
const OVER_IMM: u32 = u32::MAX - 1;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// The message of a repetition, with its length in bytes.
    Whole(u64, u64),
    /// One byte for a repetition; its immediate data is a separate number.
    Note(u64, u32),
    /// The part of that index is over.
    Done(usize),
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Which of [`Links::remotes`] sent it.
    pub far: usize,
    pub mark: u8,
    pub imm: u32,
}

/// A rank's queue pairs and memory.
pub(crate) struct Exchange<'a> {
    pub links: &'a Links,
    pub common: &'a Common,
    pub own: &'a Fan,
    pub shape: Shape,
    pub schedule: Schedule,
    /// Sends of which the completion is to come.
    pub pending: usize,
    /// Queue pair numbers, by which completions are told apart, with the index of
    /// [`Links::remotes`].
    known: Vec<(u32, usize)>,
    group: Option<AddressHandle>,
    is_root: bool,
    own_place: usize,
    used: Vec<u64>,
}

impl<'a> Exchange<'a> {
    /// With `rx` receives posted to each queue pair; 0 where this rank receives nothing.
    pub fn new<R: Rank>(
        rank: &R,
        (common, own): (&'a Common, &'a Fan),
        links: &'a Links,
        shape: Shape,
        rx: u32,
        group: Option<AddressHandle>,
    ) -> Result<Self, Stopped> {
        let is_ud = common.transport == Transport::Ud;
        let key = |(i, far): (usize, &crate::common::links::Remote)| {
            (if is_ud { far.qpn } else { links.qps[far.qp].qp_num() }, i)
        };
        let mut known: Vec<(u32, usize)> = links.remotes.iter().enumerate().map(key).collect();
        known.sort_unstable();
        if let Some(two) = known.windows(2).find(|w| rx > 0 && w[0].0 == w[1].0) {
            let rank_of = |i: usize| links.remotes[two[i].1].rank;
            return Err(failed(format!(
                "ranks {} and {} have the same QPN on two hosts, so their datagrams cannot be \
                 distinguished: run again, or choose --transport rc",
                rank_of(0),
                rank_of(1)
            )));
        }
        let exchange = Self {
            links,
            common,
            own,
            shape,
            schedule: Schedule::of(common, own),
            pending: 0,
            known,
            group,
            is_root: rank.index() == 0,
            own_place: rank.index().saturating_sub(1),
            used: Vec::new(),
        };
        if exchange.arrives_by_completion() {
            for (i, _) in links.qps.iter().enumerate() {
                let places: Vec<u64> =
                    (0..u64::from(rx)).map(|j| if is_ud { j } else { i as u64 }).collect();
                exchange.post_receives(&places)?;
            }
        }
        Ok(exchange)
    }

    /// Whether messages may be lost. Multicasts may, also where they only say that it is time to
    /// READ over RC.
    pub fn is_lossy(&self) -> bool {
        self.common.transport != Transport::Rc || self.own.cast == Cast::Group
    }

    /// Whether messages are received by receive completions, not by looking at memory.
    pub fn arrives_by_completion(&self) -> bool {
        self.common.op != Op::Write
    }

    /// How long a wait may take.
    pub fn limit_ns<R: Rank>(&self, rank: &R) -> u64 {
        if self.is_lossy() { self.common.lost_after_ns } else { rank.patience_ns() }
    }

    /// The message of a repetition from rank 0, and the answer.
    pub fn pair(&self, repetition: u64) -> (Outgoing, Outgoing) {
        let whole = Outgoing::Whole(repetition, self.schedule.size(repetition));
        let note = Outgoing::Note(repetition, repetition as u32);
        match self.own.direction {
            Direction::Both => (whole, whole),
            Direction::Out => (whole, note),
            Direction::In => (note, whole),
        }
    }

    /// Posts a message to one of them; to all, where there is a group.
    pub fn post(&mut self, far: usize, message: Outgoing) -> Result<(), Stopped> {
        let (bytes, byte, imm) = match message {
            Outgoing::Whole(repetition, bytes) => (bytes, mark(repetition), repetition as u32),
            Outgoing::Note(repetition, imm) => (NOTE_BYTES, mark(repetition), imm),
            Outgoing::Done(part) => (NOTE_BYTES, done(part), OVER_IMM + (part % 2) as u32),
        };
        let is_note = !matches!(message, Outgoing::Whole(..));
        let at = if is_note { self.shape.note_at() } else { self.shape.out_at(bytes) };
        let end = if is_note { self.shape.note_at() } else { self.shape.out_mark() };
        self.links.memory().byte(end).store(byte, Ordering::Release);
        let sges = [self.links.mr.sge(at, bytes as usize)];
        let to = &self.links.remotes[far];
        let place = if self.is_root { 0 } else { self.own_place };
        // Places are of one length everywhere.
        let target = self.shape.written_at(place, bytes) as u64;
        let request = match self.common.op {
            Op::Write | Op::WriteImm => SendRequest::write(&sges, &to.memory, target),
            _ => SendRequest::send(&sges),
        };
        // A note of READ carries a time.
        let has_imm = self.common.op.has_imm() || self.common.op.reads();
        let request = if has_imm { request.with_imm(imm) } else { request };
        let is_inline = self.links.is_inline(self.common, bytes);
        let request = if is_inline { request.inline_data() } else { request };
        let request = match (&self.group, &to.ah) {
            (Some(group), _) => request.to(group, MULTICAST_QPN, QKEY),
            (None, Some(ah)) => request.to(ah, to.qpn, QKEY),
            (None, None) => request,
        };
        self.pending += 1;
        let posted = self.links.qps[to.qp].post_send(&[request.wr_id(u64::MAX).signaled()]);
        posted.map_err(|e| self.links.diagnose(failed(e)))
    }

    /// Posts a READ of the whole message of one remote; the index is the `wr_id`.
    pub fn read(&mut self, far: usize, bytes: u64) -> Result<(), Stopped> {
        let place = if self.is_root { far } else { 0 };
        let sges = [self.links.mr.sge(self.shape.written_at(place, bytes), bytes as usize)];
        let to = &self.links.remotes[far];
        let from = self.shape.out_at(bytes) as u64;
        let request = SendRequest::read(&sges, &to.memory, from).wr_id(far as u64);
        self.pending += 1;
        let posted = self.links.qps[to.qp].post_send(&[request.signaled()]);
        posted.map_err(|e| self.links.diagnose(failed(e)))
    }

    /// Takes completions of sends: calls `with` for each number.
    #[inline]
    pub fn completions(&mut self, mut with: impl FnMut(u64)) -> Result<(), Stopped> {
        if self.pending == 0 {
            return Ok(());
        }
        let mut wcs = [Wc::default(); 16];
        let found = self.links.send.cq().poll(&mut wcs).map_err(failed)?;
        self.links.all_sent(&wcs[..found])?;
        self.pending -= found.min(self.pending);
        wcs[..found].iter().for_each(|wc| with(wc.wr_id()));
        Ok(())
    }

    /// Takes messages that came as completions: calls `with` for each.
    #[inline]
    pub fn messages(&mut self, mut with: impl FnMut(Arrived)) -> Result<(), Stopped> {
        let mut wcs = [Wc::default(); 16];
        let found = self.links.recv.cq().poll(&mut wcs).map_err(failed)?;
        for wc in &wcs[..found] {
            if !wc.is_ok() {
                return Err(self.links.explain(wc, "receive"));
            }
            self.used.push(wc.wr_id());
            if let Some(arrived) = self.arrived(wc) {
                with(arrived);
            }
        }
        Ok(())
    }

    fn arrived(&self, wc: &Wc) -> Option<Arrived> {
        let is_ud = self.common.transport == Transport::Ud;
        let number = if is_ud { wc.src_qp() } else { wc.qp_num() };
        let at = self.known.binary_search_by_key(&number, |known| known.0).ok()?;
        let (imm, byte) = match wc.imm() {
            Some(imm) if imm >= OVER_IMM => (imm, done((imm - OVER_IMM) as usize)),
            // A note of READ has a time there instead.
            Some(imm) if !self.common.op.reads() => (imm, mark(imm.into())),
            imm => {
                let place = self.shape.received_mark(wc.wr_id() as usize, wc.byte_len());
                (imm.unwrap_or(0), self.links.memory().byte(place).load(Ordering::Acquire))
            }
        };
        Some(Arrived { far: self.known[at].1, mark: byte, imm })
    }

    /// The mark of what was last written to a place.
    #[inline]
    pub fn written(&self, place: usize) -> u8 {
        self.links.memory().byte(self.shape.written_mark(place)).load(Ordering::Acquire)
    }

    /// Posts the receives again that were used.
    pub fn return_used(&mut self) -> Result<(), Stopped> {
        if self.used.is_empty() {
            return Ok(());
        }
        let mut used = std::mem::take(&mut self.used);
        let posted = self.post_receives(&used);
        used.clear();
        self.used = used;
        posted
    }

    /// Posts receives into these places. A place of a connected queue pair has its index.
    fn post_receives(&self, places: &[u64]) -> Result<(), Stopped> {
        let is_ud = self.common.transport == Transport::Ud;
        for place in places {
            let at = *place as usize;
            let sges: [Sge<'_>; 1] =
                [self.links.mr.sge(self.shape.recv_at(at), self.shape.recv_bytes())];
            let request = RecvRequest::new(&sges).wr_id(*place);
            let posted = self.links.qps[if is_ud { 0 } else { at }].post_recv(&[request]);
            posted.map_err(|e| self.links.diagnose(failed(e)))?;
        }
        Ok(())
    }

    /// Waits for the completions of all sends.
    pub fn settle<R: Rank>(&mut self, rank: &R) -> Result<(), Stopped> {
        let limit_ns = rank.patience_ns();
        let settled = crate::common::completions::look_for(rank, limit_ns, || {
            match self.completions(|_| ()) {
                Ok(()) if self.pending > 0 => None,
                other => Some(other),
            }
        })?;
        let late = || crate::common::completions::timed_out(limit_ns, "the completion of a send");
        settled.unwrap_or_else(|| Err(late()))
    }
}
