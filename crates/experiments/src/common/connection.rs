//! Queue pairs and what connects them: types, rights, paths, first PSNs, and the way to RTS.

use rdmalab_rank::Stopped;
use rdmalab_verbs::{
    Access, Mtu, Path, Qp, QpEndpoint, QpType, ReadyToReceive, ReadyToSend, UDP_QKEY,
};

use crate::common::completions::failed;
use crate::common::limits::Limits;
use crate::common::params::{Common, Op, Transport};

/// Q_Key of both ends: the one of multicast groups that the connection manager joins.
pub(crate) const QKEY: u32 = UDP_QKEY;

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

/// The lower bits of a queue pair number, in which the soft device counts the queue pairs of a
/// process. The upper bits stand for the process and differ from run to run.
const COUNTED: u32 = 0x3fff;

/// The first PSN of a queue pair, different for each queue pair of a run, so that a packet capture
/// shows by the PSNs which queue pair answers which. Repeating a run gives the same PSNs, because
/// fault rules pick packets by PSN.
pub(crate) fn psn(seed: u64, rank: usize, qp: &Qp) -> u32 {
    psn_of(seed, rank, qp.qp_num() & COUNTED)
}

fn psn_of(seed: u64, rank: usize, qp: u32) -> u32 {
    let which = (rank as u64) << 48 | u64::from(qp) << 32;
    (rdmalab_random::nth(seed ^ which, 0) >> 40) as u32
}

/// What peers may do with the memory for messages: atomics only where they are measured, since not
/// every device has them.
pub(crate) fn rights(op: Op) -> Access {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    if op.is_atomic() { rights | Access::REMOTE_ATOMIC } else { rights }
}

/// The path that a point names. Without a GID index, it uses GID 0 if the port needs a GID.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The PSNs of both ends of a connection, and of successive points, are far apart.
    #[test]
    fn queue_pairs_begin_apart() {
        let qps = (4..260).flat_map(|n| [(0, n), (1, n)]);
        let mut psns: Vec<u32> = qps.map(|(rank, n)| psn_of(1, rank, n)).collect();
        psns.sort_unstable();
        // Among this many random numbers, two or three neighbours are as near as this.
        let near = psns.windows(2).filter(|two| two[1] - two[0] < 128).count();
        assert!(near < 16, "{near}");
        assert!(psns.iter().all(|psn| psn >> 24 == 0));
        assert_ne!(psn_of(1, 0, 7), psn_of(2, 0, 7));
    }
}
