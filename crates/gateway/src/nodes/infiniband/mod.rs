//! `infiniband`: samples as SENDs of one piece, over a reliable or unreliable connection or as
//! datagrams.
//!
//! - `link`: a queue pair with its registered memory, and both of its halves.
//! - `connect`, `exchange`: the threads that make links, by rdma_cm and (UC) by a TCP connection.
//! - `hello`: what the ends say of themselves. `shared`: how links reach the halves.

mod connect;
mod exchange;
mod hello;
mod link;
mod shared;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdmalab_config::{At, ConfigError, group, one_of};
use rdmalab_measure::Clock;
use rdmalab_sample::{Flags, Handle, META_BYTES, Pool, Signal, Storage, record_bytes};
use rdmalab_verbs::{Buffer, CmAddress, Library, QpType};

use crate::keys::{InCommon, NodeCommon, OutCommon, signals_or_default};
use crate::node::{Node, NodeCounts, Sink, Source, SourceState, Teller, World, stamp};
use connect::{Connector, Ends};
use hello::Hello;
use link::{Failed, PoolMemory, Receives, Receiving, Sending, Wish};
use shared::Shared;

one_of! {
    /// The transport of the queue pair.
    pub enum Transport {
        /// Reliable connection.
        Rc = "RC";
        /// Unreliable connection.
        Uc = "UC";
        /// Unreliable datagram.
        Ud = "UD";
    }
}

one_of! {
    /// Whether a peer must say what it sends.
    pub enum HelloRule {
        /// A peer that does not is refused.
        Required = "required";
        /// A peer that does not is taken as VILLASnode's layout.
        Optional = "optional";
    }
}

one_of! {
    /// How the reading half waits.
    pub enum Wait {
        /// By polling the completion queue, which takes a processor.
        Polling = "polling";
        /// By sleeping until a completion comes.
        Event = "event";
    }
}

group! {
    /// The reading half.
    pub struct In with (common: InCommon) {
        /// The address to listen on.
        address: Option<At<String>>;
        /// Samples that are read at a time.
        vectorize: usize = 1, in 1..=64;
        /// Most receives in the queue.
        max_wrs: u32 = 128, in 4..=65_536;
        /// Entries of the completion queue.
        cq_size: u32 = 128, in 1..=1_000_000;
        /// Receives of the queue that stay unused.
        buffer_subtraction: u32 = 16, in 0..=65_536;
        /// Posts all receives before the connection is there; else they are posted while receiving.
        prepost: bool = true;
        /// How it waits.
        wait: Wait = Wait::Polling;
    }
}

group! {
    /// The writing half.
    pub struct Out with (common: OutCommon) {
        /// The address of the peer.
        address: Option<At<String>>;
        /// Time to find it [ms].
        resolution_timeout: u32 = 1000, in 1..=600_000;
        /// Most sends in the queue.
        max_wrs: u32 = 128, in 4..=65_536;
        /// Entries of the completion queue.
        cq_size: u32 = 128, in 1..=1_000_000;
        /// Sends with the data in the request, up to what the device grants.
        send_inline: bool = true;
        /// Inline bytes to ask for; 0 is as many as a sample has.
        max_inline_data: u32 = 0, in 0..=65_536;
        /// One of so many inline sends has a completion; half of max_wrs if it is left out.
        periodic_signaling: Option<u32>, in 1..=65_536;
        /// Listens too, in case that the peer asks.
        use_fallback: bool = true;
    }
    stale { periodic_signalling => periodic_signaling; }
}

group! {
    /// Samples over InfiniBand, RoCE, or a soft device.
    pub struct Config with (common: NodeCommon) {
        /// The transport.
        rdma_transport_mode: Transport = Transport::Rc;
        /// The own entry in the GID table of port 1, for UC. If it is left out, that of in.address.
        gid_index: Option<At<u8>>;
        /// Whether a peer must say what it sends.
        hello: HelloRule = HelloRule::Required;
        /// The reading half.
        r#in: Option<In>;
        /// The writing half.
        out: Option<Out>;
    }
    stale {
        rdma_port_space => rdma_transport_mode {
            "\"RDMA_PS_TCP\"" => "\"RC\"",
            "\"RDMA_PS_UDP\"" => "\"UD\"",
            "\"RDMA_PS_IB\"" => "\"UC\"",
        };
    }
}

