//! The simulated devices as a [`Backend`]: each verb, in the order of the trait.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdmalab_engine::backend::*;
use rdmalab_engine::odp::Advice;
use rdmalab_engine::vocab::*;
use rdmalab_wire::ids::{Gid, PKey, Qpn};

use crate::channel::Channel;
use crate::channel_wait;
use crate::completion::{CompletionQueue, Cqe};
use crate::component::Component;
use crate::control::{self, NewMr, NewQp, check_limit, gone, use_pd};
use crate::device;
use crate::idle_calls::IdleCall;
use crate::ids::QpId;
use crate::kernel::{LookLimit, Sim};
use crate::lock_table::Protects;
use crate::time::Ps;
use crate::work_queue;

/// The adapters of a simulation. Each rank has one; all have the same name.
pub struct SimBackend(pub(crate) Arc<Sim>);

/// An object of a simulated device: the simulation, the node, and the index of the object there.
#[derive(Clone)]
pub struct Handle {
    sim: Arc<Sim>,
    node: usize,
    index: usize,
}

/// A memory region.
#[derive(Clone)]
pub struct Mr {
    sim: Arc<Sim>,
    node: usize,
    key: u32,
    state: Arc<parking_lot::Mutex<MrState>>,
}

struct MrState {
    pd: usize,
    addr: u64,
    length: u64,
    iova: u64,
    access: Access,
}

/// A memory window.
#[derive(Clone)]
pub struct Mw {
    pd: Handle,
    kind: MwType,
    rkey: Arc<AtomicU32>,
}

/// A queue pair.
#[derive(Clone)]
pub struct SimQpHandle {
    sim: Arc<Sim>,
    id: QpId,
}

impl Handle {
    fn new(sim: &Arc<Sim>, node: usize, index: usize) -> Handle {
        Handle { sim: sim.clone(), node, index }
    }

    fn check_same(&self, other: &Handle, what: &str) -> VerbsResult<()> {
        if self.node == other.node && Arc::ptr_eq(&self.sim, &other.sim) {
            return Ok(());
        }
        Err(VerbsError::invalid(format!("{what} belongs to another device")))
    }
}

fn busy(users: usize, what: &str) -> VerbsError {
    VerbsError::busy(format!("{users} objects use this {what}"))
}

impl Backend for SimBackend {
    type Context = Handle;
    type Pd = Handle;
    type Mr = Mr;
    type Mw = Mw;
    type Channel = Handle;
    type Cq = Handle;
    type Srq = Handle;
    type Qp = SimQpHandle;

    fn devices(&self) -> VerbsResult<Vec<DeviceInfo>> {
        let (name, dev_name) = (self.0.name.clone(), "uverbs0".to_owned());
        Ok(vec![DeviceInfo { name, dev_name, guid: device::guid_of(0), index: 0 }])
    }

    fn open(&self, _index: u32) -> VerbsResult<Handle> {
        Ok(Handle::new(&self.0, self.0.own_node(), 0))
    }

    fn close(_ctx: &Handle) -> VerbsResult<()> {
        Ok(())
    }

    fn query_device(ctx: &Handle) -> DeviceCaps {
        device::caps(ctx.node, &ctx.sim.parameters)
    }

    fn query_port(ctx: &Handle, port: u8) -> VerbsResult<PortInfo> {
        device::port(ctx.node, port, &ctx.sim.parameters)
    }

    fn query_gid(ctx: &Handle, port: u8, index: u32) -> VerbsResult<GidEntry> {
        device::check_port(port)?;
        device::gid_entry(ctx.node, index)
    }

    fn query_pkey(_ctx: &Handle, port: u8, index: u32) -> VerbsResult<PKey> {
        device::check_port(port)?;
        PKEY_TABLE.get(index as usize).copied().ok_or_else(|| {
            VerbsError::invalid(format!("P_Key index {index}: the table has one entry; choose 0"))
        })
    }

