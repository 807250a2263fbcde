//! Both ranks at work. Rank 0 has the source, rank 1 reads the node under test; each runs its
//! gateway on one thread, and on another one meets the other rank now and then, so that the
//! latencies up to then are with rank 0, however it ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdmalab_experiments::{Common, Limits, Transport, ip_address, reaches};
use rdmalab_gateway::node::{Log, Stop, World};
use rdmalab_gateway::{Live, Plan, Summary};
use rdmalab_measure::limits::available_cores;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_sample::record_bytes;
use rdmalab_verbs::{CmAddress, Context, Device};

use super::configuration::{Part, Place, plan};
use super::options::{Gateway, Node};
use super::recorder::{Arrival, Arrivals, room};
use super::result::{Received, Sent, outcome};

/// Time between two meetings of the ranks.
const SLICE: Duration = Duration::from_millis(250);
/// What rank 0 says at a meeting: whether it is the last one.
const GOES_ON: &[u8] = &[0];
const IS_LAST: &[u8] = &[1];

/// One end of the experiment.
struct End<'a, R> {
    rank: &'a R,
    part: Part,
    arrivals: Arrivals,
    stop: Stop,
    /// Whether the node has to connect.
    has_peers: bool,
    /// Whether rank 0 has a path that reads, and that does not end with its source.
    goes_on: bool,
    /// Whether its gateway has ended.
    is_over: AtomicBool,
    /// What the gateway told.
    told: Arc<Mutex<Vec<String>>>,
}

/// What a thread of an end returns.
enum Done {
    Gateway(Result<Option<Summary>, String>),
    /// What arrived, and how the meetings ended.
    Meetings(Vec<Arrival>, Result<(), Stopped>),
}

/// What the runs have given so far.
#[derive(Default)]
struct Found {
    /// At rank 0.
    sent: Option<Sent>,
    /// The same of the receiver; `None` once a run was cut short.
    received: Option<Received>,
    arrivals: Vec<Arrival>,
    cpu_ns: f64,
    kernel_ns: f64,
    elapsed_ns: f64,
    cut_short: Option<String>,
}

/// Runs the experiment at one end.
///
/// # Errors
/// When a gateway cannot begin or fails, or the ends do not connect.
pub fn run<R: Rank + Sync>(
    own: &Gateway,
    common: &Common,
    rank: &R,
    context: &Context,
    limits: &Limits,
) -> Result<Outcome, Stopped> {
    if !rank.shares_clock(1 - rank.index().min(1)) {
        return Err(failed("one clock has to stamp both ends: run both ranks on one host"));
    }
    let mut found = Found { received: Some(Received::default()), ..Found::default() };
    // Ticks of the runs before.
    let mut before = 0;
    for number in 0..common.runs {
        let warm_up = if number == 0 { common.warm_up } else { 0 };
        let of_run = Common { warm_up, runs: 1, ..common.clone() };
        let first = found.arrivals.len();
        match one(own, &of_run, rank, (context, limits), &mut found) {
            // The runs before count.
            Err(kept @ (Stopped::Asked | Stopped::Other(_))) if number > 0 => {
                found.cut_short = Some(kept.to_string());
            }
            ended => ended?,
        }
        found.arrivals[first..].iter_mut().for_each(|arrival| arrival.number += before);
        before += of_run.total();
        if found.cut_short.is_some() {
            break;
        }
    }
    let Found { sent, received, arrivals, cpu_ns, kernel_ns, elapsed_ns, cut_short } = found;
    let mut outcome = match sent {
        Some(sent) => outcome(own, common, &sent, received.as_ref(), &arrivals).map_err(failed)?,
        None => Outcome::default(),
    };
    let label = format!("rank {}", rank.index());
    outcome.push_figure(Quantity::CpuShare, &label, cpu_ns / elapsed_ns);
    outcome.push_figure(Quantity::KernelShare, &label, kernel_ns / elapsed_ns);
    facts(&mut outcome, (own, common), (context, limits));
    outcome.cut_short = cut_short;
    Ok(outcome)
}

