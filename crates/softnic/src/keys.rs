//! The table of memory keys: the regions and windows of this process, which peers read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::backend::*;
use rdmalab_engine::mr::{KeyEntry, KeyKind};
use rdmalab_engine::vocab::PdId;
use rdmalab_engine::window;
use rdmalab_ring::keytable::{self, KeyTable, KeyView};
use rdmalab_wire::ids::Qpn;

use crate::error::os_error;
use crate::peer::{key_entry, table_entry};
use crate::profile;

/// The initiators that may still copy by a window's former binding.
#[derive(Clone, Copy)]
pub(crate) enum KeyUsers {
    /// None: the window was not bound.
    Nobody,
    /// The QP at the other end of the connection: process slot and index.
    Peer(u16, usize),
    /// Every initiator with a connection to a QP of the protection domain.
    Everybody,
}

/// The memory keys of this process.
pub(crate) struct KeyRegistry {
    pub(crate) table: Mutex<KeyTable>,
    /// The same table for reading, without a lock.
    pub(crate) view: KeyView,
    /// The index of the region of each bound window, by the window's QP (type 2; 0: type 1) and
    /// index. Changed with `table` locked.
    bindings: Mutex<BTreeMap<(Qpn, u32), u32>>,
    /// Memory regions and windows that are alive.
    in_use: AtomicU32,
}

impl KeyRegistry {
    /// A registry for an empty table.
    pub(crate) fn new(table: KeyTable) -> KeyRegistry {
        KeyRegistry {
            view: table.view(),
            table: Mutex::new(table),
            bindings: Mutex::default(),
            in_use: AtomicU32::new(0),
        }
    }

    pub(crate) fn allocate(&self) -> VerbsResult<u32> {
        let most = profile::limits().max_mr;
        if self.in_use.fetch_add(1, Ordering::Relaxed) >= most {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
            return Err(VerbsError::no_room(format!(
                "a process can have {most} memory regions and windows{}: deregister some first",
                profile::whose()
            )));
        }
        self.table.lock().allocate(0).map_err(|error| {
            self.in_use.fetch_sub(1, Ordering::Relaxed);
            VerbsError::no_room(error.to_string())
        })
    }

    pub(crate) fn free(&self, key: u32) {
        self.table.lock().free(keytable::index_of(key));
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Binds a window for a work request, if that is allowed. Returns whether it was bound before:
    /// then the caller must wait for all initiators that may copy by the former binding.
    pub(crate) fn bind_window(&self, bind: &MwBind, pd: PdId, qpn: Qpn) -> Option<bool> {
        let mut keys = self.table.lock();
        let index = keytable::index_of(bind.mw_rkey);
        let window = self.view.read(index).and_then(key_entry)?;
        let region = |key| self.view.lookup(key).and_then(key_entry);
        let entry = window::bind(bind, &window, region, pd, qpn)?;
        keys.publish(&table_entry(&entry));
        let mut bindings = self.bindings.lock();
        if entry.length == 0 {
            bindings.remove(&(entry.qpn, index));
        } else {
            bindings.insert((entry.qpn, index), keytable::index_of(bind.mr_lkey));
        }
        Some(window.length != 0)
    }

    /// The key of a region, or of the region that a window is bound to.
    pub(crate) fn region_of(&self, entry: &KeyEntry) -> Option<u32> {
        if entry.kind == KeyKind::Region {
            return Some(entry.key);
        }
        let place = (entry.qpn, keytable::index_of(entry.key));
        let index = *self.bindings.lock().get(&place)?;
        self.view.read(index).map(|region| region.key)
    }

    /// Invalidates a region's key, unless windows are bound to the region.
    pub(crate) fn retract_region(&self, key: u32) -> VerbsResult<()> {
        let index = keytable::index_of(key);
        let mut keys = self.table.lock();
        if self.bindings.lock().values().any(|region| *region == index) {
            return Err(VerbsError::busy("memory windows are bound to this region: unbind them"));
        }
        keys.retract(index);
        Ok(())
    }

    /// Invalidates a type 2 window of a QP; `false` if `rkey` is not such a window.
    pub(crate) fn retract_window(&self, rkey: u32, qpn: Qpn) -> bool {
        let mut keys = self.table.lock();
        let window = self.view.lookup(rkey).and_then(key_entry);
        let Some(window) = window.filter(|window| window::may_invalidate(window, qpn)) else {
            return false;
        };
        keys.publish(&table_entry(&window::unbound(&window)));
        self.bindings.lock().remove(&(qpn, keytable::index_of(rkey)));
        true
    }

    /// Invalidates the key of a window that is being freed.
    pub(crate) fn retract_freed_window(&self, rkey: u32) {
        let index = keytable::index_of(rkey);
        let mut keys = self.table.lock();
        let qpn = self.view.read(index).and_then(key_entry).map(|window| window.qpn);
        keys.retract(index);
        self.bindings.lock().remove(&(qpn.unwrap_or_default(), index));
    }

    /// Invalidates the type 2 windows of a QP that is being destroyed: they could not be
    /// invalidated later, and the next QP of that number must not inherit them. The caller waits
    /// for initiators that still copy by them.
    pub(crate) fn retract_windows_of(&self, qpn: Qpn) {
        let mut keys = self.table.lock();
        let mut bindings = self.bindings.lock();
        let of_qp = (qpn, 0)..=(qpn, u32::MAX);
        let indices: Vec<u32> = bindings.range(of_qp).map(|((_, index), _)| *index).collect();
        for index in indices {
            if let Some(window) = self.view.read(index).and_then(key_entry) {
                keys.publish(&table_entry(&window::unbound(&window)));
            }
            bindings.remove(&(qpn, index));
        }
    }
}

/// Makes the table of keys in private memory, with a copy for peers at `shown`. So a bug in a peer
/// cannot change what this process's own work requests and responder may access.
///
/// # Safety
/// As [`KeyTable::create`] for `shown`.
pub(crate) unsafe fn private_keys(shown: *mut u8, entries: usize) -> VerbsResult<KeyTable> {
    let bytes = entries * rdmalab_ring::keytable::ENTRY_BYTES;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice; pages are allocated when touched.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rw, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        return Err(os_error("cannot make the table of memory keys", &error));
    }
    // SAFETY: new zeroed pages that are never unmapped; for the copy by the contract.
    unsafe {
        let mut keys = KeyTable::create(base.cast(), entries);
        keys.show_at(shown);
        Ok(keys)
    }
}
