//! Connections by the connection manager.
//!
//! Rank 1 listens, rank 0 connects. Rank 0 measures the steps that it waits for: resolving address
//! and route, creating the queue pair, the connection request until it is established, and the
//! first messages. No synchronization is needed before these: an established connection is ready at
//! both ends. The manager leaves the RNR timer at 0, which is 655 ms, so both ends set it
//! afterwards.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    CmAddress, CmChannel, CmEvent, CmEventKind, CmId, CmKey, ConnParam, Context, Qp, QpType,
    RemoteBuffer, VerbsError,
};

use super::options::By;
use super::shared::{Shared, outcome};
use crate::common::completions::failed;
use crate::common::limits::Limits;
use crate::common::params::Common;
use crate::common::rdma_cm;

/// Series of steps, in their order; each of a connection, but for the first messages.
const STEPS: [&str; 8] = [
    "address",
    "route",
    "create + INIT",
    "request until established",
    "RNR timer",
    "first messages",
    "disconnect",
    "destroy",
];

/// A step, as a place in [`STEPS`].
#[derive(Clone, Copy)]
enum Step {
    Address,
    Route,
    Create,
    Connect,
    Timer,
    First,
    Disconnect,
    Destroy,
}

/// Time for a peer's address and path to be found, ms.
const RESOLVE_MS: u32 = 5000;

/// A connection. When it is dropped, its queue pair is destroyed first.
struct Made {
    qp: Qp,
    id: CmId,
}

/// An end that makes connections.
pub(super) struct Managed<'a, R> {
    rank: &'a R,
    common: &'a Common,
    shared: Shared,
    channel: CmChannel,
    /// Bound to an address of the device: it keeps the device open, and listens at rank 1.
    _anchor: CmId,
    /// Where rank 1 listens, and its memory.
    there: CmAddress,
    memory: RemoteBuffer,
    steps: [Vec<f64>; STEPS.len()],
    whole: Vec<f64>,
    made: u64,
}

impl<'a, R: Rank> Managed<'a, R> {
    /// Finds the device's address, and tells the other end where to ask.
    pub fn new(
        rank: &'a R,
        context: &Context,
        limits: &Limits,
        common: &'a Common,
    ) -> Result<Self, Stopped> {
        let manager = context.library().connection_manager();
        let manager = manager.map_err(|e| failed(format!("--by rdma_cm: {e}")))?;
        let channel = manager.create_channel().map_err(failed)?;
        let bound = rdma_cm::bound(context, limits, common, || channel.create_id());
        let advice = "choose another --gid-index, or --by plain";
        let (anchor, own, address) =
            bound.map_err(|why| failed(format!("--by rdma_cm: {why}; {advice}")))?;
        let shared = Shared::new(&own, limits, common)?;
        if rank.index() == 1 {
            anchor.listen(u16::try_from(common.qps).unwrap_or(u16::MAX)).map_err(failed)?;
        }
        let RemoteBuffer { addr, bytes, rkey } = shared.mr.remote();
        let at = address.with_port(anchor.port());
        let all = rank.exchange(format!("{at} {addr} {bytes} {rkey}").as_bytes())?;
        let there = all.get(1).and_then(|said| read(said));
        let (there, memory) =
            there.ok_or_else(|| failed("the handshake of the other end is not understood"))?;
        Ok(Self {
            rank,
            common,
            shared,
            channel,
            _anchor: anchor,
            there,
            memory,
            steps: Default::default(),
            whole: Vec::new(),
            made: 0,
        })
    }

