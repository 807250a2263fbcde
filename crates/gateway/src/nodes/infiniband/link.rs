//! A queue pair to the peer, with its registered memory: what both halves of the node work on.
//!
//! What travels is the record of a sample as the pool keeps it. Receives are posted into the pool:
//! an arrived sample is handed on as it lies there, and another one is posted instead of it. In
//! front of a datagram, the receiver has 40 bytes of GRH.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdmalab_sample::{Handle, Pool, SampleRef, Storage, Value, record_bytes};
use rdmalab_verbs::{
    Access, AddressHandle, Buffer, CmId, CompletionChannel, Context, Cq, Mr, Pd, Qp, QpType,
    RecvRequest, RemoteBuffer, SendRequest, UD_GRH_BYTES, VerbsError, Wc, WcStatus,
};

/// Completions that are taken at a time.
const BATCH: usize = 32;
/// The number of a probe, which is no sample.
const PROBE: u64 = u64::MAX;

/// What a node asks of its queue pair.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its transport.
    pub transport: QpType,
    /// Most receives that are posted at a time.
    pub receives: u32,
    /// Whether they are posted before the connection is there; else some more at each read.
    pub prepost: bool,
    /// Whether the receiver sleeps until there is a completion.
    pub sleeps: bool,
    /// Most sends that are under way.
    pub sends: u32,
    /// Most values of a sent sample.
    pub values_out: usize,
    /// Inline bytes to ask for.
    pub inline_bytes: u32,
    /// One of so many inline sends is signaled.
    pub signal_every: u32,
    /// Entries of the completion queues, at least.
    pub completions: [u32; 2],
}

/// Where a datagram goes.
#[derive(Debug)]
pub struct Datagrams {
    /// The peer's port.
    pub address: AddressHandle,
    /// The peer's queue pair.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

/// A queue pair to a peer.
#[derive(Debug)]
pub struct Link {
    qp: Qp,
    pd: Pd,
    send_cq: Cq,
    recv_cq: Cq,
    channel: Option<CompletionChannel>,
    rx: Option<PoolMemory>,
    rx_mr: Option<Mr>,
    /// Samples that are posted, until the receiving half takes them.
    samples: Mutex<Vec<Handle>>,
    /// Where GRHs go.
    grh: Mr,
    tx: Mr,
    wish: Wish,
    /// Where datagrams go, once that is known.
    pub datagrams: Option<Datagrams>,
    /// The peer, for messages.
    pub peer: String,
    down: AtomicBool,
    /// Why, if an error was the cause.
    reason: Mutex<Option<String>>,
    is_probed: AtomicBool,
}

impl Wish {
    /// Bytes before a received sample.
    fn grh(&self) -> usize {
        if self.transport == QpType::Ud { UD_GRH_BYTES } else { 0 }
    }

    fn tx_slot(&self) -> usize {
        record_bytes(self.values_out)
    }
}

/// The memory of a pool, which can be registered.
#[derive(Clone, Debug)]
pub struct PoolMemory {
    /// All of it.
    pub buffer: Buffer,
    /// Values that each sample has room for.
    pub values: usize,
}

impl Storage for PoolMemory {
    fn words(&self) -> &[AtomicU64] {
        self.buffer.words()
    }
}

/// The samples that a link receives into, and the memory they lie in.
#[derive(Debug)]
pub struct Receives {
    /// The pool's memory.
    pub memory: PoolMemory,
    /// Its samples that belong to the link.
    pub samples: Vec<Handle>,
}

impl Link {
    /// Makes the queue pair, on an id of the connection manager if there is one. If it receives,
    /// [`Link::post_all`] comes next.
    ///
    /// # Errors
    /// The verb that failed.
    pub fn make(context: &Context, wish: &Wish, on: Option<&CmId>) -> Result<Self, VerbsError> {
        let pd = context.alloc_pd()?;
        let channel = wish.sleeps.then(|| context.create_channel()).transpose()?;
        let [of_receives, of_sends] = wish.completions;
        let recv_cq = context.create_cq(of_receives.max(wish.receives), channel.as_ref())?;
        let send_cq = context.create_cq(of_sends.max(wish.sends + 1), None)?;
        let build = |inline_bytes: u32| {
            let builder = Qp::builder(wish.transport, &send_cq, &recv_cq);
            let builder = builder.max_send_wr(wish.sends).max_recv_wr(wish.receives);
            let builder = builder.max_inline_data(inline_bytes).max_sge(1, 2);
            match on {
                Some(id) => builder.build_on(id, &pd),
                None => builder.build(&pd),
            }
        };
        // A device says how much it grants only by granting it.
        let mut inline_bytes = wish.inline_bytes;
        let qp = loop {
            match build(inline_bytes) {
                Err(_) if inline_bytes > 0 => inline_bytes /= 2,
                made => break made?,
            }
        };
        let memory = |slots: usize, bytes: usize| {
            let buffer = context.alloc_buffer(slots * bytes).map_err(|error| VerbsError {
                verb: "allocate memory",
                errno: error.raw_os_error().unwrap_or(0),
                sentence: Some(error.to_string()),
            })?;
            pd.register(&buffer, Access::LOCAL_WRITE)
        };
        let tx = memory(wish.sends as usize, wish.tx_slot())?;
        let grh = memory(1, UD_GRH_BYTES)?;
        Ok(Self {
            qp,
            pd,
            send_cq,
            recv_cq,
            channel,
            rx: None,
            rx_mr: None,
            samples: Mutex::default(),
            grh,
            tx,
            wish: wish.clone(),
            datagrams: None,
            peer: String::new(),
            down: AtomicBool::new(false),
            reason: Mutex::default(),
            is_probed: AtomicBool::new(false),
        })
    }

