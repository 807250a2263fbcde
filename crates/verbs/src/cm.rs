//! Connections by the connection manager: librdmacm, loaded at run time as libibverbs is.
//!
//! An id is an end of a connection, or a listener. The results of its calls are events of its
//! channel. A lock serializes all calls on a channel and its ids: ids may be used and dropped in
//! any thread, although librdmacm does not promise that.

mod address;
mod group;

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdmalab_abi as abi;
use rdmalab_abi::{CmTable, LoadError};

use crate::context::Context;
use crate::error::VerbsError;
use crate::event::wait_readable;
use crate::library::{Library, last_errno};
use crate::object::Object;
pub use address::CmAddress;
pub use group::{CmGroup, UDP_QKEY};

/// The connection manager that belongs to a library of verbs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ConnectionManager(Arc<ManagerInner>);

#[derive(Debug)]
struct ManagerInner {
    table: CmTable,
    library: Library,
}

impl Library {
    /// The connection manager for this library's devices: the system's `librdmacm.so.1`, or this
    /// project's for the soft device.
    ///
    /// # Errors
    /// When there is none.
    pub fn connection_manager(&self) -> Result<ConnectionManager, LoadError> {
        let table = match (self.hooks(), self.instance()) {
            (Some(hooks), _) => (hooks.load_cm)()?,
            (None, None) => CmTable::load()?,
            (None, Some(_)) => {
                let reason = "this kind of device has no connection manager".to_owned();
                return Err(LoadError::Open { library: "librdmacm".to_owned(), reason });
            }
        };
        Ok(ConnectionManager(Arc::new(ManagerInner { table, library: self.clone() })))
    }
}

impl ConnectionManager {
    /// Makes a channel for events.
    ///
    /// # Errors
    /// `ENODEV` without a device or kernel support, else the library's error.
    pub fn create_channel(&self) -> Result<CmChannel, VerbsError> {
        // SAFETY: takes nothing.
        let raw = unsafe { (self.0.table.create_event_channel)() };
        let raw = self.0.library.not_null("rdma_create_event_channel", raw)?;
        // SAFETY: the channel is alive; its descriptor takes flags, and no thread waits on it yet.
        let is_set = unsafe {
            let fd = (*raw.as_ptr()).fd;
            let flags = libc::fcntl(fd, libc::F_GETFL);
            flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
        };
        let channel = ChannelInner { raw: raw.into(), manager: self.clone(), turn: Mutex::new(()) };
        match is_set {
            true => Ok(CmChannel(Arc::new(channel))),
            false => Err(self.0.library.error("fcntl", last_errno())),
        }
    }
}

/// A channel for events of ids. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CmChannel(Arc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner {
    raw: Object<abi::rdma_event_channel>,
    manager: ConnectionManager,
    /// Held during each call on the channel or one of its ids.
    turn: Mutex<()>,
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: made by this library, and its ids are gone: each keeps this alive.
        unsafe { (self.manager.0.table.destroy_event_channel)(self.raw.as_ptr()) }
    }
}

/// Identifies the id of an event: [`CmId::key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmKey(usize);

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEventKind {
    /// The peer's address was resolved to a device.
    AddressResolved,
    /// The peer's address could not be resolved.
    AddressError,
    /// A path to the peer was found.
    RouteResolved,
    /// No path to the peer was found.
    RouteError,
    /// A peer asks a listener for a connection: [`CmEvent::request`].
    ConnectRequest,
    /// Connecting failed on this side.
    ConnectError,
    /// The peer does not answer.
    Unreachable,
    /// The peer refuses.
    Rejected,
    /// Connected.
    Established,
    /// The connection is over.
    Disconnected,
    /// TIMEWAIT has ended: no packet of the old connection is in the network any more.
    TimewaitExit,
    /// The group is joined: [`CmEvent::group`].
    MulticastJoined,
    /// The group cannot be joined, or the membership has ended.
    MulticastError,
    /// Another one, by its number in C.
    Other(u32),
}

