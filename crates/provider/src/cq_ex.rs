//! Completions read field by field: the functions inside an `ibv_cq_ex`.
//!
//! `start_poll` ... `end_poll` is a critical section, as the manual page promises, unless the CQ
//! was created for one thread. Only this module takes its lock: pushing completions never needs it.

use core::ffi::{c_int, c_uint};

use rdmalab_abi::*;
use rdmalab_engine::backend::{Backend, ExtendedWc, VerbsError};

use crate::object::CqObject;
use crate::{answer, diag};

/// The fields that an extended CQ can read; time stamps only if the device has a clock.
pub(crate) const READABLE: u64 = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;

/// Writes the functions of a CQ. Fields that the program did not request read as 0, and the read is
/// noted as an error.
pub(crate) fn fill<B: Backend>(cq: &mut ibv_cq_ex, wc_flags: u64) {
    let has = |flag| wc_flags & flag != 0;
    cq.start_poll = Some(start_poll::<B>);
    cq.next_poll = Some(next_poll::<B>);
    cq.end_poll = Some(end_poll::<B>);
    cq.read_opcode = Some(read_opcode::<B>);
    cq.read_vendor_err = Some(read_vendor_err::<B>);
    cq.read_wc_flags = Some(read_wc_flags::<B>);
    let or_none = |is_granted, reader| if is_granted { reader } else { no_u32 as ReadU32 };
    let byte_len = or_none(has(IBV_WC_EX_WITH_BYTE_LEN), read_byte_len::<B>);
    cq.read_byte_len = Some(byte_len);
    cq.read_imm_data = Some(or_none(has(IBV_WC_EX_WITH_IMM), read_imm_data::<B>));
    cq.read_qp_num = Some(or_none(has(IBV_WC_EX_WITH_QP_NUM), read_qp_num::<B>));
    cq.read_src_qp = Some(or_none(has(IBV_WC_EX_WITH_SRC_QP), read_src_qp::<B>));
    cq.read_slid = Some(or_none(has(IBV_WC_EX_WITH_SLID), read_slid::<B>));
    let or_none = |is_granted, reader| if is_granted { reader } else { no_u8 as ReadU8 };
    cq.read_sl = Some(or_none(has(IBV_WC_EX_WITH_SL), read_sl::<B>));
    let path_bits = or_none(has(IBV_WC_EX_WITH_DLID_PATH_BITS), read_dlid_path_bits::<B>);
    cq.read_dlid_path_bits = Some(path_bits);
    cq.read_completion_ts = if has(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) {
        Some(read_completion_ts::<B>)
    } else {
        Some(no_u64)
    };
    cq.read_cvlan = Some(no_u16);
    cq.read_flow_tag = Some(no_u32);
    cq.read_tm_info = Some(no_tm_info);
    cq.read_completion_wallclock_ns = Some(no_u64);
}

type ReadU32 = unsafe extern "C-unwind" fn(*mut ibv_cq_ex) -> u32;
type ReadU8 = unsafe extern "C-unwind" fn(*mut ibv_cq_ex) -> u8;

/// Takes one completion, the first of a batch or the next; 0, `ENOENT` when there is none, or an
/// error number.
///
/// # Safety
/// `cq` is of this backend, and the caller is inside its critical section.
#[inline]
unsafe fn advance<B: Backend>(cq: *mut ibv_cq_ex, is_next: bool) -> c_int {
    // SAFETY: by the contract.
    let own = unsafe { CqObject::<B>::own(cq) };
    match B::poll_cq_extended(&own.backend, is_next) {
        Ok(Some(found)) => {
            // SAFETY: no other thread accesses the current completion inside the critical section;
            // the program reads `status` and `wr_id` from the public structure.
            unsafe {
                (*cq).status = found.wc.status as u32;
                (*cq).wr_id = found.wc.wr_id;
                *own.current.get() = found;
            }
            0
        }
        Ok(None) => libc::ENOENT,
        Err(error) => answer::number("ibv_start_poll", &error),
    }
}

