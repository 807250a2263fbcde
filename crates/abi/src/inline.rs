//! The inline functions of `<infiniband/verbs.h>`, with the same fall-backs.
//!
//! Operations are called through the slots of [`ibv_context::ops`], which always exist; those of
//! [`verbs_context`], which may be absent and are checked first; and the function pointers in
//! extended completion queues and queue pairs. Functions for which the header falls back to an
//! exported function take the [`VerbsTable`] as the first argument.
//!
//! # Safety
//! All functions here take raw C pointers. Each must point to a live object of its type that came
//! from the same library, and must stay so during the call; out-parameters must be valid for
//! writes. The manual page of each operation lists its further conditions.
#![allow(clippy::missing_safety_doc)] // One contract for all of them, above.

use crate::consts::*;
pub use crate::errno::set_errno;
use crate::loader::VerbsTable;
use crate::types::*;
use core::ffi::{c_int, c_uint, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;

/// Reads a slot of the context around `ctx`, if the library that allocated it has the slot.
///
/// The slot is addressed by its distance from `ctx`, without a reference: an older library
/// allocated less memory before `ctx` than today's structure has. `_which` only gives the type of
/// the slot.
unsafe fn slot<T: Copy>(
    ctx: *mut ibv_context,
    offset: usize,
    _which: fn(&verbs_context) -> &Option<T>,
) -> Option<T> {
    // SAFETY: `ctx` is a live context, so its last field can be read.
    if unsafe { (*ctx).abi_compat } != VERBS_ABI_IS_EXTENDED {
        return None;
    }
    let base = ctx.wrapping_byte_sub(offset_of!(verbs_context, context));
    let sz = base.wrapping_byte_add(offset_of!(verbs_context, sz)).cast::<usize>();
    // SAFETY: an extended context has its size directly before it.
    let sz = unsafe { sz.read() };
    if sz < size_of::<verbs_context>() - offset {
        return None;
    }
    // SAFETY: `sz` says that the memory from this slot on to the end was allocated, and the
    // slot holds null or a function of this type.
    unsafe { base.wrapping_byte_add(offset).cast::<Option<T>>().read() }
}

/// Reads the slot of that name.
macro_rules! ctx_op {
    ($ctx:expr, $op:ident) => {
        // SAFETY: the caller's contract: the context is live.
        unsafe { slot($ctx, offset_of!(verbs_context, $op), |v| &v.$op) }
    };
}

/// Inline functions that call an optional slot and return `$absent` without it: `C function(context
/// expression): slot(arguments) -> type, or value;`.
macro_rules! optional {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty,
        via $ctx:expr, $op:ident, or $absent:expr;)*) => {$(
        $(#[$meta])*
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller's contract: the object is live, so its context can be read; the
            // slot belongs to that context, and the arguments are the caller's.
            unsafe {
                match slot($ctx, offset_of!(verbs_context, $op), |v| &v.$op) {
                    Some(op) => op($($arg),*),
                    None => $absent,
                }
            }
        }
    )*};
}

/// Sets `errno` to "not supported" and returns null.
fn unsupported<T>() -> *mut T {
    set_errno(libc::EOPNOTSUPP);
    null_mut()
}

