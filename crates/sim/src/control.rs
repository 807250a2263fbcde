//! The verbs that make, change and destroy objects.

use std::collections::VecDeque;

use rdmalab_engine::backend::*;
use rdmalab_engine::mr::{self, Backing, KeyEntry, KeyKind};
use rdmalab_engine::odp::{self, Advice, PAGE_BYTES};
use rdmalab_engine::qp::Qp;
use rdmalab_engine::qp::recv_queue::SharedRecvQueue;
use rdmalab_engine::vocab::*;
use rdmalab_engine::window;
use rdmalab_link::quirk::damming::Service;
use rdmalab_link::transmissions::REMEMBERED;
use rdmalab_wire::ids::Qpn;

use crate::adapter::{Node, SimQp, Srq};
use crate::device::{self, MAX_KEYS};
use crate::ids::{QP_BITS, QpId};
use crate::kernel::{Sim, World};
use crate::receive_wqe::WqeReader;
use crate::sending::Sending;
use crate::time::Ps;

/// How often a wait for prefetched pages looks.
const LOOK: Ps = Ps::from_whole_ns(1000);

/// Refuses a value beyond the limit of the device.
pub(crate) fn check_limit(what: &str, asked: u32, limit: u32) -> VerbsResult<()> {
    if asked > limit {
        return Err(limit_error((what, asked, limit)));
    }
    Ok(())
}

fn limit_error((what, asked, limit): (&str, u32, u32)) -> VerbsError {
    VerbsError::invalid(format!("{what} {asked}: this simulated device allows at most {limit}"))
}

/// What a queue pair is created with.
pub(crate) struct NewQp {
    pub(crate) node: usize,
    pub(crate) pd: usize,
    pub(crate) qp_type: QpType,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: Option<usize>,
    pub(crate) cap: QpCap,
    pub(crate) sq_sig_all: bool,
    pub(crate) cookie: u64,
}

/// Checks the capacities that a program wants, and says which it gets.
fn granted(sim: &Sim, want: &NewQp) -> VerbsResult<QpCap> {
    let all = &sim.parameters;
    let most = QpCap {
        max_send_wr: all.max_wr,
        max_recv_wr: all.max_wr,
        max_send_sge: all.max_sge,
        max_recv_sge: all.max_sge,
        max_inline_data: all.max_inline_bytes,
    };
    want.cap.grant(&most, want.srq.is_none()).map_err(limit_error)
}

/// Creates a queue pair.
pub(crate) fn create_qp(sim: &Sim, want: &NewQp) -> VerbsResult<(QpId, Qpn, QpCap)> {
    let cap = granted(sim, want)?;
    let mtu = device::mtu(&sim.parameters);
    let created = sim.with(|world| {
        let node = &mut world.nodes[want.node];
        let Some(id) = node.place_for_qp() else {
            return Err(VerbsError::no_room(format!(
                "the limit of {} queue pairs is reached: destroy some first",
                (1 << QP_BITS) - 2
            )));
        };
        let qpn = Qpn::new((want.node as u32) << QP_BITS | id.index as u32);
        let init = QpInit::<(), ()> {
            qp_type: want.qp_type,
            send_cq: &(),
            recv_cq: &(),
            srq: want.srq.map(|_| &()),
            cap,
            sq_sig_all: want.sq_sig_all,
            cookie: want.cookie,
        };
        let pd = PdId(want.pd as u32);
        let reader = WqeReader::of_queue(&sim.parameters, cap.max_recv_wr, cap.max_recv_sge);
        let mut engine = Qp::new(qpn, pd, &init, mtu);
        *engine.adapter = device::adapter(&sim.parameters);
        if node.faults.is_some() {
            // Rules remember so many packets of a flow.
            engine.window_packets = REMEMBERED as u32;
        }
        let qp = SimQp {
            qp: engine,
            send_cq: want.send_cq,
            recv_cq: want.recv_cq,
            srq: want.srq,
            pd: want.pd,
            cookie: want.cookie,
            freed: 0,
            sending: Sending::default(),
            told: 0,
            asked: 0,
            inbox: VecDeque::new(),
            recv_reader: reader,
            timer: None,
            nak_delay: Ps::ZERO,
            damming: Service::default(),
            groups: Vec::new(),
        };
        for cq in [want.send_cq, want.recv_cq] {
            if let Some(cq) = node.cqs[cq].as_mut() {
                cq.users += 1;
            }
        }
        if let Some(srq) = want.srq.and_then(|srq| node.srqs[srq].as_mut()) {
            srq.users += 1;
        }
        use_pd(node, want.pd, 1);
        node.put_qp(id, Box::new(qp));
        Ok((id, qpn, cap))
    });
    sim.work_in_kernel(sim.parameters.verb_ns);
    created
}

