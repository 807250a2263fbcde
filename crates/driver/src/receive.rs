//! Receiving: a train is accepted, its payload placed, and the step retired.

use rdmalab_engine::qp::{
    Accept, CopyError, DropReason, GRH_BYTES, Placement, PlacementTarget, Qp, ResponsePlacement,
};
use rdmalab_engine::train::{Train, TrainFlags};

use crate::memory::{Host, scatter};

/// The result of offering a train to a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The train was processed.
    Done,
    /// The train was dropped.
    Dropped(DropReason),
    /// The train must be offered again.
    Stalled,
}

/// Processes a train that arrived with its payload at `bytes`: both halves of the step at once.
#[inline(always)]
pub fn take<H: Host>(qp: &mut Qp, host: &mut H, train: &Train, bytes: H::Bytes<'_>) -> Taken {
    match qp.accept(train, host) {
        Accept::Done => Taken::Done,
        Accept::Drop(reason) => Taken::Dropped(reason),
        Accept::Stall => Taken::Stalled,
        accepted => {
            finish(qp, host, train, bytes, &accepted);
            Taken::Done
        }
    }
}

/// The second half of a step that [`Qp::accept`] began: moves the bytes, and reports the outcome to
/// the engine. A train that was done, dropped or stalled has no second half.
#[inline(always)]
pub fn finish<H: Host>(
    qp: &mut Qp,
    host: &mut H,
    train: &Train,
    bytes: H::Bytes<'_>,
    accepted: &Accept,
) {
    match accepted {
        Accept::Place(placement) => {
            let result = place(qp, host, train, bytes, placement);
            qp.retire_request(train, placement, result, host);
        }
        Accept::PlaceResponse(placement) => {
            let result = place_response(qp, host, bytes, placement);
            qp.retire_response(placement, result, host);
        }
        Accept::Atomic(job) => {
            let result = host.atomic(&job.entry, job.host_addr, job.op);
            qp.retire_atomic(job, result, host);
        }
        Accept::Done | Accept::Drop(_) | Accept::Stall => {}
    }
}

/// The second half of a step whose queue pair has entered ERR or RESET meanwhile: moves no byte,
/// because the program may have freed its buffers.
pub fn abandon<H: Host>(qp: &mut Qp, host: &mut H, train: &Train, accepted: &Accept) {
    match accepted {
        Accept::Place(placement) => qp.retire_request(train, placement, Ok(()), host),
        Accept::PlaceResponse(placement) => qp.retire_response(placement, Ok(()), host),
        Accept::Atomic(job) => qp.retire_atomic(job, Err(CopyError::Fault), host),
        Accept::Done | Accept::Drop(_) | Accept::Stall => {}
    }
}

#[inline(always)]
fn place<H: Host>(
    qp: &Qp,
    host: &mut H,
    train: &Train,
    mut bytes: H::Bytes<'_>,
    placement: &Placement,
) -> Result<(), CopyError> {
    H::skip(&mut bytes, placement.skip_bytes);
    match &placement.target {
        PlacementTarget::Nothing => {
            debug_assert_eq!(placement.bytes, 0);
            Ok(())
        }
        PlacementTarget::Memory { host_addr, entry } => {
            host.write(entry, *host_addr, placement.bytes, &mut bytes)
        }
        PlacementTarget::Receive { offset } => {
            let (pd, sges) = (qp.held_recv().pd, qp.held_recv().sges());
            if train.flags.has(TrainFlags::GRH) && *offset == u64::from(GRH_BYTES) {
                let header = host.routing_header(train);
                scatter(host, pd, sges, 0, GRH_BYTES, &mut H::bytes(&header))?;
            }
            scatter(host, pd, sges, *offset, placement.bytes, &mut bytes)
        }
    }
}

#[inline(always)]
fn place_response<H: Host>(
    qp: &Qp,
    host: &mut H,
    mut bytes: H::Bytes<'_>,
    placement: &ResponsePlacement,
) -> Result<(), CopyError> {
    let sges = qp.sq.sges(placement.position);
    let offset = u64::from(placement.offset);
    if placement.is_atomic {
        let original = placement.original.to_ne_bytes();
        return scatter(host, qp.pd, sges, offset, placement.bytes, &mut H::bytes(&original));
    }
    H::skip(&mut bytes, placement.skip_bytes);
    scatter(host, qp.pd, sges, offset, placement.bytes, &mut bytes)
}
