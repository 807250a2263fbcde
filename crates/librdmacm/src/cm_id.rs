//! The connection identifier (id): the `rdma_cm_id` that C sees, and our private fields behind it.
//!
//! Programs use one id from two threads. One fetches events, which changes the id (device,
//! addresses, queue pair), while the other connects or posts. So no thread has exclusive access to
//! an id. Our fields are atomic or behind a lock. Fields that C sees are written atomically, the
//! route under a lock.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdmalab_abi::*;
use rdmalab_wire::ids::Gid;

use crate::device::{Device, PORT};
use crate::errno::{CallResult, Errno};

/// A multicast group that an id joined.
pub struct Group {
    pub number: u64,
    pub address: SocketAddr,
    pub context: *mut c_void,
    pub mgid: Gid,
    pub mlid: u16,
    pub is_send_only: bool,
    pub is_attached: bool,
}

/// An id. Shared between threads: see the top of this file.
#[repr(C)]
pub struct CmId {
    /// The first field, because the C program's pointer to the id points to it.
    public: UnsafeCell<rdma_cm_id>,
    /// The key of the id's state in `CmState::ids`.
    pub number: u64,
    /// The id was created without a channel: it has its own, and each call waits for its event.
    is_sync: AtomicBool,
    /// Connecting failed on this side. Later events of the connection are not reported.
    has_connect_error: AtomicBool,
    /// READs and atomics outstanding as the initiator.
    initiator_depth: AtomicU8,
    /// READs and atomics outstanding as the responder.
    responder_resources: AtomicU8,
    /// Bytes sent before the private data of `rdma_connect`.
    connect: Mutex<Vec<u8>>,
    /// Attributes of the queue pairs that a listener creates for connection requests.
    qp_init_attr: Mutex<Option<ibv_qp_init_attr>>,
    groups: Mutex<Vec<Group>>,
    device: AtomicPtr<Device>,
    /// Held while the route is written, because the route is longer than one word.
    route: Mutex<()>,
}

// SAFETY: `CmId` hands its pointers out. It follows only the device's, and no device is ever freed.
unsafe impl Send for CmId {}
// SAFETY: as above; each field that changes is atomic or behind a lock (`field!`, `with_route`).
unsafe impl Sync for CmId {}

/// The arguments of a new id.
pub struct New {
    pub number: u64,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub ps: u32,
    pub qp_type: u32,
    pub is_sync: bool,
}

fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Atomic access to a pointer field that C sees.
macro_rules! field {
    ($own:ident $field:ident) => {
        // SAFETY: an aligned pointer inside of a live id. This library accesses it by atomics only;
        // for the program the rules of rdma-core's librdmacm hold.
        unsafe { AtomicPtr::from_ptr(&raw mut (*$own.as_c()).$field) }
    };
}

/// Getters of pointer fields that C sees.
macro_rules! getters {
    ($($field:ident $type:ty,)*) => {impl CmId {$(
        #[doc = concat!("The field `", stringify!($field), "`.")]
        pub fn $field(&self) -> *mut $type {
            field!(self $field).load(Ordering::Acquire)
        }
    )*}};
}

/// Setters of pointer fields that C sees.
macro_rules! setters {
    ($($field:ident $set:ident $type:ty,)*) => {impl CmId {$(
        #[doc = concat!("Changes the field `", stringify!($field), "`; returns the old value.")]
        pub fn $set(&self, value: *mut $type) -> *mut $type {
            field!(self $field).swap(value, Ordering::AcqRel)
        }
    )*}};
}

getters! {
    verbs ibv_context,
    channel rdma_event_channel,
    context c_void,
    qp ibv_qp,
    send_cq ibv_cq,
    recv_cq ibv_cq,
    srq ibv_srq,
    pd ibv_pd,
}

setters! {
    verbs set_verbs ibv_context,
    channel set_channel rdma_event_channel,
    qp set_qp ibv_qp,
    event set_event rdma_cm_event,
    send_cq_channel set_send_cq_channel ibv_comp_channel,
    send_cq set_send_cq ibv_cq,
    recv_cq_channel set_recv_cq_channel ibv_comp_channel,
    recv_cq set_recv_cq ibv_cq,
    srq set_srq ibv_srq,
    pd set_pd ibv_pd,
}

/// Getters and setters of our atomic fields.
macro_rules! atomics {
    ($($field:ident $set:ident $type:ty,)*) => {impl CmId {$(
        #[doc = concat!("See the field `", stringify!($field), "`.")]
        pub fn $field(&self) -> $type {
            self.$field.load(Ordering::Acquire)
        }
        #[doc = concat!("Changes the field `", stringify!($field), "`.")]
        pub fn $set(&self, value: $type) {
            self.$field.store(value, Ordering::Release);
        }
    )*}};
}

atomics! {
    is_sync set_sync bool,
    has_connect_error set_connect_error bool,
    initiator_depth set_initiator_depth u8,
    responder_resources set_responder_resources u8,
}

