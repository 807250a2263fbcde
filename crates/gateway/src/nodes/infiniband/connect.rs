//! The thread that makes connections by rdma_cm: it asks the peer, listens, and begins again when a
//! connection is lost.
//!
//! A reliable connection serves both directions. Datagrams go from the end that asks to the end
//! that listens, so a node that sends and receives has two queue pairs.
//!
//! Two ends that ask each other at the same time make one connection: the request of the end with
//! the lower address counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdmalab_verbs::{CmAddress, CmChannel, CmEvent, CmEventKind, CmGroup, CmId, ConnParam, QpType};

use super::hello::{Hello, Mismatch};
use super::link::{Datagrams, Link, PoolMemory, Receives, Wish};
use super::shared::Shared;
use crate::node::{Log, NodeCounts};

/// The longest wait for an event, after which links are looked at.
const SLICE: Duration = Duration::from_millis(10);
/// Time from a failed attempt to the next one, first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long an attempt may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// How long a peer waits when no receive is posted: 0.01 ms (IBA 9.7.5.2.8).
const RNR_TIMER: u8 = 1;

/// What a node asks of its connections.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The node, for messages.
    pub name: String,
    /// Where it listens.
    pub here: Option<CmAddress>,
    /// Whom it asks.
    pub there: Option<CmAddress>,
    /// Whether it receives and sends.
    pub receives: bool,
    /// See above.
    pub sends: bool,
    /// Whether it listens although it asks.
    pub use_fallback: bool,
    /// Whether a peer may say nothing about itself.
    pub is_hello_optional: bool,
    /// Time to find the peer's address, ms.
    pub resolution_ms: u32,
    /// What it sends.
    pub sent: Hello,
    /// What it expects.
    pub expected: Hello,
    /// Its queue pairs.
    pub wish: Wish,
}

/// A connection under way, or there.
struct Held {
    id: CmId,
    link: Arc<Link>,
    receives: bool,
    sends: bool,
    is_up: bool,
}

/// Asking the peer.
struct Attempt {
    id: CmId,
    link: Option<Link>,
    until: Instant,
}

/// The thread's state.
pub struct Connector {
    ends: Ends,
    shared: Arc<Shared>,
    channel: CmChannel,
    listener: Option<CmId>,
    attempt: Option<Attempt>,
    held: Vec<Held>,
    next_try: Instant,
    pause: Duration,
    log: Log,
    /// What was said last about each of the ends, so that it is said once.
    told: String,
    counts: NodeCounts,
}

impl Connector {
    /// Listens, if the node does.
    ///
    /// # Errors
    /// Why it cannot listen, in one line.
    pub fn new(
        ends: Ends,
        shared: Arc<Shared>,
        channel: CmChannel,
        log: Log,
        counts: NodeCounts,
    ) -> Result<Self, String> {
        let mut this = Self {
            ends,
            shared,
            channel,
            listener: None,
            attempt: None,
            held: Vec::new(),
            next_try: Instant::now(),
            pause: PAUSE,
            log,
            told: String::new(),
            counts,
        };
        let listens = this.ends.there.is_none() || this.ends.use_fallback;
        if let Some(here) = this.ends.here.filter(|_| listens) {
            let failed = |error| format!("in.address {here}: {error}");
            let id = this.create_id()?;
            id.bind(&here).map_err(failed)?;
            id.listen(8).map_err(failed)?;
            this.listener = Some(id);
        }
        Ok(this)
    }

    fn create_id(&self) -> Result<CmId, String> {
        let id = match self.ends.wish.transport {
            QpType::Ud => self.channel.create_datagram_id(),
            _ => self.channel.create_id(),
        };
        id.map_err(|error| error.to_string())
    }

