//! The boundary between the C tables and an RNIC: the operations of every device.
//!
//! `provider` turns any [`Backend`] into libibverbs' tables; `softnic` and `sim` implement it.
//! Objects are handles: cheap to clone, safe to use from any thread, alive while a clone lives.
//! A `cookie` is the caller's word for an object (the provider passes the address of its C
//! object); it comes back with events.

mod errors;

pub use errors::{PostError, VerbsError, VerbsResult};

use core::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::odp::{Advice, OdpCaps};
use crate::vocab::*;
use rdmalab_wire::ids::{Gid, PKey, Qpn};

/// The link layer that a port shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkLayer {
    /// LIDs address ports.
    InfiniBand = 1,
    /// GIDs address ports.
    Ethernet = 2,
}

/// A device that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name that `ibv_get_device_name` returns, e.g. `soft0`.
    pub name: String,
    /// Name of the character device that a kernel device would have, e.g. `uverbs0`.
    pub dev_name: String,
    /// The node GUID, in host order.
    pub guid: u64,
    /// Index of the device, dense from 0.
    pub index: u32,
}

/// Capabilities of a device (`struct ibv_device_attr` and parts of the extended query).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Version of the firmware.
    pub fw_ver: String,
    /// The node GUID, in host order.
    pub node_guid: u64,
    /// The GUID of the system image, in host order.
    pub sys_image_guid: u64,
    /// The largest memory region, in bytes.
    pub max_mr_size: u64,
    /// Sizes of pages: bit n stands for 2^n bytes.
    pub page_size_cap: u64,
    /// The vendor's number of the IEEE.
    pub vendor_id: u32,
    /// The vendor's number of the model.
    pub vendor_part_id: u32,
    /// The vendor's number of its version.
    pub hw_ver: u32,
    /// Queue pairs.
    pub max_qp: u32,
    /// Requests that wait in a queue of a queue pair.
    pub max_qp_wr: u32,
    /// `enum ibv_device_cap_flags`.
    pub device_cap_flags: u32,
    /// Pieces of memory of a request.
    pub max_sge: u32,
    /// Pieces of memory of a READ.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions that a queue holds.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics that a queue pair holds at a time as responder.
    pub max_qp_rd_atom: u32,
    /// READs and atomics that all queue pairs hold at a time as responders.
    pub max_res_rd_atom: u32,
    /// READs and atomics that a queue pair has in flight as requester.
    pub max_qp_init_rd_atom: u32,
    /// 0 none, 1 within the adapter, 2 also with the CPU (`enum ibv_atomic_cap`).
    pub atomic_cap: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// Queue pairs of a multicast group.
    pub max_mcast_qp_attach: u32,
    /// Queue pairs of all multicast groups together.
    pub max_total_mcast_qp_attach: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Requests that wait in a shared receive queue.
    pub max_srq_wr: u32,
    /// Pieces of memory of a request there.
    pub max_srq_sge: u32,
    /// Entries of a port's P_Key table.
    pub max_pkeys: u16,
    /// How long the device may delay an acknowledgement: 4.096 us x 2^this.
    pub local_ca_ack_delay: u8,
    /// Ports.
    pub phys_port_cnt: u8,
    /// Inline bytes of a send request.
    pub max_inline_data: u32,
    /// Completion time stamps: valid bits, 0 when there are none.
    pub completion_timestamp_mask: u64,
    /// Frequency of the time stamps, kHz.
    pub hca_core_clock_khz: u64,
    /// On-Demand Paging.
    pub odp: OdpCaps,
}

