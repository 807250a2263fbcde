//! Queue pairs to the ranks with which a rank has messages, and memory for these.

use std::collections::BTreeMap;

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    Access, Context, Cq, Mr, Path, Qp, QpEndpoint, QpType, ReadyToReceive, ReadyToSend,
    RecvRequest, RemoteBuffer,
};

use crate::schedule::{Op, Schedule};

/// Messages of up to this length are sent inline, if the device has room for them in requests.
const INLINE_BYTES: u32 = 128;
/// First PSN of all queue pairs.
const PSN: u32 = 1;
const PORT: u8 = 1;

/// A failure of this rank, described by `why`.
pub fn failed(why: impl std::fmt::Display) -> Stopped {
    Stopped::Failed(why.to_string())
}

/// How much each queue pair and its memory hold.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Entries of a send queue, and receives that are posted.
    pub sends: usize,
    pub receives: usize,
    /// Places from which messages are sent.
    pub places: usize,
    /// Bytes of a place, and of a receive.
    pub place_bytes: usize,
    /// Bytes of the longest message that is written to its receiver.
    pub long_bytes: usize,
}

impl Room {
    /// Room for the messages of a schedule, of which those up to `eager_bytes` go through places.
    /// All ranks have the same room: a receive takes what any peer sends.
    pub fn of(
        schedule: &Schedule,
        eager_bytes: u64,
        (places, sends, receives): (u32, u32, u32),
    ) -> Room {
        let ops = || schedule.ranks.iter().flatten();
        let bytes = || ops().filter_map(Op::message).map(|message| message.bytes);
        let longest = |is_eager: bool| {
            bytes().filter(|bytes| (*bytes <= eager_bytes) == is_eager).max().unwrap_or(0) as usize
        };
        let place_bytes = longest(true).next_multiple_of(64).max(64);
        Room {
            sends: sends as usize,
            receives: receives as usize,
            places: places as usize,
            place_bytes,
            long_bytes: longest(false),
        }
    }

    fn of_a_peer(&self) -> usize {
        (self.places + self.receives) * self.place_bytes
    }

    fn bytes(&self, peers: usize) -> usize {
        self.of_a_peer() * peers + 2 * self.long_bytes
    }

    /// Where messages to a peer are sent from.
    pub fn place(&self, peer: usize, place: usize) -> usize {
        self.of_a_peer() * peer + place * self.place_bytes
    }

    /// Where a receive of a peer's messages is.
    fn receive(&self, peer: usize, number: usize) -> usize {
        self.place(peer, self.places + number)
    }

    /// Where long messages are written to, and where they are sent from.
    pub fn landing(&self, peers: usize) -> usize {
        self.of_a_peer() * peers
    }

    pub fn long(&self, peers: usize) -> usize {
        self.landing(peers) + self.long_bytes
    }
}

/// A queue pair to a peer.
pub struct Link {
    /// The peer's rank.
    pub rank: usize,
    pub qp: Qp,
    /// Where the peer takes long messages.
    pub landing: RemoteBuffer,
}

/// All queue pairs of a rank, ready to send.
pub struct Links {
    pub send_cq: Cq,
    pub recv_cq: Cq,
    pub mr: Mr,
    pub room: Room,
    pub inline_bytes: u32,
    pub all: Vec<Link>,
    /// Which of [`Links::all`] has a queue pair of this number.
    by_qpn: BTreeMap<u32, usize>,
}

