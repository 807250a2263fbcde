//! Address handles.

use core::ffi::c_int;

use rdmalab_abi::{ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_pd, ibv_wc};
use rdmalab_engine::backend::Backend;

use crate::object::PdObject;
use crate::{ah, answer};

/// Makes an address handle; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_create_ah<B: Backend>(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: by the contract of the module.
    answer::pointer("ibv_create_ah", unsafe { ah::create::<B>(pd, &*attr) })
}

/// The address of the sender of a datagram: 0, or -1 and `errno`. `grh` is read only if the
/// completion has the flag for it.
pub unsafe extern "C-unwind" fn ibv_init_ah_from_wc<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: by the contract of the module.
    let attr = unsafe { ah::from_wc::<B>(context, port_num, &*wc, grh) };
    // SAFETY: as above.
    let result = attr.map(|attr| unsafe { ah_attr.write(attr) });
    answer::minus_one("ibv_init_ah_from_wc", result)
}

/// An address handle of the sender of a datagram; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_create_ah_from_wc<B: Backend>(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    // SAFETY: by the contract of the module.
    let made = unsafe {
        PdObject::<B>::find(pd)
            .and_then(|_| ah::from_wc::<B>((*pd).context, port_num, &*wc, grh))
            .and_then(|attr| ah::create::<B>(pd, &attr))
    };
    answer::pointer("ibv_create_ah_from_wc", made)
}

/// Frees an address handle: 0, or an error number. Requests that were posted with it are not
/// affected.
pub unsafe extern "C-unwind" fn ibv_destroy_ah<B: Backend>(ah: *mut ibv_ah) -> c_int {
    // SAFETY: by the contract of the module.
    answer::status("ibv_destroy_ah", unsafe { ah::destroy::<B>(ah) })
}