/// The node.
pub struct Infiniband {
    name: String,
    signals: Vec<Signal>,
    ends: Ends,
    shared: Arc<Shared>,
    vectorize: usize,
    is_inline: bool,
    max_inline_data: u32,
    counts: NodeCounts,
    thread: Option<JoinHandle<()>>,
}

fn address(text: Option<&At<String>>) -> Result<Option<CmAddress>, ConfigError> {
    let Some(At { value, at }) = text else { return Ok(None) };
    let parsed = value.parse().map(Some);
    parsed.map_err(|_| {
        ConfigError::new(at, format!("{value:?} is no address"))
            .right("it must be like \"10.0.0.1:1337\"")
    })
}

fn kinds(signals: &[Signal]) -> impl ExactSizeIterator<Item = u8> {
    signals.iter().map(|signal| signal.kind as u8)
}

impl Config {
    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let wrong = |what: String| ConfigError::new(&name.at, what);
        let here = address(self.r#in.as_ref().and_then(|half| half.address.as_ref()))?;
        let there = address(self.out.as_ref().and_then(|half| half.address.as_ref()))?;
        if here.is_none() && there.is_none() {
            return Err(wrong(format!("{} has no address", name.value))
                .right("in.address to listen, out.address to ask a peer"));
        }
        let signals = self.r#in.as_ref().map(|half| signals_or_default(Some(&half.common)));
        let signals = signals.unwrap_or_default();
        let incoming = self.r#in.as_ref();
        let (max_wrs, spare) = incoming.map_or((128, 16), |i| (i.max_wrs, i.buffer_subtraction));
        let vectorize = incoming.map_or(1, |half| half.vectorize);
        if spare as usize > max_wrs as usize - 2 {
            return Err(wrong(format!("in.buffer_subtraction is {spare}"))
                .right(format!("it must leave 2 of the {max_wrs} of in.max_wrs")));
        }
        let out = self.out.as_ref();
        let sends = out.map_or(128, |half| half.max_wrs);
        let every = out.and_then(|half| half.periodic_signaling).unwrap_or(sends / 2);
        if every > sends {
            return Err(wrong(format!("out.periodic_signaling is {every}"))
                .right(format!("at most the {sends} of out.max_wrs")));
        }
        let transport = match self.rdma_transport_mode {
            Transport::Rc => QpType::Rc,
            Transport::Uc => QpType::Uc,
            Transport::Ud => QpType::Ud,
        };
        if let Some(At { at, .. }) = self.gid_index.as_ref().filter(|_| transport != QpType::Uc) {
            return Err(ConfigError::new(at, "gid_index is of UC")
                .right("leave it out: rdma_cm chooses the GID by the address"));
        }
        let wish = Wish {
            transport,
            receives: max_wrs - spare,
            prepost: incoming.is_none_or(|half| half.prepost),
            sleeps: incoming.is_some_and(|half| half.wait == Wait::Event),
            sends,
            values_out: 0,
            inline_bytes: 0,
            signal_every: every,
            completions: [incoming.map_or(1, |i| i.cq_size), out.map_or(1, |o| o.cq_size)],
        };
        let ends = Ends {
            here,
            there,
            gid_index: self.gid_index.map(|index| index.value),
            receives: false,
            sends: false,
            use_fallback: out.is_none_or(|half| half.use_fallback),
            is_hello_optional: self.hello == HelloRule::Optional,
            resolution_ms: out.map_or(1000, |half| half.resolution_timeout),
            sent: Hello::of(std::iter::empty()),
            expected: Hello::of(kinds(&signals)),
            takes_fewer: incoming.is_some_and(|half| half.common.signals.is_none()),
            wish,
        };
        Ok(Box::new(Infiniband {
            name: name.value.clone(),
            signals,
            ends,
            shared: Arc::default(),
            vectorize,
            is_inline: out.is_none_or(|half| half.send_inline),
            max_inline_data: out.map_or(0, |half| half.max_inline_data),
            counts: NodeCounts::default(),
            thread: None,
        }))
    }
}