    fn wait_async_event(ctx: &Handle, until: Deadline) -> VerbsResult<AsyncEvent> {
        let next = || ctx.sim.with(|world| world.nodes[ctx.node].events.pop_front());
        let event = |(event_type, element)| AsyncEvent { event_type, element };
        let until = match until {
            Deadline::At(ns) => Some(Ps::from_whole_ns(ns)),
            Deadline::Now => Some(Ps::ZERO),
            Deadline::Never => None,
        };
        loop {
            if let Some(found) = next() {
                return Ok(event(found));
            }
            let now = ctx.sim.now();
            let is_over = ctx.sim.with(|world| world.stopped().is_some());
            let is_late = until.is_some_and(|until| now >= until);
            if is_late || is_over || ctx.sim.running().is_none() {
                return Err(VerbsError::new(VerbsError::EAGAIN, "no asynchronous event waits"));
            }
            let seen = ctx.sim.seen();
            let limit = until.map_or(LookLimit::Never, LookLimit::At);
            ctx.sim.look_again(seen, ctx.sim.parameters.memory_look_ns, limit);
        }
    }

    fn read_clock(ctx: &Handle) -> u64 {
        ctx.sim.now().whole_ns()
    }

    fn alloc_pd(ctx: &Handle) -> VerbsResult<Handle> {
        let index = ctx.sim.with(|world| {
            let node = &mut world.nodes[ctx.node];
            node.pds.push(Some(0));
            node.pds.len() - 1
        });
        ctx.sim.work_in_kernel(ctx.sim.parameters.verb_ns);
        Ok(Handle::new(&ctx.sim, ctx.node, index))
    }

    fn dealloc_pd(pd: &Handle) -> VerbsResult<()> {
        pd.sim.with(|world| match world.nodes[pd.node].pds[pd.index] {
            Some(0) => {
                world.nodes[pd.node].pds[pd.index] = None;
                Ok(())
            }
            Some(users) => Err(busy(users, "PD")),
            None => Err(gone("PD")),
        })
    }