unsafe extern "C-unwind" fn start_poll<B: Backend>(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: the header calls with a CQ whose function this is, and an attribute structure.
    let (own, comp_mask) = unsafe {
        let comp_mask = if attr.is_null() { 0 } else { (*attr).comp_mask };
        (CqObject::<B>::own(cq), comp_mask)
    };
    if comp_mask != 0 {
        let message = format!("comp_mask {comp_mask:#x} of ibv_poll_cq_attr must be 0");
        return answer::number("ibv_start_poll", &VerbsError::invalid(message));
    }
    if let Some(lock) = &own.lock {
        lock.enter();
    }
    // SAFETY: the section was just entered, or the program promised to use one thread.
    let outcome = unsafe { advance::<B>(cq, false) };
    if outcome != 0 {
        // Without a completion the program does not call end_poll.
        if let Some(lock) = &own.lock {
            // SAFETY: this thread entered above.
            unsafe { lock.leave() };
        }
    }
    outcome
}

unsafe extern "C-unwind" fn next_poll<B: Backend>(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program is between start_poll and end_poll of this CQ.
    unsafe { advance::<B>(cq, true) }
}

unsafe extern "C-unwind" fn end_poll<B: Backend>(cq: *mut ibv_cq_ex) {
    // SAFETY: the program is between start_poll and end_poll of this CQ.
    unsafe {
        if let Some(lock) = &CqObject::<B>::own(cq).lock {
            lock.leave();
        }
    }
}

/// Declares the readers, each with the value that it takes from the current completion.
macro_rules! readers {
    ($($name:ident -> $ty:ty = |$found:ident| $value:expr;)*) => {$(
        unsafe extern "C-unwind" fn $name<B: Backend>(cq: *mut ibv_cq_ex) -> $ty {
            // SAFETY: the program is between start_poll and end_poll, so the current completion is
            // not written.
            let $found: &ExtendedWc = unsafe { &*CqObject::<B>::own(cq).current.get() };
            $value
        }
    )*};
}

readers! {
    read_opcode -> u32 = |found| found.wc.opcode as u32;
    read_vendor_err -> u32 = |found| found.wc.vendor_err;
    read_byte_len -> u32 = |found| found.wc.byte_len;
    read_imm_data -> u32 = |found| found.wc.imm_or_rkey;
    read_qp_num -> u32 = |found| found.wc.qp_num;
    read_src_qp -> u32 = |found| found.wc.src_qp;
    read_wc_flags -> c_uint = |found| found.wc.wc_flags.0;
    read_slid -> u32 = |found| u32::from(found.wc.slid);
    read_sl -> u8 = |found| found.wc.sl;
    read_dlid_path_bits -> u8 = |found| found.wc.dlid_path_bits;
    read_completion_ts -> u64 = |found| found.timestamp;
}

/// Notes that a field was read for which the CQ was not created.
#[cold]
fn not_granted() {
    diag::note(
        "ibv_wc_read_*",
        "a field was read that the CQ was not created for; add its flag to wc_flags of \
         ibv_create_cq_ex (it reads as 0)",
    );
}

unsafe extern "C-unwind" fn no_u8(_: *mut ibv_cq_ex) -> u8 {
    not_granted();
    0
}

unsafe extern "C-unwind" fn no_u16(_: *mut ibv_cq_ex) -> u16 {
    not_granted();
    0
}

unsafe extern "C-unwind" fn no_u32(_: *mut ibv_cq_ex) -> u32 {
    not_granted();
    0
}

unsafe extern "C-unwind" fn no_u64(_: *mut ibv_cq_ex) -> u64 {
    not_granted();
    0
}

unsafe extern "C-unwind" fn no_tm_info(_: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    not_granted();
    if !info.is_null() {
        // SAFETY: a pointer that is not null is the caller's variable.
        unsafe { *info = ibv_wc_tm_info::zeroed() };
    }
}