impl Node for Infiniband {
    fn signals(&self) -> &[Signal] {
        &self.signals
    }

    fn source(&mut self, world: &World) -> Result<Box<dyn Source>, String> {
        let device = world.device.as_ref().ok_or_else(|| no_device(&self.name))?;
        if self.signals.is_empty() {
            return Err("it reads, so it needs in.signals".to_owned());
        }
        self.ends.receives = true;
        Ok(Box::new(Reading {
            library: device.library().clone(),
            shared: self.shared.clone(),
            current: None,
            had_link: false,
            memory: None,
            receives: self.ends.wish.receives as usize,
            values: self.signals.len(),
            vectorize: self.vectorize,
            clock: world.clock,
            counts: self.counts.clone(),
        }))
    }

    fn sink(&mut self, world: &World, signals: &[Signal]) -> Result<Box<dyn Sink>, String> {
        world.device.as_ref().ok_or_else(|| no_device(&self.name))?;
        self.ends.sends = true;
        self.ends.sent = Hello::of(kinds(signals));
        self.ends.wish.values_out = signals.len();
        if self.is_inline {
            let needed = record_bytes(signals.len()) as u32;
            self.ends.wish.inline_bytes = match self.max_inline_data {
                0 => needed,
                asked => asked,
            };
        }
        let (shared, counts) = (self.shared.clone(), self.counts.clone());
        Ok(Box::new(Writing { shared, current: None, counts }))
    }

