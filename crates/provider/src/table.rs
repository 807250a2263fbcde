//! The exported functions of a backend as a table, without a shared library.

use core::ffi::{CStr, c_char, c_int};

use rdmalab_abi::ibv_device;
use rdmalab_abi::loader::VerbsTable;
use rdmalab_engine::backend::{Backend, ProcessBackend, VerbsError};
use rdmalab_engine::vocab::WcStatus;

use crate::{answer, exports};

/// The table of a backend, as a library with this backend would export it.
pub fn table<B: ProcessBackend>() -> VerbsTable {
    VerbsTable { get_device_list: exports::ibv_get_device_list::<B>, ..instance_table::<B>() }
}

/// The table for devices of any instance of a backend, of [`Devices`](crate::Devices). Its
/// `ibv_get_device_list` fails with `ENOSYS`, because that C function takes no instance.
pub fn instance_table<B: Backend>() -> VerbsTable {
    VerbsTable {
        get_device_list: no_device_list,
        free_device_list: exports::ibv_free_device_list::<B>,
        get_device_name: exports::ibv_get_device_name::<B>,
        get_device_guid: exports::ibv_get_device_guid::<B>,
        open_device: exports::ibv_open_device::<B>,
        close_device: exports::ibv_close_device::<B>,
        query_device: exports::ibv_query_device::<B>,
        query_port: exports::ibv_query_port::<B>,
        query_gid: exports::ibv_query_gid::<B>,
        query_gid_ex: exports::_ibv_query_gid_ex::<B>,
        query_pkey: exports::ibv_query_pkey::<B>,
        alloc_pd: exports::ibv_alloc_pd::<B>,
        dealloc_pd: exports::ibv_dealloc_pd::<B>,
        reg_mr: exports::ibv_reg_mr::<B>,
        reg_mr_iova2: exports::ibv_reg_mr_iova2::<B>,
        dereg_mr: exports::ibv_dereg_mr::<B>,
        rereg_mr: exports::ibv_rereg_mr::<B>,
        create_comp_channel: exports::ibv_create_comp_channel::<B>,
        destroy_comp_channel: exports::ibv_destroy_comp_channel::<B>,
        create_cq: exports::ibv_create_cq::<B>,
        destroy_cq: exports::ibv_destroy_cq::<B>,
        resize_cq: exports::ibv_resize_cq::<B>,
        get_cq_event: exports::ibv_get_cq_event::<B>,
        ack_cq_events: exports::ibv_ack_cq_events::<B>,
        create_srq: exports::ibv_create_srq::<B>,
        modify_srq: exports::ibv_modify_srq::<B>,
        query_srq: exports::ibv_query_srq::<B>,
        destroy_srq: exports::ibv_destroy_srq::<B>,
        create_qp: exports::ibv_create_qp::<B>,
        modify_qp: exports::ibv_modify_qp::<B>,
        query_qp: exports::ibv_query_qp::<B>,
        destroy_qp: exports::ibv_destroy_qp::<B>,
        create_ah: exports::ibv_create_ah::<B>,
        destroy_ah: exports::ibv_destroy_ah::<B>,
        attach_mcast: exports::ibv_attach_mcast::<B>,
        detach_mcast: exports::ibv_detach_mcast::<B>,
        get_async_event: exports::ibv_get_async_event::<B>,
        ack_async_event: exports::ibv_ack_async_event::<B>,
        wc_status_str,
        qp_to_qp_ex: exports::ibv_qp_to_qp_ex::<B>,
        fork_init,
    }
}

unsafe extern "C-unwind" fn no_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    if !num_devices.is_null() {
        // SAFETY: a pointer that is not null is the caller's variable.
        unsafe { *num_devices = 0 };
    }
    let error = VerbsError::new(libc::ENOSYS, "the devices of an instance are not the process's");
    answer::pointer("ibv_get_device_list", Err(error))
}

/// Whether `fork` needs preparation (`ibv_fork_init`): never, since no page is pinned. Always 0.
///
/// # Safety
/// None; the signature is C's.
pub unsafe extern "C-unwind" fn fork_init() -> c_int {
    0
}

/// The status of a completion in words (`ibv_wc_status_str`), as a string that lives for ever.
///
/// # Safety
/// None; the signature is C's.
pub unsafe extern "C-unwind" fn wc_status_str(status: u32) -> *const c_char {
    WcStatus::from_ibv(status).map_or(c"unknown status", status_text).as_ptr()
}

/// The meaning of a status, with the name that the manual pages use.
const fn status_text(status: WcStatus) -> &'static CStr {
    match status {
        WcStatus::Success => c"success",
        WcStatus::LocLenErr => c"LOC_LEN_ERR: a local buffer is too short",
        WcStatus::LocQpOpErr => c"LOC_QP_OP_ERR: the request does not fit the QP",
        WcStatus::LocEecOpErr => c"LOC_EEC_OP_ERR: the request does not fit the EE context",
        WcStatus::LocProtErr => c"LOC_PROT_ERR: a local key, range or right is wrong",
        WcStatus::WrFlushErr => c"WR_FLUSH_ERR: flushed, the QP was in the error state",
        WcStatus::MwBindErr => c"MW_BIND_ERR: the window could not be bound",
        WcStatus::BadRespErr => c"BAD_RESP_ERR: the response was not understood",
        WcStatus::LocAccessErr => c"LOC_ACCESS_ERR: a local buffer could not be accessed",
        WcStatus::RemInvReqErr => c"REM_INV_REQ_ERR: the peer found the request invalid",
        WcStatus::RemAccessErr => c"REM_ACCESS_ERR: a remote key, range or right is wrong",
        WcStatus::RemOpErr => c"REM_OP_ERR: the peer could not complete the request",
        WcStatus::RetryExcErr => c"RETRY_EXC_ERR: no answer from the peer after all retries",
        WcStatus::RnrRetryExcErr => c"RNR_RETRY_EXC_ERR: the peer had no receive posted",
        WcStatus::LocRddViolErr => c"LOC_RDD_VIOL_ERR: RD domains do not match",
        WcStatus::RemInvRdReqErr => c"REM_INV_RD_REQ_ERR: the peer found the RD request invalid",
        WcStatus::RemAbortErr => c"REM_ABORT_ERR: aborted by the peer",
        WcStatus::InvEecnErr => c"INV_EECN_ERR: no such EE context",
        WcStatus::InvEecStateErr => c"INV_EEC_STATE_ERR: wrong state of the EE context",
        WcStatus::FatalErr => c"FATAL_ERR: the device failed",
        WcStatus::RespTimeoutErr => c"RESP_TIMEOUT_ERR: the response came too late",
        WcStatus::GeneralErr => c"GENERAL_ERR: an error without a code of its own",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_status_has_words_of_its_own() {
        let texts: BTreeSet<_> = WcStatus::ALL.iter().map(|s| status_text(*s)).collect();
        assert_eq!(texts.len(), WcStatus::ALL.len());
        // SAFETY: the function has no conditions, and its string lives for ever.
        let unknown = unsafe { CStr::from_ptr(wc_status_str(999)) };
        assert_eq!(unknown, c"unknown status");
    }
}
