//! Requests built by several calls: the functions inside an `ibv_qp_ex`.
//!
//! `wr_start` ... `wr_complete` is a critical section, as the manual page promises. In between the
//! requests are staged here: elements and inline bytes are copied when a setter passes them, so
//! that the program may reuse them at once, and errors are kept for `wr_complete`. The buffers are
//! reused; in steady state nothing is allocated.

use core::ffi::{c_int, c_void};
use core::slice;

use rdmalab_abi::*;
use rdmalab_engine::backend::{Backend, PostError, VerbsError, VerbsResult};
use rdmalab_engine::vocab::{QpType, SendFlags, Sge, WrOpcode};

use crate::answer;
use crate::batch::{Batch, Builder, Staged};
use crate::object::QpObject;
use crate::ops::post::{SEND_FLAGS, address, sentence, window};

/// Operations of every connected transport.
const CONNECTED: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW;

/// Operations of RC only.
const RELIABLE: u64 = IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_SEND_WITH_INV;

/// Refuses operations that the transport does not have.
pub(crate) fn check_operations(qp_type: QpType, wanted: u64) -> VerbsResult<()> {
    let granted = match qp_type {
        QpType::Rc => CONNECTED | RELIABLE,
        QpType::Uc => CONNECTED,
        QpType::Ud => IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
    };
    match wanted & !granted {
        0 => Ok(()),
        missing => Err(VerbsError::unsupported(format!(
            "send_ops_flags {missing:#x} on {qp_type:?}; it has {granted:#x}"
        ))),
    }
}

/// Writes the functions of a QP.
pub(crate) fn fill<B: Backend>(qp: &mut ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp::<B>);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add::<B>);
    qp.wr_bind_mw = Some(wr_bind_mw::<B>);
    qp.wr_local_inv = Some(wr_local_inv::<B>);
    qp.wr_rdma_read = Some(wr_rdma_read::<B>);
    qp.wr_rdma_write = Some(wr_rdma_write::<B>);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm::<B>);
    qp.wr_send = Some(wr_send::<B>);
    qp.wr_send_imm = Some(wr_send_imm::<B>);
    qp.wr_send_inv = Some(wr_send_inv::<B>);
    qp.wr_send_tso = Some(wr_send_tso::<B>);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr::<B>);
    qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn::<B>);
    qp.wr_set_inline_data = Some(wr_set_inline_data::<B>);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list::<B>);
    qp.wr_set_sge = Some(wr_set_sge::<B>);
    qp.wr_set_sge_list = Some(wr_set_sge_list::<B>);
    qp.wr_start = Some(wr_start::<B>);
    qp.wr_complete = Some(wr_complete::<B>);
    qp.wr_abort = Some(wr_abort::<B>);
    qp.wr_atomic_write = Some(wr_atomic_write::<B>);
    qp.wr_flush = Some(wr_flush::<B>);
}

/// The builder of a QP; `None` if the QP was created without send operations.
///
/// # Safety
/// `qp` is of this backend.
#[inline(always)]
unsafe fn builder<'a, B: Backend>(qp: *mut ibv_qp_ex) -> Option<&'a Builder> {
    // SAFETY: by the contract.
    unsafe { QpObject::<B>::own(qp).builder.as_ref() }
}

/// The open batch of a QP.
///
/// # Safety
/// `qp` is of this backend, the caller is in its critical section, and drops the batch before it
/// calls this again.
#[inline(always)]
unsafe fn batch<'a, B: Backend>(qp: *mut ibv_qp_ex) -> Option<&'a mut Batch> {
    // SAFETY: by the contract there is no other reference to the batch.
    unsafe { builder::<B>(qp).map(|builder| &mut *builder.batch.get()) }
}

/// Adds a request, with the number and the flags that the program has written into the QP.
///
/// # Safety
/// As for [`batch`].
#[inline(always)]
unsafe fn stage<B: Backend>(
    qp: *mut ibv_qp_ex,
    needs: u64,
    opcode: WrOpcode,
    set: impl FnOnce(&mut Staged),
) {
    // SAFETY: by the contract.
    let (builder, batch) = unsafe {
        match (builder::<B>(qp), batch::<B>(qp)) {
            (Some(builder), Some(batch)) => (builder, batch),
            _ => return,
        }
    };
    // SAFETY: the program wrote them before this call, on this thread.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    if builder.granted & needs == 0 {
        return batch.fail(libc::EINVAL, "an operation that send_ops_flags did not name");
    }
    if flags & !SEND_FLAGS != 0 {
        return batch.fail(libc::EINVAL, sentence(PostError::BadOpcode));
    }
    if batch.staged.len() == builder.max_requests {
        return batch.fail(libc::ENOMEM, "more requests in one batch than the send queue holds");
    }
    // The data setter decides whether a request is inline.
    let mut staged = Staged::new(wr_id, opcode, SendFlags(flags & !IBV_SEND_INLINE));
    set(&mut staged);
    batch.staged.push(staged);
}

