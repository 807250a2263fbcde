//! The rules of `fan`.

use super::options::{Cast, Direction, Fan};
use super::shape::repetitions;
use crate::common::limits::Limits;
use crate::common::params::{Common, Op, Transport};
use crate::common::rules::{Fault, MEMORY_MAX_BYTES, SAMPLES_MAX, must};

/// The rules of this experiment.
pub(super) fn check(common: &Common, own: &Fan, limits: &Limits) -> Result<(), Fault> {
    must(common.op != Op::WriteRead && !common.op.is_atomic(), "op", || {
        format!("fan has no {}: choose write or read", common.op)
    })?;
    let is_group = own.cast == Cast::Group;
    let is_read = common.op.reads();
    must(!is_group || is_read || common.transport == Transport::Ud, "to", || {
        format!(
            "only UD sends to a multicast group, not {}: choose --transport ud, or --op read, \
             where a multicast only starts the READs",
            common.transport
        )
    })?;
    must(!is_group || !is_read || own.direction != Direction::Out, "to", || {
        "with --direction out no rank READs from rank 0, so --to group, which starts the READs, \
         has no effect: choose --direction in or both"
            .to_owned()
    })?;
    let peers = u64::from(own.peers.max(1));
    let samples = repetitions(common, own).saturating_mul(peers + 2);
    must(samples <= SAMPLES_MAX, "messages", || {
        format!(
            "all sizes and peers together take {samples} samples; the limit is {SAMPLES_MAX}: \
             choose fewer messages, sizes or peers"
        )
    })?;
    let receives = if common.transport == Transport::Ud { u64::from(common.rx_depth) } else { 1 };
    let bytes = common.size_bytes.saturating_mul(receives).saturating_mul(peers);
    let most = MEMORY_MAX_BYTES.min(limits.max_mr_bytes);
    must(bytes <= most, "size", || {
        format!(
            "{peers} peers take {bytes} bytes of memory; the limit is {most}: choose a smaller size"
        )
    })
}

/// With how many of the other ranks rank 0 exchanges messages, if there are `ranks` in all.
///
/// # Errors
/// When there are too few.
pub(super) fn peers(own: &Fan, ranks: usize) -> Result<usize, Fault> {
    match own.peers as usize {
        0 => Ok(ranks.saturating_sub(1)),
        peers if peers < ranks => Ok(peers),
        peers => Err((
            "peers",
            format!(
                "with {ranks} ranks, rank 0 has {} peers: choose fewer peers, or {} ranks",
                ranks.saturating_sub(1),
                peers + 1
            ),
        )),
    }
}