impl CmEventKind {
    const fn from_raw(event: u32) -> Self {
        match event {
            abi::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddressResolved,
            abi::RDMA_CM_EVENT_ADDR_ERROR => Self::AddressError,
            abi::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            abi::RDMA_CM_EVENT_ROUTE_ERROR => Self::RouteError,
            abi::RDMA_CM_EVENT_CONNECT_REQUEST => Self::ConnectRequest,
            abi::RDMA_CM_EVENT_CONNECT_ERROR => Self::ConnectError,
            abi::RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable,
            abi::RDMA_CM_EVENT_REJECTED => Self::Rejected,
            abi::RDMA_CM_EVENT_ESTABLISHED => Self::Established,
            abi::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            abi::RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            abi::RDMA_CM_EVENT_MULTICAST_JOIN => Self::MulticastJoined,
            abi::RDMA_CM_EVENT_MULTICAST_ERROR => Self::MulticastError,
            other => Self::Other(other),
        }
    }
}

/// An event.
#[derive(Debug)]
pub struct CmEvent {
    /// The id of the event; for a request, the listener's.
    pub key: CmKey,
    /// The kind of the event.
    pub kind: CmEventKind,
    /// 0, a negative error number, or the reason of a rejection.
    pub status: i32,
    /// Private data from the peer.
    pub private_data: Vec<u8>,
    /// The new id of a request; dropping it refuses the request.
    pub request: Option<CmId>,
    /// The group that was joined.
    pub group: Option<CmGroup>,
    /// Where datagrams to the peer go: of an id for datagrams, when it is established.
    pub datagrams: Option<CmGroup>,
}

impl CmChannel {
    fn library(&self) -> &Library {
        &self.0.manager.0.library
    }

    /// Calls the library with the lock of the channel held.
    fn call<T>(&self, body: impl FnOnce(&CmTable) -> T) -> T {
        let _turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        body(&self.0.manager.0.table)
    }

    /// Makes an id for reliable connections.
    ///
    /// # Errors
    /// The library's error.
    pub fn create_id(&self) -> Result<CmId, VerbsError> {
        self.create_id_for(abi::RDMA_PS_TCP)
    }

    /// Makes an id for datagrams, which joins groups.
    ///
    /// # Errors
    /// The library's error.
    pub fn create_datagram_id(&self) -> Result<CmId, VerbsError> {
        self.create_id_for(abi::RDMA_PS_UDP)
    }

    fn create_id_for(&self, port_space: u32) -> Result<CmId, VerbsError> {
        let mut raw = null_mut();
        let result = self.call(|table| {
            // SAFETY: the channel is alive, and the answer is valid for writes.
            unsafe { (table.create_id)(self.0.raw.as_ptr(), &raw mut raw, null_mut(), port_space) }
        });
        self.library().zero("rdma_create_id", result)?;
        let raw = self.library().not_null("rdma_create_id", raw)?;
        Ok(CmId::of(raw, self))
    }

