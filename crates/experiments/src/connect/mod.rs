//! `connect`: making connections, plainly or by the connection manager (`managed`).
//!
//! Plainly: both ends make queue pairs, tell each other their numbers, bring them to RTS, and meet
//! again, since a request that comes too early waits for a time-out; then rank 0 sends a first
//! message over each. All connections of a run stay until its end.

mod managed;

use rdmalab_measure::{Outcome, Quantity, Stamp};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    Access, Context, Cq, Mr, Mtu, Path, Pd, Qp, QpEndpoint, RemoteBuffer, SendRequest, Wc,
};

use crate::common::completions::{failed, timed_out};
use crate::common::endpoint::{WORD, mtu_of, path_of, psn, qp_type, to_rts};
use crate::common::granted::device_facts;
use crate::common::limits::Limits;
use crate::common::lockstep::{Begin, Effort, cut_short};
use crate::common::words::words;
use crate::point::Point;
use managed::Managed;

words! {
    /// How queue pairs come to know of each other.
    By, "way to connect" {
        /// The ends exchange their numbers themselves, over TCP.
        Plain = "plain",
        /// The connection manager.
        RdmaCm = "rdma_cm",
    }
}

/// What a peer may do over the connections.
fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE
}

/// Bytes of memory: what is written from and what is written to.
const MEMORY_BYTES: usize = 4096;

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

/// What all connections share.
struct Shared {
    pd: Pd,
    cq: Cq,
    mr: Mr,
}

struct Making<'a, R> {
    rank: &'a R,
    point: &'a Point,
    shared: Shared,
    path: Path,
    mtu: Mtu,
    /// Times of the steps, in ns.
    steps: [Vec<f64>; STEPS.len()],
    /// Time of each list until its first messages are through.
    whole: Vec<f64>,
    made: u64,
}

/// Runs it.
pub(crate) fn run<R: Rank>(
    rank: &R,
    context: &Context,
    limits: &Limits,
    point: &Point,
) -> Result<Outcome, Stopped> {
    let list = if point.list == 0 { point.qps } else { point.list } as usize;
    match point.by {
        By::Plain => {
            let mut making = Making::new(rank, context, limits, point)?;
            runs(rank, context, point, &mut making, |making| making.part(list))
                .map(|end| end.with(rank, |outcome| making.outcome(outcome)))
        }
        By::RdmaCm => {
            let mut managed = Managed::new(rank, context, limits, point)?;
            runs(rank, context, point, &mut managed, |managed| managed.part(list))
                .map(|end| end.with(rank, |outcome| managed.outcome(outcome)))
        }
    }
}

/// All runs, with what they cost.
struct Ended {
    outcome: Outcome,
    effort: Effort,
}

impl Ended {
    /// What rank 0 has found goes in front of the effort.
    fn with<R: Rank>(mut self, rank: &R, found: impl FnOnce(&mut Outcome)) -> Outcome {
        if rank.index() == 0 {
            found(&mut self.outcome);
        }
        if let Some(share) = self.effort.share() {
            let label = format!("rank {}", rank.index());
            self.outcome.push_figure(Quantity::CpuShare, &label, share);
        }
        self.outcome
    }
}

fn runs<R: Rank, T>(
    rank: &R,
    context: &Context,
    point: &Point,
    making: &mut T,
    part: impl Fn(&mut T) -> Result<bool, Stopped>,
) -> Result<Ended, Stopped> {
    let (mut outcome, mut effort) = (Outcome::default(), Effort::default());
    for _ in 0..point.runs {
        let begin = Begin::now(rank);
        let result = part(making);
        begin.end(rank, &mut effort);
        let goes_on = *result.as_ref().unwrap_or(&true);
        outcome.cut_short = match goes_on {
            true => cut_short(result.map(drop))?,
            false => Some(Stopped::Asked.to_string()),
        };
        if outcome.cut_short.is_some() {
            break;
        }
    }
    device_facts(context, &mut outcome);
    Ok(Ended { outcome, effort })
}

/// What either way of making connections says in the same words.
fn outcome(to: &mut Outcome, point: &Point, made: u64, whole: Vec<f64>) {
    let total_ns: f64 = whole.iter().sum();
    if total_ns > 0.0 {
        to.push_figure(Quantity::Rate, "connections", made as f64 / total_ns * 1e9);
    }
    to.push_count("connections", made);
    to.push_fact("by", point.by);
    to.push_series(Quantity::SetupTime, "of a list, until it is used", 0, whole);
}

impl Shared {
    fn new(context: &Context, limits: &Limits, point: &Point) -> Result<Self, Stopped> {
        let pd = context.alloc_pd().map_err(failed)?;
        let buffer = context.alloc_buffer(MEMORY_BYTES).map_err(failed)?;
        buffer.fill(0, MEMORY_BYTES, 0);
        let mr = pd.register(&buffer, rights()).map_err(failed)?;
        let list = if point.list == 0 { point.qps } else { point.list };
        let cq = context.create_cq(list.clamp(16, limits.max_cqe), None).map_err(failed)?;
        Ok(Self { pd, cq, mr })
    }