    fn reg_mr(
        pd: &Handle,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> VerbsResult<(Mr, MrInfo)> {
        let want = NewMr { pd: pd.index, addr, length, iova, access };
        let key = control::reg_mr(&pd.sim, pd.node, &want)?;
        let state = MrState { pd: pd.index, addr, length, iova, access };
        let state = Arc::new(parking_lot::Mutex::new(state));
        let mr = Mr { sim: pd.sim.clone(), node: pd.node, key, state };
        Ok((mr, MrInfo { lkey: key, rkey: key }))
    }

    fn rereg_mr(mr: &Mr, change: MrChange<'_, Handle>) -> VerbsResult<MrInfo> {
        let want = {
            let state = mr.state.lock();
            let (addr, length) = change.translation.unwrap_or((state.addr, state.length));
            let iova = if change.translation.is_some() { addr } else { state.iova };
            let pd = change.pd.map_or(state.pd, |pd| pd.index);
            NewMr { pd, addr, length, iova, access: change.access.unwrap_or(state.access) }
        };
        control::rereg_mr(&mr.sim, mr.node, mr.key, &want)?;
        let NewMr { pd, addr, length, iova, access } = want;
        let before =
            std::mem::replace(&mut *mr.state.lock(), MrState { pd, addr, length, iova, access });
        mr.sim.with(|world| {
            use_pd(&mut world.nodes[mr.node], before.pd, -1);
            use_pd(&mut world.nodes[mr.node], pd, 1);
        });
        Ok(MrInfo { lkey: mr.key, rkey: mr.key })
    }

    fn dereg_mr(mr: &Mr) -> VerbsResult<()> {
        let pd = mr.state.lock().pd;
        control::dereg_mr(&mr.sim, mr.node, pd, mr.key)
    }

    fn advise_mr(pd: &Handle, advice: Advice, flush: bool, sges: &[Sge]) -> VerbsResult<()> {
        control::advise_mr(&pd.sim, (pd.node, pd.index), advice, flush, sges)
    }

    fn alloc_mw(pd: &Handle, mw_type: MwType) -> VerbsResult<(Mw, u32)> {
        let rkey = control::alloc_mw(&pd.sim, pd.node, pd.index, mw_type)?;
        let window = Mw { pd: pd.clone(), kind: mw_type, rkey: Arc::new(AtomicU32::new(rkey)) };
        Ok((window, rkey))
    }

    fn dealloc_mw(mw: &Mw) -> VerbsResult<()> {
        let key = mw.rkey.load(Ordering::Relaxed);
        mw.pd.sim.with(|world| {
            let node = &mut world.nodes[mw.pd.node];
            node.keys.remove(&key);
            node.bindings.remove(&key);
        });
        Ok(())
    }

    fn next_mw_rkey(mw: &Mw) -> u32 {
        let key = mw.rkey.load(Ordering::Relaxed);
        if mw.kind == MwType::Type2 {
            return key;
        }
        let next = (key & !0xff) | (key.wrapping_add(1) & 0xff);
        mw.rkey.store(next, Ordering::Relaxed);
        next
    }

    fn create_channel(ctx: &Handle) -> VerbsResult<Handle> {
        let index = ctx.sim.with(|world| {
            let node = &mut world.nodes[ctx.node];
            node.channels.push(Some(Channel::default()));
            node.channels.len() - 1
        });
        Ok(Handle::new(&ctx.sim, ctx.node, index))
    }

    fn wait_channel(channel: &Handle, until: Deadline) -> VerbsResult<u64> {
        let until = match until {
            Deadline::Now => Some(Ps::ZERO),
            Deadline::At(ns) => Some(Ps::from_whole_ns(ns)),
            Deadline::Never => None,
        };
        channel_wait::wait(&channel.sim, channel.node, channel.index, until)
            .ok_or_else(|| VerbsError::new(VerbsError::EAGAIN, "no completion event waits"))
    }

    fn destroy_channel(channel: &Handle) -> VerbsResult<()> {
        channel.sim.with(|world| {
            let place = &mut world.nodes[channel.node].channels[channel.index];
            match place.as_ref().map(|found| found.users) {
                Some(0) => {
                    *place = None;
                    Ok(())
                }
                Some(users) => Err(busy(users, "completion channel")),
                None => Err(gone("completion channel")),
            }
        })
    }

    fn create_cq(ctx: &Handle, init: CqInit<'_, Handle>) -> VerbsResult<(Handle, u32)> {
        if init.cqe == 0 {
            return Err(VerbsError::invalid("a CQ must hold at least one completion"));
        }
        check_limit("cqe", init.cqe, device::MAX_CQE)?;
        if let Some(channel) = init.channel {
            ctx.check_same(channel, "the completion channel")?;
        }
        let channel = init.channel.map(|channel| channel.index);
        let capacity = init.cqe as usize;
        let index = ctx.sim.with(|world| {
            let node = &mut world.nodes[ctx.node];
            if let Some(channel) = channel.and_then(|channel| node.channels[channel].as_mut()) {
                channel.users += 1;
            }
            let queue = CompletionQueue::new(capacity, channel, init.cookie, init.ignore_overrun);
            node.cqs.push(Some(queue));
            node.cqs.len() - 1
        });
        ctx.sim.work_in_kernel(ctx.sim.parameters.verb_ns);
        Ok((Handle::new(&ctx.sim, ctx.node, index), init.cqe))
    }

    fn resize_cq(cq: &Handle, cqe: u32) -> VerbsResult<u32> {
        check_limit("cqe", cqe, device::MAX_CQE)?;
        cq.sim.with(|world| {
            let queue = world.nodes[cq.node].cqs[cq.index].as_mut().ok_or_else(|| gone("CQ"))?;
            queue.capacity = cqe.max(1) as usize;
            Ok(cqe)
        })
    }

    fn destroy_cq(cq: &Handle) -> VerbsResult<()> {
        // Completions that the adapter writes now are in memory afterwards.
        let left = cq.sim.with(|world| {
            let queue = world.nodes[cq.node].cqs[cq.index].as_ref();
            queue.map_or(Ps::ZERO, |queue| queue.last - world.now)
        });
        cq.sim.work_in_kernel(left);
        cq.sim.with(|world| {
            let node = &mut world.nodes[cq.node];
            let Some(queue) = &node.cqs[cq.index] else { return Err(gone("CQ")) };
            if queue.users > 0 {
                return Err(busy(queue.users, "CQ"));
            }
            let (channel, cookie) = (queue.channel, queue.cookie);
            node.cqs[cq.index] = None;
            if let Some(channel) = channel {
                if let Some(found) = node.channels[channel].as_mut() {
                    found.users -= 1;
                }
                world.drop_events(cq.node, channel, cookie);
            }
            Ok(())
        })
    }

    fn poll_cq(cq: &Handle, out: &mut [MaybeUninit<Wc>]) -> VerbsResult<usize> {
        let mut taken = 0;
        poll(cq, out.len(), |cqe| {
            out[taken].write(cqe.wc);
            taken += 1;
        })
    }

    fn poll_cq_extended(cq: &Handle, _is_next: bool) -> VerbsResult<Option<ExtendedWc>> {
        let mut found = None;
        poll(cq, 1, |cqe| {
            found = Some(ExtendedWc { wc: cqe.wc, timestamp: cqe.at.whole_ns() });
        })?;
        Ok(found)
    }

    fn req_notify_cq(cq: &Handle, solicited_only: bool) -> VerbsResult<()> {
        cq.sim.work(cq.sim.parameters.arm_ns);
        cq.sim.with(|world| {
            let queue = world.nodes[cq.node].cqs[cq.index].as_mut().ok_or_else(|| gone("CQ"))?;
            queue.request_notify(solicited_only);
            Ok(())
        })
    }

    fn create_srq(pd: &Handle, init: SrqInit) -> VerbsResult<(Handle, SrqInfo)> {
        let (index, info) = control::create_srq(&pd.sim, pd.node, pd.index, init)?;
        Ok((Handle::new(&pd.sim, pd.node, index), info))
    }

    fn modify_srq(srq: &Handle, max_wr: Option<u32>, srq_limit: Option<u32>) -> VerbsResult<()> {
        srq.sim.with(|world| {
            let found =
                world.nodes[srq.node].srqs[srq.index].as_mut().ok_or_else(|| gone("SRQ"))?;
            if let Some(max_wr) = max_wr {
                check_limit("SRQ max_wr", max_wr, srq.sim.parameters.max_wr)?;
                let posted = found.queue.queue.len();
                if max_wr < posted {
                    let said = format!("SRQ max_wr {max_wr}: {posted} receives are posted");
                    return Err(VerbsError::invalid(said));
                }
                found.queue.queue = found.queue.queue.resized(max_wr);
                found.reader.resize(max_wr);
            }
            if let Some(limit) = srq_limit {
                check_limit("srq_limit", limit, found.queue.queue.capacity())?;
                found.queue.arm_limit(limit);
            }
            Ok(())
        })
    }

    fn query_srq(srq: &Handle) -> VerbsResult<SrqInfo> {
        srq.sim.with(|world| {
            let found =
                world.nodes[srq.node].srqs[srq.index].as_ref().ok_or_else(|| gone("SRQ"))?;
            Ok(SrqInfo {
                max_wr: found.queue.queue.capacity(),
                max_sge: found.max_sge,
                srq_limit: found.queue.limit(),
            })
        })
    }

    fn destroy_srq(srq: &Handle) -> VerbsResult<()> {
        srq.sim.with(|world| {
            let place = &mut world.nodes[srq.node].srqs[srq.index];
            match place.as_ref().map(|found| found.users) {
                Some(0) => {
                    *place = None;
                    Ok(())
                }
                Some(users) => Err(busy(users, "SRQ")),
                None => Err(gone("SRQ")),
            }
        })
    }

    fn post_srq_recv<'a>(
        srq: &Handle,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        work_queue::post_srq_recv(&srq.sim, srq.node, srq.index, wrs)
    }

