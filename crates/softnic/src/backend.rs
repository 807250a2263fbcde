//! The soft devices as a [`Backend`]: each verb, in the order of the trait.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdmalab_engine::backend::*;
use rdmalab_engine::cq::Notify;
use rdmalab_engine::odp::Advice;
use rdmalab_engine::qp::recv_queue::SharedRecvQueue;
use rdmalab_engine::vocab::*;
use rdmalab_ring::biased::BiasedLock;
use rdmalab_wire::ids::{Gid, PKey, Qpn};

use crate::cancel::NoCancel;
use crate::context::ContextShared;
use crate::cq::{ChannelObject, CqObject};
use crate::device;
use crate::handles::{
    Channel, ChannelHandle, Context, Cq, CqHandle, Mr, Mw, Pd, SoftQp, Srq, alive, check_limit,
    limit_error,
};
use crate::lifecycle;
use crate::mr::{self, MrObject, MwObject};
use crate::pd::PdObject;
use crate::poll;
use crate::process::Process;
use crate::profile::{self, limits};
use crate::signals;
use crate::srq::SrqObject;
use crate::udp::check_address;

/// The soft RNIC.
pub struct SoftNic;

fn check_port(port: u8) -> VerbsResult<()> {
    if port != 1 {
        return Err(VerbsError::invalid(format!("port {port}: soft devices have one port, 1")));
    }
    Ok(())
}

impl ProcessBackend for SoftNic {
    fn of_process() -> Arc<SoftNic> {
        Arc::new(SoftNic)
    }
}

impl Backend for SoftNic {
    type Context = Context;
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Channel = Channel;
    type Cq = Cq;
    type Srq = Srq;
    type Qp = SoftQp;

    fn devices(&self) -> VerbsResult<Vec<DeviceInfo>> {
        device::personality()?;
        profile::named()?;
        Ok((0..device::count())
            .map(|index| DeviceInfo {
                name: format!("soft{index}"),
                dev_name: format!("uverbs{index}"),
                guid: device::guid_of(index),
                index,
            })
            .collect())
    }

    fn open(&self, index: u32) -> VerbsResult<Context> {
        if index >= device::count() {
            return Err(limit_error("device", index as u64, device::count() as u64 - 1));
        }
        device::personality()?;
        profile::named()?;
        let process = Process::get()?;
        let shared = ContextShared::open(index)?;
        process.counters.device_opened(&process.qps);
        Ok(Context { process, shared })
    }

    fn close(ctx: &Context) -> VerbsResult<()> {
        ctx.process.report_dropped();
        // Closing in a forked child does not concern the parent.
        if !ctx.process.is_defunct() {
            ctx.process.counters.device_closed(&ctx.process.qps);
        }
        // As in the kernel, this succeeds even if objects still exist: they keep the context, and
        // programs (for example perftest) close a device before they have destroyed everything.
        Ok(())
    }

    fn query_device(ctx: &Context) -> DeviceCaps {
        device::caps(ctx.shared.device)
    }

    fn query_port(ctx: &Context, port: u8) -> VerbsResult<PortInfo> {
        check_port(port)?;
        device::port(ctx.shared.device)
    }

    fn query_gid(ctx: &Context, port: u8, index: u32) -> VerbsResult<GidEntry> {
        check_port(port)?;
        device::gid_entry(ctx.shared.device, index)
    }

    fn query_pkey(_ctx: &Context, port: u8, index: u32) -> VerbsResult<PKey> {
        check_port(port)?;
        PKEY_TABLE.get(index as usize).copied().ok_or_else(|| {
            VerbsError::invalid(format!("P_Key index {index}: the table has one entry, 0"))
        })
    }

    fn async_fd(ctx: &Context) -> Option<RawFd> {
        Some(ctx.shared.async_fd())
    }

    fn wait_async_event(ctx: &Context, until: Deadline) -> VerbsResult<AsyncEvent> {
        ctx.shared.wait_event(until)
    }

    fn read_clock(_ctx: &Context) -> u64 {
        crate::clock::now_ns()
    }