/// The error for an object that was destroyed.
pub(crate) fn gone(what: &str) -> VerbsError {
    VerbsError::invalid(format!("the {what} was destroyed"))
}

/// Changes a queue pair.
pub(crate) fn modify_qp(
    sim: &Sim,
    id: QpId,
    attr: &QpAttr,
    mask: QpAttrMask,
) -> VerbsResult<QpState> {
    let limits = device::limits(&sim.parameters);
    let changed = sim.with(|world| {
        world.with_qp(id, |world, qp| {
            let state = world.step(id, qp, |qp, env| qp.modify(attr, mask, &limits, env));
            if state == Ok(QpState::Reset) {
                // What the adapter still did for the queue pair is void.
                world.queue.drop_events_of(id);
                world.nodes[id.node].reads.end_all_of(id);
                for cq in [qp.send_cq, qp.recv_cq] {
                    if let Some(cq) = world.nodes[id.node].cqs[cq].as_mut() {
                        cq.purge(qp.qp.qpn.get());
                    }
                }
                (qp.freed, qp.told, qp.asked, qp.timer) = (0, 0, 0, None);
                qp.sending.reset();
                (qp.nak_delay, qp.damming) = (Ps::ZERO, Service::default());
                world.nodes[id.node].paging.pages.forget_qp(qp.qp.qpn);
                qp.inbox.clear();
                qp.recv_reader.reset();
                world.tell_reset(id.node, qp.qp.qpn);
            }
            world.wants_turn(id, qp);
            state
        })
    });
    sim.work_in_kernel(sim.parameters.verb_ns);
    changed.unwrap_or_else(|| Err(gone("QP")))
}

/// Destroys a queue pair: waits for its writes to memory, and purges its completions.
pub(crate) fn destroy_qp(sim: &Sim, id: QpId) -> VerbsResult<()> {
    wait_for_dma(sim, id.node);
    let destroyed = sim.with(|world| {
        let node = &mut world.nodes[id.node];
        let Some(qp) = node.take_qp(id) else { return Err(gone("QP")) };
        for cq in [qp.send_cq, qp.recv_cq] {
            if let Some(cq) = node.cqs[cq].as_mut() {
                cq.purge(qp.qp.qpn.get());
                cq.users -= 1;
            }
        }
        if let Some(srq) = qp.srq.and_then(|srq| node.srqs[srq].as_mut()) {
            srq.users -= 1;
        }
        use_pd(node, qp.pd, -1);
        let qpn = qp.qp.qpn;
        let keys = node.keys.iter_mut().filter(|(_, entry)| entry.qpn == qpn);
        for (key, window) in keys {
            *window = window::unbound(window);
            node.bindings.remove(key);
        }
        node.past.add(&qp.qp.tally());
        node.free_qp(id);
        node.paging.pages.forget_qp(qpn);
        world.tell_reset(id.node, qpn);
        Ok(())
    });
    sim.work_in_kernel(sim.parameters.verb_ns);
    destroyed
}

/// Counts the objects of a protection domain.
pub(crate) fn use_pd(node: &mut crate::adapter::Node, pd: usize, change: isize) {
    if let Some(Some(users)) = node.pds.get_mut(pd) {
        *users = users.saturating_add_signed(change);
    }
}

