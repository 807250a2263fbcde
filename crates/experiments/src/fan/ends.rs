//! A rank's queue pairs to the others, and the group that they joined.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::Context;

use super::exchange::Exchange;
use super::group::Group;
use super::options::{Cast, Fan};
use super::shape::{self, NOTE_BYTES, Shape};
use crate::common::limits::Limits;
use crate::common::links::{LinkOptions, Links};
use crate::common::params::{Common, Op, Transport};

/// Queue pairs, connected, and how many receives each holds.
pub(super) struct Ends {
    pub links: Links,
    common: Common,
    group: Group,
    shape: Shape,
    rx: u32,
}

/// The parameters of the datagrams that say when to READ.
pub(super) fn call(common: &Common) -> Common {
    Common { transport: Transport::Ud, op: Op::Send, size_bytes: NOTE_BYTES, ..common.clone() }
}

impl Ends {
    /// Connects this rank to some of the others; each rank has to call it, also one without others.
    pub(super) fn connect<R: Rank>(
        (rank, context, limits): (&R, &Context, &Limits),
        common: Common,
        own: &Fan,
        to: &[usize],
        cast: Cast,
    ) -> Result<Self, Stopped> {
        let is_ud = common.transport == Transport::Ud;
        // One queue for what several may say at once.
        let share = if is_ud { to.len().max(1) as u32 } else { 1 };
        let rx = common.rx_depth.saturating_mul(share).min(limits.max_qp_wr);
        let tx = common.tx_depth.saturating_add(share).min(limits.max_qp_wr);
        let shape = Shape::of(&common, if is_ud { rx as usize } else { to.len().max(1) });
        let inline =
            shape::sizes(&common, own).into_iter().map(|s| common.inline.wanted_bytes(s)).max();
        let want = LinkOptions {
            to,
            bytes: shape.bytes(),
            inline: inline.unwrap_or(0),
            tx,
            rx,
            srq: false,
            max_sge: 1,
        };
        let links = Links::connect(rank, context, limits, &common, &want)?;
        let group = match cast {
            Cast::Each => Group::default(),
            Cast::Group => Group::join(rank, context, limits, &links, &common)?,
        };
        Ok(Self { links, common, group, shape, rx })
    }

    /// With the receive queues filled, if this rank receives messages.
    pub(super) fn exchange<'a, R: Rank>(
        &'a self,
        rank: &R,
        own: &'a Fan,
        receives: bool,
    ) -> Result<Exchange<'a>, Stopped> {
        let both = (&self.common, own);
        let rx = if receives { self.rx } else { 0 };
        Exchange::new(rank, both, &self.links, self.shape, rx, self.group.ah())
    }
}
