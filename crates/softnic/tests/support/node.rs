//! Verbs for tests: a device with a protection domain, memory, and endpoints to be connected.

use std::mem::MaybeUninit;
use std::time::Instant;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::{Channel, Context, Cq, Mr, Pd, SoftNic, SoftQp, Srq, alloc_shared};
use rdmalab_testing::WaitLimit;
use rdmalab_wire::ids::Qpn;

use super::{Link, PATIENCE};

/// Every right that a region or QP can give.
pub const ALL_RIGHTS: Access = Access(Access::LOCAL_WRITE.0 | Access::REMOTE.0 | Access::MW_BIND.0);
/// The Q_Key of every UD QP here.
pub const QKEY: u32 = 0x1234_5678;
/// `enum ibv_mtu` of 4096 bytes.
pub const MTU_4096: u32 = 5;

/// An open device and a protection domain.
#[derive(Clone)]
pub struct Node {
    pub device: u32,
    pub ctx: Context,
    pub pd: Pd,
}

/// The kind of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Private pages of the process.
    Heap,
    /// A memfd that peers can map.
    Shared,
}

impl Kind {
    /// The kind for a number in a test's arguments.
    pub fn from_arg(arg: u64) -> Kind {
        if arg == 0 { Kind::Heap } else { Kind::Shared }
    }
}

/// Registered memory. It is never freed, because test processes live only briefly.
#[derive(Clone)]
pub struct Mem {
    pub at: *mut u8,
    pub len: usize,
    pub mr: Mr,
    pub lkey: u32,
    pub rkey: u32,
}

// SAFETY: the pointer is to memory of the process that is accessed by raw copies only.
unsafe impl Send for Mem {}
// SAFETY: as above.
unsafe impl Sync for Mem {}

/// Private zeroed pages.
pub fn pages(len: usize) -> *mut u8 {
    let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len.max(1), rw, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{len} bytes");
    at.cast()
}

impl Node {
    /// Opens `soft{device}`.
    pub fn open(device: u32) -> Node {
        let ctx = SoftNic.open(device).expect("a soft device");
        let pd = SoftNic::alloc_pd(&ctx).expect("a protection domain");
        Node { device, ctx, pd }
    }

    /// The LID of port 1.
    pub fn lid(&self) -> u16 {
        SoftNic::query_port(&self.ctx, 1).expect("port 1").lid
    }

    /// New memory with all access rights.
    pub fn mem(&self, len: usize, kind: Kind) -> Mem {
        self.mem_with(len, kind, ALL_RIGHTS)
    }

    /// New memory.
    pub fn mem_with(&self, len: usize, kind: Kind, access: Access) -> Mem {
        let at = match kind {
            Kind::Heap => pages(len),
            Kind::Shared => alloc_shared(len).expect("shared memory"),
        };
        self.register(at, len, access)
    }

    /// Registers memory.
    pub fn register(&self, at: *mut u8, len: usize, access: Access) -> Mem {
        let (mr, info) = SoftNic::reg_mr(&self.pd, at as u64, len as u64, at as u64, access)
            .expect("registration");
        Mem { at, len, mr, lkey: info.lkey, rkey: info.rkey }
    }

    /// A CQ of `cqe` completions.
    pub fn cq(&self, cqe: u32, channel: Option<&Channel>, cookie: u64) -> Cq {
        let init = CqInit { cqe, channel, timestamps: false, ignore_overrun: false, cookie };
        SoftNic::create_cq(&self.ctx, init).expect("a CQ").0
    }

    /// An endpoint with CQs of its own.
    pub fn endpoint(&self, setup: &Setup) -> Endpoint {
        let send_cq = self.cq(setup.cqe, None, 1);
        let recv_cq = self.cq(setup.cqe, None, 2);
        self.endpoint_on(setup, &send_cq, &recv_cq, None)
    }

    /// An endpoint on given CQs.
    pub fn endpoint_on(
        &self,
        setup: &Setup,
        send_cq: &Cq,
        recv_cq: &Cq,
        srq: Option<&Srq>,
    ) -> Endpoint {
        let init = QpInit {
            qp_type: setup.qp_type,
            send_cq,
            recv_cq,
            srq,
            cap: setup.cap,
            sq_sig_all: setup.sq_sig_all,
            cookie: setup.cookie,
        };
        let (qp, qpn, _) = SoftNic::create_qp(&self.pd, init).expect("a QP");
        let (send_cq, recv_cq) = (send_cq.clone(), recv_cq.clone());
        Endpoint { qp, qpn: qpn.get(), lid: self.lid(), send_cq, recv_cq, setup: *setup }
    }
}

impl Mem {
    /// Its first address.
    pub fn addr(&self) -> u64 {
        self.at as u64
    }