    /// Takes the next event, at most after `timeout`; `None` when none came.
    ///
    /// # Errors
    /// The library's error.
    pub fn wait(&self, timeout: Duration) -> Result<Option<CmEvent>, VerbsError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            // SAFETY: the channel is alive.
            let fd = unsafe { (*self.0.raw.as_ptr()).fd };
            let left = deadline.saturating_duration_since(Instant::now());
            if !wait_readable(fd, Some(left)) {
                return Ok(None);
            }
        }
    }

    /// [`CmChannel::wait`] with a limit in nanoseconds, for callers without a clock.
    ///
    /// # Errors
    /// As [`CmChannel::wait`].
    pub fn wait_ns(&self, limit_ns: u64) -> Result<Option<CmEvent>, VerbsError> {
        self.wait(Duration::from_nanos(limit_ns))
    }

    /// Takes the next event, if there is one, and acknowledges it.
    fn take(&self) -> Result<Option<CmEvent>, VerbsError> {
        let taken = self.call(|table| {
            let mut raw = null_mut();
            // SAFETY: the channel is alive and does not block; the answer is valid for writes.
            let result = unsafe { (table.get_cm_event)(self.0.raw.as_ptr(), &raw mut raw) };
            match (result, NonNull::new(raw)) {
                (0, Some(raw)) => {
                    // SAFETY: got just above.
                    let event = unsafe { self.read(raw) };
                    // SAFETY: acknowledged once, after all of it was copied.
                    unsafe { (table.ack_cm_event)(raw.as_ptr()) };
                    Ok(event)
                }
                _ => Err(last_errno()),
            }
        });
        match taken {
            Ok(event) => Ok(Some(event)),
            Err(libc::EAGAIN | libc::EINTR) => Ok(None),
            Err(errno) => Err(self.library().error("rdma_get_cm_event", errno)),
        }
    }

    /// # Safety
    /// An event of this channel, not yet acknowledged.
    unsafe fn read(&self, raw: NonNull<abi::rdma_cm_event>) -> CmEvent {
        // SAFETY: the caller's contract. For events of a group or of datagrams, `ud` is the valid
        // member; else `conn` is read, whose first two fields, private data and its length, `ud`
        // has too. The data is valid until the event is acknowledged, and the id as long as it has
        // events.
        unsafe {
            let event = &*raw.as_ptr();
            let kind = CmEventKind::from_raw(event.event);
            let is_joined = kind == CmEventKind::MulticastJoined;
            let of_group = is_joined || kind == CmEventKind::MulticastError;
            let group = is_joined.then(|| CmGroup::of(&event.param.ud));
            let of_datagrams =
                kind == CmEventKind::Established && (*event.id).ps == abi::RDMA_PS_UDP;
            let datagrams = of_datagrams.then(|| CmGroup::of(&event.param.ud));
            let private_data = match event.param.conn {
                conn if of_group || conn.private_data.is_null() => Vec::new(),
                conn => {
                    let length = usize::from(conn.private_data_len);
                    std::slice::from_raw_parts(conn.private_data.cast::<u8>(), length).to_vec()
                }
            };
            // A connection request comes with a new id, which this library owns from now on.
            let is_new = kind == CmEventKind::ConnectRequest;
            let of = if is_new { event.listen_id } else { event.id };
            let request = NonNull::new(event.id).filter(|_| is_new);
            let request = request.map(|raw| CmId::of(raw, self));
            let (key, status) = (CmKey(of.addr()), event.status);
            CmEvent { key, kind, status, private_data, request, group, datagrams }
        }
    }
}

/// Connection parameters that the ends exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnParam<'a> {
    /// Private data for the peer; at most 56 bytes with a request.
    pub private_data: &'a [u8],
    /// READs and atomics that this end holds at a time as responder.
    pub responder_resources: u8,
    /// READs and atomics that this end has in flight at a time as requester.
    pub initiator_depth: u8,
    /// Retries after time-outs, up to 7.
    pub retry_count: u8,
    /// Retries after RNR; 7 means for ever.
    pub rnr_retry_count: u8,
}

impl Default for ConnParam<'_> {
    /// No data, one READ at a time, 7 retries of each kind.
    fn default() -> Self {
        Self {
            private_data: &[],
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry_count: 7,
        }
    }
}

impl ConnParam<'_> {
    fn to_raw(self) -> abi::rdma_conn_param {
        let mut raw = abi::rdma_conn_param::zeroed();
        raw.private_data = self.private_data.as_ptr().cast();
        // A length that does not fit a byte does not fit a message either: the library refuses it.
        raw.private_data_len = u8::try_from(self.private_data.len()).unwrap_or(u8::MAX);
        raw.responder_resources = self.responder_resources;
        raw.initiator_depth = self.initiator_depth;
        raw.retry_count = self.retry_count;
        raw.rnr_retry_count = self.rnr_retry_count;
        raw
    }
}

