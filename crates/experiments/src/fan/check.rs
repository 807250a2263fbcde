//! What of a fan cannot be.

use super::options::Cast;
use crate::check::{Fault, Impossible, MEMORY_MAX_BYTES, SAMPLES_MAX, must};
use crate::common::limits::Limits;
use crate::point::{Experiment, Op, Point, Transport};

/// The rules of this experiment.
pub(crate) fn check(point: &Point, limits: &Limits) -> Result<(), Fault> {
    if point.experiment != Experiment::Fan {
        return Ok(());
    }
    must(point.op != Op::WriteRead, "op", || "it is for `ping`: choose write or read".to_owned())?;
    let is_group = point.cast == Cast::Group;
    must(!is_group || point.transport == Transport::Ud, "to", || {
        format!(
            "a multicast group is for datagrams, not {}: choose --transport ud",
            point.transport
        )
    })?;
    let peers = u64::from(point.peers.max(1));
    let samples = super::repetitions(point).saturating_mul(peers + 2);
    must(samples <= SAMPLES_MAX, "messages", || {
        format!("{samples} samples with all sizes and peers, at most {SAMPLES_MAX} fit: take fewer")
    })?;
    let receives = if point.transport == Transport::Ud { u64::from(point.rx_depth) } else { 1 };
    let bytes = point.size_bytes.saturating_mul(receives).saturating_mul(peers);
    let most = MEMORY_MAX_BYTES.min(limits.max_mr_bytes);
    must(bytes <= most, "size", || {
        format!("{peers} peers take {bytes} bytes of memory, at most {most}: take smaller ones")
    })
}

/// How many ranks rank 0 has to do with, of so many.
///
/// # Errors
/// When there are too few.
pub fn peers(point: &Point, ranks: usize) -> Result<usize, Impossible> {
    match point.peers as usize {
        0 => Ok(ranks.saturating_sub(1)),
        peers if peers < ranks => Ok(peers),
        peers => Err(Impossible {
            option: "peers",
            value: peers.to_string(),
            reason: format!(
                "of {ranks} ranks {} are left beside rank 0: take fewer peers, or {} ranks",
                ranks.saturating_sub(1),
                peers + 1
            ),
        }),
    }
}
