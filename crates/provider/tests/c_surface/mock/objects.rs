//! The objects of the mock, and the tables through which they find each other.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rdmalab_engine::backend::{AsyncEvent, Deadline, VerbsError, VerbsResult};
use rdmalab_engine::vocab::{AsyncEventType, QpAttr, QpCap, QpType, Sge, Wc};
use rdmalab_wire::ids::Gid;

/// Locks; if another test panicked with the lock held, that panic alone shall be reported.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An eventfd that counts waiting items.
#[derive(Debug)]
struct Bell(RawFd);

impl Bell {
    fn new() -> Self {
        // SAFETY: eventfd has no preconditions.
        Bell(unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) })
    }

    fn add_one(&self) {
        let one = 1u64;
        // SAFETY: the descriptor is open while `self` lives; 8 bytes are read from `one`.
        let written = unsafe { libc::write(self.0, (&raw const one).cast(), 8) };
        assert_eq!(written, 8);
    }

    /// Subtracts one from the count, which must not be 0.
    fn take_one(&self) {
        let mut one = 0u64;
        // SAFETY: the descriptor is open while `self` lives; 8 bytes are written to `one`.
        let read = unsafe { libc::read(self.0, (&raw mut one).cast(), 8) };
        assert_eq!(read, 8);
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours, and nobody has it any more.
        unsafe { libc::close(self.0) };
    }
}

/// A queue of items, which may have a file descriptor that is readable while it is not empty.
#[derive(Debug)]
pub struct Waiting<T> {
    bell: Option<Bell>,
    items: Mutex<VecDeque<T>>,
    came: Condvar,
}

impl<T> Waiting<T> {
    pub fn new(has_descriptor: bool) -> Self {
        let bell = has_descriptor.then(Bell::new);
        Waiting { bell, items: Mutex::default(), came: Condvar::new() }
    }

    pub fn fd(&self) -> Option<RawFd> {
        self.bell.as_ref().map(|bell| bell.0)
    }

    pub fn push(&self, item: T) {
        let mut items = lock(&self.items);
        items.push_back(item);
        if let Some(bell) = &self.bell {
            bell.add_one();
        }
        self.came.notify_one();
    }

    /// Takes the first item; waits for one only if `until` is `Never`. [`tick`], the mock's clock,
    /// does not advance by itself, so an empty queue ends any other wait at once.
    pub fn take(&self, until: Deadline) -> VerbsResult<T> {
        let mut items = lock(&self.items);
        loop {
            if let Some(item) = items.pop_front() {
                if let Some(bell) = &self.bell {
                    bell.take_one();
                }
                return Ok(item);
            }
            if until != Deadline::Never {
                return Err(VerbsError::new(VerbsError::EAGAIN, "nothing waits"));
            }
            items = self.came.wait(items).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

/// Counts the users of an object; the object cannot be destroyed while it has any.
#[derive(Debug, Default)]
pub struct Users(AtomicU32);

impl Users {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn none(&self) -> VerbsResult<()> {
        match self.0.load(Ordering::SeqCst) {
            0 => Ok(()),
            n => Err(VerbsError::busy(format!("{n} objects use it"))),
        }
    }
}

/// An open device.
#[derive(Debug)]
pub struct Ctx {
    pub users: Users,
    pub events: Waiting<AsyncEvent>,
}

impl Ctx {
    pub fn raise(&self, event_type: AsyncEventType, element: u64) {
        self.events.push(AsyncEvent { event_type, element });
    }
}

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    pub ctx: Arc<Ctx>,
    pub users: Users,
}

/// Memory that a key names.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub addr: u64,
    pub length: u64,
    pub iova: u64,
    pub access: u32,
}

impl Region {
    /// The address of `length` bytes at `iova`, if they are inside the region.
    pub fn find(&self, iova: u64, length: u64) -> Option<u64> {
        let offset = iova.checked_sub(self.iova)?;
        (offset.checked_add(length)? <= self.length).then(|| self.addr + offset)
    }
}

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    pub pd: Mutex<Arc<Pd>>,
    pub key: u32,
}

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    pub pd: Arc<Pd>,
    pub key: AtomicU32,
}

/// A completion channel.
#[derive(Debug)]
pub struct Channel {
    pub ctx: Arc<Ctx>,
    pub users: Users,
    pub waiting: Waiting<u64>,
}

