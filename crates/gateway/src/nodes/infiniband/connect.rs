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

use rdmalab_sample::record_bytes;
use rdmalab_verbs::{
    CmAddress, CmChannel, CmEvent, CmEventKind, CmGroup, CmId, ConnParam, Mtu, QpType,
};

use super::hello::{Hello, Mismatch};
use super::link::{Datagrams, Link, Wish};
use super::shared::Shared;
use crate::node::{NodeCounts, Teller};

/// The longest wait for an event, after which links are looked at.
const SLICE: Duration = Duration::from_millis(10);
/// Time from a failed attempt to the next one, first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A link that was up for so long has not failed at once.
const STEADY: Duration = Duration::from_secs(2);
/// How long an attempt may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// How long a peer waits when no receive is posted: 0.01 ms (IBA 9.7.5.2.8).
const RNR_TIMER: u8 = 1;

/// What a node asks of its connections.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Where it listens.
    pub here: Option<CmAddress>,
    /// Whom it asks.
    pub there: Option<CmAddress>,
    /// The entry of the GID table that an unreliable connection uses.
    pub gid_index: Option<u8>,
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
    /// Whether fewer values than expected are right too.
    pub takes_fewer: bool,
    /// Its queue pairs.
    pub wish: Wish,
}

impl Ends {
    /// Whether a peer that says this fits; what it sends matters to a connection that receives.
    ///
    /// # Errors
    /// The first difference.
    pub fn accepts_hello(&self, said: &[u8], receives: bool) -> Result<(), Mismatch> {
        let sent = match Hello::read(said) {
            Ok(sent) if receives => sent,
            Ok(_) => return Ok(()),
            Err(Mismatch::Silent) if self.is_hello_optional => return Ok(()),
            Err(why) => return Err(why),
        };
        let expected = if self.takes_fewer { self.expected.first(&sent) } else { self.expected };
        sent.fits(&expected)
    }
}

