//! The objects that most tests need: an open device, registered memory, and two connected QPs.

use core::ffi::c_int;
use core::ptr::{self, null_mut};

use rdmalab_abi::{inline, *};
use rdmalab_provider::table::table;

use crate::mock::Mock;

/// Every access right of a region, except on-demand paging and huge pages.
pub const ALL_RIGHTS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND;

/// Options for a fixture.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub qp_type: u32,
    pub cqe: c_int,
    pub max_send_wr: u32,
    pub with_srq: bool,
    /// `send_ops_flags`, for QPs with the `ibv_wr_*` calls.
    pub send_ops: Option<u64>,
}

pub const RC: Wanted =
    Wanted { qp_type: IBV_QPT_RC, cqe: 100, max_send_wr: 8, with_srq: false, send_ops: None };

/// An open device with a region, a channel, a CQ, and the QPs `a` and `b`, which are connected.
pub struct Fixture {
    pub t: VerbsTable,
    pub ctx: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub mr: *mut ibv_mr,
    pub channel: *mut ibv_comp_channel,
    pub cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub a: *mut ibv_qp,
    pub b: *mut ibv_qp,
    memory: Box<[u8; 4096]>,
}

/// The device `mock0`, open.
pub fn open() -> (VerbsTable, *mut ibv_context) {
    let t = table::<Mock>();
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let list = (t.get_device_list)(null_mut());
        assert!(!list.is_null());
        let ctx = (t.open_device)(*list);
        assert!(!ctx.is_null());
        (t.free_device_list)(list);
        (t, ctx)
    }
}

impl Fixture {
    pub fn new(wanted: Wanted) -> Self {
        let (t, ctx) = open();
        Self::on(t, ctx, wanted)
    }

    /// A fixture on an open device of the mock.
    pub fn on(t: VerbsTable, ctx: *mut ibv_context, wanted: Wanted) -> Self {
        let mut memory = Box::new([0; 4096]);
        // SAFETY: the calls are those of a correct C program.
        unsafe {
            let pd = (t.alloc_pd)(ctx);
            let start = memory.as_mut_ptr().cast();
            let mr = (t.reg_mr)(pd, start, memory.len(), ALL_RIGHTS as c_int);
            let channel = (t.create_comp_channel)(ctx);
            let cq = (t.create_cq)(ctx, wanted.cqe, ptr::without_provenance_mut(0xc0), channel, 0);
            assert!(!pd.is_null() && !mr.is_null() && !channel.is_null() && !cq.is_null());
            let srq = if wanted.with_srq { make_srq(&t, pd) } else { null_mut() };
            let make = || make_qp(&t, ctx, pd, cq, srq, wanted);
            let (a, b) = (make(), make());
            connect(&t, a, (*b).qp_num);
            connect(&t, b, (*a).qp_num);
            Fixture { t, ctx, pd, mr, channel, cq, srq, a, b, memory }
        }
    }

    /// The address of byte `offset` of the region.
    pub fn at(&self, offset: usize) -> u64 {
        self.memory.as_ptr() as u64 + offset as u64
    }

    /// `N` bytes of the region.
    pub fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: the fixture owns the memory, and nothing writes it while this runs.
        unsafe { (self.at(offset) as *const [u8; N]).read_unaligned() }
    }

    /// Writes bytes to the region.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// An element that covers a part of the region.
    pub fn sge(&self, offset: usize, length: u32) -> ibv_sge {
        // SAFETY: the region is alive.
        ibv_sge { addr: self.at(offset), length, lkey: unsafe { (*self.mr).lkey } }
    }

    /// Posts one receive on `qp`.
    pub fn receive(&self, qp: *mut ibv_qp, wr_id: u64, mut sge: ibv_sge) {
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the calls are those of a correct C program.
        unsafe { assert_eq!(inline::ibv_post_recv(qp, &mut wr, &mut bad), 0) };
    }

    /// The next completion, which must be available.
    pub fn completion(&self) -> ibv_wc {
        let mut wc = ibv_wc::zeroed();
        // SAFETY: the calls are those of a correct C program.
        assert_eq!(unsafe { inline::ibv_poll_cq(self.cq, 1, &mut wc) }, 1, "no completion");
        wc
    }

    /// Asserts that no completion is available.
    pub fn no_completion(&self) {
        let mut wc = ibv_wc::zeroed();
        // SAFETY: the calls are those of a correct C program.
        assert_eq!(unsafe { inline::ibv_poll_cq(self.cq, 1, &mut wc) }, 0, "{wc:?}");
    }
}