    /// A WRITE over each, all at once.
    fn first_messages<'a, R: Rank>(
        &self,
        rank: &R,
        qps: impl ExactSizeIterator<Item = &'a Qp>,
        memory: &RemoteBuffer,
    ) -> Result<(), Stopped> {
        let sges = [self.mr.sge(0, WORD)];
        let mut left = qps.len();
        for qp in qps {
            let request = SendRequest::write(&sges, memory, 2 * WORD as u64).signaled();
            qp.post_send(&[request]).map_err(failed)?;
        }
        let mut wcs = [Wc::default(); 16];
        let patience_ns = rank.patience_ns();
        while left > 0 {
            let found = rank.spin_for(patience_ns, || match self.cq.poll(&mut wcs) {
                Ok(0) => None,
                other => Some(other),
            })?;
            let found = found.ok_or_else(|| timed_out(patience_ns, "the first message"))?;
            let found = found.map_err(failed)?;
            for wc in &wcs[..found] {
                wc.status().map_err(|status| failed(format!("the first message: {status}")))?;
            }
            left -= found;
        }
        Ok(())
    }
}

impl<'a, R: Rank> Making<'a, R> {
    fn new(
        rank: &'a R,
        context: &Context,
        limits: &Limits,
        point: &'a Point,
    ) -> Result<Self, Stopped> {
        Ok(Self {
            rank,
            point,
            shared: Shared::new(context, limits, point)?,
            path: path_of(point, limits),
            mtu: mtu_of(crate::check::mtu_bytes(point, limits)),
            steps: Default::default(),
            whole: Vec::new(),
            made: 0,
        })
    }

    /// Makes all connections of a run, list by list, and destroys them; whether to go on.
    fn part(&mut self, list: usize) -> Result<bool, Stopped> {
        let all = self.point.qps as usize;
        let mut qps = Vec::with_capacity(all);
        let mut goes_on = true;
        while goes_on && qps.len() < all {
            let count = list.min(all - qps.len());
            goes_on = self.list(&mut qps, count)?;
        }
        // Nobody destroys what the other end still writes to.
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
        let said = self.hello(&qps[first..])?;
        let all = rank.exchange_to_end(said.as_bytes())?;
        let told = rank.now();
        if all.iter().any(Vec::is_empty) {
            return Ok(false);
        }
        self.keep(Step::Exchange, created, told);
        let theirs = all.get(1 - rank.index()).and_then(|bytes| read_hello(bytes));
        let theirs = theirs.filter(|(_, remotes)| remotes.len() == count);
        let (memory, remotes) =
            theirs.ok_or_else(|| failed("the other end says something unknown"))?;
        let (path, mtu) = (self.path, self.mtu);
        for (qp, remote) in qps[first..].iter().zip(&remotes) {
            let begin = rank.now();
            to_rts(qp, rank.index(), self.point, &path, mtu, remote)?;
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
        let builder = Qp::builder(qp_type(self.point.transport), cq, cq);
        let (tx, rx) = (self.point.tx_depth, self.point.rx_depth);
        let qp = builder.max_send_wr(tx).max_recv_wr(rx).build(pd).map_err(failed)?;
        qp.to_init(self.point.port, rights(), 0).map_err(failed)?;
        Ok(qp)
    }

    /// A line with the memory, and one for each queue pair; nothing when asked to stop.
    fn hello(&self, qps: &[Qp]) -> Result<String, Stopped> {
        if self.rank.is_asked_to_stop() {
            return Ok(String::new());
        }
        let RemoteBuffer { addr, bytes, rkey } = self.shared.mr.remote();
        let mut text = format!("{addr} {bytes} {rkey}");
        for qp in qps {
            let psn = psn(self.point.seed, self.rank.index(), qp);
            let endpoint = qp.endpoint(&self.path, psn);
            text.push_str(&format!("\n{}", endpoint.map_err(failed)?));
        }
        Ok(text)
    }

    fn outcome(self, to: &mut Outcome) {
        outcome(to, self.point, self.made, self.whole);
        for (step, samples) in STEPS.into_iter().zip(self.steps) {
            to.push_series(Quantity::CallCost, step, 0, samples);
        }
    }
}

fn read_hello(bytes: &[u8]) -> Option<(RemoteBuffer, Vec<QpEndpoint>)> {
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
    use super::read_hello;

    #[test]
    fn what_is_no_hello_is_not_read() {
        let (memory, endpoints) = read_hello(b"4096 64 7\n1,2,3,fe80::1\n1,4,5,::").unwrap();
        assert_eq!((memory.addr, memory.bytes, memory.rkey), (4096, 64, 7));
        assert_eq!((endpoints.len(), endpoints[1].qpn), (2, 4));
        for wrong in ["", "1 2", "1 2 x", "1 2 3\nno endpoint"] {
            assert!(read_hello(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