/// One run: a gateway at each end, from its start to its end.
fn one<R: Rank + Sync>(
    own: &Gateway,
    common: &Common,
    rank: &R,
    (context, limits): (&Context, &Limits),
    found: &mut Found,
) -> Result<(), Stopped> {
    let place = meet(own, common, rank, (context, limits))?;
    let end = End {
        rank,
        part: Part::of(rank.index(), own),
        arrivals: Arrivals::new(),
        stop: Stop::default(),
        has_peers: own.node.has_peers(),
        goes_on: own.is_alone() && own.node != Node::Loopback,
        is_over: AtomicBool::new(false),
        told: Arc::default(),
    };
    let plan = bound(plan(own, common, end.part, place).map_err(failed)?, end.part);
    let world = end.world(own, context)?;
    if end.part != Part::Target {
        // The target says that it is ready from its second thread.
        rank.exchange_to_end(&[])?;
    }
    let (begin, cpu) = (rank.now(), rank.cpu_time());
    let (summary, arrived, ended) = end.work(plan, &world)?;
    let cpu = rank.cpu_time().since(cpu);
    found.cpu_ns += cpu.total_ns() as f64;
    found.kernel_ns += cpu.system_ns as f64;
    found.elapsed_ns += rank.clock().ns_between(begin, rank.now());
    // A gateway that fails is the cause of a meeting that fails.
    let summary = summary.map_err(failed)?;
    found.arrivals.extend(arrived);
    found.cut_short = match ended {
        Ok(()) => None,
        Err(kept @ (Stopped::Asked | Stopped::Other(_))) => Some(kept.to_string()),
        Err(failure) => return Err(failure),
    };
    let mut received = end.received(summary.as_ref());
    let mut told = end.told();
    if found.cut_short.is_none() {
        let bytes = received.unwrap_or_default().to_bytes(&end.last_arrivals());
        let all = rank.exchange_to_end(&bytes)?;
        if end.part == Part::Source {
            let (there, rest) = Received::from_bytes(all.get(1).map_or(&[], Vec::as_slice));
            received = Some(there);
            found.arrivals.extend(rest);
        }
        // All ranks have to know that no run follows.
        let is_asked = u8::from(rank.is_asked_to_stop());
        let all = rank.exchange_to_end(&[&[is_asked], told.as_bytes()].concat())?;
        let said = |said: &Vec<u8>| Some((said.first()? > &0, said.get(1..)?.to_vec()));
        let (are_asked, all): (Vec<bool>, Vec<Vec<u8>>) = all.iter().filter_map(said).unzip();
        told = String::from_utf8_lossy(&all.join(&b"; "[..])).into_owned();
        found.cut_short = are_asked.contains(&true).then(|| Stopped::Asked.to_string());
    }
    let Some(sent) = summary.as_ref().filter(|_| rank.index() == 0).map(Sent::of) else {
        return Ok(());
    };
    if found.cut_short.is_none() {
        check(own, common, &sent, received.unwrap_or_default())
            .map_err(|why| failed(format!("{why} ({told})")))?;
    }
    found.received = found.received.zip(received).map(|(so_far, more)| so_far.and(more));
    found.sent = Some(found.sent.take().unwrap_or_default().and(sent));
    Ok(())
}

/// The plan with its path on the processor that this rank is bound to, if it is one. Two paths
/// would wait for each other there.
fn bound(mut plan: Option<Plan>, part: Part) -> Option<Plan> {
    let cores = available_cores().unwrap_or_default();
    if let (Some(plan), [core], true) = (&mut plan, &cores[..], part != Part::Both) {
        plan.pin(*core);
    }
    plan
}

/// Facts of the device, if samples go over it.
fn facts(
    outcome: &mut Outcome,
    (own, common): (&Gateway, &Common),
    (context, limits): (&Context, &Limits),
) {
    if own.node != Node::Infiniband {
        return;
    }
    outcome.push_fact("device_kind", context.kind());
    outcome.push_fact("device", context.device_name());
    outcome.push_fact("port", common.port);
    let bytes = record_bytes(own.values) as u64;
    let is_inline = own.is_inline(common) && bytes <= limits.max_inline_bytes.into();
    outcome.push_fact("inline", if is_inline { "yes" } else { "no" });
}

/// Where the ends meet, as the rank that receives says.
fn meet<R: Rank>(
    own: &Gateway,
    common: &Common,
    rank: &R,
    (context, limits): (&Context, &Limits),
) -> Result<Place, Stopped> {
    let ip = match own.node {
        Node::Infiniband => address(common, context, limits)?,
        _ => Ipv4Addr::LOCALHOST.into(),
    };
    // The port is free again when nobody holds it; the system gives it to nobody else for a while.
    let free = TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr());
    let free = free.map_err(|why| failed(format!("{ip}: {why}")))?;
    let all = rank.exchange(free.to_string().as_bytes())?;
    let receiver = usize::from(!own.is_alone());
    let text = all.get(receiver).map(|bytes| String::from_utf8_lossy(bytes));
    let place: Option<SocketAddr> = text.as_ref().and_then(|text| text.parse().ok());
    let place = place.ok_or_else(|| failed("the address of the receiver is not understood"))?;
    if own.node == Node::Infiniband && common.transport != Transport::Uc && rank.index() == 0 {
        let there: CmAddress = place.to_string().parse().map_err(failed)?;
        reaches(rank, context, common, &there)?;
    }
    Ok(Place { address: place.ip(), port: place.port() })
}

