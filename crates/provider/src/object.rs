//! A C object with a private part after it.
//!
//! Programs see the public structure of libibverbs and may read and write it; the data that this
//! crate needs about the object lies after it, at an address that only this crate computes. Rust
//! references refer to the private part alone, never to the part that C may write.

use core::any::TypeId;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::sync::atomic::AtomicU32;

use rdmalab_abi::{
    ibv_ah, ibv_comp_channel, ibv_cq, ibv_cq_ex, ibv_mr, ibv_mw, ibv_pd, ibv_qp_cap, ibv_qp_ex,
    ibv_srq, verbs_context,
};
use rdmalab_engine::backend::{Backend, ExtendedWc, VerbsResult};
use rdmalab_engine::vocab::AhAttr;

use crate::batch::Builder;
use crate::critical_section::CriticalSection;
use crate::live::{self, Identity};

/// A public structure `C` and a private part `P` after it, at a stable address.
#[repr(C)]
pub(crate) struct Object<C, P> {
    public: C,
    own: P,
}

impl<C: Public + 'static, P: 'static> Object<C, P> {
    /// Creates an object; it lives until [`Object::free`].
    pub(crate) fn leak(public: C, own: P) -> *mut C {
        let identity = public.identity();
        let object = Box::into_raw(Box::new(Self { public, own }));
        live::add(object.addr(), TypeId::of::<Self>(), identity);
        object.cast()
    }

    /// The private part of an object that the program names in a verb off the data path.
    ///
    /// # Errors
    /// As [`live::check`]: the object was destroyed, or its fields were overwritten.
    ///
    /// # Safety
    /// No other thread destroys the object during `'a`.
    pub(crate) unsafe fn find<'a>(public: *mut C) -> VerbsResult<&'a P> {
        live::check(public.addr(), TypeId::of::<Self>(), C::NAME, || {
            // SAFETY: called for an object that is alive.
            unsafe { (*public).identity() }
        })?;
        // SAFETY: the object is alive, and stays so by the contract.
        Ok(unsafe { Self::own(public) })
    }

    /// The private part of an object.
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
    /// As for [`Object::own`], and the object is not used afterwards.
    pub(crate) unsafe fn free(public: *mut C) {
        live::remove(public.addr());
        // SAFETY: the allocation is that of `leak`, and by the contract this is its last use.
        drop(unsafe { Box::from_raw(public.cast::<Self>()) });
    }
}

/// A structure that programs see.
pub(crate) trait Public {
    /// What it is, for messages.
    const NAME: &'static str;

    /// The fields that this crate relies on.
    fn identity(&self) -> Identity;
}

macro_rules! public {
    ($($type:ty: $name:literal, $($handle:ident).+, $($context:ident).+;)*) => {$(
        impl Public for $type {
            const NAME: &'static str = $name;

            fn identity(&self) -> Identity {
                Identity { handle: self.$($handle).+ as u32, context: self.$($context).+.addr() }
            }
        }
    )*};
}

public! {
    ibv_pd: "PD", handle, context;
    ibv_mr: "MR", handle, context;
    ibv_mw: "MW", handle, context;
    ibv_comp_channel: "completion channel", fd, context;
    ibv_cq_ex: "CQ", handle, context;
    ibv_srq: "SRQ", handle, context;
    ibv_qp_ex: "QP", qp_base.handle, qp_base.context;
    ibv_ah: "AH", handle, context;
}

impl Public for verbs_context {
    const NAME: &'static str = "context";

    fn identity(&self) -> Identity {
        Identity { handle: 0, context: 0 }
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

/// The private part of a protection domain.
pub(crate) struct PdOwn<B: Backend> {
    pub(crate) backend: B::Pd,
    /// Its address handles, which the backend does not know; it is busy while there are any.
    pub(crate) address_handles: AtomicU32,
}

/// The private part of a memory region.
pub(crate) struct MrOwn<B: Backend> {
    pub(crate) backend: B::Mr,
}

/// The private part of a memory window.
pub(crate) struct MwOwn<B: Backend> {
    pub(crate) backend: B::Mw,
}

/// The private part of a completion channel.
pub(crate) struct ChannelOwn<B: Backend> {
    pub(crate) backend: B::Channel,
}

/// The private part of a completion queue.
pub(crate) struct CqOwn<B: Backend> {
    pub(crate) backend: B::Cq,
    /// Its channel, or null.
    pub(crate) channel: *mut ibv_comp_channel,
    /// Its key in the registry of its context.
    pub(crate) cookie: u64,
    /// Held between `start_poll` and `end_poll`; `None` when one thread polls at a time.
    pub(crate) lock: Option<CriticalSection>,
    /// The completion that the readers of an extended queue read.
    pub(crate) current: UnsafeCell<ExtendedWc>,
}

/// The private part of a shared receive queue.
pub(crate) struct SrqOwn<B: Backend> {
    pub(crate) backend: B::Srq,
    /// Its key in the registry of its context.
    pub(crate) cookie: u64,
}

/// The private part of a queue pair.
pub(crate) struct QpOwn<B: Backend> {
    pub(crate) backend: B::Qp,
    /// Whether a send carries an address.
    pub(crate) is_ud: bool,
    /// Its key in the registry of its context.
    pub(crate) cookie: u64,
    /// The attributes with which it was created, for `ibv_query_qp`.
    pub(crate) made: QpMade,
    /// The batch of `ibv_wr_start`; `None` when the QP was not made for it.
    pub(crate) builder: Option<Builder>,
}

/// The attributes with which a QP was created: `ibv_query_qp` returns them in `init_attr`.
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

/// The private part of an address handle.
pub(crate) struct AhOwn {
    /// Its protection domain.
    pub(crate) pd: *mut ibv_pd,
    pub(crate) attr: AhAttr,
}