    /// Makes all connections of a run, list by list, and ends them; whether to go on.
    pub fn part(&mut self, list: usize) -> Result<bool, Stopped> {
        let all = self.common.qps as usize;
        let mut made: Vec<Made> = Vec::with_capacity(all);
        while made.len() < all {
            let goes_on = [u8::from(!self.rank.is_asked_to_stop())];
            let said = self.rank.exchange_to_end(&goes_on)?;
            if said.iter().any(|bytes| bytes[..] != [1]) {
                return Ok(false);
            }
            let count = list.min(all - made.len());
            match self.rank.index() {
                0 => self.ask(&mut made, count)?,
                _ => self.answer(&mut made, count)?,
            }
        }
        // No end may disconnect while the other end still writes to it.
        self.rank.exchange_to_end(&[])?;
        match self.rank.index() {
            0 => {
                let ids: Vec<CmId> = made.iter().map(|one| one.id.clone()).collect();
                let (step, until) = (Step::Disconnect, CmEventKind::Disconnected);
                self.each(&ids, step, until, CmId::disconnect)?;
            }
            _ => self.let_go(&made)?,
        }
        for one in made {
            let begin = self.rank.now();
            drop(one);
            self.keep(Step::Destroy, begin, self.rank.now());
        }
        Ok(true)
    }

    fn keep(&mut self, step: Step, from: Stamp, to: Stamp) {
        self.steps[step as usize].push(self.rank.clock().ns_between(from, to));
    }

    /// Rank 0: `count` connections more.
    fn ask(&mut self, made: &mut Vec<Made>, count: usize) -> Result<(), Stopped> {
        let (rank, to, param) = (self.rank, self.there, param(self.common));
        let begin = rank.now();
        let ids = (0..count).map(|_| self.channel.create_id().map_err(failed));
        let ids: Vec<CmId> = ids.collect::<Result<_, _>>()?;
        let (step, until) = (Step::Address, CmEventKind::AddressResolved);
        self.each(&ids, step, until, |id| id.resolve_address(&to, RESOLVE_MS))?;
        let (step, until) = (Step::Route, CmEventKind::RouteResolved);
        self.each(&ids, step, until, |id| id.resolve_route(RESOLVE_MS))?;
        let mut qps = Vec::with_capacity(count);
        for id in &ids {
            let begin = rank.now();
            qps.push(self.create(id)?);
            self.keep(Step::Create, begin, rank.now());
        }
        let (step, until) = (Step::Connect, CmEventKind::Established);
        self.each(&ids, step, until, |id| id.connect(&param))?;
        for qp in &qps {
            let begin = rank.now();
            qp.set_min_rnr_timer(self.common.min_rnr_timer).map_err(failed)?;
            self.keep(Step::Timer, begin, rank.now());
        }
        let ready = rank.now();
        self.shared.first_messages(rank, qps.iter(), &self.memory)?;
        let end = rank.now();
        self.keep(Step::First, ready, end);
        self.whole.push(rank.clock().ns_between(begin, end));
        self.made += count as u64;
        made.extend(qps.into_iter().zip(ids).map(|(qp, id)| Made { qp, id }));
        Ok(())
    }

    /// Rank 1: accepts so many.
    fn answer(&mut self, made: &mut Vec<Made>, count: usize) -> Result<(), Stopped> {
        let (mut asked, mut established) = (0, 0);
        while established < count {
            let event = self.event("a request for a connection")?;
            match (event.kind, event.request) {
                (CmEventKind::ConnectRequest, Some(id)) if asked < count => {
                    let qp = self.create(&id)?;
                    id.accept(&param(self.common)).map_err(failed)?;
                    made.push(Made { qp, id });
                    asked += 1;
                }
                (CmEventKind::Established, _) => {
                    let one = made.iter().rev().find(|one| one.id.key() == event.key);
                    if let Some(one) = one {
                        one.qp.set_min_rnr_timer(self.common.min_rnr_timer).map_err(failed)?;
                    }
                    established += 1;
                }
                (CmEventKind::TimewaitExit, _) => {}
                (kind, _) => return Err(unexpected(kind, event.status)),
            }
        }
        Ok(())
    }

    /// Rank 1: answers the end of each connection.
    fn let_go(&self, made: &[Made]) -> Result<(), Stopped> {
        let mut left = made.len();
        let keys = keys(made.iter().map(|one| &one.id));
        while left > 0 {
            let event = self.event("the end of a connection")?;
            match event.kind {
                CmEventKind::Disconnected => {
                    if let Some(at) = place(&keys, event.key) {
                        made[at].id.disconnect().map_err(failed)?;
                    }
                    left -= 1;
                }
                CmEventKind::TimewaitExit => {}
                kind => return Err(unexpected(kind, event.status)),
            }
        }
        Ok(())
    }

