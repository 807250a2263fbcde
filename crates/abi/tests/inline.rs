//! The inline functions fall back as those of the header do, even with an older or newer library.

use rdmalab_abi::inline::*;
use rdmalab_abi::*;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::{null, null_mut};

/// The size that rdma-core 44 allocates for a `verbs_context`.
const SIZE_44: usize = 648;

/// A context with only the last `size` bytes, as an older library allocates it. A memory checker
/// would report an access before them.
struct Context {
    memory: Vec<u64>,
    size: usize,
}

impl Context {
    fn new(size: usize) -> Self {
        let mut context = Self { memory: vec![0; size / 8], size };
        context.set(offset_of!(verbs_context, sz), size);
        let compat = offset_of!(verbs_context, context) + offset_of!(ibv_context, abi_compat);
        context.set(compat, VERBS_ABI_IS_EXTENDED);
        context
    }

    /// Writes at an offset of the present structure.
    fn set<T>(&mut self, offset: usize, value: T) {
        let at = offset - (size_of::<verbs_context>() - self.size);
        assert!(at + size_of::<T>() <= self.size);
        // SAFETY: within the memory, which nothing else refers to.
        unsafe { self.memory.as_mut_ptr().byte_add(at).cast::<T>().write_unaligned(value) }
    }

    fn pointer(&mut self) -> *mut ibv_context {
        let at = self.size - size_of::<ibv_context>();
        self.memory.as_mut_ptr().wrapping_byte_add(at).cast()
    }
}

unsafe extern "C-unwind" fn port_of_len(
    _: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    assert_eq!(len, 56);
    // SAFETY: the caller's attributes.
    unsafe { (*attr).lid = u16::from(port_num) + 100 };
    0
}

unsafe extern "C-unwind" fn old_port(
    _: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's attributes.
    unsafe { (*attr).lid = u16::from(port_num) + 200 };
    0
}

fn port_lid(context: &mut Context) -> u16 {
    let table = VerbsTable { query_port: old_port, ..VerbsTable::UNSUPPORTED };
    let mut attr = ibv_port_attr::zeroed();
    attr.active_speed_ex = 7;
    // SAFETY: a live context, and attributes to write to.
    let ret = unsafe { ibv_query_port(&table, context.pointer(), 1, &mut attr) };
    assert_eq!(ret, 0);
    // The fall-back sets the fields to 0 that the old function does not write.
    assert_eq!(attr.active_speed_ex, if attr.lid > 200 { 0 } else { 7 });
    attr.lid
}

#[test]
fn a_slot_is_used_if_it_is_there_and_filled() {
    let slot = offset_of!(verbs_context, query_port);
    for size in [SIZE_44, size_of::<verbs_context>()] {
        let mut context = Context::new(size);
        assert_eq!(port_lid(&mut context), 201, "an empty slot");
        context.set(slot, port_of_len as *const c_void);
        assert_eq!(port_lid(&mut context), 101, "a filled slot");
    }
}

#[test]
fn a_slot_that_was_not_allocated_is_not_read() {
    let mut context = Context::new(SIZE_44 - 8);
    assert_eq!(port_lid(&mut context), 201);
}

#[test]
fn a_context_without_extension_has_no_slots() {
    let mut context = Context::new(SIZE_44);
    context.set(offset_of!(verbs_context, query_port), port_of_len as *const c_void);
    let compat = offset_of!(verbs_context, context) + offset_of!(ibv_context, abi_compat);
    context.set(compat, null_mut::<c_void>());
    assert_eq!(port_lid(&mut context), 201);
    // SAFETY: a live context.
    assert!(unsafe { verbs_get_ctx(context.pointer()) }.is_null());
}