/// Destroys everything in order; the device can then be closed.
impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: the calls are those of a correct C program, which uses nothing afterwards.
        unsafe {
            for qp in [self.a, self.b] {
                assert_eq!((self.t.destroy_qp)(qp), 0);
            }
            if !self.srq.is_null() {
                assert_eq!((self.t.destroy_srq)(self.srq), 0);
            }
            assert_eq!((self.t.destroy_cq)(self.cq), 0);
            assert_eq!((self.t.destroy_comp_channel)(self.channel), 0);
            assert_eq!((self.t.dereg_mr)(self.mr), 0);
            assert_eq!((self.t.dealloc_pd)(self.pd), 0);
            assert_eq!((self.t.close_device)(self.ctx), 0);
        }
    }
}

/// # Safety
/// `pd` is alive.
unsafe fn make_srq(t: &VerbsTable, pd: *mut ibv_pd) -> *mut ibv_srq {
    let mut init = ibv_srq_init_attr::zeroed();
    init.attr.max_wr = 9;
    init.attr.max_sge = 1;
    // SAFETY: by the contract.
    let srq = unsafe { (t.create_srq)(pd, &mut init) };
    assert!(!srq.is_null());
    assert_eq!(init.attr.max_wr, 16, "what was granted is written back");
    srq
}

/// The attributes for a QP of a fixture.
pub fn init_attr(cq: *mut ibv_cq, srq: *mut ibv_srq, wanted: Wanted) -> ibv_qp_init_attr_ex {
    let mut init = ibv_qp_init_attr_ex::zeroed();
    init.qp_context = ptr::without_provenance_mut(0x99);
    init.send_cq = cq;
    init.recv_cq = cq;
    init.srq = srq;
    init.qp_type = wanted.qp_type;
    init.cap.max_send_wr = wanted.max_send_wr;
    init.cap.max_recv_wr = 8;
    init.cap.max_send_sge = 1;
    init.cap.max_recv_sge = 2;
    init.cap.max_inline_data = 16;
    init
}

/// # Safety
/// All objects are alive.
unsafe fn make_qp(
    t: &VerbsTable,
    ctx: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    wanted: Wanted,
) -> *mut ibv_qp {
    let mut init = init_attr(cq, srq, wanted);
    init.pd = pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    if let Some(send_ops) = wanted.send_ops {
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = send_ops;
    }
    // SAFETY: by the contract.
    let qp = unsafe { inline::ibv_create_qp_ex(t, ctx, &mut init) };
    assert!(!qp.is_null());
    assert_eq!(init.cap.max_inline_data, 64, "what was granted is written back");
    assert_ne!(init.comp_mask, 0, "the bytes behind the classic attributes are not touched");
    qp
}

/// Brings a QP to RTS, connected to `dest`.
///
/// # Safety
/// `qp` is alive.
unsafe fn connect(t: &VerbsTable, qp: *mut ibv_qp, dest: u32) {
    let mut attr = ibv_qp_attr::zeroed();
    attr.dest_qp_num = dest;
    for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        attr.qp_state = state;
        let mask = IBV_QP_STATE | if state == IBV_QPS_RTR { IBV_QP_DEST_QPN } else { 0 };
        // SAFETY: by the contract.
        unsafe {
            assert_eq!((t.modify_qp)(qp, &mut attr, mask as c_int), 0);
            assert_eq!((*qp).state, state);
        }
    }
}

/// A signaled send with one element.
pub fn send(wr_id: u64, opcode: u32, sge: &mut ibv_sge) -> ibv_send_wr {
    let mut wr = ibv_send_wr::zeroed();
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr
}

/// `errno` of this thread.
pub fn errno() -> c_int {
    // SAFETY: the location is valid for this thread.
    unsafe { *libc::__errno_location() }
}

/// Makes a descriptor non-blocking.
pub fn set_nonblocking(fd: c_int) {
    // SAFETY: fcntl takes any descriptor.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}
