//! A simple backend in memory, within the process, which completes everything at once.
//!
//! It serves to test the C interface. It does not model an adapter: it has no packets, timers or
//! retries.

pub mod objects;
mod transport;

use core::mem::MaybeUninit;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_wire::ids::{Gid, PKey, Qpn};

use objects::*;

/// The port's only GID.
pub const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 1, 2, 0xff, 0xfe, 3, 4, 5];
/// The port's LID.
pub const LID: u16 = 0x1234;
/// The device's GUID.
pub const GUID: u64 = 0x0201_02ff_fe03_0405;

/// The backend.
pub struct Mock {
    /// The first part of its devices' names; the number follows.
    pub name: &'static str,
    /// The number of devices.
    pub count: u32,
    /// Whether events have file descriptors. Waiting works without them.
    pub has_descriptors: bool,
}

impl ProcessBackend for Mock {
    fn of_process() -> Arc<Self> {
        Arc::new(Mock { name: "mock", count: 2, has_descriptors: true })
    }
}

fn gone<T>(what: &str) -> VerbsResult<T> {
    Err(VerbsError::invalid(format!("no such {what}")))
}

fn push_posts<'a>(
    queue: &mut VecDeque<Posted>,
    max_wr: u32,
    max_sge: u32,
    wrs: impl Iterator<Item = RecvWr<'a>>,
) -> Result<(), (usize, PostError)> {
    for (taken, wr) in wrs.enumerate() {
        if wr.sges.len() > max_sge as usize {
            return Err((taken, PostError::TooManySges));
        }
        if queue.len() == max_wr as usize {
            return Err((taken, PostError::QueueFull));
        }
        queue.push_back(Posted { wr_id: wr.wr_id, sges: wr.sges.to_vec() });
    }
    Ok(())
}

impl Backend for Mock {
    type Context = Arc<Ctx>;
    type Pd = Arc<Pd>;
    type Mr = Arc<Mr>;
    type Mw = Arc<Mw>;
    type Channel = Arc<Channel>;
    type Cq = Arc<Cq>;
    type Srq = Arc<Srq>;
    type Qp = Arc<Qp>;

    fn devices(&self) -> VerbsResult<Vec<DeviceInfo>> {
        let device = |index: u32| DeviceInfo {
            name: format!("{}{index}", self.name),
            dev_name: format!("uverbs{index}"),
            guid: GUID + u64::from(index),
            index,
        };
        Ok((0..self.count).map(device).collect())
    }

    fn open(&self, index: u32) -> VerbsResult<Arc<Ctx>> {
        if index >= self.count {
            return Err(VerbsError::new(VerbsError::ENODEV, "no such device"));
        }
        Ok(Arc::new(Ctx { users: Users::default(), events: Waiting::new(self.has_descriptors) }))
    }

    fn close(ctx: &Arc<Ctx>) -> VerbsResult<()> {
        ctx.users.none()
    }

    fn query_device(_: &Arc<Ctx>) -> DeviceCaps {
        DeviceCaps {
            fw_ver: "1.2.3".into(),
            node_guid: GUID,
            sys_image_guid: GUID,
            max_mr_size: 1 << 40,
            page_size_cap: 4096,
            vendor_id: 0x1234,
            vendor_part_id: 5,
            hw_ver: 1,
            max_qp: 100,
            max_qp_wr: 64,
            device_cap_flags: 0,
            max_sge: 4,
            max_sge_rd: 4,
            max_cq: 100,
            max_cqe: 1000,
            max_mr: 100,
            max_pd: 100,
            max_qp_rd_atom: 16,
            max_res_rd_atom: 1600,
            max_qp_init_rd_atom: 16,
            atomic_cap: 1,
            max_mw: 100,
            max_mcast_grp: 10,
            max_mcast_qp_attach: 10,
            max_total_mcast_qp_attach: 100,
            max_ah: u32::MAX,
            max_srq: 10,
            max_srq_wr: 64,
            max_srq_sge: 4,
            max_pkeys: 1,
            local_ca_ack_delay: 15,
            phys_port_cnt: 1,
            max_inline_data: 64,
            completion_timestamp_mask: u64::MAX,
            hca_core_clock_khz: 1_000_000,
            odp: rdmalab_engine::odp::OdpCaps::default(),
        }
    }

