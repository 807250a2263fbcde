//! One end of a measurement: its own resources, and the data of the other end.

use std::ops::Deref;

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    AddressHandle, Context, Mr, Pd, Qp, QpEndpoint, RemoteBuffer, SendRequest, Wc,
};

use crate::common::completions::{Completions, failed, tag_of, thread_of};
use crate::common::connection::{mtu_of, psn, qp_type, rights, to_rts};
use crate::common::handshake::{self, Handshake};
use crate::common::layout::Layout;
use crate::common::limits::Limits;
use crate::common::local_end::{self, LocalEnd};
use crate::common::params::{Common, Transport};
use crate::common::thread_tag::{TAG_BYTE, ThreadTag};

/// Requests that a queue holds beyond those of the experiment, if the device allows it.
const SPARE: u32 = 8;
/// The `wr_id` of the request that tells the other end that the measurement is over.
const OVER: u64 = (1 << 56) - 1;
/// The bytes of a control word.
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
    local: LocalEnd,
    pub layout: Layout,
    pub peer: Peer,
    /// Whether messages of this point go inline.
    pub inline: bool,
    /// The upper bits of each `wr_id`: the thread, where threads share queue pairs.
    pub tag: u64,
    /// How messages name the thread.
    pub thread_tag: ThreadTag,
}

/// Registered memory for messages, with all its pages present.
fn memory<R: Rank>(
    rank: &R,
    context: &Context,
    pd: &Pd,
    common: &Common,
    layout: &Layout,
) -> Result<Mr, Stopped> {
    let buffer = local_end::memory(rank, context, common, layout.bytes())?;
    pd.register(&buffer, rights(common.op)).map_err(failed)
}

/// Writes the thread into the payload of outgoing messages.
fn tag_payload(mr: &Mr, common: &Common, layout: &Layout, thread: usize) {
    if common.tags_payload() {
        for place in 0..layout.out_places {
            let byte = mr.buffer().byte(layout.out_at(place) + TAG_BYTE);
            byte.store(thread as u8, std::sync::atomic::Ordering::Release);
        }
    }
}

fn make<R: Rank>(
    rank: &R,
    context: &Context,
    limits: &Limits,
    common: &Common,
    layout: &Layout,
) -> Result<(LocalEnd, ThreadTag), Stopped> {
    let pd = context.alloc_pd().map_err(failed)?;
    let mr = memory(rank, context, &pd, common, layout)?;
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
    // Control words go inline too, if the device has inline data at all.
    let wanted = common.inline.wanted_bytes(common.size_bytes).max(WORD as u32);
    let wanted = wanted.min(limits.max_inline_bytes);
    let qp = || {
        let builder = Qp::builder(qp_type(common.transport), send.cq(), recv.cq());
        let builder = builder.max_send_wr(tx).max_recv_wr(rx).max_sge(common.sge, 1);
        builder.max_inline_data(wanted).build(&pd)
    };
    let qps: Result<Vec<Qp>, _> = (0..common.qps).map(|_| qp()).collect();
    let qps = qps.map_err(failed)?;
    let local = LocalEnd::new(context, common, limits, (pd, mr), (send, recv), qps)?;
    Ok((local, thread_tag))
}

impl Endpoint {
    /// Creates the end and connects it to the end of the other rank.
    pub fn connect<R: Rank>(
        rank: &R,
        context: &Context,
        limits: &Limits,
        common: &Common,
        layout: Layout,
    ) -> Result<Self, Stopped> {
        let (mut local, thread_tag) = make(rank, context, limits, common, &layout)?;
        let endpoint = |qp: &Qp| qp.endpoint(&local.path, psn(common.seed, rank.index(), qp));
        let ours: Result<Vec<QpEndpoint>, _> = local.qps.iter().map(endpoint).collect();
        let ours = ours.map_err(failed)?;
        let other = exchange(rank, &local, &local.mr, &ours)?;
        local.mtu = mtu_of(other.mtu_bytes.min(local.mtu.bytes() as u32));
        let ahs = go(&local, rank.index(), common, &other.endpoints)?;
        if local.path.sgid_index.is_some() {
            local.gid = ours[0].gid.to_string();
        }
        let size = common.size_bytes;
        let inline = common.op.has_payload()
            && size <= common.inline.wanted_bytes(size).into()
            && size <= local.inline_bytes.into();
        let peer = Peer {
            memory: other.memory,
            qpns: other.endpoints.iter().map(|e| e.qpn).collect(),
            ahs,
            backing: other.backing,
        };
        tag_payload(&local.mr, common, &layout, 0);
        Ok(Self { local, layout, peer, inline, tag: tag_of(0), thread_tag })
    }

