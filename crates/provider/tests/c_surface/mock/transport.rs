//! The mock executes each send at once, within the process, one at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdmalab_engine::backend::{PostError, SendWr};
use rdmalab_engine::vocab::{
    Access, AsyncEventType, QpState as State, QpType, SendFlags, Wc, WcFlags, WcOpcode, WcStatus,
    WrOpcode,
};

use super::objects::{Cqe, Posted, Qp, Region, World, lock};

/// A completion with nothing in it.
pub fn blank_wc(wr_id: u64, status: WcStatus, opcode: WcOpcode, qp_num: u32) -> Wc {
    Wc { wr_id, status, opcode, qp_num, ..Wc::BLANK }
}

/// The checks that need no access to memory.
pub fn check(qp: &Qp, wr: &SendWr<'_>) -> Result<(), PostError> {
    let state = lock(&qp.state);
    if !matches!(state.attr.qp_state, State::Rts | State::Err) {
        return Err(PostError::BadState);
    }
    if qp.qp_type == QpType::Ud && !matches!(wr.opcode, WrOpcode::Send | WrOpcode::SendImm) {
        return Err(PostError::BadOpcode);
    }
    if wr.sges.len() > qp.cap.max_send_sge as usize {
        return Err(PostError::TooManySges);
    }
    let bytes: u64 = wr.sges.iter().map(|sge| u64::from(sge.length)).sum();
    if wr.flags.contains(SendFlags::INLINE) && bytes > u64::from(qp.cap.max_inline_data) {
        return Err(PostError::InlineTooLong);
    }
    if qp.qp_type == QpType::Ud && wr.ud.is_none() {
        return Err(PostError::BadAddress);
    }
    if state.sq_used == qp.cap.max_send_wr {
        return Err(PostError::QueueFull);
    }
    Ok(())
}

/// Executes and completes a request that passed [`check`].
pub fn execute(world: &mut World, qp: &Arc<Qp>, wr: &SendWr<'_>) {
    let is_flushed = lock(&qp.state).attr.qp_state == State::Err;
    let outcome = if is_flushed { Err(WcStatus::WrFlushErr) } else { run(world, qp, wr) };
    let mut state = lock(&qp.state);
    state.sq_used += 1;
    state.unsignalled += 1;
    let status = outcome.err().unwrap_or(WcStatus::Success);
    if status != WcStatus::Success {
        state.attr.qp_state = State::Err;
    }
    let visible = qp.sq_sig_all || wr.flags.contains(SendFlags::SIGNALED);
    if visible || status != WcStatus::Success {
        let mut wc = blank_wc(wr.wr_id, status, wr.opcode.completion(), qp.qpn);
        wc.byte_len = outcome.unwrap_or(0);
        let frees = Some((Arc::clone(qp), state.unsignalled));
        state.unsignalled = 0;
        drop(state);
        qp.send_cq.push(Cqe { wc, timestamp: 0, frees }, false);
    }
}

/// Executes a request; returns the number of bytes read from the peer, or the error.
fn run(world: &mut World, qp: &Arc<Qp>, wr: &SendWr<'_>) -> Result<u32, WcStatus> {
    match wr.opcode {
        WrOpcode::LocalInv => {
            world.regions.remove(&(wr.imm_or_rkey >> 8)).ok_or(WcStatus::LocProtErr)?;
            Ok(0)
        }
        WrOpcode::BindMw => bind(world, wr).map(|()| 0),
        WrOpcode::Write | WrOpcode::WriteImm => {
            let payload = gather(world, wr)?;
            let access = Access::REMOTE_WRITE.0;
            write_remote(world, wr, access, &payload)?;
            if wr.opcode == WrOpcode::WriteImm {
                let to = peer(world, qp, wr)?;
                deliver(world, qp, &to, wr, payload.len() as u32, None)?;
            }
            Ok(0)
        }
        WrOpcode::Read => {
            let length: u32 = wr.sges.iter().map(|sge| sge.length).sum();
            let from = world
                .memory(wr.rkey, wr.remote_addr, length.into(), Access::REMOTE_READ.0)
                .ok_or(WcStatus::RemAccessErr)?;
            scatter(world, wr.sges.iter().copied(), &read(from, length as usize))?;
            Ok(length)
        }
        WrOpcode::CmpSwap | WrOpcode::FetchAdd => atomic(world, wr).map(|()| 8),
        WrOpcode::Send | WrOpcode::SendImm | WrOpcode::SendInv => {
            let payload = gather(world, wr)?;
            let to = match peer(world, qp, wr) {
                // A datagram to a QP that does not exist is lost.
                Err(_) if qp.qp_type == QpType::Ud => return Ok(0),
                found => found?,
            };
            deliver(world, qp, &to, wr, payload.len() as u32, Some(&payload)).map(|()| 0)
        }
    }
}