/// The extended context around `ctx`, or null if it has none. Slots that an older library lacks lie
/// before its allocation: only compare this pointer, and call the functions below.
pub unsafe fn verbs_get_ctx(ctx: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller's contract: the context is live.
    if unsafe { (*ctx).abi_compat } != VERBS_ABI_IS_EXTENDED {
        return null_mut();
    }
    ctx.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

optional! {
    /// Extended CQ; null and `errno`.
    fn ibv_create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex)
        -> *mut ibv_cq_ex, via context, create_cq_ex, or unsupported();
    /// Changes a CQ; 0, or an error number.
    fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int,
        via (*cq).context, modify_cq, or libc::EOPNOTSUPP;
    /// Advice on paging; 0, or an error number.
    fn ibv_advise_mr(pd: *mut ibv_pd, advice: u32, flags: u32, sg_list: *mut ibv_sge,
        num_sge: u32) -> c_int, via (*pd).context, advise_mr, or libc::EOPNOTSUPP;
    /// A region that discards writes and reads as zeroes; null and `errno`.
    fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr,
        via (*pd).context, alloc_null_mr, or unsupported();
    /// Number of an SRQ; 0, or an error number.
    fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int,
        via (*srq).context, get_srq_num, or libc::EOPNOTSUPP;
    /// Limits the rate of a QP; 0, or an error number.
    fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int,
        via (*qp).context, modify_qp_rate_limit, or libc::EOPNOTSUPP;
    /// A thread domain; null and `errno`.
    fn ibv_alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td,
        via context, alloc_td, or unsupported();
    /// Frees a thread domain; 0, or an error number.
    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int,
        via (*td).context, dealloc_td, or libc::EOPNOTSUPP;
    /// A parent domain; null and `errno`.
    fn ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr)
        -> *mut ibv_pd, via context, alloc_parent_domain, or unsupported();
    /// The clock of a device; 0, or an error number.
    fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int,
        via context, query_rt_values, or libc::EOPNOTSUPP;
    /// An XRC domain; null and `errno`.
    fn ibv_open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd,
        via context, open_xrcd, or unsupported();
    /// Frees an XRC domain; 0, or an error number.
    fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int,
        via (*xrcd).context, close_xrcd, or libc::EOPNOTSUPP;
}

/// All of a port's attributes that the library knows; the rest is zero. 0, or an error number.
pub unsafe fn ibv_query_port(
    table: &VerbsTable,
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    match ctx_op!(context, query_port) {
        // SAFETY: the slot belongs to this context, and `attr` has the length that is passed.
        Some(op) => unsafe { op(context, port_num, attr, size_of::<ibv_port_attr>()) },
        None => {
            // SAFETY: the caller's contract: `attr` is valid for writes, and larger than what
            // the exported function writes.
            unsafe {
                attr.write(ibv_port_attr::zeroed());
                (table.query_port)(context, port_num, attr)
            }
        }
    }
}

/// A GID with its type; 0, or an error number.
pub unsafe fn ibv_query_gid_ex(
    table: &VerbsTable,
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
) -> c_int {
    // SAFETY: the caller's contract, and `entry` has the length that is passed.
    unsafe {
        (table.query_gid_ex)(context, port_num, gid_index, entry, 0, size_of::<ibv_gid_entry>())
    }
}

/// The capabilities of a device, with all extensions; without the slot, or if it is not supported,
/// the old attributes and zeroes for the rest. 0, or an error number.
pub unsafe fn ibv_query_device_ex(
    table: &VerbsTable,
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller's contract: `input` is null or valid.
    if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
        return libc::EINVAL;
    }
    if let Some(op) = ctx_op!(context, query_device_ex) {
        // SAFETY: the slot belongs to this context, and `attr` has the length that is passed.
        let ret = unsafe { op(context, input, attr, size_of::<ibv_device_attr_ex>()) };
        if ret != libc::EOPNOTSUPP && ret != libc::ENOSYS {
            return ret;
        }
    }
    // SAFETY: the caller's contract: `attr` is valid for writes.
    unsafe {
        attr.write(ibv_device_attr_ex::zeroed());
        (table.query_device)(context, &raw mut (*attr).orig_attr)
    }
}

/// Registers a region: by the old function unless there are optional rights, else by the one that
/// may ignore them. Null and `errno`.
pub unsafe fn ibv_reg_mr(
    table: &VerbsTable,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's contract.
    unsafe {
        if access & IBV_ACCESS_OPTIONAL_RANGE == 0 {
            (table.reg_mr)(pd, addr, length, access as c_int)
        } else {
            (table.reg_mr_iova2)(pd, addr, length, addr as u64, access)
        }
    }
}