    fn start(&mut self, world: &World) -> Result<(), String> {
        let device = world.device.as_ref().ok_or_else(|| no_device(&self.name))?;
        let (ends, shared) = (self.ends.clone(), self.shared.clone());
        let (teller, counts) = (Teller::new(&self.name, &world.log), self.counts.clone());
        let work: Box<dyn FnOnce() + Send> = if ends.wish.transport == QpType::Uc {
            let exchange = exchange::Exchanger::new(ends, shared, device, teller, counts)?;
            Box::new(move || exchange.run())
        } else {
            let manager = device.library().connection_manager().map_err(|e| e.to_string())?;
            let channel = manager.create_channel().map_err(|e| e.to_string())?;
            let connector = Connector::new(ends, shared, channel, teller, counts)?;
            Box::new(move || connector.run())
        };
        let thread = std::thread::Builder::new().name(format!("{}-connect", self.name)).spawn(work);
        self.thread = Some(thread.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn counts(&self) -> NodeCounts {
        self.counts.clone()
    }
}

fn no_device(name: &str) -> String {
    format!("{name} needs a device: `--device soft0`, or another one of `rdmalab devices`")
}

impl Drop for Infiniband {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The reading half.
struct Reading {
    library: Library,
    shared: Arc<Shared>,
    current: Option<Receiving>,
    had_link: bool,
    memory: Option<PoolMemory>,
    receives: usize,
    values: usize,
    vectorize: usize,
    clock: Clock,
    counts: NodeCounts,
}

/// Looks at the completion queue between two looks at the clock.
const LOOKS: u32 = 64;

impl Reading {
    /// The link is down: its samples go back, for the next one.
    fn let_go(&mut self, why: Failed) {
        let (Some(current), Some(memory)) = (self.current.take(), self.memory.clone()) else {
            return;
        };
        if why != Failed::Flushed {
            self.counts.garbage.add(1);
        }
        current.link.set_failed(why);
        let samples = current.into_samples();
        self.shared.give(Receives { memory, samples });
    }
}

/// Whether it was a sample.
fn accept(pool: &mut Pool, sample: &mut Handle, bytes: usize, values: usize) -> bool {
    let Some(data) = bytes.checked_sub(META_BYTES).filter(|data| data.is_multiple_of(8)) else {
        return false;
    };
    if data / 8 > values {
        return false;
    }
    let mut view = pool.get_mut(sample);
    view.set_len(data / 8);
    view.add_flags(Flags::SEQUENCE | Flags::ORIGIN | Flags::DATA);
    true
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.shared.receiving.close();
    }
}

impl Source for Reading {
    fn keeps(&self) -> usize {
        self.receives
    }

    fn memory(
        &mut self,
        samples: usize,
        values: usize,
    ) -> Result<Option<Box<dyn Storage>>, String> {
        let bytes = Pool::bytes(samples, values).map_err(|error| error.to_string())?;
        let buffer = Buffer::alloc(&self.library, bytes).map_err(|error| error.to_string())?;
        let memory = PoolMemory { buffer, values };
        self.memory = Some(memory.clone());
        Ok(Some(Box::new(memory)))
    }

    fn begin(&mut self, pool: &mut Pool) -> Result<(), String> {
        let samples: Vec<Handle> = (0..self.receives).map_while(|_| pool.take()).collect();
        let memory = self.memory.clone().ok_or("it has no memory")?;
        self.shared.give(Receives { memory, samples });
        Ok(())
    }

    fn read(
        &mut self,
        pool: &mut Pool,
        to: &mut Vec<Handle>,
        patience: Duration,
    ) -> Result<SourceState, String> {
        let mut state = SourceState::Open;
        if self.current.is_none() {
            let Some(link) = self.shared.receiving.take() else {
                std::thread::sleep(patience.min(Duration::from_millis(1)));
                return Ok(SourceState::Open);
            };
            self.current = Some(Receiving::of(link, pool.samples()));
            if std::mem::replace(&mut self.had_link, true) {
                state = SourceState::Restarted;
            }
        }
        let Some(current) = &mut self.current else { return Ok(state) };
        let (values, counts) = (self.values, &self.counts);
        let mut is_armed = false;
        let begin = self.clock.now();
        loop {
            for _ in 0..LOOKS {
                let found = current.poll(pool, self.vectorize, |pool, mut arrived| {
                    if accept(pool, &mut arrived.sample, arrived.bytes, values) {
                        to.push(arrived.sample);
                    } else {
                        counts.garbage.add(1);
                        pool.give(arrived.sample);
                    }
                });
                match found {
                    Ok(0) if patience.is_zero() || is_armed => break,
                    Ok(0) => continue,
                    Ok(_) => stamp(pool, to),
                    // Before the error, some may have arrived.
                    Err(why) => {
                        stamp(pool, to);
                        self.let_go(why);
                    }
                }
                return Ok(state);
            }
            if current.link.is_down() {
                self.let_go(Failed::Flushed);
                return Ok(state);
            }
            let waited_ns = self.clock.ns_between(begin, self.clock.now());
            if waited_ns >= patience.as_nanos() as f64 {
                return Ok(state);
            }
            // Without events this is a spin; with events, look once more after asking for one.
            match is_armed {
                true => {
                    current.sleep(patience);
                    is_armed = false;
                }
                false => is_armed = current.arm(),
            }
        }
    }
}

/// The writing half.
struct Writing {
    shared: Arc<Shared>,
    current: Option<Sending>,
    counts: NodeCounts,
}

impl Writing {
    /// Takes a new link if there is none.
    fn look(&mut self) {
        if self.current.as_ref().is_none_or(|current| current.link.is_down()) {
            self.let_go(Failed::Flushed);
            self.current = self.shared.sending.take().map(Sending::of);
        }
    }

    fn let_go(&mut self, why: Failed) {
        if let Some(current) = self.current.take() {
            current.link.set_failed(why);
            self.counts.unread.add(current.under_way());
        }
    }
}

impl Sink for Writing {
    fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        self.look();
        let Some(current) = &mut self.current else { return Ok(false) };
        match current.send(pool.get(sample)) {
            Ok(is_sent) => Ok(is_sent),
            // The thread that connects says so, and makes a new link.
            Err(why) => {
                self.let_go(why);
                Ok(false)
            }
        }
    }

    fn flush(&mut self) -> Result<(), String> {
        if let Some(Err(why)) = self.current.as_mut().map(Sending::reap) {
            self.let_go(why);
        }
        self.look();
        Ok(())
    }

    fn close(&mut self, limit: Duration) -> Result<u64, String> {
        let Some(mut current) = self.current.take() else { return Ok(0) };
        let left = current.finish(Instant::now() + limit);
        // Only a reliable transport tells whether a sample has arrived.
        Ok(if current.link.qp().qp_type() == QpType::Rc { left } else { 0 })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.shared.sending.close();
    }
}
