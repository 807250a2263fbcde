//! One end: its queue pairs, its memory, and what it knows of the other end.

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    Access, AddressHandle, Buffer, Context, Kind, Mr, Mtu, Path, Pd, Qp, QpEndpoint, QpType,
    ReadyToReceive, ReadyToSend, RemoteBuffer, SendRequest, UDP_QKEY, Wc,
};

use crate::common::completions::{Completions, failed, tag_of, thread_of};
use crate::common::failure::Diagnose;
use crate::common::granted::Granted;
use crate::common::layout::Layout;
use crate::common::limits::Limits;
use crate::common::params::{Common, Memory, Op, Transport};
use crate::common::thread_tag::{TAG_BYTE, ThreadTag};

/// Q_Key of both ends: that of groups which the connection manager joins.
pub(crate) const QKEY: u32 = UDP_QKEY;
/// Requests beside those of the experiment: what a queue holds more, if the device allows it.
const SPARE: u32 = 8;
/// The number of the request that tells the other end that all is over.
const OVER: u64 = (1 << 56) - 1;
/// The bytes of a word of control.
pub(crate) const WORD: usize = 8;

/// The other end.
pub(crate) struct Peer {
    pub memory: RemoteBuffer,
    pub qpns: Vec<u32>,
    /// For datagrams, one for each queue pair.
    pub ahs: Vec<AddressHandle>,
    pub backing: String,
}

/// One end, connected.
pub(crate) struct Endpoint {
    pub qps: Vec<Qp>,
    pub send: Completions,
    pub recv: Completions,
    pub mr: Mr,
    pub layout: Layout,
    pub peer: Peer,
    /// Whether messages of this point go inline.
    pub inline: bool,
    /// Inline bytes granted.
    pub inline_bytes: u32,
    /// Above the number of each request: whose it is, where threads share queue pairs.
    pub tag: u64,
    /// What messages say of that.
    pub thread_tag: ThreadTag,
    pd: Pd,
    transport: QpType,
    path: Path,
    mtu: Mtu,
    kind: Kind,
    device: String,
    gid: String,
    link_layer: String,
}

/// What is made before anything is known of the other end.
struct Local {
    qps: Vec<Qp>,
    send: Completions,
    recv: Completions,
    mr: Mr,
    thread_tag: ThreadTag,
    pd: Pd,
    inline_bytes: u32,
}

pub(crate) fn qp_type(transport: Transport) -> QpType {
    match transport {
        Transport::Rc => QpType::Rc,
        Transport::Uc => QpType::Uc,
        Transport::Ud => QpType::Ud,
    }
}

pub(crate) fn mtu_of(bytes: u32) -> Mtu {
    let all = [Mtu::M256, Mtu::M512, Mtu::M1024, Mtu::M2048];
    all.into_iter().find(|m| m.bytes() >= bytes as usize).unwrap_or(Mtu::M4096)
}

/// The lower bits of a queue pair's number, in which the soft device counts those of a process. The
/// upper ones are the process's, and others in each run.
const COUNTED: u32 = 0x3fff;

/// A first packet sequence number, of its own for each queue pair of a run: by their numbers alone
/// a capture tells which queue pair answers which. The same run has the same ones again, because
/// what faults befall a packet follows from its number.
pub(crate) fn psn(seed: u64, rank: usize, qp: &Qp) -> u32 {
    psn_of(seed, rank, qp.qp_num() & COUNTED)
}

fn psn_of(seed: u64, rank: usize, qp: u32) -> u32 {
    let which = (rank as u64) << 48 | u64::from(qp) << 32;
    (rdmalab_random::nth(seed ^ which, 0) >> 40) as u32
}

/// What peers may do with the memory for messages.
pub(crate) fn rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

/// Memory for messages, with each page there.
fn memory(context: &Context, pd: &Pd, common: &Common, layout: &Layout) -> Result<Mr, Stopped> {
    let bytes = layout.bytes();
    let buffer = match common.memory {
        Memory::Device => context.alloc_buffer(bytes),
        Memory::Private => Buffer::private(bytes),
    };
    let buffer = buffer.map_err(|e| failed(format!("no {bytes} bytes for messages: {e}")))?;
    // Every page is there before anything counts; what goes out differs from what is there.
    for page in (0..bytes).step_by(4096) {
        buffer.write_u64(page, 0);
    }
    pd.register(&buffer, rights()).map_err(failed)
}

/// Has what goes out say which thread it is of.
fn tag_payload(mr: &Mr, common: &Common, layout: &Layout, thread: usize) {
    if common.tags_payload() {
        for place in 0..layout.out_places {
            let byte = mr.buffer().byte(layout.out_at(place) + TAG_BYTE);
            byte.store(thread as u8, std::sync::atomic::Ordering::Release);
        }
    }
}

