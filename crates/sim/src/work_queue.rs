//! Posting: what it costs the processor, and how the adapter learns of it.

use rdmalab_engine::backend::{PostError, RecvWr, SendWr};
use rdmalab_engine::qp::Qp;
use rdmalab_engine::vocab::{QpState, QpType, SendFlags, WrOpcode};

use crate::component::Component;
use crate::event::Event;
use crate::ids::QpId;
use crate::kernel::{Sim, World};
use crate::lock_table::Protects;
use crate::memory;
use crate::time::Ps;

/// Parts of a send WQE in bytes, as ConnectX adapters have them (rdma-core, providers/mlx5/qp.c):
/// the control part, the address of a datagram, the remote address, the operands of an atomic, a
/// piece of memory, and what precedes inline data.
const CONTROL: u32 = 16;
const DATAGRAM: u32 = 48;
const REMOTE: u32 = 16;
const OPERANDS: u32 = 16;
const PIECE: u32 = 16;
const INLINE: u32 = 4;

/// The bytes of a send WQE, rounded up to a multiple of `unit`.
pub(crate) fn wqe_bytes(qp: &Qp, position: u32, unit: u32, block: u32) -> u32 {
    let wqe = qp.sq.wqe(position);
    let mut bytes = CONTROL;
    if qp.qp_type == QpType::Ud {
        bytes += DATAGRAM;
    }
    bytes += match wqe.opcode {
        WrOpcode::Write | WrOpcode::WriteImm | WrOpcode::Read => REMOTE,
        WrOpcode::CmpSwap | WrOpcode::FetchAdd => REMOTE + OPERANDS,
        _ => 0,
    };
    bytes += match wqe.is_inline() {
        true => inline_bytes(bytes, wqe.length, block),
        false => PIECE * wqe.sge_count,
    };
    bytes.next_multiple_of(unit)
}

/// Bytes of inline data of `length` with its headers, behind `before` bytes of a WQE: with blocks,
/// a header begins the data and each further block.
fn inline_bytes(before: u32, length: u32, block: u32) -> u32 {
    if block <= INLINE {
        return INLINE + length;
    }
    let first = block - before % block - INLINE.min(block - before % block);
    let more = length.saturating_sub(first).div_ceil(block - INLINE);
    length + INLINE * (1 + more)
}

/// Why a request was refused: how many were taken before, and the reason.
pub(crate) type Refused = (usize, PostError);

/// Posts send requests in order; with `all`, all of them or none.
pub(crate) fn post_send<'a>(
    sim: &Sim,
    id: QpId,
    wrs: impl Iterator<Item = SendWr<'a>>,
    all: bool,
) -> Result<(), Refused> {
    let _alone = sim.lock_or_end(Protects::SendQueue(id));
    let (result, cost, posted) = sim.with(|world| {
        world.note_post(id.node);
        let post_ns = world.time_of_post(id.node);
        let posted = world.with_qp(id, |world, qp| {
            let before = qp.qp.sq.posted;
            let (mut cost, mut result) = (post_ns, Ok(()));
            for (index, wr) in wrs.enumerate() {
                match push(world, id.node, &mut qp.qp, qp.freed, &wr) {
                    Ok(time) if index == 0 => cost += time,
                    Ok(time) => cost += time + world.parameters.post_more_ns,
                    Err(why) => {
                        result = Err((index, why));
                        break;
                    }
                }
            }
            if all && result.is_err() {
                qp.qp.sq.unpush_to(before);
            }
            if matches!(qp.qp.state, QpState::Err | QpState::Sqe) {
                world.step(id, qp, |qp, env| qp.flush_sends(env));
                return (result, cost, None);
            }
            (result, cost, by_doorbell(world, &qp.qp, before))
        });
        posted.unwrap_or((Err((0, PostError::BadState)), Ps::ZERO, None))
    });
    sim.work(cost);
    if let Some((posted, wqe)) = posted {
        sim.with(|world| {
            world.note(id.node, Component::Post, || "the post ends".to_owned());
            let at = world.now + world.parameters.mmio_ns;
            world.queue.push(at, Event::Doorbell { qp: id, posted, wqe });
        });
    }
    result
}