    fn query_port(_: &Arc<Ctx>, port: u8) -> VerbsResult<PortInfo> {
        if port != 1 {
            return gone("port");
        }
        Ok(PortInfo {
            active: true,
            max_mtu: 5,
            active_mtu: 5,
            gid_tbl_len: 3,
            port_cap_flags: 0x77,
            max_msg_sz: 1 << 31,
            pkey_tbl_len: 1,
            lid: LID,
            sm_lid: 1,
            lmc: 0,
            max_vl_num: 1,
            active_width: 2,
            active_speed: 16,
            phys_state: 5,
            link_layer: LinkLayer::InfiniBand,
        })
    }

    /// The table has a hole at index 0, so that index and count differ.
    fn query_gid(_: &Arc<Ctx>, port: u8, index: u32) -> VerbsResult<GidEntry> {
        match (port, index) {
            (1, 1) => Ok(GidEntry { gid: Gid(GID), gid_type: GidType::RoceV2, ifindex: 7 }),
            _ => Err(VerbsError::new(libc::ENODATA, "no such entry")),
        }
    }

    fn query_pkey(_: &Arc<Ctx>, port: u8, index: u32) -> VerbsResult<PKey> {
        if (port, index) == (1, 0) { Ok(PKey(0x8001)) } else { gone("P_Key") }
    }

    fn async_fd(ctx: &Arc<Ctx>) -> Option<RawFd> {
        ctx.events.fd()
    }

    fn wait_async_event(ctx: &Arc<Ctx>, until: Deadline) -> VerbsResult<AsyncEvent> {
        ctx.events.take(until)
    }

    fn read_clock(_: &Arc<Ctx>) -> u64 {
        tick()
    }

    fn alloc_pd(ctx: &Arc<Ctx>) -> VerbsResult<Arc<Pd>> {
        ctx.users.add();
        Ok(Arc::new(Pd { ctx: Arc::clone(ctx), users: Users::default() }))
    }

    fn dealloc_pd(pd: &Arc<Pd>) -> VerbsResult<()> {
        pd.users.none()?;
        pd.ctx.users.remove();
        Ok(())
    }

