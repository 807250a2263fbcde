//! What of a receive queue cannot be.

use super::buffers::{in_use, regions, stride};
use super::options::{Queue, Recvq, Return};
use crate::common::limits::Limits;
use crate::common::params::{Common, Op, Transport};
use crate::common::rules::{Fault, MEMORY_MAX_BYTES, must};

/// The rules of this experiment.
pub(super) fn check(common: &Common, own: &Recvq, limits: &Limits) -> Result<(), Fault> {
    must(common.transport == Transport::Rc, "transport", || {
        "with an empty receive queue RC waits, but UC and UD lose messages: choose rc".to_owned()
    })?;
    must(matches!(common.op, Op::Send | Op::SendImm | Op::WriteImm), "op", || {
        "this operation does not consume receives: choose send, send_imm or write_imm".to_owned()
    })?;
    let depth = common.rx_depth;
    must(own.missing < depth, "missing", || {
        format!(
            "all {depth} receives would be missing; at least one must be posted: choose less than \
             {depth}"
        )
    })?;
    let used = in_use(common, own);
    let wanted = regions(own, usize::MAX);
    must(own.regions == 0 || wanted <= used, "regions", || {
        format!("there are only {used} buffers: choose {used} or less, or each")
    })?;
    let returned = if let Return::Every(count) = own.return_at { count as usize } else { 1 };
    must(returned <= used, "return", || {
        format!("only {used} buffers are in use: choose {used} or less, half or all")
    })?;
    let most = if own.queue == Queue::Srq { limits.max_srq_sge } else { limits.max_sge };
    must(common.max_sge <= most, "max-sge", || {
        format!(
            "a receive of {} has at most {most} scatter/gather entries: choose {most} or less",
            limits.device
        )
    })?;
    let bytes = (used * stride(common)) as u64;
    let most = MEMORY_MAX_BYTES.min(limits.max_mr_bytes);
    must(bytes <= most, "rx-depth", || {
        format!(
            "{used} buffers of {} bytes are needed, but memory is limited to {most} bytes: choose \
             fewer or smaller ones",
            common.size_bytes
        )
    })
}
