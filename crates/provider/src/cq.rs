//! Completion queues, created by the classic or the extended verb.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering};

use rdmalab_abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex};
use rdmalab_engine::backend::{Backend, CqInit, ExtendedWc, VerbsError, VerbsResult};
use rdmalab_engine::vocab::Wc;

use crate::context::{self, COMP_VECTORS};
use crate::cq_ex;
use crate::critical_section::CriticalSection;
use crate::object::{ChannelObject, CqObject, CqOwn};
use crate::registry::{Element, new_cookie};
use crate::sync::acks;

/// The attributes of a new CQ.
pub(crate) struct Wanted {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
    /// The fields that extended polls will read: bits of `ibv_create_cq_wc_flags`.
    pub(crate) wc_flags: u64,
    pub(crate) timestamps: bool,
    pub(crate) ignore_overrun: bool,
    /// The program promises that one thread polls at a time.
    pub(crate) single_threaded: bool,
}

/// Makes a CQ.
///
/// # Safety
/// `context` and the channel (unless null) are of this backend.
pub(crate) unsafe fn create<B: Backend>(
    context: *mut ibv_context,
    wanted: &Wanted,
) -> VerbsResult<*mut ibv_cq_ex> {
    if wanted.comp_vector >= COMP_VECTORS as u32 {
        let vector = wanted.comp_vector;
        return Err(VerbsError::invalid(format!(
            "comp_vector {vector} is not below num_comp_vectors, which is {COMP_VECTORS}"
        )));
    }
    if wanted.cqe == 0 || i32::try_from(wanted.cqe).is_err() {
        let cqe = wanted.cqe as i32;
        return Err(VerbsError::invalid(format!("a CQ of {cqe} entries; it takes at least 1")));
    }
    // SAFETY: by the contract.
    let (own, channel) = unsafe {
        let channel = match wanted.channel.is_null() {
            true => None,
            false => Some(ChannelObject::<B>::find(wanted.channel)?),
        };
        (context::own::<B>(context), channel)
    };
    let cookie = new_cookie();
    let init = CqInit {
        cqe: wanted.cqe,
        channel: channel.map(|channel| &channel.backend),
        timestamps: wanted.timestamps,
        ignore_overrun: wanted.ignore_overrun,
        cookie,
    };
    let (backend, capacity) = B::create_cq(&own.backend, init)?;
    let mut public = ibv_cq_ex::zeroed();
    public.context = context;
    public.channel = wanted.channel;
    public.cq_context = wanted.cq_context;
    public.handle = cookie as u32;
    public.cqe = c_int::try_from(capacity).unwrap_or(c_int::MAX);
    cq_ex::fill::<B>(&mut public, wanted.wc_flags);
    let lock = (!wanted.single_threaded).then(CriticalSection::default);
    let current = UnsafeCell::new(ExtendedWc { wc: Wc::BLANK, timestamp: 0 });
    let cq = CqObject::<B>::leak(
        public,
        CqOwn { backend, channel: wanted.channel, cookie, lock, current },
    );
    // SAFETY: the object is new and not used elsewhere; the channel is alive by the contract.
    unsafe {
        acks!(cq, comp_events_completed).init();
        use_channel(wanted.channel, 1);
        context::hold::<B>(context);
    }
    own.registry.add(cookie, Element::Cq(cq.cast()));
    Ok(cq)
}

/// Destroys a CQ, once the program has acknowledged its events; on an error it stays.
///
/// # Safety
/// `cq` is of this backend, and not used elsewhere, except to acknowledge events.
pub(crate) unsafe fn destroy<B: Backend>(cq: *mut ibv_cq) -> VerbsResult<()> {
    // SAFETY: by the contract. The CQ leaves the registry before its counters are read, so no event
    // is delivered afterwards; it is freed when all delivered events are acknowledged.
    unsafe {
        let own = CqObject::<B>::find(cq.cast())?;
        B::destroy_cq(&own.backend)?;
        let context = (*cq).context;
        let delivered = context::own::<B>(context).registry.remove(own.cookie);
        acks!(cq, comp_events_completed).wait(delivered.completions);
        acks!(cq, async_events_completed).wait(delivered.asynchronous);
        use_channel(own.channel, -1);
        acks!(cq, comp_events_completed).destroy();
        CqObject::<B>::free(cq.cast());
        context::release::<B>(context);
    }
    Ok(())
}

/// Counts the CQs of a channel in its public counter.
///
/// # Safety
/// `channel` is null or alive.
unsafe fn use_channel(channel: *mut ibv_comp_channel, change: i32) {
    if !channel.is_null() {
        // SAFETY: the counter is aligned and alive, and this crate only changes it atomically.
        let refcnt = unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) };
        refcnt.fetch_add(change, Ordering::AcqRel);
    }
}

/// How many CQs use a channel.
///
/// # Safety
/// `channel` is alive.
pub(crate) unsafe fn channel_users(channel: *mut ibv_comp_channel) -> i32 {
    // SAFETY: as for `use_channel`.
    unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) }.load(Ordering::Acquire)
}