    fn reg_mr(
        pd: &Arc<Pd>,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> VerbsResult<(Arc<Mr>, MrInfo)> {
        if length == 0 {
            return Err(VerbsError::invalid("a region of 0 bytes"));
        }
        let key = fresh() << 8;
        let region = Region { addr, length, iova, access: access.0 };
        lock(&WORLD).regions.insert(key >> 8, (key, region));
        pd.users.add();
        let mr = Mr { pd: Mutex::new(Arc::clone(pd)), key };
        Ok((Arc::new(mr), MrInfo { lkey: key, rkey: key }))
    }

    fn rereg_mr(mr: &Arc<Mr>, change: MrChange<'_, Arc<Pd>>) -> VerbsResult<MrInfo> {
        let mut world = lock(&WORLD);
        let Some((key, region)) = world.regions.get_mut(&(mr.key >> 8)) else {
            return gone("region");
        };
        if let Some((addr, length)) = change.translation {
            (region.addr, region.length, region.iova) = (addr, length, addr);
        }
        if let Some(access) = change.access {
            region.access = access.0;
        }
        if let Some(pd) = change.pd {
            let mut present = lock(&mr.pd);
            pd.users.add();
            present.users.remove();
            *present = Arc::clone(pd);
        }
        // The key changes, so that a test can see the new one.
        *key += 1;
        Ok(MrInfo { lkey: *key, rkey: *key })
    }

    fn dereg_mr(mr: &Arc<Mr>) -> VerbsResult<()> {
        lock(&WORLD).regions.remove(&(mr.key >> 8));
        lock(&mr.pd).users.remove();
        Ok(())
    }

    fn alloc_mw(pd: &Arc<Pd>, _: MwType) -> VerbsResult<(Arc<Mw>, u32)> {
        let key = fresh() << 8;
        pd.users.add();
        Ok((Arc::new(Mw { pd: Arc::clone(pd), key: AtomicU32::new(key) }), key))
    }

    fn dealloc_mw(mw: &Arc<Mw>) -> VerbsResult<()> {
        lock(&WORLD).regions.remove(&(mw.key.load(Ordering::SeqCst) >> 8));
        mw.pd.users.remove();
        Ok(())
    }

    fn next_mw_rkey(mw: &Arc<Mw>) -> u32 {
        transport::next_key(mw)
    }

    fn create_channel(ctx: &Arc<Ctx>) -> VerbsResult<Arc<Channel>> {
        ctx.users.add();
        let (users, waiting) = (Users::default(), Waiting::new(ctx.events.fd().is_some()));
        Ok(Arc::new(Channel { ctx: Arc::clone(ctx), users, waiting }))
    }

    fn channel_fd(channel: &Arc<Channel>) -> Option<RawFd> {
        channel.waiting.fd()
    }

    fn wait_channel(channel: &Arc<Channel>, until: Deadline) -> VerbsResult<u64> {
        channel.waiting.take(until)
    }

    fn destroy_channel(channel: &Arc<Channel>) -> VerbsResult<()> {
        channel.users.none()?;
        channel.ctx.users.remove();
        Ok(())
    }

    fn create_cq(ctx: &Arc<Ctx>, init: CqInit<'_, Arc<Channel>>) -> VerbsResult<(Arc<Cq>, u32)> {
        if init.cqe > 1000 {
            return Err(VerbsError::invalid("more than max_cqe, which is 1000"));
        }
        ctx.users.add();
        if let Some(channel) = init.channel {
            channel.users.add();
        }
        let capacity = init.cqe.next_power_of_two();
        let (armed, failed, entries) = (Armed::No, false, VecDeque::new());
        let cq = Cq {
            ctx: Arc::clone(ctx),
            users: Users::default(),
            channel: init.channel.cloned(),
            cookie: init.cookie,
            timestamps: init.timestamps,
            ignore_overrun: init.ignore_overrun,
            state: Mutex::new(CqState { capacity, armed, failed, entries }),
        };
        Ok((Arc::new(cq), capacity))
    }

    fn resize_cq(cq: &Arc<Cq>, cqe: u32) -> VerbsResult<u32> {
        let mut state = lock(&cq.state);
        if (cqe as usize) < state.entries.len() {
            return Err(VerbsError::invalid("it holds more than that"));
        }
        state.capacity = cqe.next_power_of_two();
        Ok(state.capacity)
    }

    /// Leaves queued events in the channel, so that the provider must recognise them.
    fn destroy_cq(cq: &Arc<Cq>) -> VerbsResult<()> {
        cq.users.none()?;
        cq.ctx.users.remove();
        if let Some(channel) = &cq.channel {
            channel.users.remove();
        }
        Ok(())
    }

    fn poll_cq(cq: &Arc<Cq>, out: &mut [MaybeUninit<Wc>]) -> VerbsResult<usize> {
        for (taken, slot) in out.iter_mut().enumerate() {
            match cq.pop()? {
                Some(cqe) => slot.write(cqe.wc),
                None => return Ok(taken),
            };
        }
        Ok(out.len())
    }

    fn poll_cq_extended(cq: &Arc<Cq>, _is_next: bool) -> VerbsResult<Option<ExtendedWc>> {
        Ok(cq.pop()?.map(|cqe| ExtendedWc { wc: cqe.wc, timestamp: cqe.timestamp }))
    }

    fn req_notify_cq(cq: &Arc<Cq>, solicited_only: bool) -> VerbsResult<()> {
        let armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        lock(&cq.state).armed = armed;
        Ok(())
    }

    fn create_srq(pd: &Arc<Pd>, init: SrqInit) -> VerbsResult<(Arc<Srq>, SrqInfo)> {
        if init.max_wr > 64 {
            return Err(VerbsError::invalid("more than max_srq_wr, which is 64"));
        }
        pd.users.add();
        let (max_wr, max_sge) = (init.max_wr.next_power_of_two(), 4);
        let srq = Srq {
            pd: Arc::clone(pd),
            users: Users::default(),
            cookie: init.cookie,
            max_sge,
            state: Mutex::new(SrqState { max_wr, limit: init.srq_limit, posted: VecDeque::new() }),
        };
        Ok((Arc::new(srq), SrqInfo { max_wr, max_sge, srq_limit: init.srq_limit }))
    }

    fn modify_srq(srq: &Arc<Srq>, max_wr: Option<u32>, limit: Option<u32>) -> VerbsResult<()> {
        let mut state = lock(&srq.state);
        state.max_wr = max_wr.unwrap_or(state.max_wr);
        state.limit = limit.unwrap_or(state.limit);
        Ok(())
    }

    fn query_srq(srq: &Arc<Srq>) -> VerbsResult<SrqInfo> {
        let state = lock(&srq.state);
        Ok(SrqInfo { max_wr: state.max_wr, max_sge: srq.max_sge, srq_limit: state.limit })
    }

    fn destroy_srq(srq: &Arc<Srq>) -> VerbsResult<()> {
        srq.users.none()?;
        srq.pd.users.remove();
        Ok(())
    }

    fn post_srq_recv<'a>(
        srq: &Arc<Srq>,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        let mut state = lock(&srq.state);
        let max_wr = state.max_wr;
        push_posts(&mut state.posted, max_wr, srq.max_sge, wrs)
    }

