//! Queue pairs to some of the other ranks: one for each rank on RC and UC, one for all ranks on UD.

use std::ops::Deref;

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{AddressHandle, Context, Qp, QpEndpoint, RemoteBuffer, Srq, Wc};

use crate::common::completions::{Completions, failed};
use crate::common::connection::{mtu_of, psn, qp_type, rights, to_rts};
use crate::common::handshake::{self, Handshake};
use crate::common::limits::Limits;
use crate::common::local_end::{LocalEnd, memory};
use crate::common::params::{Common, Transport};

/// The parameters of [`Links::connect`].
pub(crate) struct LinkOptions<'a> {
    /// The other ranks, by index.
    pub to: &'a [usize],
    /// Memory for messages.
    pub bytes: usize,
    /// Inline bytes to ask for.
    pub inline: u32,
    /// Requests that each send queue holds.
    pub tx: u32,
    /// Requests that each receive queue holds, or the shared one.
    pub rx: u32,
    /// Whether the receive queue is shared.
    pub srq: bool,
    /// Pieces that a receive may have.
    pub max_sge: u32,
}

/// Another rank.
pub(crate) struct Remote {
    /// Its index among the ranks.
    pub rank: usize,
    /// Which of [`Links::qps`] leads to it.
    pub qp: usize,
    /// Number of its queue pair.
    pub qpn: u32,
    /// Its memory.
    pub memory: RemoteBuffer,
    /// For datagrams.
    pub ah: Option<AddressHandle>,
    backing: String,
}

/// Queue pairs, ready to send.
pub(crate) struct Links {
    local: LocalEnd,
    pub srq: Option<Srq>,
    /// In the order of [`LinkOptions::to`].
    pub remotes: Vec<Remote>,
}

impl Links {
    /// Creates and connects the queue pairs. Every rank has to call this, also one without links.
    /// If a rank names another one in `to`, that one must name it as well. All ranks have to
    /// synchronize once more before anything is sent, since they do not become ready at the same
    /// time.
    pub fn connect<R: Rank>(
        rank: &R,
        context: &Context,
        limits: &Limits,
        common: &Common,
        want: &LinkOptions<'_>,
    ) -> Result<Self, Stopped> {
        let mut links = Self::make(rank, context, limits, common, want)?;
        let endpoint = |qp: &Qp| qp.endpoint(&links.path, psn(common.seed, rank.index(), qp));
        let own: Result<Vec<QpEndpoint>, _> = links.qps.iter().map(endpoint).collect();
        let own = own.map_err(failed)?;
        let handshake = links.handshake(want.to, &own);
        let all = rank.exchange(handshake.as_bytes())?;
        if let Some(first) = own.first().filter(|_| links.path.sgid_index.is_some()) {
            links.local.gid = first.gid.to_string();
        }
        for (i, to) in want.to.iter().enumerate() {
            let unknown = || failed(format!("the handshake of rank {to} is not understood"));
            let handshake =
                all.get(*to).and_then(|b| Handshake::read(b, read_offered)).ok_or_else(unknown)?;
            let remote = handshake.endpoint_for(rank.index()).ok_or_else(unknown)?;
            links.local.mtu = mtu_of(handshake.mtu_bytes.min(links.mtu.bytes() as u32));
            let remote_end = links.remote(rank.index(), common, i, *to, &handshake, &remote)?;
            links.remotes.push(remote_end);
        }
        Ok(links)
    }

    fn make<R: Rank>(
        rank: &R,
        context: &Context,
        limits: &Limits,
        common: &Common,
        want: &LinkOptions<'_>,
    ) -> Result<Self, Stopped> {
        let buffer = memory(rank, context, common, want.bytes.max(1))?;
        let pd = context.alloc_pd().map_err(failed)?;
        let mr = pd.register(&buffer, rights(common.op)).map_err(failed)?;
        let is_ud = common.transport == Transport::Ud;
        let count = if is_ud { want.to.len().min(1) } else { want.to.len() } as u32;
        let cqe = |depth: u32, queues: u32| depth.saturating_mul(queues.max(1)).min(limits.max_cqe);
        let queues = if want.srq { 1 } else { count };
        let send = Completions::new(context, cqe(want.tx, count), common.poll_send);
        let send = send.map_err(failed)?;
        let recv = Completions::new(context, cqe(want.rx, queues), common.poll_recv);
        let recv = recv.map_err(failed)?;
        let srq = want.srq.then(|| pd.create_srq(want.rx, want.max_sge)).transpose();
        let srq = srq.map_err(failed)?;
        let inline = want.inline.min(limits.max_inline_bytes);
        let qp = || {
            let builder = Qp::builder(qp_type(common.transport), send.cq(), recv.cq())
                .max_send_wr(want.tx)
                .max_inline_data(inline);
            match &srq {
                Some(srq) => builder.srq(srq).max_recv_wr(0).build(&pd),
                None => builder.max_recv_wr(want.rx).max_sge(1, want.max_sge).build(&pd),
            }
        };
        let qps: Result<Vec<Qp>, _> = (0..count).map(|_| qp()).collect();
        let qps = qps.map_err(failed)?;
        let local = LocalEnd::new(context, common, limits, (pd, mr), (send, recv), qps)?;
        Ok(Self { local, srq, remotes: Vec::new() })
    }