fn make(
    context: &Context,
    limits: &Limits,
    common: &Common,
    layout: &Layout,
) -> Result<Local, Stopped> {
    let pd = context.alloc_pd().map_err(failed)?;
    let mr = memory(context, &pd, common, layout)?;
    let sharers = common.sharers();
    let depth = |depth: u32| (depth + SPARE).min(limits.max_qp_wr);
    let receivers = if common.op.needs_receives() { sharers } else { 1 };
    let (tx, rx) = (depth(common.tx_depth * sharers), depth(common.rx_depth * receivers));
    let cqe = |depth: u32| depth.saturating_mul(common.qps).min(limits.max_cqe);
    let send = Completions::new(context, cqe(tx), common.poll_send).map_err(failed)?;
    let recv = Completions::new(context, cqe(rx), common.poll_recv).map_err(failed)?;
    let thread_tag = ThreadTag::of(common);
    let (send, recv) = if sharers > 1 {
        let of_poster = |wc: &Wc| Some(thread_of(wc.wr_id()));
        let threads = sharers as usize;
        let whose = thread_tag.whose(*layout);
        (send.shared(threads, Box::new(of_poster), false), recv.shared(threads, whose, true))
    } else {
        (send, recv)
    };
    // Words of control go inline too, where there is inline at all.
    let wanted = common.inline.wanted_bytes(common.size_bytes).max(WORD as u32);
    let wanted = wanted.min(limits.max_inline_bytes);
    let qp = || {
        let builder = Qp::builder(qp_type(common.transport), send.cq(), recv.cq());
        builder.max_send_wr(tx).max_recv_wr(rx).max_inline_data(wanted).build(&pd)
    };
    let qps: Result<Vec<Qp>, _> = (0..common.qps).map(|_| qp()).collect();
    let qps = qps.map_err(failed)?;
    for qp in &qps {
        qp.to_init(common.port, rights(), QKEY).map_err(failed)?;
    }
    let inline_bytes = qps.iter().map(|qp| qp.cap().max_inline_data).min().unwrap_or(0);
    Ok(Local { qps, send, recv, mr, thread_tag, pd, inline_bytes })
}

/// What the ends exchange before they are connected: lines of words.
struct Handshake {
    mtu_bytes: u32,
    memory: RemoteBuffer,
    backing: String,
    endpoints: Vec<QpEndpoint>,
}

impl Handshake {
    fn write(&self) -> String {
        let RemoteBuffer { addr, bytes, rkey } = self.memory;
        let mut text = format!("{} {addr} {bytes} {rkey} {}\n", self.mtu_bytes, self.backing);
        for endpoint in &self.endpoints {
            text.push_str(&format!("{endpoint}\n"));
        }
        text
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let words: Vec<&str> = lines.next()?.split(' ').collect();
        let [mtu, addr, length, rkey, backing] = words[..] else { return None };
        let memory = RemoteBuffer {
            addr: addr.parse().ok()?,
            bytes: length.parse().ok()?,
            rkey: rkey.parse().ok()?,
        };
        let endpoints: Result<Vec<QpEndpoint>, _> = lines.map(str::parse).collect();
        let (backing, endpoints) = (backing.to_owned(), endpoints.ok()?);
        Some(Self { mtu_bytes: mtu.parse().ok()?, memory, backing, endpoints })
    }
}