/// Creates an SRQ with types and domains, or without, by the old function. Null and `errno`.
pub unsafe fn ibv_create_srq_ex(
    table: &VerbsTable,
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const OLD: u32 = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
    // SAFETY: the caller's contract: `attr` is valid.
    let (mask, srq_type, pd) = unsafe { ((*attr).comp_mask, (*attr).srq_type, (*attr).pd) };
    let basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || srq_type == IBV_SRQT_BASIC;
    if mask & !OLD == 0 && mask & IBV_SRQ_INIT_ATTR_PD != 0 && basic {
        // SAFETY: the caller's contract; the structure starts as the old one.
        return unsafe { (table.create_srq)(pd, attr.cast()) };
    }
    match ctx_op!(context, create_srq_ex) {
        // SAFETY: the slot belongs to this context, and the arguments are the caller's.
        Some(op) => unsafe { op(context, attr) },
        None => unsupported(),
    }
}

/// Creates a QP with extensions; with only a domain, by the old function. Null and `errno`.
pub unsafe fn ibv_create_qp_ex(
    table: &VerbsTable,
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's contract: `attr` is valid.
    let (mask, pd) = unsafe { ((*attr).comp_mask, (*attr).pd) };
    if mask == IBV_QP_INIT_ATTR_PD {
        // SAFETY: the caller's contract; the structure starts as the old one.
        return unsafe { (table.create_qp)(pd, attr.cast()) };
    }
    match ctx_op!(context, create_qp_ex) {
        // SAFETY: the slot belongs to this context, and the arguments are the caller's.
        Some(op) => unsafe { op(context, attr) },
        None => unsupported(),
    }
}

/// A memory window; null and `errno`.
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, mw_type: u32) -> *mut ibv_mw {
    // SAFETY: the caller's contract: the domain and its context are live.
    match unsafe { (*(*pd).context).ops.alloc_mw } {
        // SAFETY: the slot belongs to this context.
        Some(op) => unsafe { op(pd, mw_type) },
        None => unsupported(),
    }
}

/// Binds a window of type 1; 0, or an error number.
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller's contract: window, request and region are live.
    unsafe {
        let info = &(*bind).bind_info;
        if (*mw).r#type != IBV_MW_TYPE_1 {
            return libc::EINVAL;
        }
        if info.mr.is_null() && (info.addr != 0 || info.length != 0) {
            return libc::EINVAL;
        }
        if !info.mr.is_null() && (*mw).pd != (*info.mr).pd {
            return libc::EPERM;
        }
        match (*(*mw).context).ops.bind_mw {
            Some(op) => op(qp, mw, bind),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// The key with its low 8 bits, which belong to the program, incremented.
pub const fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// The extended CQ as an `ibv_cq`, with which it begins.
pub const fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Inline functions that call a slot without a check: where C would jump to null, these panic.
macro_rules! direct {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?,
        via $slot:expr;)*) => {$(
        $(#[$meta])*
        ///
        /// # Panics
        /// If the object was made without this operation.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the caller's contract: the object and its context are live, and the slot
            // belongs to it.
            unsafe {
                match $slot {
                    Some(op) => op($($arg),*),
                    None => absent(stringify!($name)),
                }
            }
        }
    )*};
}

#[cold]
fn absent(name: &str) -> ! {
    panic!("{name}: the object was made without this operation")
}