/// A connection under way, or there.
struct Held {
    id: CmId,
    link: Arc<Link>,
    receives: bool,
    sends: bool,
    is_up: bool,
    since: Instant,
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
    /// The error that ended the last link.
    reason: Option<String>,
    teller: Teller,
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
        teller: Teller,
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
            reason: None,
            teller,
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
                    self.teller.tell(error.to_string());
                    std::thread::sleep(PAUSE_MAX);
                }
            }
            self.look();
        }
        for held in &self.held {
            let _ = held.id.disconnect();
        }
    }

    fn is_datagram(&self) -> bool {
        self.ends.wish.transport == QpType::Ud
    }

    /// Drops what is down, and asks the peer if it is time.
    fn look(&mut self) {
        for at in 0..self.held.len() {
            if self.held[at].is_up && self.held[at].link.is_down() {
                self.lost(at);
            }
        }
        // The halves drop their handles when they find the link down. Then nothing uses the queue
        // pair, and dropping it here ends it before its samples are posted again.
        for at in (0..self.held.len()).rev() {
            let link = &self.held[at].link;
            if link.is_down() && Arc::strong_count(link) == 1 {
                self.drop_unseen(at);
            }
        }
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

    /// A link that was up is down. An error that ends it again and again is told once, and the
    /// pauses in between grow.
    fn lost(&mut self, at: usize) {
        let held = &mut self.held[at];
        held.is_up = false;
        let _ = held.id.disconnect();
        // The receiving half takes what arrived, also if it has not taken the link yet.
        self.shared.sending.discard(&held.link);
        self.counts.disconnected.add(1);
        if held.since.elapsed() > STEADY {
            self.pause = PAUSE;
            self.reason = None;
        }
        self.next_try = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let reason = held.link.reason();
        if reason.is_none() || reason != self.reason {
            let why = reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            self.teller.say(format_args!("lost {}{why}", held.link.peer));
        }
        self.reason = reason;
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
            self.shared.free(link);
        }
        self.next_try = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let there = self.ends.there.map_or_else(String::new, |there| there.to_string());
        self.teller.tell(format!("cannot connect to {there}: {why}; trying again"));
    }

    /// A queue pair on an id, with its receives posted.
    fn make(&self, id: &CmId, receives: bool) -> Result<Link, String> {
        let context = id.context().ok_or("there is no device for this address")?;
        if self.is_datagram() && !receives {
            let port = context.query_port(id.device_port()).map_err(|error| error.to_string())?;
            fits_datagram(self.ends.wish.values_out, port.active_mtu)?;
        }
        let link = Link::make(&context, &self.ends.wish, Some(id));
        let mut link = link.map_err(|error| error.to_string())?;
        if receives {
            let samples = self.shared.take_receives();
            let samples = samples.ok_or("the connection before has not ended yet")?;
            if let Err(error) = link.post_all(samples) {
                self.shared.free(link);
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
                self.teller.tell(format!("refused a peer: {why}"));
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

    /// A connection that no half has.
    fn drop_unseen(&mut self, at: usize) {
        let held = self.held.swap_remove(at);
        if let Ok(link) = Arc::try_unwrap(held.link) {
            self.shared.free(link);
        }
    }

    fn on_request(&mut self, id: &CmId, said: &[u8]) -> Result<(), String> {
        let is_datagram = self.is_datagram();
        let (receives, sends) = (self.ends.receives, self.ends.sends && !is_datagram);
        self.ends.accepts_hello(said, receives).map_err(|why| why.to_string())?;
        if !is_datagram && self.attempt.as_ref().is_some_and(|attempt| attempt.link.is_some()) {
            if own_request_counts(self.ends.here, self.ends.there) {
                return Err("both ends asked; this end's request counts".to_owned());
            }
            if let Some(link) = self.attempt.take().and_then(|attempt| attempt.link) {
                self.shared.free(link);
            }
        }
        if let Some(old) = self.held.iter().find(|held| held.receives || !is_datagram) {
            // A sender of datagrams that asks again was started again. A peer whose host has ended
            // never says so: if it is that one which asks, the probe shows that it is gone.
            match is_datagram {
                true => old.link.set_down(),
                false => old.link.probe(old.sends),
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
            self.shared.free(link);
            return Err(error.to_string());
        }
        let link = Arc::new(link);
        self.held.push(Held {
            id: id.clone(),
            link,
            receives,
            sends,
            is_up: false,
            since: Instant::now(),
        });
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
                self.ends.accepts_hello(&event.private_data, receives).map_err(|why| {
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
                    self.shared.free(link);
                    return Err(error.to_string());
                }
            }
        }
        let (receives, sends) = (self.ends.receives && !self.is_datagram(), self.ends.sends);
        self.held.push(Held {
            id,
            link: Arc::new(link),
            receives,
            sends,
            is_up: false,
            since: Instant::now(),
        });
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
        held.since = Instant::now();
        self.counts.connected.add(1);
        let (peer, inline) = (held.link.peer.clone(), held.link.inline_bytes());
        let transport = self.ends.wish.transport;
        self.teller.tell(format!("{transport} to {peer} by rdma_cm, up to {inline} bytes inline"));
    }
}

/// Of two ends that ask each other, whether the request of this one counts.
fn own_request_counts(here: Option<CmAddress>, there: Option<CmAddress>) -> bool {
    here.zip(there).is_some_and(|(here, there)| here < there)
}

/// Whether a sample fits a datagram.
fn fits_datagram(values: usize, mtu: Mtu) -> Result<(), String> {
    let (bytes, most) = (record_bytes(values), mtu.bytes());
    if bytes <= most {
        return Ok(());
    }
    Err(format!("a sample of {values} values has {bytes} bytes, and a datagram at most {most}"))
}

fn param(hello: &[u8]) -> ConnParam<'_> {
    ConnParam { private_data: hello, ..ConnParam::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_the_lower_address_counts() {
        for (here, there, counts) in [
            ("10.0.0.9:7", "10.0.0.10:7", true),
            ("10.0.0.10:7", "10.0.0.9:7", false),
            ("10.0.0.9:10", "10.0.0.9:9", false),
        ] {
            let [here, there] = [here, there].map(|text| text.parse().ok());
            assert_eq!(own_request_counts(here, there), counts, "{here:?} {there:?}");
        }
    }

    #[test]
    fn a_sample_that_is_larger_than_a_datagram_is_told_with_both_sizes() {
        assert_eq!(fits_datagram(125, Mtu::M1024), Ok(()));
        let why = fits_datagram(128, Mtu::M1024).unwrap_err();
        assert!(why.contains("1048") && why.contains("1024"), "{why}");
        assert_eq!(fits_datagram(128, Mtu::M2048), Ok(()));
    }
}