impl Endpoint {
    /// Makes it, and connects it with the other rank's.
    pub fn connect<R: Rank>(
        rank: &R,
        context: &Context,
        limits: &Limits,
        common: &Common,
        layout: Layout,
    ) -> Result<Self, Stopped> {
        let local = make(context, limits, common, &layout)?;
        let path = path_of(common, limits);
        let endpoint = |qp: &Qp| qp.endpoint(&path, psn(common.seed, rank.index(), qp));
        let endpoints: Result<Vec<QpEndpoint>, _> = local.qps.iter().map(endpoint).collect();
        let ours = Handshake {
            mtu_bytes: common.packet_bytes(limits),
            memory: local.mr.remote(),
            backing: local.mr.buffer().backing().to_string(),
            endpoints: endpoints.map_err(failed)?,
        };
        let all = rank.exchange(ours.write().as_bytes())?;
        let other = all.get(1 - rank.index()).and_then(|bytes| Handshake::read(bytes));
        let other = other.filter(|o| o.endpoints.len() == ours.endpoints.len());
        let other =
            other.ok_or_else(|| failed("the handshake of the other end is not understood"))?;
        let mtu = mtu_of(ours.mtu_bytes.min(other.mtu_bytes));
        let ahs = go(&local, rank.index(), common, &path, mtu, &other.endpoints)?;
        let size = common.size_bytes;
        let inline = !matches!(common.op, Op::Read)
            && size <= common.inline.wanted_bytes(size).into()
            && size <= local.inline_bytes.into();
        let peer = Peer {
            memory: other.memory,
            qpns: other.endpoints.iter().map(|e| e.qpn).collect(),
            ahs,
            backing: other.backing,
        };
        let gid = ours.endpoints[0].gid;
        tag_payload(&local.mr, common, &layout, 0);
        Ok(Self {
            qps: local.qps,
            send: local.send,
            recv: local.recv,
            mr: local.mr,
            layout,
            peer,
            inline,
            inline_bytes: local.inline_bytes,
            tag: tag_of(0),
            thread_tag: local.thread_tag,
            pd: local.pd,
            transport: qp_type(common.transport),
            path,
            mtu,
            kind: context.kind(),
            device: context.device_name().to_owned(),
            gid: path.sgid_index.map_or_else(|| "none".to_owned(), |_| gid.to_string()),
            link_layer: limits.link_layer.clone(),
        })
    }