/// Waits until all that the adapter wrote so far is in memory, and until it has read the payload
/// that it began to read.
fn wait_for_dma(sim: &Sim, node: usize) {
    let begun = |node: &Node| (node.writes.begun(), node.reads.begun());
    let (writes, reads) = sim.with(|world| begun(&world.nodes[node]));
    let left = |world: &mut World| {
        let Node { writes: open, reads: read, .. } = &world.nodes[node];
        open.until(writes).max(read.until(reads)).map(|at| at - world.now)
    };
    while let Some(left) = sim.with(left) {
        let began = sim.now();
        // The event of what is due now may still come.
        sim.work_in_kernel(left.max(Ps(1)));
        if sim.now() == began {
            return; // Nobody waits outside of tasks, or while a panic unwinds.
        }
    }
}

/// A region that is being registered.
pub(crate) struct NewMr {
    pub(crate) pd: usize,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) iova: u64,
    pub(crate) access: Access,
}

fn entry_of(sim: &Sim, want: &NewMr, key: u32) -> VerbsResult<KeyEntry> {
    let access = mr::check_registration(want.access, want.length, want.addr);
    let access = access.map_err(VerbsError::invalid)?;
    let on_demand = access.contains(Access::ON_DEMAND);
    if on_demand && sim.parameters.odp_resolve_ns == Ps::ZERO {
        return Err(VerbsError::unsupported(
            "IBV_ACCESS_ON_DEMAND: this simulated adapter has no On-Demand Paging; choose a \
             profile with odp_resolve_ns above 0",
        ));
    }
    let iova = if access.contains(Access::ZERO_BASED) { 0 } else { want.iova };
    Ok(KeyEntry {
        key,
        kind: KeyKind::Region,
        iova,
        length: want.length,
        host_delta: want.addr.wrapping_sub(iova),
        access,
        pd: PdId(want.pd as u32),
        qpn: Qpn::new(0),
        on_demand,
        backing: Backing::default(),
    })
}

/// Adds a key; its low 8 bits are for the program.
fn add_key(world: &mut World, node: usize, entry: KeyEntry) -> VerbsResult<u32> {
    let node = &mut world.nodes[node];
    if node.keys.len() >= MAX_KEYS {
        return Err(VerbsError::no_room(format!(
            "the limit of {MAX_KEYS} memory keys is reached: deregister memory first"
        )));
    }
    let key = node.next_key << 8;
    // A number that is used again after 2^24 registrations is free, if it is not in use.
    node.next_key = node.next_key.wrapping_add(1) & 0xff_ffff;
    node.keys.insert(key, KeyEntry { key, ..entry });
    Ok(key)
}

/// Time to register memory. An on-demand region has no pages yet.
fn register_time(sim: &Sim, entry: &KeyEntry) -> Ps {
    let pages = if entry.on_demand { 0 } else { entry.length.div_ceil(PAGE_BYTES) };
    sim.parameters.register_ns + sim.parameters.register_ns_per_page * pages
}

/// A region begins without pages, if it is an on-demand one.
fn begin_paging(node: &mut Node, key: u32, entry: &KeyEntry) {
    let pages = &mut node.paging.pages;
    if entry.on_demand { pages.register(key) } else { pages.deregister(key) }
}

/// Registers memory; returns its key.
pub(crate) fn reg_mr(sim: &Sim, node: usize, want: &NewMr) -> VerbsResult<u32> {
    let entry = entry_of(sim, want, 0)?;
    let key = sim.with(|world| {
        use_pd(&mut world.nodes[node], want.pd, 1);
        let key = add_key(world, node, entry);
        key.inspect(|key| begin_paging(&mut world.nodes[node], *key, &entry))
    })?;
    sim.work_in_kernel(register_time(sim, &entry));
    Ok(key)
}

/// Refuses to change a region to which windows are bound.
fn check_unbound(sim: &Sim, node: usize, key: u32) -> VerbsResult<()> {
    match sim.with(|world| world.nodes[node].bindings.values().any(|region| *region == key)) {
        true => Err(VerbsError::busy("memory windows are bound to this region: unbind them")),
        false => Ok(()),
    }
}

