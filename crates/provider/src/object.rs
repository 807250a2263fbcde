//! A C object with our own part behind it.
//!
//! Programs see the public structure of libibverbs and read and write it as they like; what we need
//! to know about the object lies behind it, at an address that only we compute. Rust references
//! are made to our part alone, never to the part that C may write.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::AtomicU32;

use rdmalab_abi::{
    ibv_ah, ibv_comp_channel, ibv_cq, ibv_cq_ex, ibv_mr, ibv_mw, ibv_pd, ibv_qp_cap, ibv_qp_ex,
    ibv_srq,
};
use rdmalab_engine::backend::{Backend, ExtendedWc};
use rdmalab_engine::vocab::AhAttr;

use crate::batch::Builder;
use crate::spin_lock::SpinLock;

/// A public structure `C` and our own part `P` behind it, at a stable address.
#[repr(C)]
pub(crate) struct Object<C, P> {
    public: C,
    own: P,
}

impl<C, P> Object<C, P> {
    /// Makes an object; it lives until [`Object::free`].
    pub(crate) fn leak(public: C, own: P) -> *mut C {
        Box::into_raw(Box::new(Self { public, own })).cast()
    }

    /// Our own part of an object.
    ///
    /// # Safety
    /// `public` came from [`Object::leak`] with the same `C` and `P`, and is not freed during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn own<'a>(public: *mut C) -> &'a P {
        // SAFETY: `public` is the first field of a live `Self` (`repr(C)`), by the contract; the
        // reference covers `own` only, which C never writes.
        unsafe { &(*public.cast::<Self>()).own }
    }

    /// Frees an object.
    ///
    /// # Safety
    /// As for [`Object::own`], and nobody uses the object afterwards.
    pub(crate) unsafe fn free(public: *mut C) {
        // SAFETY: the allocation is that of `leak`, and by the contract this is its last use.
        drop(unsafe { Box::from_raw(public.cast::<Self>()) });
    }
}

/// A protection domain.
pub(crate) type PdObject<B> = Object<ibv_pd, PdOwn<B>>;
/// A memory region.
pub(crate) type MrObject<B> = Object<ibv_mr, MrOwn<B>>;
/// A memory window.
pub(crate) type MwObject<B> = Object<ibv_mw, MwOwn<B>>;
/// A completion channel.
pub(crate) type ChannelObject<B> = Object<ibv_comp_channel, ChannelOwn<B>>;
/// A completion queue: each is allocated as the extended one.
pub(crate) type CqObject<B> = Object<ibv_cq_ex, CqOwn<B>>;
/// A shared receive queue.
pub(crate) type SrqObject<B> = Object<ibv_srq, SrqOwn<B>>;
/// A queue pair: each is allocated as the extended one.
pub(crate) type QpObject<B> = Object<ibv_qp_ex, QpOwn<B>>;
/// An address handle.
pub(crate) type AhObject = Object<ibv_ah, AhOwn>;

/// Our part of a protection domain.
pub(crate) struct PdOwn<B: Backend> {
    pub(crate) backend: B::Pd,
    /// Address handles of it, which the backend does not know: they keep it busy.
    pub(crate) address_handles: AtomicU32,
}

/// Our part of a memory region.
pub(crate) struct MrOwn<B: Backend> {
    pub(crate) backend: B::Mr,
}

/// Our part of a memory window.
pub(crate) struct MwOwn<B: Backend> {
    pub(crate) backend: B::Mw,
}

/// Our part of a completion channel.
pub(crate) struct ChannelOwn<B: Backend> {
    pub(crate) backend: B::Channel,
}

/// Our part of a completion queue.
pub(crate) struct CqOwn<B: Backend> {
    pub(crate) backend: B::Cq,
    /// Names it in the registry of its context.
    pub(crate) cookie: u64,
    /// Held between `start_poll` and `end_poll`; `None` when one thread polls at a time.
    pub(crate) lock: Option<SpinLock>,
    /// The completion that the readers of an extended queue read.
    pub(crate) current: UnsafeCell<ExtendedWc>,
}

/// Our part of a shared receive queue.
pub(crate) struct SrqOwn<B: Backend> {
    pub(crate) backend: B::Srq,
    /// Names it in the registry of its context.
    pub(crate) cookie: u64,
}

/// Our part of a queue pair.
pub(crate) struct QpOwn<B: Backend> {
    pub(crate) backend: B::Qp,
    /// Whether a send carries an address.
    pub(crate) is_ud: bool,
    /// Names it in the registry of its context.
    pub(crate) cookie: u64,
    /// How it was made, for `ibv_query_qp`.
    pub(crate) made: QpMade,
    /// The batch of `ibv_wr_start`; `None` when the QP was not made for it.
    pub(crate) builder: Option<Builder>,
}

/// How a QP was made: what `ibv_query_qp` says in its `init_attr`.
#[derive(Clone, Copy)]
pub(crate) struct QpMade {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: i32,
}

/// Our part of an address handle.
pub(crate) struct AhOwn {
    pub(crate) attr: AhAttr,
}