impl CmId {
    /// A new id.
    pub fn new(new: &New) -> Box<CmId> {
        let mut public = rdma_cm_id::zeroed();
        (public.channel, public.context) = (new.channel, new.context);
        (public.ps, public.qp_type) = (new.ps, new.qp_type);
        Box::new(CmId {
            public: UnsafeCell::new(public),
            number: new.number,
            is_sync: AtomicBool::new(new.is_sync),
            has_connect_error: AtomicBool::new(false),
            initiator_depth: AtomicU8::new(0),
            responder_resources: AtomicU8::new(0),
            connect: Mutex::default(),
            qp_init_attr: Mutex::default(),
            groups: Mutex::default(),
            device: AtomicPtr::default(),
            route: Mutex::default(),
        })
    }

    /// The id as C sees it.
    pub fn as_c(&self) -> *mut rdma_cm_id {
        self.public.get()
    }

    /// The port space; it never changes.
    pub fn ps(&self) -> u32 {
        // SAFETY: a field of a live id, written before the id was shared.
        unsafe { (*self.as_c()).ps }
    }

    /// The type of its queue pair; it never changes.
    pub fn qp_type(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.as_c()).qp_type }
    }

    /// The device, once the id has one.
    pub fn device(&self) -> Option<&'static Device> {
        // SAFETY: null, or from a reference that lives as long as the process.
        unsafe { self.device.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the device.
    pub fn set_device(&self, device: &'static Device) {
        self.device.store(std::ptr::from_ref(device).cast_mut(), Ordering::Release);
        self.set_verbs(device.context);
        if self.pd().is_null() {
            self.set_pd(device.pd);
        }
        // SAFETY: a byte of a live id, which is accessed by atomics only.
        unsafe { AtomicU8::from_ptr(&raw mut (*self.as_c()).port_num) }
            .store(PORT, Ordering::Release);
    }

    /// Lets `write` change the route while no other thread of this library does.
    pub fn with_route(&self, write: impl FnOnce(&mut rdma_route)) {
        let _alone = hold(&self.route);
        // SAFETY: the id is live, and the lock makes this the only reference to its route. Programs
        // read the route after the call or the event that fills it in.
        write(unsafe { &mut (*self.as_c()).route });
    }

    /// The bytes sent before the private data of `rdma_connect`.
    pub fn connect_data(&self) -> MutexGuard<'_, Vec<u8>> {
        hold(&self.connect)
    }

    /// The attributes of the queue pairs that a listener creates for connection requests.
    pub fn qp_init_attr(&self) -> MutexGuard<'_, Option<ibv_qp_init_attr>> {
        hold(&self.qp_init_attr)
    }

    /// The multicast groups that the id joined.
    pub fn groups(&self) -> MutexGuard<'_, Vec<Group>> {
        hold(&self.groups)
    }
}

/// Our structure behind an id of the program. Other threads may use it too: see [`CmId`].
///
/// # Safety
/// The id is null or one of ours, and no thread frees it during `'a`. As with rdma-core's
/// librdmacm, a program must not use an id that another thread destroys.
pub unsafe fn own<'a>(id: *mut rdma_cm_id) -> CallResult<&'a CmId> {
    // SAFETY: the caller's contract: the id is null, which is refused, or the first field of a
    // `CmId` from `Box::into_raw`. Other threads may have references too. Each field that changes
    // is atomic, behind a lock, or inside the `UnsafeCell` that C sees.
    unsafe { id.cast::<CmId>().as_ref() }.ok_or(Errno(libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const TURNS: u8 = 200;

    /// One thread fetches events, the other makes calls: no field is torn, and an object that must
    /// be freed once is taken by one thread.
    #[test]
    fn two_threads_use_one_id() {
        let (channel, context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (ps, qp_type) = (RDMA_PS_TCP, IBV_QPT_RC);
        let new = New { number: 7, channel, context, ps, qp_type, is_sync: false };
        let id = CmId::new(&new);
        let taken = AtomicUsize::new(0);
        let work = |own: u8| {
            for turn in 0..TURNS {
                id.with_route(|route| {
                    route.num_paths = own.into();
                    route.addr.addr.pkey = own.into();
                });
                id.with_route(|route| {
                    assert_eq!(route.num_paths as u16, route.addr.addr.pkey);
                });
                id.set_initiator_depth(turn);
                id.connect_data().push(own);
                let mark = std::ptr::without_provenance_mut(usize::from(own));
                if !id.set_qp(mark).is_null() {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(1));
            scope.spawn(|| work(2));
        });
        assert_eq!(id.connect_data().len(), 2 * usize::from(TURNS));
        assert_eq!(id.initiator_depth(), TURNS - 1);
        // Each call but the first took the pointer of an earlier call; the last is still there.
        assert_eq!(taken.load(Ordering::Relaxed), 2 * usize::from(TURNS) - 1);
        assert!(!id.qp().is_null() && (id.ps(), id.qp_type()) == (ps, qp_type));
    }
}