    fn create_qp(
        pd: &Arc<Pd>,
        init: QpInit<'_, Arc<Cq>, Arc<Srq>>,
    ) -> VerbsResult<(Arc<Qp>, Qpn, QpCap)> {
        if init.cap.max_send_wr > 64 || init.cap.max_inline_data > 64 {
            return Err(VerbsError::invalid("more than the device has (64)"));
        }
        let mut cap = init.cap;
        cap.max_inline_data = 64;
        cap.max_send_sge = cap.max_send_sge.max(2);
        let attr = QpAttr { cap, ..QpAttr::default() };
        let (sq_used, unsignalled, groups) = (0, 0, Vec::new());
        let qpn = fresh();
        let qp = Arc::new(Qp {
            pd: Arc::clone(pd),
            qp_type: init.qp_type,
            qpn,
            send_cq: Arc::clone(init.send_cq),
            recv_cq: Arc::clone(init.recv_cq),
            srq: init.srq.cloned(),
            cap,
            sq_sig_all: init.sq_sig_all,
            cookie: init.cookie,
            state: Mutex::new(QpInside {
                attr,
                posted: VecDeque::new(),
                sq_used,
                unsignalled,
                groups,
            }),
        });
        pd.users.add();
        qp.send_cq.users.add();
        qp.recv_cq.users.add();
        if let Some(srq) = &qp.srq {
            srq.users.add();
        }
        lock(&WORLD).qps.insert(qpn, Arc::clone(&qp));
        Ok((qp, Qpn::new(qpn), cap))
    }

