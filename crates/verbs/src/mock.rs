//! A library of verbs for tests, which only records its calls. Each test thread has its own record.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use rdmalab_abi::*;

use crate::library::{Kind, Library, SoftHooks};

/// The record of a thread's library, and its behaviour.
#[derive(Default)]
pub(crate) struct Memory {
    /// The calls that made, changed or destroyed something, by their short names.
    pub log: Vec<String>,
    /// The posted requests, as (number, opcode, flags, first piece).
    pub posted: Vec<(u64, u32, u32, u64)>,
    /// Refuse the request with this number.
    pub refuse_wr_id: Option<u64>,
    /// The completions that polling returns.
    pub completions: Vec<ibv_wc>,
    /// The mask of the last modification.
    pub last_mask: u32,
    /// Refuse to deregister regions.
    pub keeps_regions: bool,
    /// The library's message for its last error.
    pub sentence: Option<String>,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// Accesses this thread's record.
pub(crate) fn memory<T>(look: impl FnOnce(&mut Memory) -> T) -> T {
    MEMORY.with(|memory| look(&mut memory.borrow_mut()))
}

fn log(what: &str) {
    memory(|m| m.log.push(what.to_owned()));
}

fn sentence() -> Option<String> {
    memory(|m| m.sentence.clone())
}

/// The library.
pub(crate) fn library() -> Library {
    let hooks = SoftHooks {
        alloc_shared: |_| Err(std::io::ErrorKind::OutOfMemory.into()),
        free_shared: |_| {},
        last_error: sentence,
        load_cm: || {
            let (library, reason) = ("none".to_owned(), "it is a mock".to_owned());
            Err(LoadError::Open { library, reason })
        },
    };
    Library::new(table(), Kind::Sim, Some(hooks))
}

/// Creates an object, and logs it.
fn made<T>(what: &str, object: T) -> *mut T {
    log(&format!("+{what}"));
    Box::into_raw(Box::new(object))
}

/// Destroys an object, and logs it.
fn gone<T>(what: &str, object: *mut T) -> c_int {
    log(&format!("-{what}"));
    // SAFETY: it came from `made`, and the crate under test destroys it once.
    drop(unsafe { Box::from_raw(object) });
    0
}

extern "C-unwind" fn get_device_list(num: *mut c_int) -> *mut *mut ibv_device {
    let device = made("device", ibv_device::zeroed());
    // SAFETY: the caller's count is valid for writes.
    unsafe { *num = 1 };
    Box::into_raw(Box::new([device, null_mut()])).cast()
}

extern "C-unwind" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it came from `get_device_list`.
    let list = unsafe { Box::from_raw(list.cast::<[*mut ibv_device; 2]>()) };
    gone("device", list[0]);
}

extern "C-unwind" fn get_device_name(_: *mut ibv_device) -> *const c_char {
    c"mock0".as_ptr()
}

extern "C-unwind" fn get_device_guid(_: *mut ibv_device) -> u64 {
    0x0102_0304_0506_0708u64.to_be()
}

extern "C-unwind" fn open_device(_: *mut ibv_device) -> *mut ibv_context {
    let mut context = ibv_context::zeroed();
    context.ops.poll_cq = Some(poll_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    context.ops.post_srq_recv = Some(post_srq_recv);
    made("context", context)
}

extern "C-unwind" fn close_device(context: *mut ibv_context) -> c_int {
    gone("context", context)
}

extern "C-unwind" fn query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's answer is valid for writes.
    unsafe { (*attr).max_qp_wr = 77 };
    0
}

extern "C-unwind" fn query_port(_: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's answer is valid for writes.
    unsafe {
        (*attr).lid = 9;
        (*attr).state = IBV_PORT_ACTIVE;
        (*attr).active_mtu = IBV_MTU_2048;
    }
    0
}

extern "C-unwind" fn query_gid(_: *mut ibv_context, _: u8, i: c_int, gid: *mut ibv_gid) -> c_int {
    if i != 0 {
        inline::set_errno(libc::ENODATA);
        return -1;
    }
    // SAFETY: the caller's answer is valid for writes.
    unsafe { (*gid).raw = std::net::Ipv6Addr::LOCALHOST.octets() };
    0
}

extern "C-unwind" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    made("pd", ibv_pd { context, ..ibv_pd::zeroed() })
}

extern "C-unwind" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    gone("pd", pd)
}

extern "C-unwind" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    if access as u32 == IBV_ACCESS_REMOTE_WRITE {
        inline::set_errno(libc::EINVAL);
        memory(|m| m.sentence = Some("ibv_reg_mr: REMOTE_WRITE needs LOCAL_WRITE".into()));
        return null_mut();
    }
    made("mr", ibv_mr { pd, addr, length, lkey: 5, rkey: 6, ..ibv_mr::zeroed() })
}

extern "C-unwind" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    if memory(|m| m.keeps_regions) { libc::EBUSY } else { gone("mr", mr) }
}

extern "C-unwind" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    made("channel", ibv_comp_channel { context, fd: -1, refcnt: 0 })
}

extern "C-unwind" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    gone("channel", channel)
}

extern "C-unwind" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    made("cq", ibv_cq { context, cqe, cq_context, channel, ..ibv_cq::zeroed() })
}

extern "C-unwind" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    gone("cq", cq)
}

extern "C-unwind" fn create_srq(pd: *mut ibv_pd, _: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the domain is alive.
    let context = unsafe { (*pd).context };
    made("srq", ibv_srq { context, pd, ..ibv_srq::zeroed() })
}

