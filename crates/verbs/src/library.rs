//! A library of verbs, and how its functions report errors.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdmalab_abi::{
    CmTable, LoadError, VerbsTable, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_device,
};

use crate::error::VerbsError;

/// The kind of a library. Every result names it: results of one kind are never presented as those
/// of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The system's libibverbs, and an adapter or a kernel driver below it.
    System,
    /// The soft device of this project: it measures this host.
    Soft,
    /// The simulator of this project: its results are those of a model.
    Sim,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Kind::System => "system",
            Kind::Soft => "soft",
            Kind::Sim => "sim",
        })
    }
}

/// Functions of this project's libraries beyond the verbs.
#[derive(Clone, Copy, Debug)]
pub struct SoftHooks {
    /// Allocates at least that many bytes of zeroed, page-aligned memory, which peers on this host
    /// can map.
    pub alloc_shared: fn(bytes: usize) -> io::Result<NonNull<u8>>,
    /// Frees memory of `alloc_shared`.
    ///
    /// # Safety
    /// The memory starts at `start`, came from `alloc_shared`, and is not used any more.
    pub free_shared: unsafe fn(start: *mut u8),
    /// The message of the last error of this thread, as `verb: sentence`.
    pub last_error: fn() -> Option<String>,
    /// Loads the connection manager for its devices.
    pub load_cm: fn() -> Result<CmTable, LoadError>,
}

/// Lists the devices of one instance of a back end while the instance lives; else returns an error
/// number.
pub type ListDevices = dyn Fn() -> Result<Vec<NonNull<ibv_device>>, c_int> + Send + Sync;

/// Waits for the next event of a completion channel for at most so many nanoseconds; writes the
/// completion queue and its context. Returns 0, or an error number: `EAGAIN` when none came.
///
/// # Safety
/// The channel is alive, and both places are valid for writes.
pub type WaitEvent =
    unsafe fn(*mut ibv_comp_channel, u64, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;

/// Waits for the next asynchronous event of a context for at most so many nanoseconds, and writes
/// it. Returns 0, or an error number: `EAGAIN` when none came.
///
/// # Safety
/// The context is open, and the place is valid for writes.
pub type WaitAsyncEvent = unsafe fn(*mut ibv_context, u64, *mut ibv_async_event) -> c_int;

/// One instance of a back end, as the devices of a library.
pub struct Instance {
    /// Lists its devices, and keeps it.
    pub devices: Box<ListDevices>,
    /// Waits for an event of a channel without a descriptor.
    pub wait_event: WaitEvent,
    /// Waits for an asynchronous event without a descriptor.
    pub wait_async_event: WaitAsyncEvent,
    /// The message of the last error of this thread, as `verb: sentence`.
    pub last_error: fn() -> Option<String>,
}

/// A library of verbs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Library(Arc<Inner>);

struct Inner {
    table: VerbsTable,
    kind: Kind,
    hooks: Option<SoftHooks>,
    instance: Option<Instance>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Library {
    /// The library that the dynamic linker finds as `libibverbs.so.1`. Its kind is [`Kind::Soft`]
    /// if that is this project's replacement (under `rdmalab exec`).
    ///
    /// # Errors
    /// When there is none, or it is too old.
    pub fn system() -> Result<Self, LoadError> {
        Self::load(None)
    }

    /// The library at a path; `None` is [`Library::system`].
    ///
    /// # Errors
    /// As [`Library::system`].
    pub fn load(path: Option<&CStr>) -> Result<Self, LoadError> {
        let table = VerbsTable::load(path)?;
        let kind = if VerbsTable::is_ours(path)? { Kind::Soft } else { Kind::System };
        Ok(Self::new(table, kind, None))
    }

    /// A library from its table. The caller promises that each function behaves as the manual page
    /// of libibverbs says; the safety of this crate depends on that.
    #[must_use]
    pub fn new(table: VerbsTable, kind: Kind, hooks: Option<SoftHooks>) -> Self {
        Self(Arc::new(Inner { table, kind, hooks, instance: None }))
    }

    /// A library whose devices are those of one instance of a back end instead of the process's: a
    /// process may have several. Its table serves the devices of any instance of that back end, as
    /// for [`Library::new`]. The library keeps the instance.
    #[must_use]
    pub fn of_instance(table: VerbsTable, kind: Kind, instance: Instance) -> Self {
        Self(Arc::new(Inner { table, kind, hooks: None, instance: Some(instance) }))
    }

    /// The kind of this library.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The instance whose devices it has, if those are not the process's.
    pub(crate) fn instance(&self) -> Option<&Instance> {
        self.0.instance.as_ref()
    }

    /// The functions.
    #[must_use]
    pub fn table(&self) -> &VerbsTable {
        &self.0.table
    }

    /// The functions beyond the verbs.
    #[must_use]
    pub fn hooks(&self) -> Option<&SoftHooks> {
        self.0.hooks.as_ref()
    }

    /// The error of a verb that has just failed with this number.
    #[cold]
    pub(crate) fn error(&self, verb: &'static str, errno: i32) -> VerbsError {
        let prefix = format!("{verb}: ");
        let of_hooks = self.hooks().map(|hooks| hooks.last_error);
        let last_error = of_hooks.or(self.instance().map(|instance| instance.last_error));
        let said = last_error.and_then(|last_error| last_error());
        let sentence = said.and_then(|s| Some(s.strip_prefix(&prefix)?.to_owned()));
        VerbsError { verb, errno, sentence }
    }

    /// Checks a result by the convention "null, and `errno`".
    pub(crate) fn not_null<T>(
        &self,
        verb: &'static str,
        object: *mut T,
    ) -> Result<NonNull<T>, VerbsError> {
        NonNull::new(object).ok_or_else(|| self.error(verb, last_errno()))
    }

    /// Checks a result by the conventions "0, or an error number" and "0, or -1 and `errno`": no
    /// verb has an error number of -1, so one function serves both.
    pub(crate) fn zero(&self, verb: &'static str, result: i32) -> Result<(), VerbsError> {
        match result {
            0 => Ok(()),
            -1 => Err(self.error(verb, last_errno())),
            number => Err(self.error(verb, number.abs())),
        }
    }
}

/// `errno` of this thread; `EIO` where a verb failed without setting it.
pub(crate) fn last_errno() -> i32 {
    match io::Error::last_os_error().raw_os_error() {
        Some(0) | None => libc::EIO,
        Some(number) => number,
    }
}