unsafe extern "C-unwind" fn wr_start<B: Backend>(qp: *mut ibv_qp_ex) {
    // SAFETY: the header calls with a QP whose function this is; the lock protects the batch.
    unsafe {
        if let Some(builder) = builder::<B>(qp) {
            builder.lock.enter();
            (*builder.batch.get()).clear();
        }
    }
}

unsafe extern "C-unwind" fn wr_abort<B: Backend>(qp: *mut ibv_qp_ex) {
    // SAFETY: the program is in the critical section that it opened with wr_start.
    unsafe {
        if let Some(builder) = builder::<B>(qp) {
            (*builder.batch.get()).clear();
            builder.lock.leave();
        }
    }
}

unsafe extern "C-unwind" fn wr_complete<B: Backend>(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the program is in the critical section that it opened with wr_start.
    let (own, batch) = unsafe {
        match batch::<B>(qp) {
            Some(batch) => (QpObject::<B>::own(qp), batch),
            None => return libc::EINVAL,
        }
    };
    let result = match batch.error {
        Some((errno, sentence)) => Err(VerbsError::new(errno, sentence)),
        None => {
            batch.place_inline();
            B::post_send_all(&own.backend, batch.requests()).map_err(|(index, error)| {
                let (why, count) = (sentence(error), batch.staged.len());
                let message = match count {
                    1 => why.to_owned(),
                    _ => format!("request {} of {count}: {why}; none was posted", index + 1),
                };
                VerbsError::new(error.errno(), message)
            })
        }
    };
    batch.clear();
    if let Some(builder) = &own.builder {
        // SAFETY: as above.
        unsafe { builder.lock.leave() };
    }
    answer::status("ibv_wr_complete", result)
}

/// Declares the operations: the bit that must be granted, the opcode, and the code that fills the
/// request.
macro_rules! operations {
    ($(
        $name:ident($($arg:ident: $ty:ty),*)
        needs $flag:ident, $opcode:ident, |$wr:ident| $set:block
    )*) => {$(
        unsafe extern "C-unwind" fn $name<B: Backend>(qp: *mut ibv_qp_ex $(, $arg: $ty)*) {
            // SAFETY: the program is in the critical section that it opened with wr_start.
            unsafe { stage::<B>(qp, $flag, WrOpcode::$opcode, |$wr| $set) };
        }
    )*};
}

operations! {
    wr_send() needs IBV_QP_EX_WITH_SEND, Send, |_wr| {}
    wr_send_imm(imm_data: u32) needs IBV_QP_EX_WITH_SEND_WITH_IMM, SendImm, |wr| {
        wr.imm_or_rkey = imm_data;
    }
    wr_send_inv(invalidate_rkey: u32) needs IBV_QP_EX_WITH_SEND_WITH_INV, SendInv, |wr| {
        wr.imm_or_rkey = invalidate_rkey;
    }
    wr_rdma_write(rkey: u32, remote_addr: u64) needs IBV_QP_EX_WITH_RDMA_WRITE, Write, |wr| {
        (wr.rkey, wr.remote_addr) = (rkey, remote_addr);
    }
    wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: u32)
        needs IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, WriteImm, |wr| {
        (wr.rkey, wr.remote_addr, wr.imm_or_rkey) = (rkey, remote_addr, imm_data);
    }
    wr_rdma_read(rkey: u32, remote_addr: u64) needs IBV_QP_EX_WITH_RDMA_READ, Read, |wr| {
        (wr.rkey, wr.remote_addr) = (rkey, remote_addr);
    }
    wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64)
        needs IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, CmpSwap, |wr| {
        (wr.rkey, wr.remote_addr) = (rkey, remote_addr);
        (wr.compare_add, wr.swap) = (compare, swap);
    }
    wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64)
        needs IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, FetchAdd, |wr| {
        (wr.rkey, wr.remote_addr, wr.compare_add) = (rkey, remote_addr, add);
    }
    wr_local_inv(invalidate_rkey: u32) needs IBV_QP_EX_WITH_LOCAL_INV, LocalInv, |wr| {
        wr.imm_or_rkey = invalidate_rkey;
    }
}

unsafe extern "C-unwind" fn wr_bind_mw<B: Backend>(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    bind_info: *const ibv_mw_bind_info,
) {
    // SAFETY: the program is in the critical section that it opened with wr_start; window and
    // region are alive during the call.
    unsafe {
        if mw.is_null() || bind_info.is_null() {
            return fail::<B>(qp, libc::EINVAL, "ibv_wr_bind_mw without a window or its binding");
        }
        let bind = window((*mw).rkey, rkey, &*bind_info);
        stage::<B>(qp, IBV_QP_EX_WITH_BIND_MW, WrOpcode::BindMw, |_wr| {});
        if let Some(rare) = batch::<B>(qp).and_then(Batch::rare) {
            rare.bind = Some(bind);
        }
    }
}