    fn handshake(&self, to: &[usize], own: &[QpEndpoint]) -> String {
        let line =
            |(i, rank): (usize, &usize)| Some(format!("{rank} {}", own.get(i).or(own.first())?));
        let lines = to.iter().enumerate().filter_map(line);
        let backing = self.memory().backing();
        handshake::write(self.mtu.bytes() as u32, self.mr.remote(), backing, lines)
    }

    fn remote(
        &self,
        own: usize,
        common: &Common,
        i: usize,
        rank: usize,
        handshake: &Handshake<Offered>,
        remote: &QpEndpoint,
    ) -> Result<Remote, Stopped> {
        let is_ud = common.transport == Transport::Ud;
        let qp = if is_ud { 0 } else { i };
        if !is_ud || i == 0 {
            to_rts(&self.qps[qp], own, common, &self.path, self.mtu, remote)?;
        }
        let ah = is_ud.then(|| self.pd.create_ah(remote, &self.path)).transpose();
        Ok(Remote {
            rank,
            qp,
            qpn: remote.qpn,
            memory: handshake.memory,
            ah: ah.map_err(failed)?,
            backing: handshake.backing.clone(),
        })
    }

    /// Whether messages of that size go inline.
    pub fn is_inline(&self, common: &Common, size_bytes: u64) -> bool {
        size_bytes <= common.inline.wanted_bytes(size_bytes).into()
            && size_bytes <= self.inline_bytes.into()
    }

    /// Checks that all completions of sends succeeded.
    pub fn all_sent(&self, wcs: &[Wc]) -> Result<(), Stopped> {
        match wcs.iter().find(|wc| !wc.is_ok()) {
            None => Ok(()),
            Some(wc) => Err(self.explain(wc, "send")),
        }
    }

    /// Adds the negotiated and granted values to the facts.
    pub fn facts(&self, outcome: &mut Outcome, inline: bool) {
        self.local.facts(outcome, inline, self.remotes.iter().map(|far| &*far.backing));
    }
}

impl Deref for Links {
    type Target = LocalEnd;

    #[inline]
    fn deref(&self) -> &LocalEnd {
        &self.local
    }
}

/// An endpoint, and the rank that it is for.
type Offered = (usize, QpEndpoint);

fn read_offered(line: &str) -> Option<Offered> {
    let (rank, endpoint) = line.split_once(' ')?;
    Some((rank.parse().ok()?, endpoint.parse().ok()?))
}

impl Handshake<Offered> {
    fn endpoint_for(&self, rank: usize) -> Option<QpEndpoint> {
        self.endpoints.iter().find(|(to, _)| *to == rank).map(|(_, endpoint)| *endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_names_the_rank_that_each_endpoint_is_for() {
        let text = b"1024 4096 64 7 private\n0 1,2,3,fe80::1\n5 1,9,3,fe80::1\n";
        let handshake = Handshake::read(text, read_offered).unwrap();
        assert_eq!(
            (handshake.mtu_bytes, handshake.memory.rkey, handshake.backing.as_str()),
            (1024, 7, "private")
        );
        assert_eq!(handshake.endpoint_for(5).map(|e| e.qpn), Some(9));
        assert_eq!(handshake.endpoint_for(1), None);
        for wrong in ["", "1 2 3", "1 2 3 4 x\nno endpoint", "1 2 3 4 x\n1,2,3,fe80::1"] {
            assert!(Handshake::read(wrong.as_bytes(), read_offered).is_none(), "{wrong}");
        }
    }
}