/// An end of a connection, or a listener. Cheap to clone; freed with its last handle, which a queue
/// pair or a device may hold.
#[derive(Clone, Debug)]
pub struct CmId(Arc<IdInner>);

#[derive(Debug)]
struct IdInner {
    raw: Object<abi::rdma_cm_id>,
    channel: CmChannel,
}

impl Drop for IdInner {
    fn drop(&mut self) {
        let raw = self.raw.as_ptr();
        // SAFETY: made by this library, and freed once; its queue pair is gone, since it keeps this
        // alive, and its events were acknowledged as they were taken.
        let _ = self.channel.call(|table| unsafe { (table.destroy_id)(raw) });
    }
}

impl CmId {
    fn of(raw: NonNull<abi::rdma_cm_id>, channel: &CmChannel) -> Self {
        Self(Arc::new(IdInner { raw: raw.into(), channel: channel.clone() }))
    }

    fn call(
        &self,
        verb: &'static str,
        body: impl FnOnce(&CmTable, *mut abi::rdma_cm_id) -> c_int,
    ) -> Result<(), VerbsError> {
        let channel = &self.0.channel;
        let errno = channel.call(|table| match body(table, self.0.raw.as_ptr()) {
            0 => 0,
            _ => last_errno(),
        });
        channel.library().zero(verb, errno)
    }

    /// The key that its events carry.
    #[must_use]
    pub fn key(&self) -> CmKey {
        CmKey(self.0.raw.as_ptr().addr())
    }

    /// Binds it to an address of this host, which determines the device; port 0 means any free one.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`, `EADDRINUSE`, `ENODEV` where no device has that address.
    pub fn bind(&self, to: &CmAddress) -> Result<(), VerbsError> {
        let mut raw = to.to_raw();
        // SAFETY: the id is alive, and the address is read before the call returns.
        self.call("rdma_bind_addr", |table, id| unsafe {
            (table.bind_addr)(id, (&raw mut raw).cast())
        })
    }

    /// Listens; at most `backlog` requests wait.
    ///
    /// # Errors
    /// The library's error.
    pub fn listen(&self, backlog: u16) -> Result<(), VerbsError> {
        // SAFETY: the id is alive.
        self.call("rdma_listen", |table, id| unsafe { (table.listen)(id, backlog.into()) })
    }

    /// The port that it is bound to; 0 without one.
    #[must_use]
    pub fn port(&self) -> u16 {
        let raw = self.0.raw.as_ptr();
        // SAFETY: the id is alive.
        u16::from_be(self.0.channel.call(|table| unsafe { (table.get_src_port)(raw) }))
    }

    /// Resolves a peer's address; an event has the result.
    ///
    /// # Errors
    /// The library's error, if the call fails at once.
    pub fn resolve_address(&self, to: &CmAddress, timeout_ms: u32) -> Result<(), VerbsError> {
        let mut raw = to.to_raw();
        let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        // SAFETY: the id is alive, and the address is read before the call returns.
        self.call("rdma_resolve_addr", |table, id| unsafe {
            (table.resolve_addr)(id, null_mut(), (&raw mut raw).cast(), timeout)
        })
    }