impl World {
    /// The time of a post of one request that begins now.
    fn time_of_post(&mut self, node: usize) -> Ps {
        let all = &self.parameters;
        let pause = self.now - std::mem::replace(&mut self.nodes[node].posted, self.now);
        let is_cold = all.wake_cold_after_ns > Ps::ZERO && pause > all.wake_cold_after_ns;
        if is_cold { all.post_ns + all.post_cold_ns } else { all.post_ns }
    }
}

/// How the adapter learns of the requests that were posted since position `before`: up to which
/// position, and whether the WQE goes with the doorbell.
fn by_doorbell(world: &World, qp: &Qp, before: u32) -> Option<(u32, bool)> {
    let all = &world.parameters;
    let count = qp.sq.posted.wrapping_sub(before);
    if count == 0 {
        return None;
    }
    let is_allowed = match all.blue_flame {
        0 => false,
        1 => qp.sq.wqe(before).is_inline(),
        _ => true,
    };
    let fits = wqe_bytes(qp, before, 16, all.inline_block_bytes) <= all.blue_flame_bytes;
    Some((qp.sq.posted, count == 1 && is_allowed && fits))
}

/// Queues one request, and copies its inline data; returns the time of the copy.
fn push(
    world: &World,
    node: usize,
    qp: &mut Qp,
    freed: u32,
    wr: &SendWr<'_>,
) -> Result<Ps, PostError> {
    let position = qp.post_send(wr, freed)?;
    if !wr.flags.contains(SendFlags::INLINE) {
        return Ok(Ps::ZERO);
    }
    world.restamp(node);
    let mut to = qp.sq.inline_mut(position);
    let mut bytes = 0;
    for sge in wr.sges {
        let (here, rest) = to.split_at_mut(sge.length as usize);
        // SAFETY: whoever posts a request promises that its inline data can be read.
        unsafe { memory::read_inline(sge.addr, here) };
        (to, bytes) = (rest, bytes + u64::from(sge.length));
    }
    Ok(world.parameters.inline_ns_per_64_bytes * bytes.div_ceil(64))
}

/// Posts receive requests to the queue of a queue pair. A message finds each of them when the
/// processor has written it.
pub(crate) fn post_recv<'a>(
    sim: &Sim,
    id: QpId,
    wrs: impl Iterator<Item = RecvWr<'a>>,
) -> Result<(), Refused> {
    let _alone = sim.lock_or_end(Protects::RecvQueue(id));
    post_each(sim, wrs, |wr| {
        let posted = sim.with(|world| {
            world.with_qp(id, |world, qp| {
                let result = qp.qp.post_recv(wr);
                if qp.recv_reader.is_off() {
                    qp.qp.fetch_receives();
                }
                if qp.qp.state == QpState::Err {
                    world.step(id, qp, |qp, env| qp.flush_receives(env));
                }
                result
            })
        });
        posted.unwrap_or(Err(PostError::BadState))
    })
}

/// Posts receive requests to a shared receive queue.
pub(crate) fn post_srq_recv<'a>(
    sim: &Sim,
    node: usize,
    srq: usize,
    wrs: impl Iterator<Item = RecvWr<'a>>,
) -> Result<(), Refused> {
    let _alone = sim.lock_or_end(Protects::SharedRecvQueue(node, srq));
    post_each(sim, wrs, |wr| {
        sim.with(|world| {
            let found = world.nodes[node].srqs[srq].as_mut().ok_or(PostError::BadState)?;
            found.queue.queue.push(wr)?;
            if found.reader.is_off() {
                found.queue.queue.fetch_all();
            }
            Ok(())
        })
    })
}

fn post_each<'a>(
    sim: &Sim,
    wrs: impl Iterator<Item = RecvWr<'a>>,
    push: impl Fn(&RecvWr<'a>) -> Result<(), PostError>,
) -> Result<(), Refused> {
    for (index, wr) in wrs.enumerate() {
        sim.work(sim.parameters.recv_post_ns);
        push(&wr).map_err(|why| (index, why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_data_of_connectx_2_has_a_header_in_each_block() {
        // macarthur2012's limits: 912 bytes in a WRITE descriptor of 1008, 208 in one of 256.
        let write = |length| 32 + inline_bytes(32, length, 64);
        assert_eq!([write(28), write(208), write(209), write(912)], [64, 256, 261, 1008]);
        assert_eq!(inline_bytes(32, 220, 0), 224);
    }
}