/// The state of a port (`struct ibv_port_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Whether the port is active: it sends and receives.
    pub active: bool,
    /// As `enum ibv_mtu`.
    pub max_mtu: u32,
    /// As `enum ibv_mtu`.
    pub active_mtu: u32,
    /// Entries of its GID table.
    pub gid_tbl_len: u32,
    /// Its capability mask (IBA vol. 1, 14.2.5.6).
    pub port_cap_flags: u32,
    /// The largest message, in bytes.
    pub max_msg_sz: u32,
    /// Entries of its P_Key table.
    pub pkey_tbl_len: u16,
    /// Its LID; 0 on Ethernet.
    pub lid: u16,
    /// The LID of the subnet manager.
    pub sm_lid: u16,
    /// How many low bits of the LID choose a path.
    pub lmc: u8,
    /// Virtual lanes, as coded in IBA vol. 1, 14.2.5.6.
    pub max_vl_num: u8,
    /// Lanes: 1, 2, 4 and 8 stand for 1, 4, 8 and 12.
    pub active_width: u8,
    /// Speed of a lane: 1 stands for 2.5 Gb/s, 4 for 10, 32 for 25.
    pub active_speed: u8,
    /// State of the physical layer: 5 is up.
    pub phys_state: u8,
    /// Its link layer.
    pub link_layer: LinkLayer,
}

/// The kind of a GID table entry (`enum ibv_gid_type_sysfs`/`ibv_gid_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum GidType {
    /// Of InfiniBand.
    Ib = 0,
    /// Of RoCE, whose packets have a GRH.
    RoceV1 = 1,
    /// Of RoCEv2, whose packets are UDP.
    RoceV2 = 2,
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID.
    pub gid: Gid,
    /// Its kind.
    pub gid_type: GidType,
    /// Index of the network interface behind it, 0 when there is none.
    pub ifindex: u32,
}

/// A memory region's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrInfo {
    /// For requests of this process.
    pub lkey: u32,
    /// For requests of the peer.
    pub rkey: u32,
}

/// Attributes of a new completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqInit<'a, Ch> {
    /// Completions that must fit; the CQ may hold more.
    pub cqe: u32,
    /// The channel for its events.
    pub channel: Option<&'a Ch>,
    /// Stamp each completion with the time (costs a clock read each).
    pub timestamps: bool,
    /// On overflow drop the new completion silently (`IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`).
    pub ignore_overrun: bool,
    /// The caller's cookie; events carry it.
    pub cookie: u64,
}

/// Attributes of a new shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInit {
    /// Requests that must fit.
    pub max_wr: u32,
    /// Pieces of memory of a request.
    pub max_sge: u32,
    /// The limit event is raised when fewer requests than this wait; 0 raises none.
    pub srq_limit: u32,
    /// The caller's cookie; events carry it.
    pub cookie: u64,
}

/// The state of a shared receive queue (`struct ibv_srq_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqInfo {
    /// Requests that fit.
    pub max_wr: u32,
    /// Pieces of memory of a request.
    pub max_sge: u32,
    /// The limit event is raised when fewer requests than this wait; 0 raises none.
    pub srq_limit: u32,
}

/// Attributes of a new queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a, Cq, Srq> {
    /// The transport.
    pub qp_type: QpType,
    /// The CQ for completions of sends.
    pub send_cq: &'a Cq,
    /// The CQ for completions of receives.
    pub recv_cq: &'a Cq,
    /// The shared receive queue that supplies receives, if the QP has no receive queue.
    pub srq: Option<&'a Srq>,
    /// The least capacities.
    pub cap: QpCap,
    /// Whether every send has a completion.
    pub sq_sig_all: bool,
    /// The caller's cookie; events carry it.
    pub cookie: u64,
}