    /// Makes connections until the node ends.
    pub fn run(mut self) {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            match self.channel.wait(SLICE) {
                Ok(Some(event)) => self.on(event),
                Ok(None) => {}
                Err(error) => {
                    self.tell(error.to_string());
                    std::thread::sleep(PAUSE_MAX);
                }
            }
            self.look();
        }
        for held in &self.held {
            let _ = held.id.disconnect();
        }
    }

    /// Says something, unless it is what was said last.
    fn tell(&mut self, what: String) {
        if what != self.told {
            self.log.say(format_args!("{}: {what}", self.ends.name));
            self.told = what;
        }
    }

    fn is_datagram(&self) -> bool {
        self.ends.wish.transport == QpType::Ud
    }

    /// Drops what is down, and asks the peer if it is time.
    fn look(&mut self) {
        for held in &mut self.held {
            if held.is_up && held.link.is_down() {
                held.is_up = false;
                let _ = held.id.disconnect();
                self.counts.disconnected.add(1);
                self.log.say(format_args!("{}: lost {}", self.ends.name, held.link.peer));
                self.told.clear();
            }
        }
        // The halves drop their handles when they find the link down. Then nothing uses the queue
        // pair, and dropping it here ends it before its samples are posted again.
        self.held.retain(|held| !held.link.is_down() || Arc::strong_count(&held.link) > 1);
        if self.attempt.as_ref().is_some_and(|attempt| Instant::now() > attempt.until) {
            self.give_up("it does not answer".to_owned());
        }
        let Some(there) = self.ends.there else { return };
        let wants = match self.is_datagram() {
            true => self.ends.sends && !self.held.iter().any(|held| held.sends),
            false => self.held.is_empty(),
        };
        let receives = self.ends.receives && !self.is_datagram();
        let can = !receives || self.shared.has_receives();
        if wants
            && can
            && self.attempt.is_none()
            && Instant::now() >= self.next_try
            && let Err(why) = self.ask(&there)
        {
            self.give_up(why);
        }
    }

    fn ask(&mut self, there: &CmAddress) -> Result<(), String> {
        let id = self.create_id()?;
        id.resolve_address(there, self.ends.resolution_ms).map_err(|e| e.to_string())?;
        self.attempt = Some(Attempt { id, link: None, until: Instant::now() + ATTEMPT_MAX });
        Ok(())
    }

    /// The attempt has failed: the samples are free again, and the next one comes later.
    fn give_up(&mut self, why: String) {
        if let Some(link) = self.attempt.take().and_then(|attempt| attempt.link) {
            self.free(link);
        }
        self.next_try = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let there = self.ends.there.map_or_else(String::new, |there| there.to_string());
        self.tell(format!("cannot connect to {there}: {why}; trying again"));
    }

    /// Ends a link that no half has seen.
    fn free(&self, mut link: Link) {
        if let Some((memory, samples)) = link.unpost() {
            drop(link);
            self.shared.give(Receives { memory, samples });
        }
    }

    /// A queue pair on an id, with its receives posted.
    fn make(&self, id: &CmId, receives: bool) -> Result<Link, String> {
        let context = id.context().ok_or("there is no device for this address")?;
        let link = Link::make(&context, &self.ends.wish, Some(id));
        let mut link = link.map_err(|error| error.to_string())?;
        if receives {
            let samples = self.shared.take_receives();
            let samples = samples.ok_or("the connection before has not ended yet")?;
            let memory: PoolMemory = samples.memory.clone();
            if let Err((error, samples)) = link.post_all(samples) {
                drop(link);
                self.shared.give(Receives { memory, samples });
                return Err(error.to_string());
            }
        }
        Ok(link)
    }

    fn on(&mut self, event: CmEvent) {
        if self.listener.as_ref().is_some_and(|id| id.key() == event.key) {
            if let (CmEventKind::ConnectRequest, Some(id)) = (event.kind, event.request)
                && let Err(why) = self.on_request(&id, &event.private_data)
            {
                let _ = id.reject();
                self.tell(format!("refused a peer: {why}"));
            }
            return;
        }
        if self.attempt.as_ref().is_some_and(|attempt| attempt.id.key() == event.key) {
            if let Err(why) = self.on_attempt(&event) {
                self.give_up(why);
            }
            return;
        }
        let Some(at) = self.held.iter().position(|held| held.id.key() == event.key) else { return };
        match event.kind {
            CmEventKind::Established => self.up(at),
            CmEventKind::Disconnected
            | CmEventKind::ConnectError
            | CmEventKind::Unreachable
            | CmEventKind::Rejected => {
                let held = &self.held[at];
                let _ = held.id.disconnect();
                held.link.set_down();
                if !held.is_up {
                    self.drop_unseen(at);
                }
            }
            _ => {}
        }
    }

    /// A connection that never was up: no half has it.
    fn drop_unseen(&mut self, at: usize) {
        let held = self.held.swap_remove(at);
        if let Ok(link) = Arc::try_unwrap(held.link) {
            self.free(link);
        }
    }

    fn check(&self, said: &[u8], its_receives: bool) -> Result<(), Mismatch> {
        match Hello::read(said) {
            Ok(hello) if its_receives => hello.fits(&self.ends.expected),
            Ok(_) => Ok(()),
            Err(Mismatch::Silent) if self.ends.is_hello_optional => Ok(()),
            Err(why) => Err(why),
        }
    }

    fn on_request(&mut self, id: &CmId, said: &[u8]) -> Result<(), String> {
        let is_datagram = self.is_datagram();
        let (receives, sends) = (self.ends.receives, self.ends.sends && !is_datagram);
        self.check(said, receives).map_err(|why| why.to_string())?;
        let (here, there) = (self.ends.here, self.ends.there);
        let here_first = here.zip(there).is_some_and(|(a, b)| a.to_string() < b.to_string());
        if !is_datagram && self.attempt.as_ref().is_some_and(|attempt| attempt.link.is_some()) {
            if here_first {
                return Err("both ends asked; this end's request counts".to_owned());
            }
            if let Some(link) = self.attempt.take().and_then(|attempt| attempt.link) {
                self.free(link);
            }
        }
        if let Some(old) = self.held.iter().find(|held| held.receives || !is_datagram) {
            // A sender of datagrams that asks again was started again.
            if is_datagram {
                old.link.set_down();
            }
            return Err(match old.link.is_down() {
                true => "the connection before has not ended yet".to_owned(),
                false => "there is a peer already".to_owned(),
            });
        }
        let mut link = self.make(id, receives)?;
        link.peer = "the peer that asked".to_owned();
        let sent = self.ends.sent.to_bytes();
        if let Err(error) = id.accept(&param(&sent)) {
            self.free(link);
            return Err(error.to_string());
        }
        let link = Arc::new(link);
        self.held.push(Held { id: id.clone(), link, receives, sends, is_up: false });
        if is_datagram {
            self.up(self.held.len() - 1);
        }
        Ok(())
    }

    fn on_attempt(&mut self, event: &CmEvent) -> Result<(), String> {
        let Some(attempt) = &mut self.attempt else { return Ok(()) };
        let id = attempt.id.clone();
        match event.kind {
            CmEventKind::AddressResolved => {
                id.resolve_route(self.ends.resolution_ms).map_err(|e| e.to_string())
            }
            CmEventKind::RouteResolved => {
                let receives = self.ends.receives && !self.is_datagram();
                let link = self.make(&id, receives)?;
                if let Some(attempt) = &mut self.attempt {
                    attempt.link = Some(link);
                }
                let sent = self.ends.sent.to_bytes();
                id.connect(&param(&sent)).map_err(|error| error.to_string())
            }
            CmEventKind::Established => {
                let receives = self.ends.receives && !self.is_datagram();
                self.check(&event.private_data, receives).map_err(|why| {
                    let _ = id.disconnect();
                    why.to_string()
                })?;
                self.established(event.datagrams)
            }
            CmEventKind::AddressError => Err("no device here has a route to it".to_owned()),
            CmEventKind::RouteError => Err("there is no path to it".to_owned()),
            CmEventKind::Unreachable => Err("it does not answer".to_owned()),
            CmEventKind::Rejected => Err(format!("it refuses (reason {})", event.status)),
            CmEventKind::ConnectError | CmEventKind::Disconnected => {
                Err(format!("{:?}, status {}", event.kind, event.status))
            }
            _ => Ok(()),
        }
    }

    fn established(&mut self, datagrams: Option<CmGroup>) -> Result<(), String> {
        let Some(Attempt { id, link: Some(mut link), .. }) = self.attempt.take() else {
            return Ok(());
        };
        link.peer = self.ends.there.map_or_else(String::new, |there| there.to_string());
        if let Some(to) = datagrams {
            match link.pd().create_ah(&to.at, &to.path) {
                Ok(address) => {
                    link.datagrams = Some(Datagrams { address, qpn: to.at.qpn, qkey: to.qkey });
                }
                Err(error) => {
                    self.free(link);
                    return Err(error.to_string());
                }
            }
        }
        let (receives, sends) = (self.ends.receives && !self.is_datagram(), self.ends.sends);
        self.held.push(Held { id, link: Arc::new(link), receives, sends, is_up: false });
        self.up(self.held.len() - 1);
        Ok(())
    }

    /// Hands a connection to the halves.
    fn up(&mut self, at: usize) {
        let held = &mut self.held[at];
        held.is_up = true;
        if self.ends.wish.transport == QpType::Rc {
            // The manager leaves 0, which is 655 ms.
            let _ = held.link.qp().set_min_rnr_timer(RNR_TIMER);
        }
        if held.receives {
            self.shared.receiving.put(held.link.clone());
        }
        if held.sends {
            self.shared.sending.put(held.link.clone());
        }
        self.pause = PAUSE;
        self.counts.connected.add(1);
        let (peer, inline) = (held.link.peer.clone(), held.link.inline_bytes());
        let transport = self.ends.wish.transport;
        self.tell(format!("{transport} to {peer} by rdma_cm, up to {inline} bytes inline"));
    }
}

fn param(hello: &[u8]) -> ConnParam<'_> {
    ConnParam { private_data: hello, ..ConnParam::default() }
}