    /// An element that covers a part of it.
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        assert!(offset + length <= self.len, "inside the memory");
        Sge { addr: self.addr() + offset as u64, length: length as u32, lkey: self.lkey }
    }

    /// A copy of a part of it.
    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.len, "inside the memory");
        let mut copy = vec![0; length];
        // SAFETY: inside the memory, which stays mapped; peers may write to it meanwhile, so this
        // makes no reference to it.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), copy.as_mut_ptr(), length) };
        copy
    }

    /// Writes a part.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "inside the memory");
        // SAFETY: as for reading.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset), bytes.len()) };
    }

    /// Fills a part.
    pub fn fill(&self, offset: usize, length: usize, byte: u8) {
        assert!(offset + length <= self.len, "inside the memory");
        // SAFETY: as for reading.
        unsafe { std::ptr::write_bytes(self.at.add(offset), byte, length) };
    }

    /// The aligned word at `offset`, read in one access.
    pub fn word(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= self.len && offset.is_multiple_of(8), "a word of the memory");
        // SAFETY: eight aligned bytes inside the memory.
        unsafe { self.at.add(offset).cast::<u64>().read_volatile() }
    }

    /// Changes the protection of all its pages.
    pub fn protect(&self, protection: i32) {
        // SAFETY: whole pages of a mapping of this test.
        assert_eq!(unsafe { libc::mprotect(self.at.cast(), self.len, protection) }, 0);
    }

    /// Unmaps its pages.
    pub fn unmap(&self) {
        // SAFETY: whole pages of a mapping of this test, which holds no reference to them.
        assert_eq!(unsafe { libc::munmap(self.at.cast(), self.len) }, 0);
    }
}

/// How an endpoint is created and connected.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub qp_type: QpType,
    pub cap: QpCap,
    pub sq_sig_all: bool,
    pub cqe: u32,
    pub cookie: u64,
    pub mtu: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
    pub access: Access,
}

impl Setup {
    /// An endpoint with small queues, a time-out of 67 ms, 7 retries, and endless RNR retries.
    pub const fn new(qp_type: QpType) -> Setup {
        Setup {
            qp_type,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 8,
                max_recv_sge: 8,
                max_inline_data: 1024,
            },
            sq_sig_all: false,
            cqe: 256,
            cookie: 7,
            mtu: MTU_4096,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            rd_atomic: 16,
            access: ALL_RIGHTS,
        }
    }

    /// The same setup with another path MTU, as numbered by `enum ibv_mtu`.
    pub const fn mtu(mut self, mtu: u32) -> Setup {
        self.mtu = mtu;
        self
    }
}

/// A QP with its CQs and its setup.
#[derive(Clone)]
pub struct Endpoint {
    pub qp: SoftQp,
    pub qpn: u32,
    pub lid: u16,
    pub send_cq: Cq,
    pub recv_cq: Cq,
    pub setup: Setup,
}

/// The address of an endpoint, which its peer needs to connect.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub qpn: u32,
    pub lid: u16,
}

impl Endpoint {
    /// Its address.
    pub fn address(&self) -> Address {
        Address { qpn: self.qpn, lid: self.lid }
    }

    fn modify(&self, attr: &QpAttr, mask: QpAttrMask) {
        SoftNic::modify_qp(&self.qp, attr, QpAttrMask::STATE | mask).expect("a state change");
    }

    /// RESET to INIT.
    pub fn to_init(&self) {
        use QpAttrMask as M;
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            qkey: QKEY,
            qp_access_flags: self.setup.access,
            ..QpAttr::default()
        };
        let last = if self.setup.qp_type == QpType::Ud { M::QKEY } else { M::ACCESS_FLAGS };
        self.modify(&attr, M::PKEY_INDEX | M::PORT | last);
    }

    /// INIT to RTR, towards `to`.
    pub fn to_rtr(&self, to: Address) {
        use QpAttrMask as M;
        let setup = &self.setup;
        let attr = QpAttr {
            qp_state: QpState::Rtr,
            path_mtu: setup.mtu,
            dest_qp_num: to.qpn,
            rq_psn: 0x00ff_fff0,
            max_dest_rd_atomic: setup.rd_atomic,
            min_rnr_timer: setup.min_rnr_timer,
            ah_attr: ah(to.lid),
            ..QpAttr::default()
        };
        let connected = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let mask = match setup.qp_type {
            QpType::Rc => connected | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
            QpType::Uc => connected,
            QpType::Ud => M::NONE,
        };
        self.modify(&attr, mask);
    }

    /// RTR to RTS.
    pub fn to_rts(&self) {
        use QpAttrMask as M;
        let setup = &self.setup;
        let attr = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: 0x00ff_fff0,
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            max_rd_atomic: setup.rd_atomic,
            ..QpAttr::default()
        };
        let reliable = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        let mask = if setup.qp_type == QpType::Rc { reliable } else { M::NONE };
        self.modify(&attr, M::SQ_PSN | mask);
    }

    /// RESET to RTS, towards `to`.
    pub fn connect(&self, to: Address) {
        self.to_init();
        self.to_rtr(to);
        self.to_rts();
    }

    /// Connects over a link, while the other end does the same; returns the other's address. When
    /// this returns, both ends are connected.
    pub fn connect_over(&self, link: &Link) -> Address {
        self.to_init();
        self.connect_from_init_over(link)
    }

    /// As [`Endpoint::connect_over`], from INIT.
    pub fn connect_from_init_over(&self, link: &Link) -> Address {
        link.put(&[self.qpn as u64, self.lid as u64]);
        let words = link.get();
        let to = Address { qpn: words[0] as u32, lid: words[1] as u16 };
        self.to_rtr(to);
        self.to_rts();
        link.sync();
        to
    }

    /// Moves it to a state that needs no attributes.
    pub fn to_state(&self, state: QpState) {
        self.modify(&QpAttr { qp_state: state, ..QpAttr::default() }, QpAttrMask::NONE);
    }

    /// Its state now.
    pub fn state(&self) -> QpState {
        SoftNic::query_qp(&self.qp).expect("a QP").qp_state
    }

    /// Posts one send.
    pub fn post(&self, wr: SendWr<'_>) -> Result<(), PostError> {
        SoftNic::post_send(&self.qp, std::iter::once(wr)).map_err(|(_, error)| error)
    }

    /// Posts one send, which must be accepted.
    pub fn send(&self, wr: SendWr<'_>) {
        self.post(wr).expect("a send is taken");
    }

    /// Posts one receive, which must be accepted.
    pub fn recv(&self, wr_id: u64, sges: &[Sge]) {
        SoftNic::post_recv(&self.qp, std::iter::once(RecvWr { wr_id, sges }))
            .expect("a receive is taken");
    }

    /// Waits for a completion of the send queue.
    pub fn send_done(&self) -> Wc {
        wait(&self.send_cq)
    }

    /// Waits for a completion of the receive queue.
    pub fn recv_done(&self) -> Wc {
        wait(&self.recv_cq)
    }

    /// Posts one signaled send and waits for its completion, which must be a success.
    pub fn run(&self, wr: SendWr<'_>) -> Wc {
        let opcode = wr.opcode;
        self.send(SendWr { flags: wr.flags | SendFlags::SIGNALED, ..wr });
        let wc = self.send_done();
        assert_eq!(wc.status, WcStatus::Success, "{opcode:?}: {wc:?}");
        assert_eq!(wc.opcode, opcode.completion());
        wc
    }
}

