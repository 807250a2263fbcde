//! Protection domains and memory regions.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use rdmalab_abi::{
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_INPUT, IBV_REREG_MR_FLAGS_SUPPORTED, ibv_context,
    ibv_mr, ibv_pd,
};
use rdmalab_engine::backend::{Backend, MrChange, VerbsError, VerbsResult};
use rdmalab_engine::vocab::Access;

use crate::object::{MrObject, MrOwn, PdObject, PdOwn};
use crate::registry::new_cookie;
use crate::{answer, context, convert};

/// Makes a protection domain; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_alloc_pd<B: Backend>(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: by the contract of the module.
    let made = B::alloc_pd(unsafe { &context::own::<B>(context).backend }).map(|backend| {
        // SAFETY: by the contract of the module.
        unsafe { context::hold::<B>(context) };
        let public = ibv_pd { context, handle: new_cookie() as u32 };
        PdObject::<B>::leak(public, PdOwn { backend, address_handles: AtomicU32::new(0) })
    });
    answer::pointer("ibv_alloc_pd", made)
}

/// Frees a protection domain: 0, or an error number (`EBUSY` while objects use it).
pub unsafe extern "C-unwind" fn ibv_dealloc_pd<B: Backend>(pd: *mut ibv_pd) -> c_int {
    // SAFETY: by the contract of the module.
    answer::status("ibv_dealloc_pd", unsafe { dealloc_pd::<B>(pd) })
}

/// # Safety
/// As for [`ibv_dealloc_pd`].
unsafe fn dealloc_pd<B: Backend>(pd: *mut ibv_pd) -> VerbsResult<()> {
    // SAFETY: by the contract; it is freed only after the backend has freed its part.
    unsafe {
        let own = PdObject::<B>::find(pd)?;
        let handles = own.address_handles.load(Ordering::Relaxed);
        if handles != 0 {
            return Err(VerbsError::busy(format!("{handles} address handles use this PD")));
        }
        B::dealloc_pd(&own.backend)?;
        let context = (*pd).context;
        PdObject::<B>::free(pd);
        context::release::<B>(context);
    }
    Ok(())
}

/// Registers memory, addressed by its virtual addresses; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_reg_mr<B: Backend>(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract of the module.
    let made = unsafe { register::<B>(pd, addr, length, addr as u64, access as u32) };
    answer::pointer("ibv_reg_mr", made)
}

/// Registers memory, addressed from `iova` on; null and `errno` when that fails.
pub unsafe extern "C-unwind" fn ibv_reg_mr_iova<B: Backend>(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract of the module.
    let made = unsafe { register::<B>(pd, addr, length, iova, access as u32) };
    answer::pointer("ibv_reg_mr_iova", made)
}

/// As [`ibv_reg_mr_iova`]; the header calls this one when `access` may have optional rights, which
/// are ignored.
pub unsafe extern "C-unwind" fn ibv_reg_mr_iova2<B: Backend>(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: by the contract of the module.
    let made = unsafe { register::<B>(pd, addr, length, iova, access) };
    answer::pointer("ibv_reg_mr_iova2", made)
}

/// # Safety
/// `pd` is of this backend.
unsafe fn register<B: Backend>(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> VerbsResult<*mut ibv_mr> {
    let access = convert::access_from_c(access)?;
    let iova = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
    // SAFETY: by the contract.
    let (own, context) = unsafe { (PdObject::<B>::find(pd)?, (*pd).context) };
    let (backend, info) = B::reg_mr(&own.backend, addr as u64, length as u64, iova, access)?;
    // SAFETY: the context of a live domain.
    unsafe { context::hold::<B>(context) };
    let handle = new_cookie() as u32;
    let public = ibv_mr { context, pd, addr, length, handle, lkey: info.lkey, rkey: info.rkey };
    Ok(MrObject::<B>::leak(public, MrOwn { backend }))
}

/// Changes a region in place: 0, or an `ibv_rereg_mr_err_code` and `errno`. After
/// `IBV_REREG_MR_ERR_INPUT` the region is as before; after `IBV_REREG_MR_ERR_CMD` it can only be
/// deregistered.
pub unsafe extern "C-unwind" fn ibv_rereg_mr<B: Backend>(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let flags = flags as u32;
    let has = |flag| flags & flag != 0;
    let wanted = match check_change(flags, pd, addr, length, access as u32) {
        Ok(access) => access,
        Err(error) => {
            answer::number("ibv_rereg_mr", &error);
            return IBV_REREG_MR_ERR_INPUT;
        }
    };
    let moves = has(IBV_REREG_MR_CHANGE_TRANSLATION);
    let moves_pd = has(IBV_REREG_MR_CHANGE_PD);
    // SAFETY: by the contract of the module; `pd` is not read unless it is to be changed.
    let objects = unsafe {
        MrObject::<B>::find(mr).and_then(|own| {
            let pd = if moves_pd { Some(PdObject::<B>::find(pd)?) } else { None };
            Ok((own, pd))
        })
    };
    let (own, new_pd) = match objects {
        Ok(found) => found,
        Err(error) => {
            answer::number("ibv_rereg_mr", &error);
            return IBV_REREG_MR_ERR_INPUT;
        }
    };
    let change = MrChange {
        translation: moves.then_some((addr as u64, length as u64)),
        pd: new_pd.map(|pd| &pd.backend),
        access: has(IBV_REREG_MR_CHANGE_ACCESS).then_some(wanted),
    };
    match B::rereg_mr(&own.backend, change) {
        Ok(info) => {
            // SAFETY: by the contract of the module.
            unsafe {
                ((*mr).lkey, (*mr).rkey) = (info.lkey, info.rkey);
                if moves {
                    ((*mr).addr, (*mr).length) = (addr, length);
                }
                if moves_pd {
                    (*mr).pd = pd;
                }
            }
            0
        }
        Err(error) => {
            answer::number("ibv_rereg_mr", &error);
            IBV_REREG_MR_ERR_CMD
        }
    }
}

/// Checks everything that can be checked before the region changes; returns the requested rights.
fn check_change(
    flags: u32,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
) -> VerbsResult<Access> {
    let has = |flag| flags & flag != 0;
    if flags == 0 || flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
        return Err(VerbsError::invalid(format!("flags {flags:#x}; say what to change, of 0x7")));
    }
    if has(IBV_REREG_MR_CHANGE_TRANSLATION) && (addr.is_null() || length == 0) {
        return Err(VerbsError::invalid("a new translation needs an address and a length"));
    }
    if has(IBV_REREG_MR_CHANGE_PD) && pd.is_null() {
        return Err(VerbsError::invalid("a new PD is asked for, but pd is null"));
    }
    if access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS) {
        return Err(VerbsError::invalid("access is given without IBV_REREG_MR_CHANGE_ACCESS"));
    }
    convert::access_from_c(access)
}

/// Deregisters a region: 0, or an error number (`EBUSY` while windows are bound to it).
pub unsafe extern "C-unwind" fn ibv_dereg_mr<B: Backend>(mr: *mut ibv_mr) -> c_int {
    // SAFETY: by the contract of the module; it is freed only after the backend has deregistered
    // it.
    let result = unsafe {
        MrObject::<B>::find(mr).and_then(|own| B::dereg_mr(&own.backend)).map(|()| {
            let context = (*mr).context;
            MrObject::<B>::free(mr);
            context::release::<B>(context);
        })
    };
    answer::status("ibv_dereg_mr", result)
}