    /// Registers the pool's memory, takes the samples to receive into, and posts them, unless that
    /// is to happen at reads. The queue pair must be at least in INIT.
    ///
    /// # Errors
    /// The verb that failed. The samples are the link's all the same: some may be posted.
    pub fn post_all(&mut self, receives: Receives) -> Result<(), VerbsError> {
        let Receives { memory, samples } = receives;
        let buffer = memory.buffer.clone();
        self.rx = Some(memory);
        *self.samples.get_mut().unwrap_or_else(PoisonError::into_inner) = samples;
        self.rx_mr = Some(self.pd.register(&buffer, Access::LOCAL_WRITE)?);
        if !self.wish.prepost {
            return Ok(());
        }
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().try_for_each(|sample| self.post_receive(sample))
    }

    /// The memory and the samples of [`Link::post_all`], of a link that is dropped next. Nothing
    /// when a half has taken them.
    pub fn unpost(&mut self) -> Option<(PoolMemory, Vec<Handle>)> {
        let samples = self.reserve();
        if samples.is_empty() {
            return None;
        }
        Some((self.rx.clone()?, samples))
    }

    /// The samples that [`Link::post_all`] took, once.
    pub fn reserve(&self) -> Vec<Handle> {
        std::mem::take(&mut *self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its queue pair.
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// Its domain.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Whether it can no longer be used.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// It can no longer be used.
    pub fn set_down(&self) {
        self.down.store(true, Ordering::Relaxed);
    }

    /// An error has ended it; the first one counts.
    pub fn set_failed(&self, why: Failed) {
        if let Failed::Because(why) = why
            && !self.down.load(Ordering::Relaxed)
        {
            *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        self.set_down();
    }

    /// What [`Link::set_failed`] was told.
    pub fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn post_receive(&self, sample: &Handle) -> Result<(), VerbsError> {
        let (Some(mr), Some(memory)) = (&self.rx_mr, &self.rx) else { return Ok(()) };
        let bytes = record_bytes(memory.values);
        let record = mr.sge(sample.index() * bytes, bytes);
        let pieces = [self.grh.sge(0, UD_GRH_BYTES), record];
        let pieces = if self.wish.grh() > 0 { &pieces[..] } else { &pieces[1..] };
        let request = RecvRequest::new(pieces).wr_id(sample.index() as u64);
        self.qp.post_recv(&[request]).map_err(|refused| refused.error)
    }

    /// Bytes that a send may carry inline: as asked for, if the device grants it.
    pub fn inline_bytes(&self) -> usize {
        self.qp.cap().max_inline_data.min(self.wish.inline_bytes) as usize
    }

    /// Posts an empty WRITE, unless the one before is still under way. If the peer is gone, it
    /// brings the queue pair into its error state, which completes the receives of an end that does
    /// not send. A WRITE of no bytes accesses no memory, so its key does not matter (IBA 9.4.3).
    pub fn probe(&self, sends: bool) {
        let mut back = [Wc::default()];
        // The sending half takes its own completions.
        if !sends && matches!(self.send_cq.poll(&mut back), Ok(1)) {
            self.is_probed.store(false, Ordering::Relaxed);
            if !back[0].is_ok() {
                return self.set_down();
            }
        }
        if !self.is_probed.swap(true, Ordering::Relaxed) {
            let nowhere = RemoteBuffer { addr: 0, bytes: 0, rkey: 0 };
            let request = SendRequest::write(&[], &nowhere, 0).wr_id(PROBE).signaled();
            if self.qp.post_send(&[request]).is_err() {
                self.is_probed.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Why a half can no longer use its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Its queue pair was ended before.
    Flushed,
    /// This error.
    Because(String),
}

impl Failed {
    fn of(what: &str, status: WcStatus) -> Self {
        match status {
            WcStatus::WorkRequestFlushed => Self::Flushed,
            _ => Self::Because(format!("{what} failed: {status}")),
        }
    }
}

impl From<VerbsError> for Failed {
    fn from(error: VerbsError) -> Self {
        Self::Because(error.to_string())
    }
}

/// The receiving half of a link.
#[derive(Debug)]
pub struct Receiving {
    /// The link.
    pub link: Arc<Link>,
    completions: [Wc; BATCH],
    /// The samples that are posted, by their number in the pool.
    slots: Vec<Option<Handle>>,
    /// Samples that are to be posted.
    fresh: Vec<Handle>,
    posted: u32,
}

/// A received sample, whose record is filled, and its number of bytes there.
#[derive(Debug)]
pub struct Arrived {
    /// The sample.
    pub sample: Handle,
    /// Bytes of its record.
    pub bytes: usize,
}

impl Receiving {
    /// The receiving half; one at a time.
    pub fn of(link: Arc<Link>, samples: usize) -> Self {
        let mut slots: Vec<Option<Handle>> = (0..samples).map(|_| None).collect();
        let (mut fresh, mut posted) = (link.reserve(), 0);
        if link.wish.prepost {
            posted = fresh.len() as u32;
            fresh.drain(..).for_each(|one| {
                let at = one.index();
                slots[at] = Some(one);
            });
        }
        Self { link, completions: [Wc::default(); BATCH], slots, fresh, posted }
    }

    /// Takes what has arrived, at most `most` samples, and posts a fresh one of the pool for each.
    ///
    /// # Errors
    /// When the link is down.
    #[inline]
    pub fn poll(
        &mut self,
        pool: &mut Pool,
        most: usize,
        mut take: impl FnMut(&mut Pool, Arrived),
    ) -> Result<usize, Failed> {
        if !self.fresh.is_empty() {
            self.post_fresh(most.max(1))?;
        }
        let most = most.clamp(1, BATCH);
        let found = self.link.recv_cq.poll(&mut self.completions[..most])?;
        // What has arrived is handed on even if no other receive can be posted.
        let mut posted = Ok(());
        for at in 0..found {
            let completion = self.completions[at];
            completion.status().map_err(|status| Failed::of("a receive", status))?;
            let slot = self.slots.get_mut(completion.wr_id() as usize).and_then(Option::take);
            let unknown = || Failed::Because("an unknown receive completed".to_owned());
            let sample = slot.ok_or_else(unknown)?;
            let bytes = (completion.byte_len() as usize).saturating_sub(self.link.wish.grh());
            self.posted -= 1;
            if let Some(fresh) = pool.take() {
                self.fresh.push(fresh);
                posted = posted.and(self.post_fresh(1));
            }
            take(pool, Arrived { sample, bytes });
        }
        posted.map(|()| found)
    }

    fn post_fresh(&mut self, count: usize) -> Result<(), Failed> {
        for _ in 0..count {
            let Some(sample) = self.fresh.pop() else { break };
            let posted = self.link.post_receive(&sample);
            let at = sample.index();
            self.slots[at] = Some(sample);
            posted?;
            self.posted += 1;
        }
        Ok(())
    }

    /// Ends: all samples that were to be received, for the next link.
    pub fn into_samples(self) -> Vec<Handle> {
        let Self { link, slots, mut fresh, .. } = self;
        drop(link);
        fresh.extend(slots.into_iter().flatten());
        fresh
    }

    /// Asks for an event; poll once more before [`Receiving::sleep`]. False where the receiver
    /// spins, and where there will be no event: what is wrong then shows in the next poll.
    pub fn arm(&self) -> bool {
        self.link.channel.is_some() && self.link.recv_cq.request_notify(false).is_ok()
    }

    /// Sleeps until something arrives, at most `limit`. An error ends it early, as an event does.
    pub fn sleep(&self, limit: Duration) {
        if let Some(channel) = &self.link.channel {
            let _ = channel.wait(Some(limit));
        }
    }
}

/// The sending half of a link.
#[derive(Debug)]
pub struct Sending {
    /// The link.
    pub link: Arc<Link>,
    completions: [Wc; BATCH],
    posted: u64,
    completed: u64,
    unsignaled: u32,
}

impl Sending {
    /// The sending half; one at a time.
    pub fn of(link: Arc<Link>) -> Self {
        let completions = [Wc::default(); BATCH];
        Self { link, completions, posted: 0, completed: 0, unsignaled: 0 }
    }

    /// Sends a sample. `Ok(false)` when the send queue is full: nothing was sent.
    ///
    /// # Errors
    /// When the link is down.
    #[inline]
    pub fn send(&mut self, sample: SampleRef<'_>) -> Result<bool, Failed> {
        let (depth, every) = (u64::from(self.link.wish.sends), self.link.wish.signal_every);
        if self.under_way() >= u64::from(every).min(depth) {
            self.reap()?;
        }
        if self.under_way() == depth {
            return Ok(false);
        }
        let link = &*self.link;
        let slot = link.wish.tx_slot();
        let at = (self.posted % depth) as usize * slot;
        let values = sample.len().min(link.wish.values_out);
        let words = &link.tx.buffer().words()[at / 8..(at + slot) / 8];
        let origin = sample.origin().unwrap_or_default();
        let header = [
            sample.sequence().unwrap_or_default(),
            origin.seconds.cast_unsigned(),
            origin.nanoseconds.cast_unsigned(),
        ];
        let content = header.into_iter().chain(sample.values().take(values).map(Value::bits));
        for (to, from) in words.iter().zip(content) {
            to.store(from, Ordering::Relaxed);
        }
        let bytes = record_bytes(values);
        let piece = [link.tx.sge(at, bytes)];
        let mut request = SendRequest::send(&piece).wr_id(self.posted);
        if let Some(to) = &link.datagrams {
            request = request.to(&to.address, to.qpn, to.qkey);
        }
        let is_inline = bytes <= link.inline_bytes();
        if is_inline {
            request = request.inline_data();
        }
        let is_signaled = !is_inline || self.unsignaled + 1 >= every;
        if is_signaled {
            request = request.signaled();
        }
        match link.qp.post_send(&[request]) {
            Ok(()) => {
                self.posted += 1;
                self.unsignaled = if is_signaled { 0 } else { self.unsignaled + 1 };
                Ok(true)
            }
            Err(refused) if refused.is_full() => Ok(false),
            Err(refused) => Err(Failed::Because(refused.to_string())),
        }
    }

    /// Takes the completions of sends.
    ///
    /// # Errors
    /// When the link is down.
    pub fn reap(&mut self) -> Result<(), Failed> {
        let found = self.link.send_cq.poll(&mut self.completions)?;
        for completion in &self.completions[..found] {
            completion.status().map_err(|status| Failed::of("a send", status))?;
            match completion.wr_id() {
                PROBE => self.link.is_probed.store(false, Ordering::Relaxed),
                number => self.completed = number + 1,
            }
        }
        Ok(())
    }

    /// Sends that have not completed, as far as is known.
    pub fn under_way(&self) -> u64 {
        self.posted - self.completed
    }

    /// Waits until all sends have completed, at most until then. The last ones may be unsignaled:
    /// an empty WRITE tells when those before it have completed. Datagrams have no WRITE, so the
    /// last ones of them are not waited for. Returns how many samples have not completed.
    pub fn finish(&mut self, until: Instant) -> u64 {
        let has_write = self.link.wish.transport != QpType::Ud;
        // The WRITE is no sample.
        let mut has_end = false;
        loop {
            let is_open = self.reap().is_ok() && !self.link.is_down();
            if is_open && has_write && !has_end && self.unsignaled > 0 {
                let nowhere = RemoteBuffer { addr: 0, bytes: 0, rkey: 0 };
                let request = SendRequest::write(&[], &nowhere, 0).wr_id(self.posted).signaled();
                // A full queue has room later.
                if self.link.qp.post_send(&[request]).is_ok() {
                    has_end = true;
                    self.posted += 1;
                }
            }
            let unsignaled = if has_write { 0 } else { u64::from(self.unsignaled) };
            let left = self.under_way() - unsignaled.min(self.under_way());
            if left == 0 || !is_open || Instant::now() >= until {
                return left - u64::from(left > 0 && has_end);
            }
        }
    }
}
