//! A queue pair to the peer, with its registered memory: what both halves of the node work on.
//!
//! What travels is the record of a sample as the pool keeps it. Receives are posted into the pool:
//! an arrived sample is handed on as it lies there, and another one is posted instead of it. In
//! front of a datagram, the receiver has 40 bytes of GRH.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdmalab_sample::{Handle, Pool, SampleRef, Storage, Value, record_bytes};
use rdmalab_verbs::{
    Access, AddressHandle, Buffer, CmId, CompletionChannel, Context, Cq, Mr, Pd, Qp, QpType,
    RecvRequest, RemoteBuffer, SendRequest, UD_GRH_BYTES, VerbsError, Wc,
};

/// Completions that are taken at a time.
const BATCH: usize = 32;

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
    rx: Option<(Mr, PoolMemory)>,
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
        let send_cq = context.create_cq(of_sends.max(wish.sends), None)?;
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
            samples: Mutex::default(),
            grh,
            tx,
            wish: wish.clone(),
            datagrams: None,
            peer: String::new(),
            down: AtomicBool::new(false),
        })
    }

    /// Registers the pool's memory, takes the samples to receive into, and posts them, unless that
    /// is to happen at reads. The queue pair must be at least in INIT.
    ///
    /// # Errors
    /// The verb that failed, with the samples.
    pub fn post_all(&mut self, receives: Receives) -> Result<(), (VerbsError, Vec<Handle>)> {
        let Receives { memory, samples } = receives;
        match self.pd.register(&memory.buffer, Access::LOCAL_WRITE) {
            Ok(mr) => self.rx = Some((mr, memory)),
            Err(error) => return Err((error, samples)),
        }
        let all = if self.wish.prepost { &samples[..] } else { &[] };
        if let Err(error) = all.iter().try_for_each(|sample| self.post_receive(sample)) {
            return Err((error, samples));
        }
        *self.samples.lock().unwrap_or_else(PoisonError::into_inner) = samples;
        Ok(())
    }

    /// The memory and the samples of [`Link::post_all`], of a link that is dropped next.
    pub fn unpost(&mut self) -> Option<(PoolMemory, Vec<Handle>)> {
        let (_, memory) = self.rx.as_ref()?;
        Some((memory.clone(), self.reserve()))
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

    fn post_receive(&self, sample: &Handle) -> Result<(), VerbsError> {
        let Some((mr, memory)) = &self.rx else { return Ok(()) };
        let bytes = record_bytes(memory.values);
        let record = mr.sge(sample.index() * bytes, bytes);
        let pieces = [self.grh.sge(0, UD_GRH_BYTES), record];
        let pieces = if self.wish.grh() > 0 { &pieces[..] } else { &pieces[1..] };
        let request = RecvRequest::new(pieces).wr_id(sample.index() as u64);
        self.qp.post_recv(&[request]).map_err(|refused| refused.error)
    }

    /// Bytes that a send may carry inline, as the device granted.
    pub fn inline_bytes(&self) -> usize {
        self.qp.cap().max_inline_data as usize
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
    ) -> Result<usize, String> {
        if !self.fresh.is_empty() {
            self.post_fresh(most.max(1))?;
        }
        let most = most.clamp(1, BATCH);
        let found = self.link.recv_cq.poll(&mut self.completions[..most]);
        let found = found.map_err(|error| error.to_string())?;
        for at in 0..found {
            let completion = self.completions[at];
            if let Err(status) = completion.status() {
                return Err(format!("a receive failed: {status}"));
            }
            let slot = self.slots.get_mut(completion.wr_id() as usize).and_then(Option::take);
            let Some(sample) = slot else { return Err("an unknown receive completed".to_owned()) };
            let bytes = (completion.byte_len() as usize).saturating_sub(self.link.wish.grh());
            self.posted -= 1;
            if let Some(fresh) = pool.take() {
                self.fresh.push(fresh);
                self.post_fresh(1)?;
            }
            take(pool, Arrived { sample, bytes });
        }
        Ok(found)
    }

    fn post_fresh(&mut self, count: usize) -> Result<(), String> {
        for _ in 0..count {
            let Some(sample) = self.fresh.pop() else { break };
            let posted = self.link.post_receive(&sample);
            let at = sample.index();
            self.slots[at] = Some(sample);
            posted.map_err(|error| error.to_string())?;
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
    /// spins.
    ///
    /// # Errors
    /// When the link is down.
    pub fn arm(&self) -> Result<bool, String> {
        if self.link.channel.is_none() {
            return Ok(false);
        }
        self.link.recv_cq.request_notify(false).map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Sleeps until something arrives, at most `limit`.
    ///
    /// # Errors
    /// When the link is down.
    pub fn sleep(&self, limit: Duration) -> Result<(), String> {
        let Some(channel) = &self.link.channel else { return Ok(()) };
        channel.wait(Some(limit)).map_err(|error| error.to_string())?;
        Ok(())
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
    pub fn send(&mut self, sample: SampleRef<'_>) -> Result<bool, String> {
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
        self.unsignaled += 1;
        if !is_inline || self.unsignaled >= every {
            request = request.signaled();
            self.unsignaled = 0;
        }
        match link.qp.post_send(&[request]) {
            Ok(()) => {
                self.posted += 1;
                Ok(true)
            }
            Err(refused) if refused.is_full() => Ok(false),
            Err(refused) => Err(refused.to_string()),
        }
    }

    /// Takes the completions of sends.
    pub fn reap(&mut self) -> Result<(), String> {
        let found = self.link.send_cq.poll(&mut self.completions);
        for completion in &self.completions[..found.map_err(|error| error.to_string())?] {
            if let Err(status) = completion.status() {
                return Err(format!("a send failed: {status}"));
            }
            self.completed = completion.wr_id() + 1;
        }
        Ok(())
    }

    /// Sends that have not completed, as far as is known.
    pub fn under_way(&self) -> u64 {
        self.posted - self.completed
    }

    /// Posts an empty WRITE that tells when all sends before it have completed; nothing for
    /// transports that do not tell whether a message arrived. A WRITE of no bytes accesses no
    /// memory, so its key does not matter (IBA 9.4.3).
    ///
    /// # Errors
    /// When the link is down.
    pub fn post_end(&mut self) -> Result<(), String> {
        if self.unsignaled == 0 || self.link.wish.transport != QpType::Rc {
            return Ok(());
        }
        let nowhere = RemoteBuffer { addr: 0, bytes: 0, rkey: 0 };
        let request = SendRequest::write(&[], &nowhere, 0).wr_id(self.posted).signaled();
        self.link.qp.post_send(&[request]).map_err(|refused| refused.to_string())?;
        self.posted += 1;
        self.unsignaled = 0;
        Ok(())
    }
}