fn peer(world: &World, qp: &Qp, wr: &SendWr<'_>) -> Result<Arc<Qp>, WcStatus> {
    let qpn = match wr.ud {
        Some(to) => to.remote_qpn.get(),
        None => lock(&qp.state).attr.dest_qp_num,
    };
    world.qps.get(&qpn).cloned().ok_or(WcStatus::RetryExcErr)
}

fn gather(world: &World, wr: &SendWr<'_>) -> Result<Vec<u8>, WcStatus> {
    let mut payload = Vec::new();
    for sge in wr.sges {
        let length = u64::from(sge.length);
        let from = match wr.flags.contains(SendFlags::INLINE) {
            true => sge.addr,
            false => world.memory(sge.lkey, sge.addr, length, 0).ok_or(WcStatus::LocProtErr)?,
        };
        payload.extend(read(from, sge.length as usize));
    }
    Ok(payload)
}

fn read(from: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // SAFETY: the tests register only memory that outlives its use.
    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), length) };
    bytes
}

fn write(to: u64, bytes: &[u8]) {
    // SAFETY: the tests register only memory that outlives its use.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
}

fn scatter(
    world: &World,
    sges: impl Iterator<Item = rdmalab_engine::vocab::Sge>,
    mut bytes: &[u8],
) -> Result<(), WcStatus> {
    for sge in sges {
        let take = bytes.len().min(sge.length as usize);
        let to = world
            .memory(sge.lkey, sge.addr, take as u64, Access::LOCAL_WRITE.0)
            .ok_or(WcStatus::LocProtErr)?;
        write(to, &bytes[..take]);
        bytes = &bytes[take..];
    }
    if bytes.is_empty() { Ok(()) } else { Err(WcStatus::LocLenErr) }
}

fn write_remote(world: &World, wr: &SendWr<'_>, access: u32, bytes: &[u8]) -> Result<(), WcStatus> {
    let to = world
        .memory(wr.rkey, wr.remote_addr, bytes.len() as u64, access)
        .ok_or(WcStatus::RemAccessErr)?;
    write(to, bytes);
    Ok(())
}

fn atomic(world: &World, wr: &SendWr<'_>) -> Result<(), WcStatus> {
    let access = Access::REMOTE_ATOMIC.0;
    let at = world.memory(wr.rkey, wr.remote_addr, 8, access).ok_or(WcStatus::RemAccessErr)?;
    let old = u64::from_ne_bytes(read(at, 8).try_into().expect("8 bytes"));
    let new = match wr.opcode {
        WrOpcode::FetchAdd => old.wrapping_add(wr.compare_add),
        _ if old == wr.compare_add => wr.swap,
        _ => old,
    };
    write(at, &new.to_ne_bytes());
    scatter(world, wr.sges.iter().copied(), &old.to_ne_bytes())
}

fn bind(world: &mut World, wr: &SendWr<'_>) -> Result<(), WcStatus> {
    let bind = wr.bind.ok_or(WcStatus::MwBindErr)?;
    if bind.mw_rkey >> 8 != bind.new_rkey >> 8 {
        return Err(WcStatus::MwBindErr);
    }
    if bind.length == 0 {
        world.regions.remove(&(bind.new_rkey >> 8));
        return Ok(());
    }
    let needs = Access::MW_BIND.0;
    let addr =
        world.memory(bind.mr_lkey, bind.addr, bind.length, needs).ok_or(WcStatus::MwBindErr)?;
    let region = Region { addr, length: bind.length, iova: bind.addr, access: bind.access.0 };
    world.regions.insert(bind.new_rkey >> 8, (bind.new_rkey, region));
    Ok(())
}

