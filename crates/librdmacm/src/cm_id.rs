//! The id as C sees it, with what is ours behind it.
//!
//! Programs use one id from two threads: one takes its events, which changes the id (device,
//! addresses, queue pair), while another connects or posts. So nobody here has an id for himself.
//! What is ours is atomic or behind a lock; what C sees is changed a whole field at a time.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdmalab_abi::*;

use crate::device::{Device, PORT};
use crate::multicast::Group;

/// An id. Shared between threads: see the top of this file.
#[repr(C)]
pub struct CmId {
    /// First, since C has a pointer to it.
    public: UnsafeCell<rdma_cm_id>,
    /// Its number in the process.
    pub number: u64,
    /// It has a channel of its own, and every call waits for its event.
    is_sync: AtomicBool,
    /// A connection failed on this side: what the peer says of it is not news.
    has_connect_error: AtomicBool,
    /// READs and atomics that it asks for at a time.
    initiator_depth: AtomicU8,
    /// READs and atomics that it answers at a time.
    responder_resources: AtomicU8,
    /// Bytes in front of the private data of `rdma_connect`.
    connect: Mutex<Vec<u8>>,
    /// For the queue pairs of requests to a listener.
    qp_init_attr: Mutex<Option<ibv_qp_init_attr>>,
    groups: Mutex<Vec<Group>>,
    device: AtomicPtr<Device>,
    /// Held by whoever writes the route, which is more than one word.
    route: Mutex<()>,
}

// SAFETY: pointers are handed out and not followed, but for the device, which lives for ever.
unsafe impl Send for CmId {}
// SAFETY: as above; what changes is atomic or behind a lock, also where C sees it (`field!`,
// `with_route`).
unsafe impl Sync for CmId {}

/// What an id is made with.
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

/// Access to a pointer that C sees too.
macro_rules! field {
    ($own:ident $field:ident) => {
        // SAFETY: an aligned pointer inside of a live id. The threads of this library touch it by
        // atomics only; what the program does with it is as with the original library.
        unsafe { AtomicPtr::from_ptr(&raw mut (*$own.as_c()).$field) }
    };
}

/// Their getters.
macro_rules! getters {
    ($($field:ident $type:ty,)*) => {impl CmId {$(
        #[doc = concat!("The field `", stringify!($field), "`.")]
        pub fn $field(&self) -> *mut $type {
            field!(self $field).load(Ordering::Acquire)
        }
    )*}};
}

/// Their setters.
macro_rules! setters {
    ($($field:ident $set:ident $type:ty,)*) => {impl CmId {$(
        #[doc = concat!("Changes the field `", stringify!($field), "`; answers what it was.")]
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

/// Getter and setter of what is ours.
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

    /// The id as C knows it.
    pub fn as_c(&self) -> *mut rdma_cm_id {
        self.public.get()
    }

    /// Gives back the event that an id without a channel kept from its last call.
    pub fn give_event_back(&self) {
        let event = self.set_event(std::ptr::null_mut());
        if !event.is_null() {
            // SAFETY: made by `rdma_get_cm_event`; whoever takes it out of the id has it alone.
            unsafe { crate::channel::rdma_ack_cm_event(event) };
        }
    }

    /// The port space; it never changes.
    pub fn ps(&self) -> u32 {
        // SAFETY: a field of a live id, written before anybody else knew it.
        unsafe { (*self.as_c()).ps }
    }

    /// The type of its queue pair; it never changes.
    pub fn qp_type(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.as_c()).qp_type }
    }

    /// The device, once there is one.
    pub fn device(&self) -> Option<&'static Device> {
        // SAFETY: null, or from a reference that lives as long as the process.
        unsafe { self.device.load(Ordering::Acquire).as_ref() }
    }

    /// Gives it its device.
    pub fn set_device(&self, device: &'static Device) {
        self.device.store(std::ptr::from_ref(device).cast_mut(), Ordering::Release);
        self.set_verbs(device.context);
        if self.pd().is_null() {
            self.set_pd(device.pd);
        }
        // SAFETY: a byte of a live id, which is touched by atomics only.
        unsafe { AtomicU8::from_ptr(&raw mut (*self.as_c()).port_num) }
            .store(PORT, Ordering::Release);
    }

    /// Writes to the route, as the only one of this library.
    pub fn with_route(&self, write: impl FnOnce(&mut rdma_route)) {
        let _alone = hold(&self.route);
        // SAFETY: the route of a live id, of which no other reference exists: the lock is held.
        // Programs read it after the call or the event that fills it in.
        write(unsafe { &mut (*self.as_c()).route });
    }

    /// What comes before the private data of `rdma_connect`.
    pub fn connect_data(&self) -> MutexGuard<'_, Vec<u8>> {
        hold(&self.connect)
    }

    /// For the queue pairs of requests to a listener.
    pub fn qp_init_attr(&self) -> MutexGuard<'_, Option<ibv_qp_init_attr>> {
        hold(&self.qp_init_attr)
    }

    /// The groups that it joined.
    pub fn groups(&self) -> MutexGuard<'_, Vec<Group>> {
        hold(&self.groups)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const TURNS: u8 = 200;

    /// One thread takes events, the other makes calls: nothing is torn, and what is to be given
    /// back once is taken by one.
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
        // All but the first found what another call had left, and the last one is still there.
        assert_eq!(taken.load(Ordering::Relaxed), 2 * usize::from(TURNS) - 1);
        assert!(!id.qp().is_null() && (id.ps(), id.qp_type()) == (ps, qp_type));
    }
}