    /// An end for another thread with the same queue pairs but its own memory, whose address is
    /// sent to the partner thread at the other end.
    pub fn beside<R: Rank>(
        &self,
        rank: &R,
        context: &Context,
        common: &Common,
        thread: usize,
    ) -> Result<Self, Stopped> {
        let layout = self.layout;
        let mr = memory(rank, context, &self.pd, common, &layout)?;
        let other = exchange(rank, self, &mr, &[])?;
        let peer = Peer {
            memory: other.memory,
            qpns: self.peer.qpns.clone(),
            ahs: self.peer.ahs.clone(),
            backing: other.backing,
        };
        tag_payload(&mr, common, &layout, thread);
        let local = LocalEnd {
            qps: self.qps.clone(),
            send: self.send.of_thread(thread),
            recv: self.recv.of_thread(thread),
            pd: self.pd.clone(),
            mr,
            device: self.device.clone(),
            gid: self.gid.clone(),
            link_layer: self.link_layer.clone(),
            ..self.local
        };
        let (tag, thread_tag) = (tag_of(thread), self.thread_tag.of_thread(thread));
        Ok(Self { local, layout, peer, inline: self.inline, tag, thread_tag })
    }

    /// Writes a number other than 0 to [`Layout::done_at`] of the other end, and waits for the
    /// completion. RC and UC only.
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

    /// Sleeps until the other end has written that the measurement is over. Until then, this end
    /// has no work to do.
    pub fn wait_until_done<R: Rank>(&self, rank: &R) -> Result<(), Stopped> {
        /// Time between two looks.
        const LOOK_NS: u64 = 1_000_000;
        let over = self.memory().word(self.layout.done_at());
        while over.load(std::sync::atomic::Ordering::Acquire) == 0 {
            rank.sleep(LOOK_NS)?;
        }
        over.store(0, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Adds the negotiated and granted values to the facts.
    pub fn facts(&self, outcome: &mut Outcome) {
        self.local.facts(outcome, self.inline, std::iter::once(&*self.peer.backing));
    }
}

impl Deref for Endpoint {
    type Target = LocalEnd;

    #[inline]
    fn deref(&self) -> &LocalEnd {
        &self.local
    }
}

/// Sends this end's memory and queue pairs to the other rank, and receives as many of its own.
fn exchange<R: Rank>(
    rank: &R,
    local: &LocalEnd,
    mr: &Mr,
    ours: &[QpEndpoint],
) -> Result<Handshake<QpEndpoint>, Stopped> {
    let text = handshake::write(local.mtu.bytes() as u32, mr.remote(), mr.buffer().backing(), ours);
    let all = rank.exchange(text.as_bytes())?;
    all.get(1 - rank.index())
        .and_then(|bytes| Handshake::read(bytes, |line| line.parse().ok()))
        .filter(|other| other.endpoints.len() == ours.len())
        .ok_or_else(|| failed("the handshake of the other end is not understood"))
}

/// Brings the queue pairs to RTS, and returns the address handles for datagrams.
fn go(
    local: &LocalEnd,
    rank: usize,
    common: &Common,
    remotes: &[QpEndpoint],
) -> Result<Vec<AddressHandle>, Stopped> {
    let mut ahs = Vec::new();
    for (qp, remote) in local.qps.iter().zip(remotes) {
        to_rts(qp, rank, common, &local.path, local.mtu, remote)?;
        if common.transport == Transport::Ud {
            ahs.push(local.pd.create_ah(remote, &local.path).map_err(failed)?);
        }
    }
    Ok(ahs)
}
