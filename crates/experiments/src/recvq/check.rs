//! What of a receive queue cannot be.

use super::buffers::{in_use, regions, stride};
use super::options::{Queue, Return};
use crate::check::{Fault, MEMORY_MAX_BYTES, must};
use crate::common::limits::Limits;
use crate::point::{Experiment, Op, Point, Transport};

/// The rules of this experiment.
pub(crate) fn check(point: &Point, limits: &Limits) -> Result<(), Fault> {
    if point.experiment != Experiment::Recvq {
        return Ok(());
    }
    must(point.transport == Transport::Rc, "transport", || {
        "a queue that runs empty makes RC wait, and UC and UD lose: choose rc".to_owned()
    })?;
    must(matches!(point.op, Op::Send | Op::SendImm | Op::WriteImm), "op", || {
        "it uses up no receive: choose send, send_imm or write_imm".to_owned()
    })?;
    let depth = point.rx_depth;
    must(point.missing < depth, "missing", || {
        format!("a queue of {depth} has to be left one at least: choose less than {depth}")
    })?;
    let used = in_use(point);
    let wanted = regions(point, usize::MAX);
    must(point.regions == 0 || wanted <= used, "regions", || {
        format!("there are only {used} buffers: choose {used} or less, or each")
    })?;
    let returned = if let Return::Every(count) = point.return_at { count as usize } else { 1 };
    must(returned <= used, "return", || {
        format!("only {used} buffers are in use: choose {used} or less, half or all")
    })?;
    let most = if point.queue == Queue::Srq { limits.max_srq_sge } else { limits.max_sge };
    must(point.max_sge <= most, "max-sge", || {
        format!("a receive of {} has at most {most} pieces", limits.device)
    })?;
    let bytes = (used * stride(point)) as u64;
    let most = MEMORY_MAX_BYTES.min(limits.max_mr_bytes);
    must(bytes <= most, "rx-depth", || {
        format!(
            "{used} x {} bytes of memory, at most {most}: take fewer or smaller ones",
            point.size_bytes
        )
    })
}
