//! Memory regions and windows: entries of the key table that peers read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rdmalab_engine::backend::*;
use rdmalab_engine::mr::{self, Backing, KeyEntry, KeyKind};
use rdmalab_engine::odp::{self, Advice};
use rdmalab_engine::vocab::{Access, PdId, Sge};
use rdmalab_wire::ids::Qpn;

use crate::context::ContextShared;
use crate::copiers::Copiers;
use crate::copy::guard::{self, Mode};
use crate::pd::PdObject;
use crate::peer::{key_entry, table_entry};
use crate::process::Process;
use crate::profile;

/// How often a thread that waits for prefetched pages looks.
const LOOK: Duration = Duration::from_micros(50);

/// A memory region.
pub(crate) struct MrObject {
    pub(crate) process: &'static Process,
    state: Mutex<MrState>,
}

struct MrState {
    pd: Arc<PdObject>,
    entry: KeyEntry,
    addr: u64,
    alive: bool,
}

/// A memory window.
pub(crate) struct MwObject {
    pub(crate) process: &'static Process,
    pub(crate) pd: Arc<PdObject>,
    pub(crate) mw_type: MwType,
    /// Its current remote key.
    pub(crate) rkey: AtomicU32,
}

impl MrObject {
    /// Registers memory.
    pub(crate) fn register(
        process: &'static Process,
        pd: &Arc<PdObject>,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> VerbsResult<(Arc<MrObject>, MrInfo)> {
        let access = mr::check_registration(access, length, addr).map_err(VerbsError::invalid)?;
        guard_copies()?;
        check_mapped(addr, length, access)?;
        let key = process.keys.allocate()?;
        let entry = new_entry(process, pd.id, key, addr, length, iova, access);
        process.paging.begin(&entry, process.alarm());
        process.keys.table.lock().publish(&table_entry(&entry));
        pd.add_object();
        let state = MrState { pd: pd.clone(), entry, addr, alive: true };
        let region = MrObject { process, state: Mutex::new(state) };
        Ok((Arc::new(region), MrInfo { lkey: key, rkey: key }))
    }

    /// Whether the region was registered on this open device.
    pub(crate) fn is_of(&self, context: &Arc<ContextShared>) -> bool {
        Arc::ptr_eq(&self.state.lock().pd.context, context)
    }

    /// Deregisters the region. When this returns, no thread accesses it through the key.
    pub(crate) fn deregister(&self) -> VerbsResult<()> {
        let mut state = self.state.lock();
        if !state.alive {
            return Err(VerbsError::invalid("the region is deregistered already"));
        }
        let key = state.entry.key;
        self.process.keys.retract_region(key)?;
        Copiers::of(self.process).wait_for_copies()?;
        self.process.paging.end(key, self.process.alarm());
        self.process.keys.free(key);
        state.alive = false;
        state.pd.remove_object();
        Ok(())
    }

    /// Changes the region in place (IBA vol. 1, 11.2.8.5); its keys stay.
    pub(crate) fn reregister(&self, change: MrChange<'_, Arc<PdObject>>) -> VerbsResult<MrInfo> {
        let mut state = self.state.lock();
        let (addr, length) = change.translation.unwrap_or((state.addr, state.entry.length));
        let access = change.access.unwrap_or(state.entry.access);
        let access = mr::check_registration(access, length, addr).map_err(VerbsError::invalid)?;
        check_mapped(addr, length, access)?;
        let pd = change.pd.cloned().unwrap_or_else(|| state.pd.clone());
        let key = state.entry.key;
        let iova = match change.translation {
            Some((addr, _)) => addr,
            None => state.entry.iova,
        };
        self.process.keys.retract_region(key)?;
        Copiers::of(self.process).wait_for_copies()?;
        state.entry = new_entry(self.process, pd.id, key, addr, length, iova, access);
        state.addr = addr;
        self.process.paging.begin(&state.entry, self.process.alarm());
        self.process.keys.table.lock().publish(&table_entry(&state.entry));
        pd.add_object();
        state.pd.remove_object();
        state.pd = pd;
        Ok(MrInfo { lkey: key, rkey: key })
    }
}

/// Fetches pages of on-demand regions before they are accessed; if `flush`, waits for them.
pub(crate) fn advise(
    process: &Process,
    pd: PdId,
    advice: Advice,
    flush: bool,
    sges: &[Sge],
) -> VerbsResult<()> {
    let key = |key| process.keys.view.lookup(key).and_then(key_entry);
    let ranges = odp::advised(key, pd, advice, sges)?;
    for (_, host_addr, bytes) in &ranges {
        populate(advice, *host_addr, *bytes)?;
    }
    while !process.paging.prefetch(&ranges, process.alarm()) && flush {
        std::thread::sleep(LOOK);
        process.let_pages_come(crate::clock::now_ns());
    }
    Ok(())
}

/// Lets the kernel map the pages of a range, as far as it can (`MADV_POPULATE_*`, Linux 5.14).
fn populate(advice: Advice, host_addr: u64, bytes: u64) -> VerbsResult<()> {
    let how = match advice {
        Advice::Prefetch => libc::MADV_POPULATE_READ,
        Advice::PrefetchWrite => libc::MADV_POPULATE_WRITE,
        Advice::PrefetchNoFault => return Ok(()),
    };
    let page = rdmalab_ring::seg::page_bytes() as u64;
    let first = host_addr / page * page;
    let length = (host_addr + bytes - first) as usize;
    // SAFETY: it maps pages that the process may access already, and changes no content.
    let result = unsafe { libc::madvise(first as *mut libc::c_void, length, how) };
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOMEM | libc::EFAULT) if result != 0 => Err(VerbsError::new(
            VerbsError::EFAULT,
            format!("{bytes} bytes at {host_addr:#x}: not all of it is mapped in this process"),
        )),
        // An older kernel maps them at the first access.
        _ => Ok(()),
    }
}