    fn create_qp(
        pd: &Handle,
        init: QpInit<'_, Handle, Handle>,
    ) -> VerbsResult<(SimQpHandle, Qpn, QpCap)> {
        pd.check_same(init.send_cq, "the send CQ")?;
        pd.check_same(init.recv_cq, "the receive CQ")?;
        if let Some(srq) = init.srq {
            pd.check_same(srq, "the SRQ")?;
        }
        let want = NewQp {
            node: pd.node,
            pd: pd.index,
            qp_type: init.qp_type,
            send_cq: init.send_cq.index,
            recv_cq: init.recv_cq.index,
            srq: init.srq.map(|srq| srq.index),
            cap: init.cap,
            sq_sig_all: init.sq_sig_all,
            cookie: init.cookie,
        };
        let (id, qpn, cap) = control::create_qp(&pd.sim, &want)?;
        Ok((SimQpHandle { sim: pd.sim.clone(), id }, qpn, cap))
    }

    fn modify_qp(qp: &SimQpHandle, attr: &QpAttr, mask: QpAttrMask) -> VerbsResult<QpState> {
        control::modify_qp(&qp.sim, qp.id, attr, mask)
    }

    fn query_qp(qp: &SimQpHandle) -> VerbsResult<QpAttr> {
        let found = qp.sim.with(|world| world.nodes[qp.id.node].qp(qp.id).map(|qp| qp.qp.query()));
        found.ok_or_else(|| gone("QP"))
    }