/// The ranks with which a rank has messages, in order.
pub fn peers(ops: &[Op]) -> Vec<usize> {
    let mut peers: Vec<usize> =
        ops.iter().filter_map(Op::message).map(|message| message.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

impl Links {
    /// Connects the rank with its peers, and posts receives. All ranks call it; when it returns,
    /// all are ready.
    pub fn connect<R: Rank>(
        rank: &R,
        context: &Context,
        schedule: &Schedule,
        room: Room,
    ) -> Result<Links, Stopped> {
        let peers = peers(&schedule.ranks[rank.index()]);
        let attr = context.query_device().map_err(failed)?;
        let pd = context.alloc_pd().map_err(failed)?;
        let cq = |each: usize| {
            let entries = (each * peers.len().max(1)).min(attr.max_cqe as usize);
            context.create_cq(entries as u32, None).map_err(failed)
        };
        let (send_cq, recv_cq) = (cq(room.sends)?, cq(room.receives)?);
        let bytes = room.bytes(peers.len()).max(64);
        let no_memory = |e| failed(format!("cannot allocate {bytes} bytes for messages: {e}"));
        let buffer = context.alloc_buffer(bytes).map_err(no_memory)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = pd.register(&buffer, rights).map_err(failed)?;
        let path = Path::by_lid(PORT);
        let inline = device_inline(context);
        let (mut qps, mut lines) = (Vec::new(), Vec::new());
        for peer in &peers {
            let qp = Qp::builder(QpType::Rc, &send_cq, &recv_cq)
                .max_send_wr(room.sends as u32)
                .max_recv_wr(room.receives as u32)
                .max_inline_data(inline)
                .build(&pd)
                .map_err(failed)?;
            qp.to_init(PORT, rights, 0).map_err(failed)?;
            lines.push(format!("{peer} {}", qp.endpoint(&path, PSN).map_err(failed)?));
            qps.push(qp);
        }
        let inline_bytes = qps.iter().map(|qp| qp.cap().max_inline_data).min().unwrap_or(0);
        let by_qpn = qps.iter().enumerate().map(|(index, qp)| (qp.qp_num(), index)).collect();
        let mut links = Links { send_cq, recv_cq, mr, room, inline_bytes, all: Vec::new(), by_qpn };
        let remote = links.mr.remote();
        let landing = remote.addr + room.landing(peers.len()) as u64;
        let head = format!("{landing} {} {}", room.long_bytes, remote.rkey);
        let said = rank.exchange(format!("{head}\n{}", lines.join("\n")).as_bytes())?;
        for (qp, peer) in qps.into_iter().zip(peers) {
            let unknown = || failed(format!("the handshake of rank {peer} is not understood"));
            let (endpoint, landing) = read(&said[peer], rank.index()).ok_or_else(unknown)?;
            let mtu = context.query_port(PORT).map_err(failed)?.active_mtu;
            qp.to_rtr(&ReadyToReceive::new(endpoint, path, mtu)).map_err(failed)?;
            qp.to_rts(&ReadyToSend::new(PSN)).map_err(failed)?;
            links.all.push(Link { rank: peer, qp, landing });
            for number in 0..room.receives {
                links.post_receive(links.all.len() - 1, number)?;
            }
        }
        rank.barrier()?;
        Ok(links)
    }

    /// Posts a receive of a peer's messages.
    pub fn post_receive(&self, peer: usize, number: usize) -> Result<(), Stopped> {
        let at = self.room.receive(peer, number);
        let sges = [self.mr.sge(at, self.room.place_bytes)];
        let request = RecvRequest::new(&sges).wr_id((peer as u64) << 32 | number as u64);
        self.all[peer].qp.post_recv(&[request]).map_err(failed)
    }

    /// Which of [`Links::all`] leads to a rank.
    pub fn to(&self, rank: usize) -> Option<usize> {
        self.all.binary_search_by_key(&rank, |link| link.rank).ok()
    }

    /// Which of [`Links::all`] a queue pair belongs to.
    pub fn of_qp(&self, qpn: u32) -> Option<usize> {
        self.by_qpn.get(&qpn).copied()
    }
}

/// The inline bytes to ask for: no verb tells how many there are at most.
fn device_inline(context: &Context) -> u32 {
    let Ok(pd) = context.alloc_pd() else { return 0 };
    let Ok(cq) = context.create_cq(1, None) else { return 0 };
    let fits = |bytes: &u32| {
        let builder = Qp::builder(QpType::Rc, &cq, &cq);
        builder.max_send_wr(1).max_inline_data(*bytes).build(&pd).is_ok()
    };
    [INLINE_BYTES, INLINE_BYTES / 2].into_iter().find(fits).unwrap_or(0)
}

/// What another rank says: the endpoint for `own`, and where it takes long messages.
fn read(bytes: &[u8], own: usize) -> Option<(QpEndpoint, RemoteBuffer)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, lines) = text.split_once('\n')?;
    let mut numbers = head.split(' ').map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let landing = RemoteBuffer { addr: next()?, bytes: next()?, rkey: next()? as u32 };
    let to_us = |line: &str| {
        let (rank, endpoint) = line.split_once(' ')?;
        (rank.parse() == Ok(own)).then(|| endpoint.parse().ok())?
    };
    Some((lines.lines().find_map(to_us)?, landing))
}