/// Changes a region, whose key stays.
pub(crate) fn rereg_mr(sim: &Sim, node: usize, key: u32, want: &NewMr) -> VerbsResult<()> {
    let entry = entry_of(sim, want, key)?;
    check_unbound(sim, node, key)?;
    wait_for_dma(sim, node);
    sim.with(|world| {
        world.nodes[node].keys.insert(key, entry);
        begin_paging(&mut world.nodes[node], key, &entry);
    });
    sim.work_in_kernel(register_time(sim, &entry));
    Ok(())
}

/// Deregisters a region.
pub(crate) fn dereg_mr(sim: &Sim, node: usize, pd: usize, key: u32) -> VerbsResult<()> {
    check_unbound(sim, node, key)?;
    wait_for_dma(sim, node);
    let removed = sim.with(|world| {
        use_pd(&mut world.nodes[node], pd, -1);
        world.nodes[node].paging.pages.deregister(key);
        world.nodes[node].keys.remove(&key)
    });
    sim.work_in_kernel(sim.parameters.deregister_ns);
    removed.map(drop).ok_or_else(|| VerbsError::invalid("the region was already deregistered"))
}

/// Fetches pages of on-demand regions before they are accessed; if `flush`, waits for them.
pub(crate) fn advise_mr(
    sim: &Sim,
    (node, pd): (usize, usize),
    advice: Advice,
    flush: bool,
    sges: &[Sge],
) -> VerbsResult<()> {
    let ranges = sim.with(|world| -> VerbsResult<_> {
        let keys = &world.nodes[node].keys;
        let key = |key| keys.get(&key).copied();
        let ranges = odp::advised(key, PdId(pd as u32), advice, sges)?;
        Ok(ranges)
    })?;
    sim.work_in_kernel(sim.parameters.verb_ns);
    // Asks again for pages that were taken away meanwhile.
    let are_there = || {
        sim.with(|world| {
            let mut all = true;
            for (key, host_addr, bytes) in &ranges {
                let pages = &mut world.nodes[node].paging.pages;
                pages.prefetch(*key, *host_addr, *bytes);
                all &= pages.is_present(*key, *host_addr, *bytes);
            }
            world.fetch_pages(node);
            all
        })
    };
    let mut is_done = are_there();
    while flush && sim.running().is_some() && !is_done {
        sim.sleep_until(sim.now() + LOOK);
        is_done = are_there();
    }
    Ok(())
}

/// Allocates a window, which is not bound; returns its key.
pub(crate) fn alloc_mw(sim: &Sim, node: usize, pd: usize, kind: MwType) -> VerbsResult<u32> {
    let nothing = NewMr { pd, addr: 0, length: 0, iova: 0, access: Access::NONE };
    let kind = match kind {
        MwType::Type1 => KeyKind::WindowType1,
        MwType::Type2 => KeyKind::WindowType2,
    };
    let entry = KeyEntry { kind, ..entry_of(sim, &nothing, 0)? };
    let key = sim.with(|world| add_key(world, node, entry))?;
    sim.work_in_kernel(sim.parameters.verb_ns);
    Ok(key)
}

/// Makes a shared receive queue; returns its index.
pub(crate) fn create_srq(
    sim: &Sim,
    node: usize,
    pd: usize,
    init: SrqInit,
) -> VerbsResult<(usize, SrqInfo)> {
    check_limit("SRQ max_wr", init.max_wr, sim.parameters.max_wr)?;
    check_limit("SRQ max_sge", init.max_sge, sim.parameters.max_sge)?;
    let (max_wr, max_sge) = (init.max_wr.max(1), init.max_sge.max(1));
    let srq = Srq {
        queue: SharedRecvQueue::new(PdId(pd as u32), max_wr, max_sge, init.srq_limit),
        reader: WqeReader::of_srq(&sim.parameters, max_wr, max_sge),
        max_sge,
        cookie: init.cookie,
        users: 0,
        waiting: VecDeque::new(),
    };
    let index = sim.with(|world| {
        let node = &mut world.nodes[node];
        use_pd(node, pd, 1);
        node.srqs.push(Some(srq));
        node.srqs.len() - 1
    });
    sim.work_in_kernel(sim.parameters.verb_ns);
    Ok((index, SrqInfo { max_wr, max_sge, srq_limit: init.srq_limit }))
}