    /// The same queue pairs for another thread of this end, with memory of its own, which the
    /// thread's partner at the other end is told.
    pub fn beside<R: Rank>(
        &self,
        rank: &R,
        context: &Context,
        common: &Common,
        thread: usize,
    ) -> Result<Self, Stopped> {
        let layout = self.layout;
        let mr = memory(context, &self.pd, common, &layout)?;
        let ours = Handshake {
            mtu_bytes: self.mtu.bytes() as u32,
            memory: mr.remote(),
            backing: mr.buffer().backing().to_string(),
            endpoints: Vec::new(),
        };
        let all = rank.exchange(ours.write().as_bytes())?;
        let other = all.get(1 - rank.index()).and_then(|bytes| Handshake::read(bytes));
        let other =
            other.ok_or_else(|| failed("the handshake of the other end is not understood"))?;
        let peer = Peer {
            memory: other.memory,
            qpns: self.peer.qpns.clone(),
            ahs: self.peer.ahs.clone(),
            backing: other.backing,
        };
        tag_payload(&mr, common, &layout, thread);
        Ok(Self {
            qps: self.qps.clone(),
            send: self.send.of_thread(thread),
            recv: self.recv.of_thread(thread),
            mr,
            layout,
            peer,
            tag: tag_of(thread),
            thread_tag: self.thread_tag.of_thread(thread),
            pd: self.pd.clone(),
            device: self.device.clone(),
            gid: self.gid.clone(),
            link_layer: self.link_layer.clone(),
            ..*self
        })
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> &Buffer {
        self.mr.buffer()
    }

    /// Which queue pair a completion belongs to.
    pub fn index_of(&self, qp_num: u32) -> Option<usize> {
        self.qps.iter().position(|qp| qp.qp_num() == qp_num)
    }

    /// A completion that is no success, as a failure with its likely causes.
    #[cold]
    pub fn explain(&self, wc: &Wc, what: &str) -> Stopped {
        Diagnose::explain(self, wc, what)
    }

    /// Says why a wait was in vain, where a queue pair knows more.
    #[cold]
    pub fn diagnose(&self, stopped: Stopped) -> Stopped {
        Diagnose::diagnose(self, stopped)
    }

    /// Tells the other end's word [`Layout::done_at`] a number other than 0, and waits until it is
    /// there. RC and UC only.
    pub fn tell_done<R: Rank>(&self, rank: &R) -> Result<(), Stopped> {
        let at = self.layout.credit_out_at(0);
        self.memory().write_u64(at, 1);
        let sges = [self.mr.sge(at, WORD)];
        let over = self.layout.done_at() as u64;
        let number = OVER | self.tag;
        let request = SendRequest::write(&sges, &self.peer.memory, over).wr_id(number);
        self.qps[0].post_send(&[request.signaled()]).map_err(failed)?;
        let mut wcs = [Wc::default()];
        loop {
            self.send.wait(rank, &mut wcs, "the completion of the last WRITE")?;
            if wcs[0].status().is_err() {
                return Err(self.explain(&wcs[0], "write"));
            }
            if wcs[0].wr_id() == number {
                return Ok(());
            }
        }
    }

    /// Sleeps until the other end has written that all is over: what it does needs no work here.
    pub fn wait_until_done<R: Rank>(&self, rank: &R) -> Result<(), Stopped> {
        /// How often it looks.
        const LOOK_NS: u64 = 1_000_000;
        let over = self.memory().word(self.layout.done_at());
        while over.load(std::sync::atomic::Ordering::Acquire) == 0 {
            rank.sleep(LOOK_NS)?;
        }
        over.store(0, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// What was agreed on and granted.
    pub fn facts(&self, outcome: &mut Outcome) {
        let granted = Granted {
            kind: self.kind,
            device: &self.device,
            transport: self.transport,
            link_layer: &self.link_layer,
            inline_bytes: self.inline_bytes,
            inline: self.inline,
            mtu: self.mtu,
            path: &self.path,
            gid: &self.gid,
        };
        granted.push(outcome, self.memory().backing(), std::iter::once(&*self.peer.backing));
    }
}

impl Diagnose for Endpoint {
    fn qps(&self) -> &[Qp] {
        &self.qps
    }

    fn queues(&self) -> [(&Completions, &'static str); 2] {
        [(&self.send, "send"), (&self.recv, "receive")]
    }

    fn transport(&self) -> QpType {
        self.transport
    }
}

/// The way that a point names; where it names none, the first GID.
pub(crate) fn path_of(common: &Common, limits: &Limits) -> Path {
    let gid_index = common.gid_index.or(limits.needs_gid.then_some(0));
    let by = gid_index.map_or(Path::by_lid(common.port), |i| Path::by_gid(common.port, i));
    Path { sl: common.sl, ..by }
}

/// Brings a queue pair from INIT to RTS.
pub(crate) fn to_rts(
    qp: &Qp,
    rank: usize,
    common: &Common,
    path: &Path,
    mtu: Mtu,
    remote: &QpEndpoint,
) -> Result<(), Stopped> {
    let reads = if common.op.reads() { common.outstanding_reads } else { 1 };
    let to = ReadyToReceive {
        max_dest_rd_atomic: reads,
        min_rnr_timer: common.min_rnr_timer,
        ..ReadyToReceive::new(*remote, *path, mtu)
    };
    qp.to_rtr(&to).map_err(failed)?;
    let with = ReadyToSend {
        timeout: common.timeout,
        retry_cnt: common.retry_cnt,
        rnr_retry: common.rnr_retry,
        max_rd_atomic: reads,
        ..ReadyToSend::new(psn(common.seed, rank, qp))
    };
    qp.to_rts(&with).map_err(failed)
}

/// Brings the queue pairs to RTS; the address handles for datagrams.
fn go(
    local: &Local,
    rank: usize,
    common: &Common,
    path: &Path,
    mtu: Mtu,
    remotes: &[QpEndpoint],
) -> Result<Vec<AddressHandle>, Stopped> {
    let mut ahs = Vec::new();
    for (qp, remote) in local.qps.iter().zip(remotes) {
        to_rts(qp, rank, common, path, mtu, remote)?;
        if common.transport == Transport::Ud {
            ahs.push(local.pd.create_ah(remote, path).map_err(failed)?);
        }
    }
    Ok(ahs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection, and the points of a run, one after the other on new queue pairs.
    #[test]
    fn queue_pairs_begin_apart() {
        let qps = (4..260).flat_map(|n| [(0, n), (1, n)]);
        let mut psns: Vec<u32> = qps.map(|(rank, n)| psn_of(1, rank, n)).collect();
        psns.sort_unstable();
        // Of so many that are drawn at random, two or three neighbours are as near as this.
        let near = psns.windows(2).filter(|two| two[1] - two[0] < 128).count();
        assert!(near < 16, "{near}");
        assert!(psns.iter().all(|psn| psn >> 24 == 0));
        assert_ne!(psn_of(1, 0, 7), psn_of(2, 0, 7));
    }

    #[test]
    fn a_handshake_comes_back() {
        let endpoint: QpEndpoint = "1,2,3,fe80::1".parse().unwrap();
        let memory = RemoteBuffer { addr: 1 << 40, bytes: 4096, rkey: 7 };
        let handshake = Handshake {
            mtu_bytes: 1024,
            memory,
            backing: "memfd-backed".into(),
            endpoints: vec![endpoint, endpoint],
        };
        let back = Handshake::read(handshake.write().as_bytes()).unwrap();
        assert_eq!(
            (back.mtu_bytes, back.memory, back.backing.as_str()),
            (1024, memory, "memfd-backed")
        );
        assert_eq!(back.endpoints, [endpoint, endpoint]);
        for wrong in ["", "1 2 3", "1 2 3 4 x\nno endpoint", "x 2 3 4 y"] {
            assert!(Handshake::read(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