    fn destroy_qp(qp: &SimQpHandle) -> VerbsResult<()> {
        control::destroy_qp(&qp.sim, qp.id)
    }

    fn post_send<'a>(
        qp: &SimQpHandle,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        work_queue::post_send(&qp.sim, qp.id, wrs, false)
    }

    fn post_send_all<'a>(
        qp: &SimQpHandle,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        work_queue::post_send(&qp.sim, qp.id, wrs, true)
    }

    fn post_recv<'a>(
        qp: &SimQpHandle,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        work_queue::post_recv(&qp.sim, qp.id, wrs)
    }

    fn attach_mcast(qp: &SimQpHandle, gid: Gid, _lid: u16) -> VerbsResult<()> {
        qp.sim.with(|world| {
            let found = world.nodes[qp.id.node].qp(qp.id).ok_or_else(|| gone("QP"))?;
            if !found.groups.contains(&gid) {
                found.groups.push(gid);
            }
            Ok(())
        })
    }

    fn detach_mcast(qp: &SimQpHandle, gid: Gid, _lid: u16) -> VerbsResult<()> {
        qp.sim.with(|world| {
            let found = world.nodes[qp.id.node].qp(qp.id).ok_or_else(|| gone("QP"))?;
            let Some(place) = found.groups.iter().position(|group| *group == gid) else {
                return Err(VerbsError::invalid("the QP is not attached to this group"));
            };
            found.groups.remove(place);
            Ok(())
        })
    }

    fn check_ah(_pd: &Handle, attr: &AhAttr) -> VerbsResult<()> {
        device::check_port(attr.port_num)
    }
}

/// Takes up to `most` visible completions.
fn poll(cq: &Handle, most: usize, mut take: impl FnMut(&Cqe)) -> VerbsResult<usize> {
    let all = &cq.sim.parameters;
    let _alone = cq.sim.lock_or_end(Protects::CompletionQueue(cq.node, cq.index));
    let (taken, is_overrun) = cq.sim.with(|world| {
        let node = &mut world.nodes[cq.node];
        let (mut taken, mut visible) = (0, 0);
        while taken < most {
            let Some(queue) = node.cqs[cq.index].as_mut() else { break };
            let Some(cqe) = queue.pop() else { break };
            if let Some((id, freed)) = cqe.frees
                && let Some(qp) = node.qp(id)
            {
                qp.freed = freed;
            }
            take(&cqe);
            if taken == 0 {
                visible = cqe.step;
            }
            taken += 1;
        }
        let is_overrun = node.cqs[cq.index].as_ref().is_some_and(|queue| queue.is_overrun);
        if taken > 0 {
            world.note_poll(cq.node, taken, visible);
        }
        (taken, is_overrun)
    });
    match taken {
        0 => cq.sim.work_in_vain(all.poll_empty_ns, IdleCall::Poll),
        _ => cq.sim.work(all.poll_hit_ns + all.poll_more_ns * (taken as u64 - 1)),
    }
    if taken > 0 {
        cq.sim.note(cq.node, Component::Poll, "the poll ends");
    }
    if taken == 0 && is_overrun {
        let said = "the CQ has overrun: completions are lost; make it larger, or poll more";
        return Err(VerbsError::new(VerbsError::EINVAL, said));
    }
    Ok(taken)
}