    /// Finds a path to the peer; an event has the result.
    ///
    /// # Errors
    /// The library's error, if the call fails at once.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result<(), VerbsError> {
        let timeout = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
        // SAFETY: the id is alive.
        self.call("rdma_resolve_route", |table, id| unsafe { (table.resolve_route)(id, timeout) })
    }

    /// The device's port that it uses; 0 while unknown.
    #[must_use]
    pub fn device_port(&self) -> u8 {
        let raw = self.0.raw.as_ptr();
        // SAFETY: the id is alive, and the library changes it during calls only, of which this
        // counts as one.
        self.0.channel.call(|_| unsafe { (*raw).port_num })
    }

    /// The device that it uses, opened by the connection manager; `None` while unknown.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        let raw = self.0.raw.as_ptr();
        // SAFETY: the id is alive, and the library changes it during calls only, of which this
        // counts as one.
        let verbs = self.0.channel.call(|_| unsafe { (*raw).verbs });
        let (verbs, id) = (NonNull::new(verbs)?, Box::new(self.clone()));
        let library = self.0.channel.library().clone();
        // SAFETY: the library keeps the device open as long as the id exists, and the verbs that it
        // uses are this library's.
        Some(unsafe { Context::of_id(verbs, library, id) })
    }

    /// # Safety
    /// A domain that is alive, and valid attributes.
    pub(crate) unsafe fn create_qp(
        &self,
        pd: *mut abi::ibv_pd,
        attr: *mut abi::ibv_qp_init_attr,
    ) -> Result<NonNull<abi::ibv_qp>, VerbsError> {
        let mut qp = null_mut();
        self.call("rdma_create_qp", |table, id| {
            // SAFETY: the caller's contract; the id is alive, and is looked at while the call that
            // changes it counts as going on.
            unsafe {
                let result = (table.create_qp)(id, pd, attr);
                qp = (*id).qp;
                result
            }
        })?;
        self.0.channel.library().not_null("rdma_create_qp", qp)
    }

    /// # Safety
    /// The id has a queue pair, which is not used any more.
    pub(crate) unsafe fn destroy_qp(&self) {
        let raw = self.0.raw.as_ptr();
        // SAFETY: the caller's contract.
        self.0.channel.call(|table| unsafe { (table.destroy_qp)(raw) });
    }

    /// Asks the peer for a connection of its queue pair; an event has the result.
    ///
    /// # Errors
    /// The library's error, if the call fails at once.
    pub fn connect(&self, param: &ConnParam<'_>) -> Result<(), VerbsError> {
        let mut raw = param.to_raw();
        // SAFETY: the id is alive, and what is pointed to is read before the call returns.
        self.call("rdma_connect", |table, id| unsafe { (table.connect)(id, &raw mut raw) })
    }

    /// Accepts the connection request of this id, with its queue pair; an event has the result.
    ///
    /// # Errors
    /// The library's error, if the call fails at once.
    pub fn accept(&self, param: &ConnParam<'_>) -> Result<(), VerbsError> {
        let mut raw = param.to_raw();
        // SAFETY: as in `connect`.
        self.call("rdma_accept", |table, id| unsafe { (table.accept)(id, &raw mut raw) })
    }

    /// Refuses the connection request of this id.
    ///
    /// # Errors
    /// The library's error.
    pub fn reject(&self) -> Result<(), VerbsError> {
        // SAFETY: the id is alive; there is no private data.
        self.call("rdma_reject", |table, id| unsafe { (table.reject)(id, null_mut(), 0) })
    }

    /// Joins a multicast group in the network; an event has the result. Then attach a queue pair to
    /// the group with [`Qp::join`](crate::Qp::join). The id must be bound, and made for datagrams;
    /// the membership ends with the id.
    ///
    /// # Errors
    /// `EINVAL` for what is no group, or without a device.
    pub fn join(&self, group: &CmAddress) -> Result<(), VerbsError> {
        let mut raw = group.to_raw();
        // SAFETY: the id is alive, and the address is read before the call returns.
        self.call("rdma_join_multicast", |table, id| unsafe {
            (table.join_multicast)(id, (&raw mut raw).cast(), null_mut())
        })
    }

    /// Ends the connection; both ends get an event. The queue pair goes to ERR.
    ///
    /// # Errors
    /// The library's error.
    pub fn disconnect(&self) -> Result<(), VerbsError> {
        // SAFETY: the id is alive.
        self.call("rdma_disconnect", |table, id| unsafe { (table.disconnect)(id) })
    }
}
