//! Polling and arming completion queues.

use core::ffi::c_int;
use core::mem::{MaybeUninit, offset_of};
use core::slice;

use rdmalab_abi::{ibv_cq, ibv_wc};
use rdmalab_engine::backend::{Backend, VerbsError};
use rdmalab_engine::vocab::Wc;

use crate::answer;
use crate::object::CqObject;

// The backend writes completions directly into the caller's array.
const _: () = {
    assert!(size_of::<Wc>() == size_of::<ibv_wc>());
    assert!(align_of::<Wc>() == align_of::<ibv_wc>());
    assert!(offset_of!(Wc, wr_id) == offset_of!(ibv_wc, wr_id));
    assert!(offset_of!(Wc, status) == offset_of!(ibv_wc, status));
    assert!(offset_of!(Wc, opcode) == offset_of!(ibv_wc, opcode));
    assert!(offset_of!(Wc, vendor_err) == offset_of!(ibv_wc, vendor_err));
    assert!(offset_of!(Wc, byte_len) == offset_of!(ibv_wc, byte_len));
    assert!(offset_of!(Wc, imm_or_rkey) == offset_of!(ibv_wc, imm_data));
    assert!(offset_of!(Wc, qp_num) == offset_of!(ibv_wc, qp_num));
    assert!(offset_of!(Wc, src_qp) == offset_of!(ibv_wc, src_qp));
    assert!(offset_of!(Wc, wc_flags) == offset_of!(ibv_wc, wc_flags));
    assert!(offset_of!(Wc, pkey_index) == offset_of!(ibv_wc, pkey_index));
    assert!(offset_of!(Wc, slid) == offset_of!(ibv_wc, slid));
    assert!(offset_of!(Wc, sl) == offset_of!(ibv_wc, sl));
    assert!(offset_of!(Wc, dlid_path_bits) == offset_of!(ibv_wc, dlid_path_bits));
};

/// `ibv_poll_cq`: how many completions were taken; -1 and `errno` when the CQ has failed.
///
/// # Safety
/// As for `ibv_poll_cq`: a CQ of this backend, and room for `num_entries` completions.
pub(crate) unsafe extern "C-unwind" fn poll_cq<B: Backend>(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    if num_entries <= 0 {
        return 0;
    }
    // SAFETY: every CQ is allocated as the extended one with the private part after it, and the
    // caller's array has room for `num_entries` structures laid out as `Wc` (asserted above).
    let (own, out) = unsafe {
        let out = slice::from_raw_parts_mut(wc.cast::<MaybeUninit<Wc>>(), num_entries as usize);
        (CqObject::<B>::own(cq.cast()), out)
    };
    match B::poll_cq(&own.backend, out) {
        Ok(taken) => taken as c_int,
        Err(error) => failed(&error),
    }
}

#[cold]
fn failed(error: &VerbsError) -> c_int {
    answer::number("ibv_poll_cq", error);
    -1
}

/// `ibv_req_notify_cq`: 0, or an error number.
///
/// # Safety
/// As for `ibv_req_notify_cq`: a CQ of this backend.
pub(crate) unsafe extern "C-unwind" fn req_notify_cq<B: Backend>(
    cq: *mut ibv_cq,
    solicited_only: c_int,
) -> c_int {
    // SAFETY: as for `poll_cq`.
    let own = unsafe { CqObject::<B>::own(cq.cast()) };
    answer::status("ibv_req_notify_cq", B::req_notify_cq(&own.backend, solicited_only != 0))
}