/// Takes a receive of the peer, from its own queue or its SRQ.
fn take_receive(to: &Qp) -> Option<Posted> {
    let Some(srq) = &to.srq else { return lock(&to.state).posted.pop_front() };
    let mut state = lock(&srq.state);
    let posted = state.posted.pop_front();
    if (state.posted.len() as u32) < state.limit {
        state.limit = 0;
        srq.pd.ctx.raise(AsyncEventType::SrqLimitReached, srq.cookie);
    }
    posted
}

/// Takes a receive of the peer, writes the payload into it if there is one, and completes it.
fn deliver(
    world: &mut World,
    from: &Qp,
    to: &Arc<Qp>,
    wr: &SendWr<'_>,
    length: u32,
    payload: Option<&[u8]>,
) -> Result<(), WcStatus> {
    let Some(posted) = take_receive(to) else {
        return if from.qp_type == QpType::Ud { Ok(()) } else { Err(WcStatus::RnrRetryExcErr) };
    };
    let mut bytes = Vec::new();
    if from.qp_type == QpType::Ud {
        bytes.extend(route_header());
    }
    bytes.extend_from_slice(payload.unwrap_or(&[]));
    let placed = scatter(world, posted.sges.into_iter(), &bytes);
    let opcode = match payload {
        Some(_) => WcOpcode::Recv,
        None => WcOpcode::RecvRdmaWithImm,
    };
    let status = placed.err().unwrap_or(WcStatus::Success);
    let mut wc = blank_wc(posted.wr_id, status, opcode, to.qpn);
    wc.byte_len = length.max(bytes.len() as u32);
    if matches!(wr.opcode, WrOpcode::SendImm | WrOpcode::WriteImm) {
        wc.imm_or_rkey = wr.imm_or_rkey;
        wc.wc_flags = WcFlags::WITH_IMM;
    }
    if wr.opcode == WrOpcode::SendInv {
        wc.imm_or_rkey = wr.imm_or_rkey;
        wc.wc_flags = WcFlags::WITH_INV;
        world.regions.remove(&(wr.imm_or_rkey >> 8));
    }
    if from.qp_type == QpType::Ud {
        wc.src_qp = from.qpn;
        wc.slid = super::LID;
        wc.sl = wr.ud.map_or(0, |ud| ud.ah.sl);
        wc.wc_flags = wc.wc_flags | WcFlags::GRH;
    }
    let solicited = wr.flags.contains(SendFlags::SOLICITED);
    to.recv_cq.push(Cqe { wc, timestamp: 0, frees: None }, solicited);
    placed.map_err(|_| WcStatus::RemOpErr)
}

/// The 40 bytes (GRH) before a datagram; both GIDs are the port's own.
fn route_header() -> [u8; 40] {
    let mut header = [0; 40];
    header[..4].copy_from_slice(&0x6010_0007_u32.to_be_bytes());
    header[8..24].copy_from_slice(&super::GID);
    header[24..].copy_from_slice(&super::GID);
    header
}

/// Flushes a QP that goes to ERR.
pub fn flush(qp: &Arc<Qp>) {
    let posted: Vec<Posted> = lock(&qp.state).posted.drain(..).collect();
    for receive in posted {
        let wc = blank_wc(receive.wr_id, WcStatus::WrFlushErr, WcOpcode::Recv, qp.qpn);
        qp.recv_cq.push(Cqe { wc, timestamp: 0, frees: None }, false);
    }
    if qp.srq.is_some() {
        qp.pd.ctx.raise(AsyncEventType::QpLastWqeReached, qp.cookie);
    }
}

/// The key of a window is that of its slot, with the next tag.
pub fn next_key(mw: &super::objects::Mw) -> u32 {
    let key = mw.key.load(Ordering::SeqCst);
    let next = (key & !0xff) | (key.wrapping_add(1) & 0xff);
    mw.key.store(next, Ordering::SeqCst);
    next
}