/// A completion, with the data that polling it needs.
#[derive(Debug)]
pub struct Cqe {
    pub wc: Wc,
    pub timestamp: u64,
    /// The QP whose send queue slots this completion frees, and how many.
    pub frees: Option<(Arc<Qp>, u32)>,
}

/// Whether a completion raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    No,
    Solicited,
    Any,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    pub ctx: Arc<Ctx>,
    pub users: Users,
    pub channel: Option<Arc<Channel>>,
    pub cookie: u64,
    pub timestamps: bool,
    pub ignore_overrun: bool,
    pub state: Mutex<CqState>,
}

#[derive(Debug)]
pub struct CqState {
    pub capacity: u32,
    pub armed: Armed,
    pub failed: bool,
    pub entries: VecDeque<Cqe>,
}

impl Cq {
    pub fn push(&self, mut cqe: Cqe, solicited: bool) {
        let mut state = lock(&self.state);
        if state.entries.len() == state.capacity as usize {
            if !self.ignore_overrun && !state.failed {
                state.failed = true;
                self.ctx.raise(AsyncEventType::CqErr, self.cookie);
            }
            return;
        }
        cqe.timestamp = if self.timestamps { tick() } else { 0 };
        state.entries.push_back(cqe);
        let fires = state.armed == Armed::Any || (state.armed == Armed::Solicited && solicited);
        if let (true, Some(channel)) = (fires, &self.channel) {
            state.armed = Armed::No;
            channel.waiting.push(self.cookie);
        }
    }

    pub fn pop(&self) -> VerbsResult<Option<Cqe>> {
        let mut state = lock(&self.state);
        if state.failed {
            return Err(VerbsError::new(libc::EIO, "the CQ overflowed"));
        }
        let Some(cqe) = state.entries.pop_front() else { return Ok(None) };
        if let Some((qp, slots)) = &cqe.frees {
            lock(&qp.state).sq_used -= slots;
        }
        Ok(Some(cqe))
    }
}

/// The mock's clock, which advances each time it is read.
pub fn tick() -> u64 {
    static NOW: AtomicU64 = AtomicU64::new(1000);
    NOW.fetch_add(1, Ordering::SeqCst)
}

/// A posted receive.
#[derive(Debug)]
pub struct Posted {
    pub wr_id: u64,
    pub sges: Vec<Sge>,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    pub pd: Arc<Pd>,
    pub users: Users,
    pub cookie: u64,
    pub max_sge: u32,
    pub state: Mutex<SrqState>,
}

#[derive(Debug)]
pub struct SrqState {
    pub max_wr: u32,
    pub limit: u32,
    pub posted: VecDeque<Posted>,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    pub pd: Arc<Pd>,
    pub qp_type: QpType,
    pub qpn: u32,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub srq: Option<Arc<Srq>>,
    pub cap: QpCap,
    pub sq_sig_all: bool,
    pub cookie: u64,
    pub state: Mutex<QpInside>,
}

#[derive(Debug)]
pub struct QpInside {
    pub attr: QpAttr,
    pub posted: VecDeque<Posted>,
    /// Slots of the send queue that no polled completion has freed yet.
    pub sq_used: u32,
    /// How many slots the next signaled completion frees.
    pub unsignalled: u32,
    pub groups: Vec<Gid>,
}

/// The tables of all contexts.
#[derive(Debug, Default)]
pub struct World {
    pub qps: BTreeMap<u32, Arc<Qp>>,
    /// Keyed by the upper 24 bits of the memory key.
    pub regions: BTreeMap<u32, (u32, Region)>,
}

impl World {
    /// The address for a key, if the key is the present one and covers the range.
    pub fn memory(&self, key: u32, iova: u64, length: u64, access: u32) -> Option<u64> {
        let (present, region) = self.regions.get(&(key >> 8))?;
        if *present != key || region.access & access != access {
            return None;
        }
        region.find(iova, length)
    }
}

pub static WORLD: Mutex<World> =
    Mutex::new(World { qps: BTreeMap::new(), regions: BTreeMap::new() });

/// A new number for a QP, or for the upper 24 bits of a key.
pub fn fresh() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0x11);
    NEXT.fetch_add(1, Ordering::SeqCst)
}