    fn create(&self, id: &CmId) -> Result<Qp, Stopped> {
        let Shared { pd, cq, .. } = &self.shared;
        let builder = Qp::builder(QpType::Rc, cq, cq);
        let (tx, rx) = (self.common.tx_depth, self.common.rx_depth);
        builder.max_send_wr(tx).max_recv_wr(rx).build_on(id, pd).map_err(failed)
    }

    /// Makes a call for each connection, and waits until each has its event.
    fn each(
        &mut self,
        ids: &[CmId],
        step: Step,
        until: CmEventKind,
        act: impl Fn(&CmId) -> Result<(), VerbsError>,
    ) -> Result<(), Stopped> {
        let mut begins = Vec::with_capacity(ids.len());
        for id in ids {
            begins.push(self.rank.now());
            act(id).map_err(failed)?;
        }
        let keys = keys(ids.iter());
        let mut left = ids.len();
        while left > 0 {
            let event = self.event(STEPS[step as usize])?;
            let now = self.rank.now();
            match event.kind {
                kind if kind == until => {
                    if let Some(at) = place(&keys, event.key) {
                        self.keep(step, begins[at], now);
                    }
                    left -= 1;
                }
                CmEventKind::TimewaitExit => {}
                kind => return Err(unexpected(kind, event.status)),
            }
        }
        Ok(())
    }

    fn event(&self, what: &str) -> Result<CmEvent, Stopped> {
        rdma_cm::event(self.rank, &self.channel, what)
    }

    /// What rank 0 has found.
    pub fn outcome(self, to: &mut Outcome) {
        outcome(to, By::RdmaCm, self.made, self.whole);
        for (step, samples) in STEPS.into_iter().zip(self.steps) {
            to.push_series(Quantity::CallCost, step, 0, samples);
        }
    }
}

fn param(common: &Common) -> ConnParam<'static> {
    ConnParam {
        retry_count: common.retry_cnt,
        rnr_retry_count: common.rnr_retry,
        ..ConnParam::default()
    }
}

/// The keys of ids, sorted, with their places.
fn keys<'a>(ids: impl Iterator<Item = &'a CmId>) -> Vec<(CmKey, usize)> {
    let mut keys: Vec<_> = ids.enumerate().map(|(at, id)| (id.key(), at)).collect();
    keys.sort_unstable();
    keys
}

fn place(keys: &[(CmKey, usize)], key: CmKey) -> Option<usize> {
    let at = keys.binary_search_by_key(&key, |known| known.0).ok()?;
    Some(keys[at].1)
}

fn unexpected(kind: CmEventKind, status: i32) -> Stopped {
    let what = match kind {
        CmEventKind::AddressError => "no device here has a route to the other rank's address",
        CmEventKind::RouteError => "there is no path to the other rank",
        CmEventKind::Unreachable => "the other rank's connection manager does not answer",
        CmEventKind::Rejected => "the other rank's connection manager rejected the request",
        CmEventKind::Disconnected => "a connection ended too early",
        _ => "the connection manager reported an unexpected event",
    };
    failed(format!("{what} (rdma_cm: {kind:?}, status {status})"))
}

fn read(bytes: &[u8]) -> Option<(CmAddress, RemoteBuffer)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let [at, addr, length, rkey] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
    let memory = RemoteBuffer {
        addr: addr.parse().ok()?,
        bytes: length.parse().ok()?,
        rkey: rkey.parse().ok()?,
    };
    Some((at.parse().ok()?, memory))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn what_is_no_address_is_not_read() {
        let (at, memory) = read(b"[::1]:7174 4096 64 7").unwrap();
        assert_eq!((at.to_string().as_str(), memory.addr, memory.rkey), ("[::1]:7174", 4096, 7));
        for wrong in ["", "127.0.0.1 1 2 3", "127.0.0.1:1 1 2", "127.0.0.1:1 1 2 x"] {
            assert!(read(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
