//! The exported functions of libibverbs as one table.
//!
//! The table comes from a shared library on this machine ([`VerbsTable::load`]) or from a provider
//! in this process. Its users need not know which.

use crate::errno::set_errno;
use crate::types::*;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::fmt;
use std::path::PathBuf;

/// The name under which the dynamic linker finds the system's library.
pub const LIBIBVERBS_SONAME: &CStr = c"libibverbs.so.1";

/// A symbol that only this project's replacement library has: it identifies that library.
const OUR_MARK: &CStr = c"__rdmalab_ibv_get_device_list";

/// Why a library could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The library was not found, or could not be loaded.
    Open {
        /// The requested library.
        library: String,
        /// The dynamic linker's message.
        reason: String,
    },
    /// The library has no such function: it is too old, or another library.
    Symbol {
        /// The library.
        library: String,
        /// The function.
        name: &'static str,
        /// The requested version.
        version: &'static str,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { library, reason } => write!(f, "cannot load {library}: {reason}"),
            Self::Symbol { library, name, version } => {
                write!(f, "{library} has no {name}@{version}: rdma-core 32 or newer is needed")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// The result of a missing function.
trait Failure {
    fn failure() -> Self;
}

impl<T> Failure for *mut T {
    fn failure() -> Self {
        set_errno(libc::EOPNOTSUPP);
        core::ptr::null_mut()
    }
}

impl<T> Failure for *const T {
    fn failure() -> Self {
        set_errno(libc::EOPNOTSUPP);
        core::ptr::null()
    }
}

impl Failure for c_int {
    fn failure() -> Self {
        set_errno(libc::EOPNOTSUPP);
        libc::EOPNOTSUPP
    }
}

impl Failure for u64 {
    fn failure() -> Self {
        0
    }
}

impl Failure for () {
    fn failure() -> Self {}
}

/// Declares the table: `field: fn(...) -> ..., "symbol" "version", "meaning";`.
macro_rules! verbs_table {
    ($($field:ident: fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?,
        $symbol:literal $version:literal, $doc:literal;)*) => {
        /// The exported functions that a user of verbs needs. Each behaves as its manual page says.
        /// The error convention (null, -1 and `errno`, or an error number) differs between
        /// functions; the text of each names it.
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct VerbsTable {
            $(#[doc = $doc] pub $field: unsafe extern "C-unwind" fn($($ty),*) $(-> $ret)?,)*
        }

        impl VerbsTable {
            /// Takes every function from an open library.
            ///
            /// # Safety
            /// `library` is a handle from `dlopen` of a library with the ABI of libibverbs, and
            /// it is never closed.
            unsafe fn from_library(library: &Library) -> Result<Self, LoadError> {
                Ok(Self {
                    $($field: {
                        let symbol = library.symbol($symbol, $version)?;
                        // SAFETY: the symbol has the name and the version under which
                        // libibverbs exports a function of exactly this signature, and the
                        // library stays loaded.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C-unwind" fn($($ty),*) $(-> $ret)?,
                            >(symbol)
                        }
                    },)*
                })
            }

            /// A table in which every function fails: null, or `EOPNOTSUPP`. A table by hand can
            /// list only the functions that it has, followed by `..VerbsTable::UNSUPPORTED`.
            pub const UNSUPPORTED: Self = Self {
                $($field: {
                    unsafe extern "C-unwind" fn absent($(_: $ty),*) $(-> $ret)? {
                        Failure::failure()
                    }
                    absent
                },)*
            };

            /// The functions of the table as (symbol, version).
            pub const SYMBOLS: &[(&str, &str)] = &[$(($symbol, $version)),*];
        }
    };
}

verbs_table! {
    get_device_list: fn(num_devices: *mut c_int) -> *mut *mut ibv_device,
        "ibv_get_device_list" "IBVERBS_1.1", "The devices, null-terminated; null and `errno`.";
    free_device_list: fn(list: *mut *mut ibv_device),
        "ibv_free_device_list" "IBVERBS_1.1", "Frees the list; open devices stay valid.";
    get_device_name: fn(device: *mut ibv_device) -> *const c_char,
        "ibv_get_device_name" "IBVERBS_1.1", "The name, owned by the device.";
    get_device_guid: fn(device: *mut ibv_device) -> u64,
        "ibv_get_device_guid" "IBVERBS_1.1", "The node's GUID, network byte order; 0 if unknown.";
    open_device: fn(device: *mut ibv_device) -> *mut ibv_context,
        "ibv_open_device" "IBVERBS_1.1", "Opens it; null and `errno`.";
    close_device: fn(context: *mut ibv_context) -> c_int,
        "ibv_close_device" "IBVERBS_1.1", "Closes it; 0, or -1.";
    query_device: fn(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int,
        "ibv_query_device" "IBVERBS_1.1", "What it can do; 0, or an error number.";
    query_port: fn(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int,
        "ibv_query_port" "IBVERBS_1.1",
        "The first 52 bytes of a port's attributes (see `inline::ibv_query_port` for all); 0, or \
         an error number.";
    query_gid: fn(context: *mut ibv_context, port_num: u8, index: c_int,
        gid: *mut ibv_gid) -> c_int,
        "ibv_query_gid" "IBVERBS_1.1", "A GID; 0, or -1.";
    query_gid_ex: fn(context: *mut ibv_context, port_num: u32, gid_index: u32,
        entry: *mut ibv_gid_entry, flags: u32, entry_size: usize) -> c_int,
        "_ibv_query_gid_ex" "IBVERBS_1.11", "A GID with its type; 0, or an error number.";
    query_pkey: fn(context: *mut ibv_context, port_num: u8, index: c_int,
        pkey: *mut u16) -> c_int,
        "ibv_query_pkey" "IBVERBS_1.1", "A P_Key, network byte order; 0, or -1.";
    alloc_pd: fn(context: *mut ibv_context) -> *mut ibv_pd,
        "ibv_alloc_pd" "IBVERBS_1.1", "Makes a protection domain; null and `errno`.";
    dealloc_pd: fn(pd: *mut ibv_pd) -> c_int,
        "ibv_dealloc_pd" "IBVERBS_1.1", "Frees it; 0, or an error number.";
    reg_mr: fn(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr,
        "ibv_reg_mr" "IBVERBS_1.1", "Registers memory; null and `errno`.";
    reg_mr_iova2: fn(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64,
        access: c_uint) -> *mut ibv_mr,
        "ibv_reg_mr_iova2" "IBVERBS_1.8",
        "Registers memory under another address, with optional rights; null and `errno`.";
    dereg_mr: fn(mr: *mut ibv_mr) -> c_int,
        "ibv_dereg_mr" "IBVERBS_1.1", "Frees it; 0, or an error number.";
    rereg_mr: fn(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void,
        length: usize, access: c_int) -> c_int,
        "ibv_rereg_mr" "IBVERBS_1.1", "Changes it; 0, or an `ibv_rereg_mr_err_code`.";
    create_comp_channel: fn(context: *mut ibv_context) -> *mut ibv_comp_channel,
        "ibv_create_comp_channel" "IBVERBS_1.0", "Makes a channel; null and `errno`.";
    destroy_comp_channel: fn(channel: *mut ibv_comp_channel) -> c_int,
        "ibv_destroy_comp_channel" "IBVERBS_1.0", "Frees it; 0, or an error number.";
    create_cq: fn(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void,
        channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq,
        "ibv_create_cq" "IBVERBS_1.1", "Makes a completion queue; null and `errno`.";
    destroy_cq: fn(cq: *mut ibv_cq) -> c_int,
        "ibv_destroy_cq" "IBVERBS_1.1",
        "Frees it, after its events have been acknowledged; 0, or an error number.";
    resize_cq: fn(cq: *mut ibv_cq, cqe: c_int) -> c_int,
        "ibv_resize_cq" "IBVERBS_1.1", "Changes its size; 0, or an error number.";
    get_cq_event: fn(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void) -> c_int,
        "ibv_get_cq_event" "IBVERBS_1.1", "Waits for an event; 0, or -1 and `errno`.";
    ack_cq_events: fn(cq: *mut ibv_cq, nevents: c_uint),
        "ibv_ack_cq_events" "IBVERBS_1.1", "Acknowledges events.";
    create_srq: fn(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq,
        "ibv_create_srq" "IBVERBS_1.1", "Makes a shared receive queue; null and `errno`.";
    modify_srq: fn(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, attr_mask: c_int) -> c_int,
        "ibv_modify_srq" "IBVERBS_1.1", "Changes it; 0, or an error number.";
    query_srq: fn(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int,
        "ibv_query_srq" "IBVERBS_1.1", "Its attributes; 0, or an error number.";
    destroy_srq: fn(srq: *mut ibv_srq) -> c_int,
        "ibv_destroy_srq" "IBVERBS_1.1",
        "Frees it, after its events have been acknowledged; 0, or an error number.";
    create_qp: fn(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp,
        "ibv_create_qp" "IBVERBS_1.1", "Makes a queue pair; null and `errno`.";
    modify_qp: fn(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int,
        "ibv_modify_qp" "IBVERBS_1.1", "Changes it; 0, or an error number.";
    query_qp: fn(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr) -> c_int,
        "ibv_query_qp" "IBVERBS_1.1", "Its attributes; 0, or an error number.";
    destroy_qp: fn(qp: *mut ibv_qp) -> c_int,
        "ibv_destroy_qp" "IBVERBS_1.1",
        "Frees it, after its events have been acknowledged; 0, or an error number.";
    create_ah: fn(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah,
        "ibv_create_ah" "IBVERBS_1.1", "Makes an address handle; null and `errno`.";
    destroy_ah: fn(ah: *mut ibv_ah) -> c_int,
        "ibv_destroy_ah" "IBVERBS_1.1", "Frees it; 0, or an error number.";
    attach_mcast: fn(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int,
        "ibv_attach_mcast" "IBVERBS_1.1", "Joins a group; 0, or an error number.";
    detach_mcast: fn(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int,
        "ibv_detach_mcast" "IBVERBS_1.1", "Leaves a group; 0, or an error number.";
    get_async_event: fn(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int,
        "ibv_get_async_event" "IBVERBS_1.1", "Waits for an event; 0, or -1 and `errno`.";
    ack_async_event: fn(event: *mut ibv_async_event),
        "ibv_ack_async_event" "IBVERBS_1.1", "Acknowledges an event.";
    wc_status_str: fn(status: u32) -> *const c_char,
        "ibv_wc_status_str" "IBVERBS_1.1", "A status in words, static.";
    qp_to_qp_ex: fn(qp: *mut ibv_qp) -> *mut ibv_qp_ex,
        "ibv_qp_to_qp_ex" "IBVERBS_1.6",
        "The extended view of a QP made with `send_ops_flags`; else null.";
    fork_init: fn() -> c_int,
        "ibv_fork_init" "IBVERBS_1.1", "Prepares for fork; 0, or an error number.";
}

impl VerbsTable {
    /// Loads a library and takes its functions. `None` means the one that the dynamic linker finds
    /// as `libibverbs.so.1`; under `LD_LIBRARY_PATH` that may be this project's, see [`is_ours`].
    ///
    /// The library stays loaded for the life of the process, because its threads and drivers do not
    /// survive an unload.
    ///
    /// # Errors
    /// [`LoadError::Open`] if it is not there, [`LoadError::Symbol`] if it is too old.
    ///
    /// [`is_ours`]: VerbsTable::is_ours
    pub fn load(path: Option<&CStr>) -> Result<Self, LoadError> {
        let library = Library::open(path.unwrap_or(LIBIBVERBS_SONAME))?;
        // SAFETY: a library that exports these names under these versions is libibverbs, or a
        // replacement for it; `Library` never closes it.
        unsafe { Self::from_library(&library) }
    }

    /// The file that the functions come from, if the dynamic linker knows it. For a table made
    /// by hand this is the program or library that made it.
    pub fn origin(&self) -> Option<PathBuf> {
        // SAFETY: `Dl_info` is four pointers, for which zero is valid.
        let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
        // SAFETY: `dladdr` only compares the address, and fills in `info`.
        let found = unsafe { libc::dladdr(self.get_device_list as *const c_void, &mut info) };
        if found == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the dynamic linker's name of a loaded object: a C string that lives as long
        // as the object, which holds the function and is never unloaded.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        Some(PathBuf::from(std::ffi::OsStr::new(name.to_str().ok()?)))
    }

    /// Whether a library is this project's replacement: then a "system" device is a soft device.
    ///
    /// # Errors
    /// [`LoadError::Open`] if it cannot be loaded.
    pub fn is_ours(path: Option<&CStr>) -> Result<bool, LoadError> {
        let library = Library::open(path.unwrap_or(LIBIBVERBS_SONAME))?;
        // SAFETY: the handle is open, and the name is a C string.
        Ok(unsafe { !libc::dlsym(library.handle, OUR_MARK.as_ptr()).is_null() })
    }
}

/// A loaded library, which is never unloaded.
pub(crate) struct Library {
    handle: *mut c_void,
    name: String,
}

impl Library {
    pub(crate) fn open(path: &CStr) -> Result<Self, LoadError> {
        let name = path.to_string_lossy().into_owned();
        // SAFETY: the name is a C string. Loading runs the library's constructors: that is what
        // the caller asks for.
        let handle = unsafe {
            libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE)
        };
        if handle.is_null() {
            return Err(LoadError::Open { library: name, reason: dl_reason() });
        }
        Ok(Self { handle, name })
    }

    pub(crate) fn symbol(
        &self,
        name: &'static str,
        version: &'static str,
    ) -> Result<*mut c_void, LoadError> {
        let missing = || LoadError::Symbol { library: self.name.clone(), name, version };
        let c_name = CString::new(name).map_err(|_| missing())?;
        let c_version = CString::new(version).map_err(|_| missing())?;
        // SAFETY: the handle is open, and both are C strings.
        let symbol = unsafe { libc::dlvsym(self.handle, c_name.as_ptr(), c_version.as_ptr()) };
        if symbol.is_null() { Err(missing()) } else { Ok(symbol) }
    }

    /// A symbol without a version.
    pub(crate) fn plain_symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, and the name is a C string.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }
}

/// The dynamic linker's message for the last failure of this thread.
fn dl_reason() -> String {
    // SAFETY: `dlerror` returns null or a C string that is valid until the next call on this
    // thread; it is copied at once.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "no reason given".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
