//! Functions of libibverbs that no soft device supports: each reports `EOPNOTSUPP` in its way.

use core::ffi::c_int;
use core::ptr;

use rdmalab_abi::{ibv_context, ibv_dm, ibv_ece, ibv_mr, ibv_pd, ibv_qp};
use rdmalab_engine::backend::Backend;

use crate::answer::{self, not_here};

/// Null and `errno`.
fn no_object<T>(verb: &'static str) -> *mut T {
    answer::number(verb, &not_here(verb));
    ptr::null_mut()
}

/// Opens a device by another process's descriptor: null, and `EOPNOTSUPP`.
pub unsafe extern "C-unwind" fn ibv_import_device<B: Backend>(_cmd_fd: c_int) -> *mut ibv_context {
    no_object("ibv_import_device")
}

/// Names another process's protection domain: null, and `EOPNOTSUPP`.
pub unsafe extern "C-unwind" fn ibv_import_pd<B: Backend>(
    _context: *mut ibv_context,
    _pd_handle: u32,
) -> *mut ibv_pd {
    no_object("ibv_import_pd")
}

/// Does nothing, because nothing can be imported.
pub unsafe extern "C-unwind" fn ibv_unimport_pd<B: Backend>(_pd: *mut ibv_pd) {}

/// Names another process's region: null, and `EOPNOTSUPP`.
pub unsafe extern "C-unwind" fn ibv_import_mr<B: Backend>(
    _pd: *mut ibv_pd,
    _mr_handle: u32,
) -> *mut ibv_mr {
    no_object("ibv_import_mr")
}

/// Does nothing, because nothing can be imported.
pub unsafe extern "C-unwind" fn ibv_unimport_mr<B: Backend>(_mr: *mut ibv_mr) {}

/// Names another process's device memory: null, and `EOPNOTSUPP`.
pub unsafe extern "C-unwind" fn ibv_import_dm<B: Backend>(
    _context: *mut ibv_context,
    _dm_handle: u32,
) -> *mut ibv_dm {
    no_object("ibv_import_dm")
}

/// Does nothing, because nothing can be imported.
pub unsafe extern "C-unwind" fn ibv_unimport_dm<B: Backend>(_dm: *mut ibv_dm) {}

/// Registers memory of another device: null, and `EOPNOTSUPP`.
pub unsafe extern "C-unwind" fn ibv_reg_dmabuf_mr<B: Backend>(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    no_object("ibv_reg_dmabuf_mr")
}

/// Sets a vendor's connection options: `EOPNOTSUPP`.
pub unsafe extern "C-unwind" fn ibv_set_ece<B: Backend>(
    _qp: *mut ibv_qp,
    _ece: *mut ibv_ece,
) -> c_int {
    answer::number("ibv_set_ece", &not_here("ibv_set_ece"))
}

/// Queries a vendor's connection options: `EOPNOTSUPP`.
pub unsafe extern "C-unwind" fn ibv_query_ece<B: Backend>(
    _qp: *mut ibv_qp,
    _ece: *mut ibv_ece,
) -> c_int {
    answer::number("ibv_query_ece", &not_here("ibv_query_ece"))
}