/// An address of the device's port. UC opens the device by its name, so any address will do.
fn address(common: &Common, context: &Context, limits: &Limits) -> Result<IpAddr, Stopped> {
    match ip_address(context, limits, common) {
        Ok(address) => {
            let address: SocketAddr = address.to_string().parse().map_err(failed)?;
            Ok(address.ip())
        }
        Err(_) if common.transport == Transport::Uc => Ok(Ipv4Addr::LOCALHOST.into()),
        Err(why) => Err(failed(why)),
    }
}

/// The device of a context, for the gateway to open.
fn device(context: &Context) -> Result<Device, Stopped> {
    let all = context.library().devices().map_err(failed)?;
    let name = context.device_name();
    let found = all.into_iter().find(|device| device.name() == name);
    found.ok_or_else(|| failed(format!("{name} is gone")))
}

impl<R: Rank + Sync> End<'_, R> {
    fn world(&self, own: &Gateway, context: &Context) -> Result<World, Stopped> {
        let told = self.told.clone();
        Ok(World {
            device: (own.node == Node::Infiniband).then(|| device(context)).transpose()?,
            clock: *self.rank.clock(),
            timer: own.timer.kind(),
            stop: self.stop.clone(),
            log: Log::new(move |line| {
                told.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
            }),
        })
    }

    /// The gateway on one thread, meetings on another one.
    #[expect(clippy::type_complexity, reason = "what both threads return")]
    fn work(
        &self,
        plan: Option<Plan>,
        world: &World,
    ) -> Result<(Result<Option<Summary>, String>, Vec<Arrival>, Result<(), Stopped>), Stopped> {
        let live = plan.as_ref().map(Plan::live);
        let (at_end, over) = channel();
        let gateway: Box<dyn FnOnce() -> Done + Send + '_> = Box::new(move || {
            // Is dropped last, and ends the wait of the other thread.
            let _at_end = at_end;
            let _over = SetAtEnd(&self.is_over);
            let ended = plan.map(|mut plan| {
                if let Some(path) = self.part.reader() {
                    plan.watch(path, self.arrivals.recorder());
                }
                plan.run(world)
            });
            Done::Gateway(ended.transpose())
        });
        let meetings: Box<dyn FnOnce() -> Done + Send + '_> = Box::new(move || {
            let mut arrived = Vec::new();
            let ended = match self.rank.index() {
                0 => self.lead(&over, live.as_ref(), &mut arrived),
                _ => self.follow(live),
            };
            self.stop.set();
            Done::Meetings(arrived, ended)
        });
        // The first thread is bound to the processor of this rank, and only the path shall be.
        // Other threads of the gateway begin with the affinity of the one that makes them.
        let first: Box<dyn FnOnce() -> Done + Send + '_> = Box::new(|| Done::Gateway(Ok(None)));
        let bodies = vec![first, gateway, meetings];
        let (mut summary, mut arrived, mut ended) = (Ok(None), Vec::new(), Ok(()));
        for done in self.rank.spawn(bodies)? {
            match done {
                Done::Gateway(found) => summary = found,
                Done::Meetings(found, how) => (arrived, ended) = (found, how),
            }
        }
        Ok((summary, arrived, ended))
    }

    fn has_ended(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Rank 0: meets rank 1 until the source has ended, or it is asked to stop.
    fn lead(
        &self,
        over: &Receiver<()>,
        live: Option<&Live>,
        arrived: &mut Vec<Arrival>,
    ) -> Result<(), Stopped> {
        let mut taken = room();
        loop {
            // Nothing is sent: this waits for the end of the gateway.
            let _ = over.recv_timeout(SLICE);
            let has_sent = live.is_some_and(|live| self.goes_on && live.has_ended(0));
            let is_over = self.has_ended() || has_sent;
            let is_last = is_over || self.stop.is_set() || self.rank.is_asked_to_stop();
            if is_last {
                self.stop.set();
                let _ = over.recv();
            }
            self.arrivals.take(&mut taken);
            arrived.extend_from_slice(&taken);
            let said = if is_last { IS_LAST } else { GOES_ON };
            let all = self.rank.exchange_to_end(said)?;
            let (_, there) = Received::from_bytes(all.get(1).map_or(&[], Vec::as_slice));
            arrived.extend(there);
            if is_last {
                return Ok(());
            }
            if arrived.is_empty() && live.is_some_and(|live| self.sends_to_nobody(live)) {
                self.stop.set();
            }
        }
    }

    /// Whether samples flow although no peer has come. Asked only as long as nothing has arrived,
    /// since an answer takes the path some time.
    fn sends_to_nobody(&self, live: &Live) -> bool {
        let all = live.ask(Duration::ZERO);
        let Some((_, path)) = all.first().filter(|_| self.has_peers) else { return false };
        path.samples > 0 && path.destinations.iter().all(|to| to.connected == 0)
    }

    /// Rank 1: says when its gateway reads, then gives what arrived until rank 0 has ended.
    fn follow(&self, live: Option<Live>) -> Result<(), Stopped> {
        let early = || failed("the gateway of rank 1 has ended early");
        if let Some(live) = live {
            while live.ask(SLICE).is_empty() {
                if self.has_ended() {
                    return Err(early());
                }
            }
            self.rank.exchange_to_end(&[])?;
        }
        let mut taken = room();
        loop {
            self.arrivals.take(&mut taken);
            let bytes = Received::default().to_bytes(&taken);
            let all = self.rank.exchange_at_leisure(&bytes)?;
            if all.first().is_none_or(|said| said != GOES_ON) {
                return Ok(());
            }
            if self.has_ended() && self.part == Part::Target {
                return Err(early());
            }
        }
    }

    /// What has arrived since the last meeting.
    fn last_arrivals(&self) -> Vec<Arrival> {
        let mut taken = Vec::new();
        self.arrivals.take(&mut taken);
        taken
    }

    /// What the path that reads the node has counted at this end.
    fn received(&self, summary: Option<&Summary>) -> Option<Received> {
        self.part.reader().and_then(|path| summary?.paths.get(path)).map(Received::of)
    }

    /// What the gateway of this rank told.
    fn told(&self) -> String {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).join("; ")
    }
}

