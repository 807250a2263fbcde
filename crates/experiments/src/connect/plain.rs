//! Connections whose numbers the ends exchange themselves.

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Context, Mtu, Path, Qp, QpEndpoint, RemoteBuffer};

use super::options::By;
use super::shared::{Shared, outcome, rights};
use crate::common::completions::failed;
use crate::common::connection::{mtu_of, path_of, psn, qp_type, to_rts};
use crate::common::limits::Limits;
use crate::common::params::Common;

/// Series of steps, in their order. The first and the last one are of a queue pair each, the
/// others of a list.
const STEPS: [&str; 6] =
    ["create + INIT", "exchange of numbers", "RTR + RTS", "meeting", "first messages", "destroy"];

/// A step, as a place in [`STEPS`].
#[derive(Clone, Copy)]
enum Step {
    Create,
    Exchange,
    Connect,
    Meet,
    First,
    Destroy,
}

/// An end that makes connections.
pub(super) struct Making<'a, R> {
    rank: &'a R,
    common: &'a Common,
    shared: Shared,
    path: Path,
    mtu: Mtu,
    /// Times of the steps, in ns.
    steps: [Vec<f64>; STEPS.len()],
    /// Time of each list until its first messages are through.
    whole: Vec<f64>,
    made: u64,
}

impl<'a, R: Rank> Making<'a, R> {
    pub fn new(
        rank: &'a R,
        context: &Context,
        limits: &Limits,
        common: &'a Common,
    ) -> Result<Self, Stopped> {
        Ok(Self {
            rank,
            common,
            shared: Shared::new(context, limits, common)?,
            path: path_of(common, limits),
            mtu: mtu_of(common.packet_bytes(limits)),
            steps: Default::default(),
            whole: Vec::new(),
            made: 0,
        })
    }

    /// Makes all connections of a run, list by list, and destroys them; whether to go on.
    pub fn part(&mut self, list: usize) -> Result<bool, Stopped> {
        let all = self.common.qps as usize;
        let mut qps = Vec::with_capacity(all);
        let mut goes_on = true;
        while goes_on && qps.len() < all {
            let count = list.min(all - qps.len());
            goes_on = self.list(&mut qps, count)?;
        }
        // No end may destroy a queue pair while the other end still writes to it.
        self.rank.exchange_to_end(&[])?;
        for qp in qps {
            let begin = self.rank.now();
            drop(qp);
            self.keep(Step::Destroy, begin, self.rank.now());
        }
        Ok(goes_on)
    }

    fn keep(&mut self, step: Step, from: Stamp, to: Stamp) {
        self.steps[step as usize].push(self.rank.clock().ns_between(from, to));
    }

    /// Makes `count` connections more; false where an end was asked to stop.
    fn list(&mut self, qps: &mut Vec<Qp>, count: usize) -> Result<bool, Stopped> {
        let (rank, first) = (self.rank, qps.len());
        let begin = rank.now();
        for _ in 0..count {
            let begin = rank.now();
            qps.push(self.create()?);
            self.keep(Step::Create, begin, rank.now());
        }
        let created = rank.now();
        let said = self.handshake(&qps[first..])?;
        let all = rank.exchange_to_end(said.as_bytes())?;
        let told = rank.now();
        if all.iter().any(Vec::is_empty) {
            return Ok(false);
        }
        self.keep(Step::Exchange, created, told);
        let theirs = all.get(1 - rank.index()).and_then(|bytes| read_handshake(bytes));
        let theirs = theirs.filter(|(_, remotes)| remotes.len() == count);
        let (memory, remotes) =
            theirs.ok_or_else(|| failed("the handshake of the other end is not understood"))?;
        let (path, mtu) = (self.path, self.mtu);
        for (qp, remote) in qps[first..].iter().zip(&remotes) {
            let begin = rank.now();
            to_rts(qp, rank.index(), self.common, &path, mtu, remote)?;
            self.keep(Step::Connect, begin, rank.now());
        }
        let connected = rank.now();
        rank.exchange_to_end(&[])?;
        let met = rank.now();
        self.keep(Step::Meet, connected, met);
        if rank.index() == 0 {
            self.shared.first_messages(rank, qps[first..].iter(), &memory)?;
        }
        let end = rank.now();
        self.keep(Step::First, met, end);
        self.whole.push(rank.clock().ns_between(begin, end));
        self.made += count as u64;
        Ok(true)
    }

    fn create(&self) -> Result<Qp, Stopped> {
        let Shared { pd, cq, .. } = &self.shared;
        let builder = Qp::builder(qp_type(self.common.transport), cq, cq);
        let (tx, rx) = (self.common.tx_depth, self.common.rx_depth);
        let qp = builder.max_send_wr(tx).max_recv_wr(rx).build(pd).map_err(failed)?;
        qp.to_init(self.common.port, rights(), 0).map_err(failed)?;
        Ok(qp)
    }

    /// A line with the memory, and one for each queue pair; nothing when asked to stop.
    fn handshake(&self, qps: &[Qp]) -> Result<String, Stopped> {
        if self.rank.is_asked_to_stop() {
            return Ok(String::new());
        }
        let RemoteBuffer { addr, bytes, rkey } = self.shared.mr.remote();
        let mut text = format!("{addr} {bytes} {rkey}");
        for qp in qps {
            let psn = psn(self.common.seed, self.rank.index(), qp);
            let endpoint = qp.endpoint(&self.path, psn);
            text.push_str(&format!("\n{}", endpoint.map_err(failed)?));
        }
        Ok(text)
    }

    pub fn outcome(self, to: &mut Outcome) {
        outcome(to, By::Plain, self.made, self.whole);
        for (step, samples) in STEPS.into_iter().zip(self.steps) {
            to.push_series(Quantity::CallCost, step, 0, samples);
        }
    }
}

fn read_handshake(bytes: &[u8]) -> Option<(RemoteBuffer, Vec<QpEndpoint>)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next()?.split(' ').collect();
    let [addr, length, rkey] = words[..] else { return None };
    let memory = RemoteBuffer {
        addr: addr.parse().ok()?,
        bytes: length.parse().ok()?,
        rkey: rkey.parse().ok()?,
    };
    let endpoints: Result<Vec<QpEndpoint>, _> = lines.map(str::parse).collect();
    Some((memory, endpoints.ok()?))
}

#[cfg(test)]
mod tests {
    use super::read_handshake;

    #[test]
    fn what_is_no_hello_is_not_read() {
        let (memory, endpoints) = read_handshake(b"4096 64 7\n1,2,3,fe80::1\n1,4,5,::").unwrap();
        assert_eq!((memory.addr, memory.bytes, memory.rkey), (4096, 64, 7));
        assert_eq!((endpoints.len(), endpoints[1].qpn), (2, 4));
        for wrong in ["", "1 2", "1 2 x", "1 2 3\nno endpoint"] {
            assert!(read_handshake(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