    fn alloc_pd(ctx: &Context) -> VerbsResult<Pd> {
        ctx.process.check_usable()?;
        ctx.process.in_use.pds.take(device::MAX_PDS, "protection domains")?;
        let id = PdId(ctx.process.allocate_pd());
        Ok(Pd(Arc::new(PdObject::new(id, ctx.shared.clone())), ctx.process))
    }

    fn dealloc_pd(pd: &Pd) -> VerbsResult<()> {
        let objects = pd.0.objects();
        if objects > 0 && !pd.1.is_defunct() {
            return Err(VerbsError::busy(format!("{objects} objects use this PD")));
        }
        pd.0.context.remove_object();
        pd.1.in_use.pds.give_back();
        Ok(())
    }

    fn reg_mr(
        pd: &Pd,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> VerbsResult<(Mr, MrInfo)> {
        pd.1.check_usable()?;
        let (region, info) = MrObject::register(pd.1, &pd.0, addr, length, iova, access)?;
        Ok((Mr(region), info))
    }

    fn rereg_mr(mr: &Mr, change: MrChange<'_, Pd>) -> VerbsResult<MrInfo> {
        mr.0.process.check_usable()?;
        if change.pd.is_some_and(|pd| !mr.0.is_of(&pd.0.context)) {
            return Err(VerbsError::invalid("the protection domain belongs to another device"));
        }
        mr.0.reregister(MrChange {
            translation: change.translation,
            pd: change.pd.map(|pd| &pd.0),
            access: change.access,
        })
    }

    fn dereg_mr(mr: &Mr) -> VerbsResult<()> {
        if mr.0.process.is_defunct() {
            return Ok(());
        }
        mr.0.deregister()
    }

    fn advise_mr(pd: &Pd, advice: Advice, flush: bool, sges: &[Sge]) -> VerbsResult<()> {
        pd.1.check_usable()?;
        mr::advise(pd.1, pd.0.id, advice, flush, sges)
    }

    fn alloc_mw(pd: &Pd, mw_type: MwType) -> VerbsResult<(Mw, u32)> {
        pd.1.check_usable()?;
        let window = MwObject::allocate(pd.1, &pd.0, mw_type)?;
        let rkey = window.rkey.load(Ordering::Acquire);
        Ok((Mw(window), rkey))
    }

    fn dealloc_mw(mw: &Mw) -> VerbsResult<()> {
        if mw.0.process.is_defunct() {
            return Ok(());
        }
        mw.0.deallocate()
    }

    fn next_mw_rkey(mw: &Mw) -> u32 {
        match mw.0.mw_type {
            MwType::Type1 => mw.0.advance_rkey(),
            MwType::Type2 => mw.0.rkey.load(Ordering::Acquire),
        }
    }

    fn create_channel(ctx: &Context) -> VerbsResult<Channel> {
        ctx.process.check_usable()?;
        let channel = Arc::new(ChannelObject::new()?);
        ctx.shared.add_object();
        Ok(Channel(Arc::new(ChannelHandle {
            channel,
            process: ctx.process,
            context: ctx.shared.clone(),
        })))
    }

    fn channel_fd(channel: &Channel) -> Option<RawFd> {
        Some(channel.0.channel.fd())
    }

    fn wait_channel(channel: &Channel, until: Deadline) -> VerbsResult<u64> {
        let (process, channel) = (channel.0.process, &channel.0.channel);
        process.check_usable()?;
        let no_cancel = NoCancel::new();
        loop {
            if let Some(cookie) = channel.try_next() {
                return Ok(cookie);
            }
            caught(|| {
                process.caller_progress();
            })?;
            if let Some(cookie) = channel.try_next() {
                return Ok(cookie);
            }
            let Some(limit_ms) = poll::limit_ms(until) else {
                return Err(VerbsError::new(VerbsError::EAGAIN, "no completion event waits"));
            };
            caught(|| process.before_wait())?;
            let interrupted = process.wait_as_caller(channel.fd(), limit_ms, &no_cancel);
            caught(|| process.after_wait())?;
            if interrupted && signals::interrupts_waits() {
                // The event may have come just then.
                return channel.try_next().ok_or_else(signals::interrupted);
            }
        }
    }

    fn destroy_channel(channel: &Channel) -> VerbsResult<()> {
        let users = channel.0.channel.users.load(Ordering::Acquire);
        if users > 0 && !channel.0.process.is_defunct() {
            return Err(VerbsError::busy(format!("{users} CQs use this completion channel")));
        }
        channel.0.context.remove_object();
        Ok(())
    }

    fn create_cq(ctx: &Context, init: CqInit<'_, Channel>) -> VerbsResult<(Cq, u32)> {
        ctx.process.check_usable()?;
        if init.cqe == 0 {
            return Err(VerbsError::invalid("a CQ must hold at least one completion"));
        }
        check_limit("cqe", init.cqe, limits().max_cqe)?;
        if let Some(channel) = init.channel {
            ctx.shared.check_owns(&channel.0.context, "the completion channel")?;
        }
        let channel = init.channel.map(|channel| channel.0.channel.clone());
        let in_use = &ctx.process.in_use.cqs;
        in_use.take(device::MAX_CQS, "completion queues")?;
        let cq = Arc::new(
            CqObject::new(
                ctx.shared.clone(),
                init.cqe,
                channel,
                init.timestamps,
                init.ignore_overrun,
                init.cookie,
            )
            .inspect_err(|_| in_use.give_back())?,
        );
        ctx.shared.add_object();
        let (process, context) = (ctx.process, ctx.shared.clone());
        Ok((Cq(Arc::new(CqHandle { cq, process, context })), init.cqe))
    }

    fn resize_cq(cq: &Cq, cqe: u32) -> VerbsResult<u32> {
        if cqe == 0 {
            return Err(VerbsError::invalid("a CQ must hold at least one completion"));
        }
        check_limit("cqe", cqe, limits().max_cqe)?;
        cq.0.cq.resize(cqe)?;
        Ok(cqe)
    }

    fn destroy_cq(cq: &Cq) -> VerbsResult<()> {
        if cq.0.process.is_defunct() {
            // The channel's descriptor counts events of the parent.
            return Ok(());
        }
        let users = cq.0.cq.users.load(Ordering::Acquire);
        if users > 0 {
            return Err(VerbsError::busy(format!("{users} QPs use this CQ")));
        }
        cq.0.cq.detach_channel();
        cq.0.context.forget(cq.0.cq.cookie);
        cq.0.context.remove_object();
        cq.0.process.in_use.cqs.give_back();
        Ok(())
    }

    #[inline]
    fn poll_cq(cq: &Cq, out: &mut [MaybeUninit<Wc>]) -> VerbsResult<usize> {
        let (queue, process) = (&cq.0.cq, cq.0.process);
        if queue.is_empty() {
            if process.is_defunct() {
                return process.check_usable().map(|()| 0);
            }
            process.idle_poll(process.caller_progress());
            if queue.is_empty() {
                return if queue.is_overrun() { overrun() } else { Ok(0) };
            }
        }
        let mut index = 0;
        let taken = queue.pop_each(out.len(), |cqe| {
            out[index].write(cqe.wc);
            index += 1;
        });
        Ok(taken)
    }

    #[inline]
    fn poll_cq_extended(cq: &Cq, is_next: bool) -> VerbsResult<Option<ExtendedWc>> {
        let (queue, process) = (&cq.0.cq, cq.0.process);
        let mut found = None;
        for attempt in 0..2 {
            queue.pop_each(1, |cqe| {
                found = Some(ExtendedWc { wc: cqe.wc, timestamp: cqe.timestamp });
            });
            if found.is_some() || is_next || attempt == 1 {
                break;
            }
            process.check_usable()?;
            process.idle_poll(process.caller_progress());
        }
        if found.is_none() && queue.is_overrun() {
            return overrun();
        }
        Ok(found)
    }

    fn req_notify_cq(cq: &Cq, solicited_only: bool) -> VerbsResult<()> {
        let notify = if solicited_only { Notify::Solicited } else { Notify::Any };
        cq.0.cq.request_notify(notify);
        if cq.0.cq.has_channel() && !cq.0.process.is_defunct() {
            cq.0.process.arm_for_sleeper();
        }
        Ok(())
    }

    fn create_srq(pd: &Pd, init: SrqInit) -> VerbsResult<(Srq, SrqInfo)> {
        pd.1.check_usable()?;
        check_limit("SRQ max_wr", init.max_wr, limits().max_srq_wr)?;
        check_limit("SRQ max_sge", init.max_sge, limits().max_srq_sge)?;
        pd.1.in_use.srqs.take(device::MAX_SRQS, "shared receive queues")?;
        let queue = SharedRecvQueue::new(pd.0.id, init.max_wr, init.max_sge.max(1), init.srq_limit);
        let srq = SrqObject {
            queue: BiasedLock::new(queue),
            pd: pd.0.clone(),
            max_sge: init.max_sge.max(1),
            cookie: init.cookie,
            users: AtomicUsize::new(0),
        };
        pd.0.add_object();
        let info = SrqInfo {
            max_wr: init.max_wr,
            max_sge: init.max_sge.max(1),
            srq_limit: init.srq_limit,
        };
        Ok((Srq(Arc::new(srq), pd.1), info))
    }

    fn modify_srq(srq: &Srq, max_wr: Option<u32>, srq_limit: Option<u32>) -> VerbsResult<()> {
        srq.1.check_usable()?;
        let mut queue = srq.0.queue.lock();
        if let Some(max_wr) = max_wr {
            check_limit("SRQ max_wr", max_wr, limits().max_srq_wr)?;
            if max_wr < queue.queue.len() {
                let posted = queue.queue.len();
                return Err(VerbsError::invalid(format!(
                    "SRQ max_wr {max_wr}: {posted} receives are posted"
                )));
            }
            queue.queue = queue.queue.resized(max_wr);
        }
        if let Some(limit) = srq_limit {
            check_limit("srq_limit", limit, queue.queue.capacity())?;
            queue.arm_limit(limit);
        }
        Ok(())
    }

    fn query_srq(srq: &Srq) -> VerbsResult<SrqInfo> {
        srq.1.check_usable()?;
        let queue = srq.0.queue.lock();
        Ok(SrqInfo {
            max_wr: queue.queue.capacity(),
            max_sge: srq.0.max_sge,
            srq_limit: queue.limit(),
        })
    }

    fn destroy_srq(srq: &Srq) -> VerbsResult<()> {
        let users = srq.0.users.load(Ordering::Acquire);
        if users > 0 && !srq.1.is_defunct() {
            return Err(VerbsError::busy(format!("{users} QPs use this SRQ")));
        }
        srq.0.pd.context.forget(srq.0.cookie);
        srq.0.pd.remove_object();
        srq.1.in_use.srqs.give_back();
        Ok(())
    }

    fn post_srq_recv<'a>(
        srq: &Srq,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        if srq.1.is_defunct() {
            return Err((0, PostError::BadState));
        }
        let queue = &mut srq.0.queue.lock().queue;
        let posted = each(wrs, |wr| queue.push(wr));
        queue.fetch_all();
        posted
    }