/// A send work request, as posted. Addresses are the caller's; no payload is read before the post.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// The caller's number.
    pub wr_id: u64,
    /// The operation.
    pub opcode: WrOpcode,
    /// Its flags.
    pub flags: SendFlags,
    /// Immediate data (network order as given), or the key to invalidate.
    pub imm_or_rkey: u32,
    /// The payload; with [`SendFlags::INLINE`] only `addr` and `length` count.
    pub sges: &'a [Sge],
    /// Remote address of WRITE, READ and atomics.
    pub remote_addr: u64,
    /// Remote key of WRITE, READ and atomics.
    pub rkey: u32,
    /// Compare value of [`WrOpcode::CmpSwap`]; the addend of [`WrOpcode::FetchAdd`].
    pub compare_add: u64,
    /// Swap value of [`WrOpcode::CmpSwap`].
    pub swap: u64,
    /// Destination of a datagram.
    pub ud: Option<UdAddress>,
    /// The binding for [`WrOpcode::BindMw`].
    pub bind: Option<MwBind>,
}

/// A receive work request, as posted.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// The caller's number.
    pub wr_id: u64,
    /// The memory for the message.
    pub sges: &'a [Sge],
}

/// Binding of a memory window (`struct ibv_mw_bind_info` and the window's new key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwBind {
    /// The window, by its present remote key.
    pub mw_rkey: u32,
    /// The remote key after the bind.
    pub new_rkey: u32,
    /// The region below it, by its local key.
    pub mr_lkey: u32,
    /// First address.
    pub addr: u64,
    /// Bytes; 0 unbinds.
    pub length: u64,
    /// Rights of the window; may hold [`Access::ZERO_BASED`].
    pub access: Access,
}

/// The type of a memory window (`enum ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MwType {
    /// Bound by the verb, belongs to a PD.
    Type1 = 1,
    /// Bound by a work request, belongs to a QP.
    Type2 = 2,
}

/// The changes of `ibv_rereg_mr`; `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug)]
pub struct MrChange<'a, Pd> {
    /// Other memory: its address and its bytes.
    pub translation: Option<(u64, u64)>,
    /// Another protection domain.
    pub pd: Option<&'a Pd>,
    /// Other rights.
    pub access: Option<Access>,
}

/// A completion as polled, with the time stamp that only extended CQs give.
#[derive(Clone, Copy, Debug)]
pub struct ExtendedWc {
    /// The completion.
    pub wc: Wc,
    /// When it was put into the CQ, in ticks of [`DeviceCaps::hca_core_clock_khz`]; 0 when the CQ
    /// has no time stamps.
    pub timestamp: u64,
}

/// An asynchronous event with the cookie of its object, or the port's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The type of the event.
    pub event_type: AsyncEventType,
    /// The object's cookie, or the port number.
    pub element: u64,
}

/// How long a verb waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Not at all: it looks once, and makes progress.
    Now,
    /// Until [`Backend::read_clock`] of the open device returns this.
    At(u64),
    /// As long as it takes.
    Never,
}