/// Whether something was measured.
///
/// # Errors
/// Why not, with what to do.
fn check(own: &Gateway, common: &Common, sent: &Sent, received: Received) -> Result<(), String> {
    let why = match (sent, own.node) {
        (Sent { failed: Some(node), .. }, _) => format!("{node} ended early"),
        (Sent { samples: 0, .. }, _) => format!(
            "the source missed all {} ticks: choose a --rate below {}, more --messages, or more \
             processors",
            sent.missed, common.rate_per_s
        ),
        (Sent { connected: 0, .. }, node) if node.has_peers() => {
            "the ranks did not connect: look at the device and its port".to_owned()
        }
        (_, _) if received.samples > 0 => return Ok(()),
        (_, Node::Infiniband) => {
            "no sample arrived: choose --transport rc, which tells why".to_owned()
        }
        (_, Node::Socket) => "no sample arrived: does a firewall drop UDP on loopback?".to_owned(),
        (_, Node::Shmem | Node::Loopback | Node::Zeromq | Node::Nanomsg) => {
            "no sample arrived: choose a lower --rate, or more processors".to_owned()
        }
    };
    Err(why)
}

/// Is set at the end of a block, also by a panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn failed(why: impl std::fmt::Display) -> Stopped {
    Stopped::Failed(why.to_string())
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::Workload;

    use super::*;

    #[test]
    fn a_run_without_an_arrival_is_an_error_with_advice() {
        let judged = |node, sent: &Sent, samples| {
            let own = Gateway { node, ..Gateway::OWN };
            let received = Received { samples, ..Received::default() };
            check(&own, &Gateway::COMMON, sent, received)
        };
        let sent = Sent { samples: 9, connected: 1, ..Sent::default() };
        for &node in Node::ALL {
            assert_eq!(judged(node, &sent, 1), Ok(()));
            let why = judged(node, &sent, 0).unwrap_err();
            assert!(why.starts_with("no sample arrived: "), "{why}");
            let nobody = judged(node, &Sent { samples: 9, ..Sent::default() }, 0).unwrap_err();
            assert_eq!(nobody.contains("did not connect"), node.has_peers(), "{nobody}");
            let none = judged(node, &Sent { missed: 9, ..Sent::default() }, 0).unwrap_err();
            assert!(none.contains("missed all 9 ticks: choose a --rate below 1000"), "{none}");
        }
        let failed = Sent { failed: Some("node".to_owned()), ..sent };
        let why = judged(Node::Socket, &failed, 1).unwrap_err();
        assert!(why.contains("node ended early"), "{why}");
    }
}