    /// Accepts every attribute; ERR is allowed from any state, otherwise only the next state.
    fn modify_qp(qp: &Arc<Qp>, attr: &QpAttr, mask: QpAttrMask) -> VerbsResult<QpState> {
        use QpState as S;
        let mut state = lock(&qp.state);
        let to = if mask.contains(QpAttrMask::STATE) { attr.qp_state } else { state.attr.qp_state };
        let from = state.attr.qp_state;
        let is_step = to as u32 == from as u32 + 1 && to as u32 <= S::Rts as u32;
        if to != from && !is_step && to != S::Err && to != S::Reset {
            return Err(VerbsError::invalid(format!("from {from:?} to {to:?}")));
        }
        let cap = state.attr.cap;
        if mask.contains(QpAttrMask::DEST_QPN) {
            state.attr.dest_qp_num = attr.dest_qp_num;
        }
        if mask.contains(QpAttrMask::QKEY) {
            state.attr.qkey = attr.qkey;
        }
        if mask.contains(QpAttrMask::TIMEOUT) {
            state.attr.timeout = attr.timeout;
        }
        (state.attr.qp_state, state.attr.cur_qp_state, state.attr.cap) = (to, to, cap);
        drop(state);
        if to == S::Err && from != S::Err {
            transport::flush(qp);
        }
        Ok(to)
    }

    fn query_qp(qp: &Arc<Qp>) -> VerbsResult<QpAttr> {
        Ok(lock(&qp.state).attr)
    }

    fn destroy_qp(qp: &Arc<Qp>) -> VerbsResult<()> {
        if !lock(&qp.state).groups.is_empty() {
            return Err(VerbsError::busy("it is in a multicast group"));
        }
        lock(&WORLD).qps.remove(&qp.qpn);
        for cq in [&qp.send_cq, &qp.recv_cq] {
            lock(&cq.state).entries.retain(|cqe| cqe.wc.qp_num != qp.qpn);
            cq.users.remove();
        }
        if let Some(srq) = &qp.srq {
            srq.users.remove();
        }
        qp.pd.users.remove();
        Ok(())
    }

    fn post_send<'a>(
        qp: &Arc<Qp>,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        let mut world = lock(&WORLD);
        for (taken, wr) in wrs.enumerate() {
            transport::check(qp, &wr).map_err(|error| (taken, error))?;
            transport::execute(&mut world, qp, &wr);
        }
        Ok(())
    }

    fn post_send_all<'a>(
        qp: &Arc<Qp>,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        let wrs: Vec<_> = wrs.collect();
        let free = qp.cap.max_send_wr - lock(&qp.state).sq_used;
        for (index, wr) in wrs.iter().enumerate() {
            transport::check(qp, wr).map_err(|error| (index, error))?;
            if index >= free as usize {
                return Err((index, PostError::QueueFull));
            }
        }
        Self::post_send(qp, wrs.into_iter())
    }

    fn post_recv<'a>(
        qp: &Arc<Qp>,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)> {
        let mut state = lock(&qp.state);
        if qp.srq.is_some() || state.attr.qp_state == QpState::Reset {
            return Err((0, PostError::BadState));
        }
        push_posts(&mut state.posted, qp.cap.max_recv_wr, qp.cap.max_recv_sge, wrs)
    }

    fn attach_mcast(qp: &Arc<Qp>, gid: Gid, _: u16) -> VerbsResult<()> {
        if qp.qp_type != QpType::Ud || !gid.is_multicast() {
            return Err(VerbsError::invalid("a UD QP and a multicast GID"));
        }
        lock(&qp.state).groups.push(gid);
        Ok(())
    }

    fn detach_mcast(qp: &Arc<Qp>, gid: Gid, _: u16) -> VerbsResult<()> {
        let mut state = lock(&qp.state);
        match state.groups.iter().position(|g| *g == gid) {
            Some(at) => {
                state.groups.remove(at);
                Ok(())
            }
            None => gone("group"),
        }
    }

    fn check_ah(_: &Arc<Pd>, attr: &AhAttr) -> VerbsResult<()> {
        if attr.port_num == 1 { Ok(()) } else { gone("port") }
    }
}
