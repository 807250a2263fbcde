//! The connection manager of this process: one state under a lock, and one thread that serves it.
//!
//! The thread sleeps until a datagram comes, a peer goes away or a timer is due. An idle process
//! uses no processor time.

use std::net::IpAddr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockResult};

use rdmalab_wire::ids::Gid;

use crate::device::{self, Device};
use crate::errno::{CallResult, Errno, errno_of, failed};
use crate::gsi::Gsi;
use crate::mad_transport::{MadTransport, RETRY_MS};
use crate::os::{now_ns, random, start_thread};
use crate::state::CmState;

/// The connection manager of this process: its state, its devices and its thread.
pub struct CmProcess {
    state: Mutex<CmState>,
    acknowledged: Condvar,
    devices: OnceLock<Vec<Device>>,
    opening: Mutex<()>,
}

/// The connection manager of this process. Null before the first call, and in a child after `fork`.
static PROCESS: AtomicPtr<CmProcess> = AtomicPtr::new(std::ptr::null_mut());
static CREATION: Mutex<()> = Mutex::new(());

/// The connection manager, if it exists.
pub fn existing() -> Option<&'static CmProcess> {
    // SAFETY: null, or from `process`, which never frees it.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// The connection manager, created at the first call.
///
/// # Errors
/// `ENODEV` without our libibverbs, else the kernel's error.
pub fn process() -> CallResult<&'static CmProcess> {
    if let Some(process) = existing() {
        return Ok(process);
    }
    let _creation = CREATION.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = existing() {
        return Ok(process);
    }
    device::verbs()?;
    let gsi = Gsi::open()?;
    let transport = MadTransport::take_slot(random() as u16, gsi)
        .map_err(|error| failed(errno_of(&error).0, "rdma_cm", || error.to_string()))?;
    let process: &'static CmProcess = Box::leak(Box::new(CmProcess {
        state: Mutex::new(CmState::new(transport)),
        acknowledged: Condvar::new(),
        devices: OnceLock::new(),
        opening: Mutex::new(()),
    }));
    start_thread("rdmalab-cm", move || run(process)).map_err(|error| errno_of(&error))?;
    PROCESS.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    Ok(process)
}

/// A forked child does not own the connections of its parent.
extern "C" fn after_fork_in_child() {
    PROCESS.store(std::ptr::null_mut(), Ordering::Release);
}

impl CmProcess {
    /// Takes the lock.
    pub fn lock(&self) -> MutexGuard<'_, CmState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, CmState>> {
        self.state.try_lock()
    }

    /// The devices, opened at the first call.
    ///
    /// # Errors
    /// As [`device::open_all`].
    pub fn devices(&self) -> CallResult<&[Device]> {
        if let Some(devices) = self.devices.get() {
            return Ok(devices);
        }
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.devices.get().is_none() {
            let devices = device::open_all()?;
            self.lock().manager.set_guid(devices[0].guid);
            let _first = self.devices.set(devices);
        }
        Ok(self.devices.get().map_or(&[], Vec::as_slice))
    }

    /// The device with this index in [`Self::devices`].
    pub fn device(&self, index: usize) -> CallResult<&Device> {
        self.devices()?.get(index).ok_or(Errno(libc::ENODEV))
    }

    /// The device for an address of this host: its index in the list, GID index and GID. Falls back
    /// to the first device if no port has the address.
    pub fn device_of(&self, ip: IpAddr) -> CallResult<(usize, u8, Gid)> {
        let wanted = Gid::of_ip(crate::address::plain(ip));
        let devices = self.devices()?;
        for (index, device) in devices.iter().enumerate() {
            if let Some(at) = device.index_of(wanted) {
                return Ok((index, at, wanted));
            }
        }
        let (at, gid) = devices[0].own_gid();
        Ok((0, at, gid))
    }

    /// Counts an acknowledged event of an id.
    pub fn acknowledge(&self, owner: u64) {
        let mut cm = self.lock();
        if let Some(id) = cm.ids.get_mut(&owner) {
            id.acknowledged += 1;
        }
        drop(cm);
        self.acknowledged.notify_all();
    }

    /// Waits until the program has acknowledged all events of an id that it fetched.
    pub fn wait_for_acknowledgements(&self, id: u64) {
        let mut cm = self.lock();
        while cm.ids.get(&id).is_some_and(|id| id.acknowledged < id.fetched) {
            cm = self.acknowledged.wait(cm).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The body of the thread. It runs until the process ends.
fn run(process: &'static CmProcess) {
    loop {
        let (mut poll_set, timeout_ms) = {
            let mut cm = process.lock();
            let (poll_set, needs_retry) = cm.transport.poll_set();
            cm.sleeps_until_ns = cm.next_deadline_ns();
            let left_ms = cm.sleeps_until_ns.map(|at| {
                let left_ns = at.saturating_sub(now_ns());
                i32::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX)
            });
            let retry_ms = needs_retry.then_some(RETRY_MS);
            (poll_set, left_ms.into_iter().chain(retry_ms).min().unwrap_or(-1))
        };
        // SAFETY: a live array of that length.
        unsafe { libc::poll(poll_set.as_mut_ptr(), poll_set.len() as libc::nfds_t, timeout_ms) };
        let mut cm = process.lock();
        for (from, mad) in cm.transport.receive_all() {
            cm.manager.receive(now_ns(), from, mad);
        }
        cm.manager.tick(now_ns());
        cm.expire_lookups(now_ns());
        cm.process_outputs();
    }
}