extern "C-unwind" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    gone("srq", srq)
}

extern "C-unwind" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: domain and attributes are alive.
    let (context, attr) = unsafe { ((*pd).context, &mut *attr) };
    attr.cap.max_inline_data = 64;
    made("qp", ibv_qp { context, pd, qp_num: 0xabc, qp_type: attr.qp_type, ..ibv_qp::zeroed() })
}

extern "C-unwind" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    gone("qp", qp)
}

extern "C-unwind" fn modify_qp(_: *mut ibv_qp, _: *mut ibv_qp_attr, mask: c_int) -> c_int {
    memory(|m| m.last_mask = mask as u32);
    0
}

extern "C-unwind" fn create_ah(pd: *mut ibv_pd, _: *mut ibv_ah_attr) -> *mut ibv_ah {
    made("ah", ibv_ah { pd, ..ibv_ah::zeroed() })
}

extern "C-unwind" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    gone("ah", ah)
}

unsafe extern "C-unwind" fn poll_cq(_: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int {
    let found = memory(|m| {
        let n = m.completions.len().min(n as usize);
        m.completions.drain(..n).collect::<Vec<_>>()
    });
    for (i, completion) in found.iter().enumerate() {
        // SAFETY: the caller has room for `n`.
        unsafe { *wc.add(i) = *completion };
    }
    found.len() as c_int
}

unsafe extern "C-unwind" fn post_send(
    _: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    while !wr.is_null() {
        // SAFETY: the caller's list is whole, and its pieces are there.
        let (one, piece) = unsafe { (*wr, (*wr).sg_list.as_ref().map_or(0, |s| s.addr)) };
        if memory(|m| m.refuse_wr_id) == Some(one.wr_id) {
            // SAFETY: the caller's answer is valid for writes.
            unsafe { *bad = wr };
            return libc::ENOMEM;
        }
        memory(|m| m.posted.push((one.wr_id, one.opcode, one.send_flags, piece)));
        wr = one.next;
    }
    0
}

unsafe fn post_receives(mut wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    while !wr.is_null() {
        // SAFETY: the caller's list is whole, and its pieces are there.
        let (one, piece) = unsafe { (*wr, (*wr).sg_list.as_ref().map_or(0, |s| s.addr)) };
        if memory(|m| m.refuse_wr_id) == Some(one.wr_id) {
            // SAFETY: the caller's answer is valid for writes.
            unsafe { *bad = wr };
            return libc::ENOMEM;
        }
        memory(|m| m.posted.push((one.wr_id, u32::MAX, 0, piece)));
        wr = one.next;
    }
    0
}

unsafe extern "C-unwind" fn post_recv(
    _: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's list.
    unsafe { post_receives(wr, bad) }
}

unsafe extern "C-unwind" fn post_srq_recv(
    _: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's list.
    unsafe { post_receives(wr, bad) }
}

/// The functions that no test needs: each returns "not supported" in its convention.
macro_rules! absent {
    ($($name:ident($($ty:ty),*) -> $ret:ty = $value:expr;)*) => {$(
        extern "C-unwind" fn $name($(_: $ty),*) -> $ret {
            inline::set_errno(libc::EOPNOTSUPP);
            $value
        }
    )*};
}

absent! {
    query_gid_ex(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int
        = libc::EOPNOTSUPP;
    query_pkey(*mut ibv_context, u8, c_int, *mut u16) -> c_int = -1;
    reg_mr_iova2(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr = null_mut();
    rereg_mr(*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int = -1;
    resize_cq(*mut ibv_cq, c_int) -> c_int = libc::EOPNOTSUPP;
    get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int = -1;
    ack_cq_events(*mut ibv_cq, c_uint) -> () = ();
    modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int = libc::EOPNOTSUPP;
    query_srq(*mut ibv_srq, *mut ibv_srq_attr) -> c_int = libc::EOPNOTSUPP;
    query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int
        = libc::EOPNOTSUPP;
    attach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int = libc::EOPNOTSUPP;
    detach_mcast(*mut ibv_qp, *const ibv_gid, u16) -> c_int = libc::EOPNOTSUPP;
    get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int = -1;
    ack_async_event(*mut ibv_async_event) -> () = ();
    wc_status_str(u32) -> *const c_char = CStr::as_ptr(c"?");
    qp_to_qp_ex(*mut ibv_qp) -> *mut ibv_qp_ex = null_mut();
    fork_init() -> c_int = 0;
}

fn table() -> VerbsTable {
    VerbsTable {
        get_device_list,
        free_device_list,
        get_device_name,
        get_device_guid,
        open_device,
        close_device,
        query_device,
        query_port,
        query_gid,
        query_gid_ex,
        query_pkey,
        alloc_pd,
        dealloc_pd,
        reg_mr,
        reg_mr_iova2,
        dereg_mr,
        rereg_mr,
        create_comp_channel,
        destroy_comp_channel,
        create_cq,
        destroy_cq,
        resize_cq,
        get_cq_event,
        ack_cq_events,
        create_srq,
        modify_srq,
        query_srq,
        destroy_srq,
        create_qp,
        modify_qp,
        query_qp,
        destroy_qp,
        create_ah,
        destroy_ah,
        attach_mcast,
        detach_mcast,
        get_async_event,
        ack_async_event,
        wc_status_str,
        qp_to_qp_ex,
        fork_init,
    }
}
