//! Events of completion channels and of devices, and their acknowledgement.

use core::ffi::{c_int, c_uint, c_void};

use rdmalab_abi::*;
use rdmalab_engine::backend::{AsyncEvent, Backend, Deadline, VerbsError, VerbsResult};
use rdmalab_engine::vocab::AsyncEventObject;

use crate::object::ChannelObject;
use crate::registry::{Element, Registry};
use crate::sync::acks;
use crate::{answer, context};

/// Takes the next event of a channel: 0 and the CQ with its context, or -1 and `errno` (`EAGAIN`
/// when the descriptor is non-blocking and there is none). The program must acknowledge each.
pub unsafe extern "C-unwind" fn ibv_get_cq_event<B: Backend>(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the contract of the module. The CQ is alive while it is read: the event was
    // counted as delivered, so destroying the CQ waits for its acknowledgement.
    let result = unsafe {
        next_cq::<B>(channel).map(|found| {
            *cq = found;
            *cq_context = (*found).cq_context;
        })
    };
    answer::minus_one("ibv_get_cq_event", result)
}

/// # Safety
/// `channel` is of this backend.
unsafe fn next_cq<B: Backend>(channel: *mut ibv_comp_channel) -> VerbsResult<*mut ibv_cq> {
    // SAFETY: by the contract.
    let (own, registry, fd) = unsafe {
        let context = context::own::<B>((*channel).context);
        (ChannelObject::<B>::own(channel), &context.registry, (*channel).fd)
    };
    loop {
        // Events of a CQ that was destroyed meanwhile are skipped.
        let cookie = wait(fd, |until| B::wait_channel(&own.backend, until))?;
        if let Some(cq) = registry.deliver_completion(cookie) {
            return Ok(cq);
        }
    }
}

/// Waits for the next event of a channel for at most `limit_ns` of the device's clock, for back
/// ends without descriptors: 0 and the CQ with its context, or an error number, `EAGAIN` when none
/// came. The program must acknowledge each.
///
/// # Safety
/// `channel` is of this backend, and both places are valid for writes.
pub unsafe fn wait_cq_event<B: Backend>(
    channel: *mut ibv_comp_channel,
    limit_ns: u64,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: by the contract; for the CQ as in `ibv_get_cq_event`.
    unsafe {
        let context = context::own::<B>((*channel).context);
        let own = ChannelObject::<B>::own(channel);
        let until = deadline::<B>(&context.backend, limit_ns);
        loop {
            match B::wait_channel(&own.backend, until) {
                Err(error) if error.errno == VerbsError::EAGAIN => return error.errno,
                Err(error) => return answer::status("ibv_get_cq_event", Err(error)),
                Ok(cookie) => {
                    // Events of a CQ that was destroyed meanwhile are skipped.
                    if let Some(found) = context.registry.deliver_completion(cookie) {
                        *cq = found;
                        *cq_context = (*found).cq_context;
                        return 0;
                    }
                }
            }
        }
    }
}

/// The end of so many nanoseconds of the device's clock.
fn deadline<B: Backend>(context: &B::Context, limit_ns: u64) -> Deadline {
    let ticks_per_s = u128::from(B::query_device(context).hca_core_clock_khz) * 1000;
    let ticks = u128::from(limit_ns) * ticks_per_s / 1_000_000_000;
    let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
    Deadline::At(B::read_clock(context).saturating_add(ticks))
}

/// The next event; without one, waits for it, unless the program made the descriptor non-blocking.
fn wait<T>(fd: c_int, next: impl Fn(Deadline) -> VerbsResult<T>) -> VerbsResult<T> {
    match next(Deadline::Now) {
        Err(error) if error.errno == VerbsError::EAGAIN && !is_nonblocking(fd) => {
            next(Deadline::Never)
        }
        looked => looked,
    }
}

/// Whether the descriptor is non-blocking; false for the missing descriptor -1.
fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: F_GETFL takes no pointer, and fails for what is no descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Acknowledges `nevents` events of a CQ.
pub unsafe extern "C-unwind" fn ibv_ack_cq_events<B: Backend>(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: by the contract of the module.
    unsafe { acks!(cq, comp_events_completed).acknowledge(nevents) };
}

/// Takes the next asynchronous event: 0, or -1 and `errno` (`EAGAIN` when the descriptor is
/// non-blocking and there is none). The program must acknowledge each.
pub unsafe extern "C-unwind" fn ibv_get_async_event<B: Backend>(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: by the contract of the module.
    let result = unsafe {
        next_async::<B>(context).map(|(element, event_type)| {
            (*event).element = element;
            (*event).event_type = event_type;
        })
    };
    answer::minus_one("ibv_get_async_event", result)
}

/// # Safety
/// `context` is of this backend.
unsafe fn next_async<B: Backend>(
    context: *mut ibv_context,
) -> VerbsResult<(ibv_async_event_element, u32)> {
    // SAFETY: by the contract.
    let (own, fd) = unsafe { (context::own::<B>(context), (*context).async_fd) };
    loop {
        let event = wait(fd, |until| B::wait_async_event(&own.backend, until))?;
        // Events of an object that was destroyed meanwhile are skipped.
        if let Some(element) = element_of(&own.registry, &event) {
            return Ok((element, event.event_type as u32));
        }
    }
}

/// Waits for the next asynchronous event for at most `limit_ns` of the device's clock, for back
/// ends without descriptors: 0 and the event, or an error number, `EAGAIN` when none came. The
/// program must acknowledge each.
///
/// # Safety
/// `context` is of this backend, and `event` is valid for writes.
pub unsafe fn wait_async_event<B: Backend>(
    context: *mut ibv_context,
    limit_ns: u64,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: by the contract.
    let own = unsafe { context::own::<B>(context) };
    let until = deadline::<B>(&own.backend, limit_ns);
    loop {
        match B::wait_async_event(&own.backend, until) {
            Err(error) if error.errno == VerbsError::EAGAIN => return error.errno,
            Err(error) => return answer::status("ibv_get_async_event", Err(error)),
            Ok(found) => {
                // Events of an object that was destroyed meanwhile are skipped.
                if let Some(element) = element_of(&own.registry, &found) {
                    // SAFETY: by the contract.
                    unsafe {
                        (*event).element = element;
                        (*event).event_type = found.event_type as u32;
                    }
                    return 0;
                }
            }
        }
    }
}

/// The object or port of an event; `None` if the object is gone.
fn element_of(registry: &Registry, event: &AsyncEvent) -> Option<ibv_async_event_element> {
    let mut element = ibv_async_event_element::zeroed();
    match event.event_type.object() {
        AsyncEventObject::Port => element.port_num = event.element as c_int,
        kind => match registry.deliver_asynchronous(event.element, kind)? {
            Element::Cq(cq) => element.cq = cq,
            Element::Qp(qp) => element.qp = qp,
            Element::Srq(srq) => element.srq = srq,
        },
    }
    Some(element)
}

/// Acknowledges an asynchronous event.
pub unsafe extern "C-unwind" fn ibv_ack_async_event<B: Backend>(event: *mut ibv_async_event) {
    // SAFETY: by the contract of the module: the event is as `ibv_get_async_event` wrote it, so its
    // type says which member of the union is valid.
    unsafe {
        let element = (*event).element;
        match (*event).event_type {
            IBV_EVENT_CQ_ERR => acks!(element.cq, async_events_completed).acknowledge(1),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                acks!(element.qp, events_completed).acknowledge(1);
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                acks!(element.srq, events_completed).acknowledge(1);
            }
            // Events of ports and of the device have no object.
            _ => {}
        }
    }
}