direct! {
    /// Frees a window; 0, or an error number.
    fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int, via (*(*mw).context).ops.dealloc_mw;
    /// Reads completions: how many, or negative.
    fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int,
        via (*(*cq).context).ops.poll_cq;
    /// Asks for an event with the next completion; 0, or an error number.
    fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int,
        via (*(*cq).context).ops.req_notify_cq;
    /// Posts sends; 0, or an error number with the first refused request in `bad_wr`.
    fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr)
        -> c_int, via (*(*qp).context).ops.post_send;
    /// Posts receives; 0, or an error number with the first refused request in `bad_wr`.
    fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr)
        -> c_int, via (*(*qp).context).ops.post_recv;
    /// Posts receives to an SRQ; 0, or an error number with the first refused in `bad_wr`.
    fn ibv_post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr,
        bad_wr: *mut *mut ibv_recv_wr) -> c_int, via (*(*srq).context).ops.post_srq_recv;
    /// Goes to the first completion; 0, `ENOENT`, or an error number.
    fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int,
        via (*cq).start_poll;
    /// Goes to the next completion; 0, `ENOENT`, or an error number.
    fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int, via (*cq).next_poll;
    /// Ends what `ibv_start_poll` began.
    fn ibv_end_poll(cq: *mut ibv_cq_ex), via (*cq).end_poll;
    /// An `ibv_wc_opcode`.
    fn ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> u32, via (*cq).read_opcode;
    /// The vendor's detail of an error.
    fn ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32, via (*cq).read_vendor_err;
    /// Bytes received, or read.
    fn ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32, via (*cq).read_byte_len;
    /// Immediate data, network byte order; or the invalidated key.
    fn ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> u32, via (*cq).read_imm_data;
    /// The local QP.
    fn ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32, via (*cq).read_qp_num;
    /// The sending QP.
    fn ibv_wc_read_src_qp(cq: *mut ibv_cq_ex) -> u32, via (*cq).read_src_qp;
    /// Bits of `ibv_wc_flags`.
    fn ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint, via (*cq).read_wc_flags;
    /// The sender's LID.
    fn ibv_wc_read_slid(cq: *mut ibv_cq_ex) -> u32, via (*cq).read_slid;
    /// The service level.
    fn ibv_wc_read_sl(cq: *mut ibv_cq_ex) -> u8, via (*cq).read_sl;
    /// The path bits of the destination.
    fn ibv_wc_read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8, via (*cq).read_dlid_path_bits;
    /// Time stamp, in ticks of the adapter's clock.
    fn ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64, via (*cq).read_completion_ts;
    /// Opens a batch.
    fn ibv_wr_start(qp: *mut ibv_qp_ex), via (*qp).wr_start;
    /// Posts the batch; 0, or an error number.
    fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int, via (*qp).wr_complete;
    /// Drops the batch.
    fn ibv_wr_abort(qp: *mut ibv_qp_ex), via (*qp).wr_abort;
    /// Starts a SEND.
    fn ibv_wr_send(qp: *mut ibv_qp_ex), via (*qp).wr_send;
    /// Starts a SEND with immediate data (network byte order).
    fn ibv_wr_send_imm(qp: *mut ibv_qp_ex, imm_data: u32), via (*qp).wr_send_imm;
    /// Starts a SEND with invalidate.
    fn ibv_wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32), via (*qp).wr_send_inv;
    /// Starts a WRITE.
    fn ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64),
        via (*qp).wr_rdma_write;
    /// Starts a WRITE with immediate data (network byte order).
    fn ibv_wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: u32),
        via (*qp).wr_rdma_write_imm;
    /// Starts a READ.
    fn ibv_wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64), via (*qp).wr_rdma_read;
    /// Starts a compare-and-swap.
    fn ibv_wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64,
        swap: u64), via (*qp).wr_atomic_cmp_swp;
    /// Starts a fetch-and-add.
    fn ibv_wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64),
        via (*qp).wr_atomic_fetch_add;
    /// Starts the binding of a window.
    fn ibv_wr_bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32,
        info: *const ibv_mw_bind_info), via (*qp).wr_bind_mw;
    /// Starts the invalidation of a key.
    fn ibv_wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32), via (*qp).wr_local_inv;
    /// Sets the destination of a datagram.
    fn ibv_wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32,
        remote_qkey: u32), via (*qp).wr_set_ud_addr;
    /// Sets the one piece of memory.
    fn ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32),
        via (*qp).wr_set_sge;
    /// Sets the pieces of memory.
    fn ibv_wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge),
        via (*qp).wr_set_sge_list;
    /// Copies the bytes at once (inline).
    fn ibv_wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize),
        via (*qp).wr_set_inline_data;
    /// Copies the bytes of several pieces at once (inline).
    fn ibv_wr_set_inline_data_list(qp: *mut ibv_qp_ex, num_buf: usize,
        buf_list: *const ibv_data_buf), via (*qp).wr_set_inline_data_list;
}
