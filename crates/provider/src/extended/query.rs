//! Extended queries.

use core::ffi::c_int;

use libc::timespec;
use rdmalab_abi::{
    IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_device_attr_ex, ibv_port_attr,
    ibv_query_device_ex_input, ibv_values_ex,
};
use rdmalab_engine::backend::{Backend, VerbsError};

use crate::exports::port::{copy_out, write_port};
use crate::{answer, context, convert};

/// `ibv_query_port`: 0, or an error number. Exactly `attr_len` bytes are written.
pub(crate) unsafe extern "C-unwind" fn query_port<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    attr_len: usize,
) -> c_int {
    // SAFETY: the header calls with a context whose function this is, and its own length.
    unsafe { write_port::<B>(context, port_num, attr, attr_len) }
}

/// `ibv_query_device_ex`: 0, or an error number. Exactly `attr_size` bytes are written.
pub(crate) unsafe extern "C-unwind" fn query_device_ex<B: Backend>(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    // SAFETY: the header calls with a context whose function this is, null or an input, and the
    // caller's structure with its length.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            let error = VerbsError::invalid("comp_mask of ibv_query_device_ex_input must be 0");
            return answer::number("ibv_query_device_ex", &error);
        }
        let caps = B::query_device(&context::own::<B>(context).backend);
        copy_out(&convert::device_attr_ex_to_c(&caps), attr, attr_size);
    }
    0
}

/// `ibv_query_rt_values_ex`: 0, or an error number. `comp_mask` names the values that were written;
/// the clock's ticks are in `tv_nsec`, as with every adapter.
pub(crate) unsafe extern "C-unwind" fn query_rt_values<B: Backend>(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: the header calls with a context whose function this is, and the caller's structure.
    unsafe {
        let own = context::own::<B>(context);
        if B::query_device(&own.backend).completion_timestamp_mask == 0 {
            let error = VerbsError::unsupported("this device has no clock that can be read");
            return answer::number("ibv_query_rt_values_ex", &error);
        }
        let asked = (*values).comp_mask & IBV_VALUES_MASK_RAW_CLOCK;
        if asked != 0 {
            let ticks = B::read_clock(&own.backend);
            (*values).raw_clock = timespec { tv_sec: 0, tv_nsec: ticks as libc::c_long };
        }
        (*values).comp_mask = asked;
    }
    0
}