/// What happened so far to pages of the on-demand regions of this process.
pub fn page_counters() -> odp::Counters {
    page_history().0
}

/// The same, and when it happened, by `CLOCK_MONOTONIC`.
pub(crate) fn page_history() -> (odp::Counters, odp::Timeline) {
    Process::existing().and_then(|process| process.paging.totals()).unwrap_or_default()
}

fn new_entry(
    process: &Process,
    pd: PdId,
    key: u32,
    addr: u64,
    length: u64,
    iova: u64,
    access: Access,
) -> KeyEntry {
    let iova = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
    KeyEntry {
        key,
        kind: KeyKind::Region,
        iova,
        length,
        host_delta: addr.wrapping_sub(iova),
        access,
        pd,
        qpn: Qpn::new(0),
        on_demand: access.contains(Access::ON_DEMAND) && profile::pages_may_be_missing(),
        // What is mapped at these addresses may change.
        backing: match access.contains(Access::ON_DEMAND) {
            true => Backing::default(),
            false => process.host.buffers.backing(addr, length),
        },
    }
}

/// As [`Copiers::wait_for_own_copies`], for the fault guard, which knows no process.
fn wait_for_own_copies() {
    if let Some(process) = Process::existing() {
        Copiers::of(process).wait_for_own_copies();
    }
}

/// Installs the fault guard before the first region exists, so that a copy into memory that the
/// program unmapped is an error. At each later region checks the program's handlers again.
fn guard_copies() -> VerbsResult<()> {
    static FIRST: std::sync::Once = std::sync::Once::new();
    let mut result = Ok(());
    FIRST.call_once(|| result = guard::install_if_default(wait_for_own_copies).map(drop));
    if guard::recheck() == Some(Mode::Syscall) {
        crate::debug_once(
            "copies are made by system calls, about a microsecond each: the program has a handler \
             for SIGSEGV or SIGBUS that rdmalab did not see being set, or RDMALAB_FAULT_GUARD asks \
             for it",
        );
    }
    result.map_err(|error| VerbsError::invalid(error.to_string()))
}

/// Checks that the region is mapped. An adapter pins the pages of a region, which fails with
/// `EFAULT` if they are not mapped. This check does not allocate pages.
/// Pages of an on-demand region need not be mapped.
fn check_mapped(addr: u64, length: u64, access: Access) -> VerbsResult<()> {
    if length == 0 || access.contains(Access::ON_DEMAND) {
        return Ok(());
    }
    let page = rdmalab_ring::seg::page_bytes() as u64;
    let first = addr & !(page - 1);
    let bytes = addr + length - first;
    // SAFETY: writes nothing back (MS_ASYNC has done nothing since Linux 2.6.19) and, unlike
    // advice, changes no mapping; the kernel returns ENOMEM if part of the range is not mapped.
    let result = unsafe { libc::msync(first as *mut libc::c_void, bytes as usize, libc::MS_ASYNC) };
    if result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
        return Err(VerbsError::new(
            VerbsError::EFAULT,
            format!("{length} bytes at {addr:#x}: not all of it is mapped in this process"),
        ));
    }
    Ok(())
}

impl MwObject {
    /// Allocates a window that is not bound.
    pub(crate) fn allocate(
        process: &'static Process,
        pd: &Arc<PdObject>,
        mw_type: MwType,
    ) -> VerbsResult<Arc<MwObject>> {
        let key = process.keys.allocate()?;
        let mut entry = new_entry(process, pd.id, key, 0, 0, 0, Access::NONE);
        entry.kind = match mw_type {
            MwType::Type1 => KeyKind::WindowType1,
            MwType::Type2 => KeyKind::WindowType2,
        };
        process.keys.table.lock().publish(&table_entry(&entry));
        pd.add_object();
        Ok(Arc::new(MwObject { process, pd: pd.clone(), mw_type, rkey: AtomicU32::new(key) }))
    }

    /// Frees the window.
    pub(crate) fn deallocate(&self) -> VerbsResult<()> {
        let process = self.process;
        let key = self.rkey.load(Ordering::Acquire);
        process.keys.retract_freed_window(key);
        Copiers::of(process).wait_for_copies()?;
        process.keys.free(key);
        self.pd.remove_object();
        Ok(())
    }

    /// The key for the next bind of a type 1 window: its low 8 bits are incremented.
    pub(crate) fn advance_rkey(&self) -> u32 {
        let key = self.rkey.load(Ordering::Acquire);
        let next = (key & !0xff) | (key.wrapping_add(1) & 0xff);
        self.rkey.store(next, Ordering::Release);
        next
    }
}