#[test]
fn a_missing_operation_is_not_supported() {
    let mut context = Context::new(SIZE_44);
    set_errno(0);
    // SAFETY: a live context; without the slot the attributes are not looked at.
    assert!(unsafe { ibv_create_cq_ex(context.pointer(), null_mut()) }.is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    // SAFETY: as above.
    let ret = unsafe { ibv_query_rt_values_ex(context.pointer(), null_mut()) };
    assert_eq!(ret, libc::EOPNOTSUPP);
}

unsafe extern "C-unwind" fn broken_query(
    _: *mut ibv_context,
    _: *const ibv_query_device_ex_input,
    _: *mut ibv_device_attr_ex,
    _: usize,
) -> c_int {
    libc::EOPNOTSUPP
}

unsafe extern "C-unwind" fn old_query(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's attributes.
    unsafe { (*attr).max_qp = 5 };
    0
}

#[test]
fn device_attributes_fall_back_to_the_old_ones() {
    let table = VerbsTable { query_device: old_query, ..VerbsTable::UNSUPPORTED };
    let mut context = Context::new(SIZE_44);
    for filled in [false, true] {
        if filled {
            let slot = offset_of!(verbs_context, query_device_ex);
            context.set(slot, broken_query as *const c_void);
        }
        let mut attr = ibv_device_attr_ex::zeroed();
        attr.hca_core_clock = 9;
        // SAFETY: a live context, and attributes to write to.
        let ret = unsafe { ibv_query_device_ex(&table, context.pointer(), null(), &mut attr) };
        assert_eq!((ret, attr.orig_attr.max_qp, attr.hca_core_clock), (0, 5, 0));
    }
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    let mut attr = ibv_device_attr_ex::zeroed();
    // SAFETY: as above.
    let ret = unsafe { ibv_query_device_ex(&table, context.pointer(), &input, &mut attr) };
    assert_eq!(ret, libc::EINVAL);
}

unsafe extern "C-unwind" fn old_create(_: *mut ibv_pd, _: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    std::ptr::without_provenance_mut(8)
}

#[test]
fn a_qp_with_only_a_domain_is_made_the_old_way() {
    let table = VerbsTable { create_qp: old_create, ..VerbsTable::UNSUPPORTED };
    let mut context = Context::new(SIZE_44);
    let mut attr = ibv_qp_init_attr_ex::zeroed();
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    // SAFETY: a live context, and valid attributes.
    assert_eq!(unsafe { ibv_create_qp_ex(&table, context.pointer(), &mut attr) }.addr(), 8);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    // SAFETY: as above.
    assert!(unsafe { ibv_create_qp_ex(&table, context.pointer(), &mut attr) }.is_null());
}

#[test]
fn windows_are_checked_before_they_are_bound() {
    let mut context = Context::new(SIZE_44);
    let (mut pd, mut other) = (ibv_pd::zeroed(), ibv_pd::zeroed());
    let (mut mw, mut mr) = (ibv_mw::zeroed(), ibv_mr::zeroed());
    mw.context = context.pointer();
    (mw.pd, mr.pd) = (&mut pd, &mut other);
    let mut bind = ibv_mw_bind::zeroed();
    let call = |mw: &mut ibv_mw, bind: &mut ibv_mw_bind| {
        // SAFETY: live objects; the checks are made before the QP is looked at.
        unsafe { ibv_bind_mw(null_mut(), mw, bind) }
    };
    mw.r#type = IBV_MW_TYPE_2;
    assert_eq!(call(&mut mw, &mut bind), libc::EINVAL);
    mw.r#type = IBV_MW_TYPE_1;
    bind.bind_info.length = 1;
    assert_eq!(call(&mut mw, &mut bind), libc::EINVAL);
    let region = &raw mut mr;
    bind.bind_info.mr = region;
    assert_eq!(call(&mut mw, &mut bind), libc::EPERM);
    // SAFETY: the region is live, and nobody else looks at it.
    unsafe { (*region).pd = mw.pd };
    assert_eq!(call(&mut mw, &mut bind), libc::EOPNOTSUPP);
}

#[test]
fn the_low_bits_of_a_key_wrap() {
    assert_eq!(ibv_inc_rkey(0x1234_56ff), 0x1234_5600);
    assert_eq!(ibv_inc_rkey(0xffff_ffff), 0xffff_ff00);
    assert_eq!(ibv_inc_rkey(7), 8);
}