/// An RNIC. A process may have several instances. See the module's text for handles. Verbs on
/// objects of different contexts are refused with `EINVAL`.
pub trait Backend: Send + Sync + Sized + 'static {
    /// An open device.
    type Context: Clone + Send + Sync;
    /// A protection domain.
    type Pd: Clone + Send + Sync;
    /// A memory region.
    type Mr: Clone + Send + Sync;
    /// A memory window.
    type Mw: Clone + Send + Sync;
    /// A completion channel.
    type Channel: Clone + Send + Sync;
    /// A completion queue.
    type Cq: Clone + Send + Sync;
    /// A shared receive queue.
    type Srq: Clone + Send + Sync;
    /// A queue pair.
    type Qp: Clone + Send + Sync;

    /// Lists the devices; an error says why this process cannot have one.
    fn devices(&self) -> VerbsResult<Vec<DeviceInfo>>;
    /// Opens a device by its index.
    fn open(&self, index: u32) -> VerbsResult<Self::Context>;
    /// Closes; objects that are still alive stay usable, as with the kernel's devices.
    fn close(ctx: &Self::Context) -> VerbsResult<()>;
    /// The capabilities of the device.
    fn query_device(ctx: &Self::Context) -> DeviceCaps;
    /// The state of port `port` (from 1).
    fn query_port(ctx: &Self::Context, port: u8) -> VerbsResult<PortInfo>;
    /// An entry of the GID table.
    fn query_gid(ctx: &Self::Context, port: u8, index: u32) -> VerbsResult<GidEntry>;
    /// An entry of the partition table.
    fn query_pkey(ctx: &Self::Context, port: u8, index: u32) -> VerbsResult<PKey>;
    /// The file descriptor that is readable while asynchronous events wait, for programs that poll
    /// it; `None` where there is none, as in virtual time.
    fn async_fd(_ctx: &Self::Context) -> Option<RawFd> {
        None
    }
    /// Takes the next asynchronous event; `EAGAIN` when none came before `until`.
    fn wait_async_event(ctx: &Self::Context, until: Deadline) -> VerbsResult<AsyncEvent>;
    /// The device's clock now, in ticks of [`DeviceCaps::hca_core_clock_khz`]. It need not be the
    /// kernel's: a simulator's is virtual.
    fn read_clock(ctx: &Self::Context) -> u64;

    /// Allocates a protection domain.
    fn alloc_pd(ctx: &Self::Context) -> VerbsResult<Self::Pd>;
    /// Frees it; `EBUSY` while objects use it.
    fn dealloc_pd(pd: &Self::Pd) -> VerbsResult<()>;

    /// Registers `length` bytes at `addr`; peers and work requests address them from `iova` on.
    fn reg_mr(
        pd: &Self::Pd,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> VerbsResult<(Self::Mr, MrInfo)>;
    /// Changes a region in place; its keys may change.
    fn rereg_mr(mr: &Self::Mr, change: MrChange<'_, Self::Pd>) -> VerbsResult<MrInfo>;
    /// Deregisters a region: after this returns, no adapter or peer accesses it. `EBUSY` while
    /// windows are bound to it.
    fn dereg_mr(mr: &Self::Mr) -> VerbsResult<()>;
    /// Fetches pages of on-demand regions before they are accessed; if `flush`, returns when they
    /// have come. `EFAULT` for bytes outside of their region, a wrong key, or one without the right
    /// to write; `EINVAL` for a region that is not paged on demand.
    fn advise_mr(_pd: &Self::Pd, _advice: Advice, _flush: bool, _sges: &[Sge]) -> VerbsResult<()> {
        Err(VerbsError::unsupported("this device has no On-Demand Paging"))
    }
    /// Allocates a window; returns it and its remote key.
    fn alloc_mw(pd: &Self::Pd, mw_type: MwType) -> VerbsResult<(Self::Mw, u32)>;
    /// Frees a window.
    fn dealloc_mw(mw: &Self::Mw) -> VerbsResult<()>;
    /// The next remote key for a type 1 window about to be bound (`ibv_bind_mw` returns it).
    fn next_mw_rkey(mw: &Self::Mw) -> u32;

    /// Makes a completion channel.
    fn create_channel(ctx: &Self::Context) -> VerbsResult<Self::Channel>;
    /// Its file descriptor, as for [`Backend::async_fd`]: readable while events wait.
    fn channel_fd(_channel: &Self::Channel) -> Option<RawFd> {
        None
    }
    /// Takes the next event and returns the CQ's cookie; makes progress while it waits; `EAGAIN`
    /// when none came before `until`.
    fn wait_channel(channel: &Self::Channel, until: Deadline) -> VerbsResult<u64>;
    /// Destroys it; `EBUSY` while CQs use it.
    fn destroy_channel(channel: &Self::Channel) -> VerbsResult<()>;

    /// Makes a CQ; returns it and how many completions it holds.
    fn create_cq(
        ctx: &Self::Context,
        init: CqInit<'_, Self::Channel>,
    ) -> VerbsResult<(Self::Cq, u32)>;
    /// Changes its size; what it holds stays. Returns the new capacity.
    fn resize_cq(cq: &Self::Cq, cqe: u32) -> VerbsResult<u32>;
    /// Destroys it; `EBUSY` while QPs use it. Events already queued for it are dropped.
    fn destroy_cq(cq: &Self::Cq) -> VerbsResult<()>;
    /// Takes up to `out.len()` completions and says how many of `out` it initialised. Makes
    /// progress.
    fn poll_cq(cq: &Self::Cq, out: &mut [MaybeUninit<Wc>]) -> VerbsResult<usize>;
    /// Takes one completion with its time stamp. If the CQ is empty, makes progress and looks
    /// again, unless `is_next` is set (within a batch). A program that requested an event and then
    /// empties its CQ must not get the completion that raises the event: after the event it would
    /// find an empty CQ (`ibv_rc_pingpong -t -e` fails there).
    fn poll_cq_extended(cq: &Self::Cq, is_next: bool) -> VerbsResult<Option<ExtendedWc>>;
    /// Asks for an event at the next (solicited) completion.
    fn req_notify_cq(cq: &Self::Cq, solicited_only: bool) -> VerbsResult<()>;

    /// Makes a shared receive queue.
    fn create_srq(pd: &Self::Pd, init: SrqInit) -> VerbsResult<(Self::Srq, SrqInfo)>;
    /// Sets the limit (arms the event) or the size.
    fn modify_srq(srq: &Self::Srq, max_wr: Option<u32>, srq_limit: Option<u32>) -> VerbsResult<()>;
    /// Its state.
    fn query_srq(srq: &Self::Srq) -> VerbsResult<SrqInfo>;
    /// Destroys it; `EBUSY` while QPs use it.
    fn destroy_srq(srq: &Self::Srq) -> VerbsResult<()>;
    /// Posts receives in order; on refusal says how many were taken, and why the next was not.
    fn post_srq_recv<'a>(
        srq: &Self::Srq,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)>;

    /// Makes a QP; returns it, its number, and the capacities granted (at least those asked for).
    fn create_qp(
        pd: &Self::Pd,
        init: QpInit<'_, Self::Cq, Self::Srq>,
    ) -> VerbsResult<(Self::Qp, Qpn, QpCap)>;
    /// Changes its state or attributes; returns the state it is in now.
    fn modify_qp(qp: &Self::Qp, attr: &QpAttr, mask: QpAttrMask) -> VerbsResult<QpState>;
    /// Everything about it.
    fn query_qp(qp: &Self::Qp) -> VerbsResult<QpAttr>;
    /// Destroys it: its completions are purged from its CQs, and it makes no further progress.
    fn destroy_qp(qp: &Self::Qp) -> VerbsResult<()>;
    /// Posts sends in order; on refusal says how many were taken, and why the next was not.
    fn post_send<'a>(
        qp: &Self::Qp,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)>;
    /// Posts sends in order, all or none (`ibv_wr_complete`); on refusal says which request was
    /// refused, counted from 0, and why.
    fn post_send_all<'a>(
        qp: &Self::Qp,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), (usize, PostError)>;
    /// Posts receives in order; on refusal says how many were taken, and why the next was not.
    fn post_recv<'a>(
        qp: &Self::Qp,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), (usize, PostError)>;
    /// Joins a UD QP to a multicast group.
    fn attach_mcast(qp: &Self::Qp, gid: Gid, lid: u16) -> VerbsResult<()>;
    /// Leaves it.
    fn detach_mcast(qp: &Self::Qp, gid: Gid, lid: u16) -> VerbsResult<()>;

    /// Checks an address vector as `ibv_create_ah` does.
    fn check_ah(pd: &Self::Pd, attr: &AhAttr) -> VerbsResult<()>;
}

/// A back end for the exported functions of libibverbs. These take no instance, so there is one for
/// the whole process.
pub trait ProcessBackend: Backend {
    /// The instance of this process.
    fn of_process() -> Arc<Self>;
}