/// An address vector to a port of this host.
pub fn ah(lid: u16) -> AhAttr {
    AhAttr { dlid: rdmalab_wire::ids::Lid(lid), port_num: 1, ..AhAttr::default() }
}

/// A signalled send of `sges`.
pub fn wr<'a>(opcode: WrOpcode, sges: &'a [Sge]) -> SendWr<'a> {
    SendWr {
        wr_id: 0,
        opcode,
        flags: SendFlags::SIGNALED,
        imm_or_rkey: 0,
        sges,
        remote_addr: 0,
        rkey: 0,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    }
}

/// A signalled one-sided operation.
pub fn rdma<'a>(opcode: WrOpcode, sges: &'a [Sge], remote_addr: u64, rkey: u32) -> SendWr<'a> {
    SendWr { remote_addr, rkey, ..wr(opcode, sges) }
}

/// The destination of a datagram.
pub fn ud(to: Address) -> UdAddress {
    UdAddress { ah: ah(to.lid), remote_qpn: Qpn::new(to.qpn), remote_qkey: QKEY }
}

/// Polls the completions that are available, at most `most`.
pub fn poll(cq: &Cq, most: usize) -> Vec<Wc> {
    let mut out = vec![MaybeUninit::uninit(); most];
    let count = SoftNic::poll_cq(cq, &mut out).expect("a CQ in order");
    // SAFETY: polling initialised the first `count`.
    out[..count].iter().map(|wc| unsafe { wc.assume_init() }).collect()
}

/// Waits for a completion.
pub fn wait(cq: &Cq) -> Wc {
    wait_some(cq, 1)[0]
}

/// Waits for at least one completion, and takes at most `most`.
pub fn wait_some(cq: &Cq, most: usize) -> Vec<Wc> {
    let mut wait_limit = WaitLimit::of(PATIENCE);
    loop {
        for _ in 0..1000 {
            let found = poll(cq, most);
            if !found.is_empty() {
                return found;
            }
        }
        assert!(wait_limit.is_left(), "no completion came");
    }
}

/// Polls for some time, which also lets the device serve peers; returns the completions.
pub fn poll_for(cq: &Cq, milliseconds: u64) -> Vec<Wc> {
    let end = Instant::now() + std::time::Duration::from_millis(milliseconds);
    let mut found = Vec::new();
    while Instant::now() < end {
        found.extend(poll(cq, 16));
    }
    found
}

/// Whether a descriptor becomes readable within a time.
pub fn readable(fd: i32, timeout_ms: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd on our stack.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) > 0 }
}

/// Whether a descriptor becomes readable at all.
pub fn becomes_readable(fd: i32) -> bool {
    let wait = |slice: std::time::Duration| readable(fd, slice.as_millis() as i32).then_some(());
    WaitLimit::of(PATIENCE).in_slices(wait).is_some()
}

/// The processor time that this process has used, in microseconds.
pub fn cpu_time_us() -> u64 {
    // SAFETY: all-zero is a valid value of this plain C structure, which getrusage fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    let of = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    of(usage.ru_utime) + of(usage.ru_stime)
}