    fn create_qp(pd: &Pd, init: QpInit<'_, Cq, Srq>) -> VerbsResult<(SoftQp, Qpn, QpCap)> {
        lifecycle::create(pd, init)
    }

    fn modify_qp(qp: &SoftQp, attr: &QpAttr, mask: QpAttrMask) -> VerbsResult<QpState> {
        lifecycle::modify(qp, attr, mask)
    }

    fn query_qp(qp: &SoftQp) -> VerbsResult<QpAttr> {
        qp.0.process.check_usable()?;
        let mut guard = qp.0.inner.lock();
        Ok(alive(&mut guard, qp.1)?.qp.query())
    }

    fn destroy_qp(qp: &SoftQp) -> VerbsResult<()> {
        lifecycle::destroy(qp)
    }

    #[inline]
    fn post_send<'a>(
        qp: &SoftQp,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        if qp.0.process.is_defunct() {
            return Err((0, PostError::BadState));
        }
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1).map_err(|_| (0, PostError::BadState))?;
        let freed = qp.0.sq_freed.load(Ordering::Acquire);
        let posted = each(wrs, |wr| inner.post_one(wr, freed));
        inner.start_sending();
        posted
    }

    #[inline]
    fn post_send_all<'a>(
        qp: &SoftQp,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        if qp.0.process.is_defunct() {
            return Err((0, PostError::BadState));
        }
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1).map_err(|_| (0, PostError::BadState))?;
        let freed = qp.0.sq_freed.load(Ordering::Acquire);
        let before = inner.qp.sq.posted;
        let posted = each(wrs, |wr| inner.post_one(wr, freed));
        match posted {
            Ok(()) => inner.start_sending(),
            Err(_) => inner.qp.sq.unpush_to(before),
        }
        posted
    }

    #[inline]
    fn post_recv<'a>(
        qp: &SoftQp,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        if qp.0.process.is_defunct() {
            return Err((0, PostError::BadState));
        }
        let mut guard = qp.0.inner.lock();
        let inner = alive(&mut guard, qp.1).map_err(|_| (0, PostError::BadState))?;
        let posted = each(wrs, |wr| inner.qp.post_recv(wr));
        inner.qp.fetch_receives();
        if inner.qp.state == QpState::Err {
            inner.qp.flush_receives(&mut inner.links);
        }
        posted
    }

    fn attach_mcast(qp: &SoftQp, gid: Gid, _lid: u16) -> VerbsResult<()> {
        let process = qp.0.process;
        process.check_usable()?;
        if alive(&mut qp.0.inner.lock(), qp.1)?.qp.qp_type != QpType::Ud {
            return Err(VerbsError::invalid("only UD QPs can join multicast groups"));
        }
        // This may wait for other processes, so the QP is not locked meanwhile.
        process.host.exchange_hellos();
        let mut guard = qp.0.inner.lock();
        alive(&mut guard, qp.1)?;
        process.groups.join(gid, qp.1, || process.network.join(gid))
    }

    fn detach_mcast(qp: &SoftQp, gid: Gid, _lid: u16) -> VerbsResult<()> {
        qp.0.process.check_usable()?;
        let mut guard = qp.0.inner.lock();
        let process = alive(&mut guard, qp.1)?.links.process;
        process.groups.leave(gid, qp.1, |gid| process.network.leave(gid))
    }

    fn check_ah(pd: &Pd, attr: &AhAttr) -> VerbsResult<()> {
        pd.1.check_usable()?;
        check_port(attr.port_num)?;
        check_address(pd.1.network(), attr)?;
        let ethernet = device::personality()? == device::Personality::Ethernet;
        if ethernet && !attr.is_global {
            return Err(VerbsError::invalid(
                "the port's link layer is Ethernet: address by GID (is_global, grh.dgid), or run \
                 with the InfiniBand personality to use LIDs",
            ));
        }
        if attr.sl > 15 {
            return Err(limit_error("sl", attr.sl as u64, 15));
        }
        Ok(())
    }
}

/// Posts work requests until one is refused; returns the index of that one, and the reason.
#[inline(always)]
fn each<W>(
    wrs: impl Iterator<Item = W>,
    mut post: impl FnMut(&W) -> Result<(), PostError>,
) -> Result<(), (usize, PostError)> {
    for (index, wr) in wrs.enumerate() {
        post(&wr).map_err(|error| (index, error))?;
    }
    Ok(())
}

/// Runs a part of a cancellable verb and catches panics in it. The whole verb cannot catch panics,
/// because that would catch the cancellation as well.
fn caught(part: impl FnOnce()) -> VerbsResult<()> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).map_err(|_| {
        VerbsError::new(libc::EIO, "a fault inside the soft device; see standard error")
    })
}

#[cold]
fn overrun<T>() -> VerbsResult<T> {
    Err(VerbsError::invalid(
        "the CQ overflowed and lost completions: create it with room for every signalled request \
         and receive of its QPs",
    ))
}