unsafe extern "C-unwind" fn wr_set_ud_addr<B: Backend>(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    // SAFETY: the program is in its critical section; `ah` is null or of this provider.
    unsafe {
        let Some(batch) = batch::<B>(qp) else { return };
        let to = address(ah, remote_qpn, remote_qkey);
        if let Some(rare) = batch.rare() {
            rare.ud = to;
        }
    }
}

unsafe extern "C-unwind" fn wr_set_sge<B: Backend>(
    qp: *mut ibv_qp_ex,
    lkey: u32,
    addr: u64,
    length: u32,
) {
    // SAFETY: the program is in its critical section.
    let Some(batch) = (unsafe { batch::<B>(qp) }) else { return };
    if batch.takes_data() {
        let first = batch.sges.len();
        batch.sges.push(Sge { addr, length, lkey });
        batch.take_sges(first);
    }
}

unsafe extern "C-unwind" fn wr_set_sge_list<B: Backend>(
    qp: *mut ibv_qp_ex,
    num_sge: usize,
    sg_list: *const ibv_sge,
) {
    // SAFETY: the program is in its critical section; the list holds `num_sge` elements.
    unsafe {
        let Some(builder) = builder::<B>(qp) else { return };
        if num_sge > builder.max_sges || (num_sge != 0 && sg_list.is_null()) {
            return fail::<B>(qp, libc::EINVAL, sentence(PostError::TooManySges));
        }
        let Some(batch) = batch::<B>(qp) else { return };
        if batch.takes_data() {
            let first = batch.sges.len();
            if num_sge != 0 {
                batch.sges.extend_from_slice(slice::from_raw_parts(sg_list.cast(), num_sge));
            }
            batch.take_sges(first);
        }
    }
}

unsafe extern "C-unwind" fn wr_set_inline_data<B: Backend>(
    qp: *mut ibv_qp_ex,
    addr: *mut c_void,
    length: usize,
) {
    let piece = ibv_data_buf { addr, length };
    // SAFETY: the program is in its critical section; `length` bytes can be read at `addr`.
    unsafe { set_inline::<B>(qp, slice::from_ref(&piece), Some(length)) };
}

unsafe extern "C-unwind" fn wr_set_inline_data_list<B: Backend>(
    qp: *mut ibv_qp_ex,
    num_buf: usize,
    buf_list: *const ibv_data_buf,
) {
    // SAFETY: the program is in its critical section; the list holds `num_buf` pieces, whose
    // bytes can be read.
    unsafe {
        let pieces = match num_buf {
            0 => &[][..],
            _ => slice::from_raw_parts(buf_list, num_buf),
        };
        let total = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.length));
        set_inline::<B>(qp, pieces, total);
    }
}

/// Makes the bytes of `pieces` the payload of the last request: `total` bytes, `None` if that is
/// no number.
///
/// # Safety
/// As for [`batch`]; the bytes of the pieces can be read.
#[inline(always)]
unsafe fn set_inline<B: Backend>(
    qp: *mut ibv_qp_ex,
    pieces: &[ibv_data_buf],
    total: Option<usize>,
) {
    // SAFETY: by the contract.
    unsafe {
        let Some(builder) = builder::<B>(qp) else { return };
        if total.is_none_or(|total| total > builder.max_inline) {
            return fail::<B>(qp, libc::EINVAL, sentence(PostError::InlineTooLong));
        }
        let Some(batch) = batch::<B>(qp) else { return };
        if batch.takes_data() {
            let first = batch.bytes.len();
            for piece in pieces.iter().filter(|piece| piece.length != 0) {
                batch.append(piece.addr.cast(), piece.length);
            }
            batch.take_bytes(first);
        }
    }
}

/// Records an error of the open batch.
///
/// # Safety
/// As for [`batch`].
#[cold]
unsafe fn fail<B: Backend>(qp: *mut ibv_qp_ex, errno: c_int, sentence: &'static str) {
    // SAFETY: by the contract.
    if let Some(batch) = unsafe { batch::<B>(qp) } {
        batch.fail(errno, sentence);
    }
}

/// Declares operations that this project's QPs do not support: the batch fails.
macro_rules! missing {
    ($($name:ident($($ty:ty),*), $sentence:literal;)*) => {$(
        unsafe extern "C-unwind" fn $name<B: Backend>(qp: *mut ibv_qp_ex $(, _: $ty)*) {
            // SAFETY: the program is in its critical section.
            unsafe { fail::<B>(qp, libc::EOPNOTSUPP, $sentence) };
        }
    )*};
}

missing! {
    wr_send_tso(*mut c_void, u16, u16), "this device has no segmented sends";
    wr_set_xrc_srqn(u32), "this device has no XRC";
    wr_atomic_write(u32, u64, *const c_void), "this device has no atomic writes";
    wr_flush(u32, u64, usize, u8, u8), "this device has no flushes";
}
