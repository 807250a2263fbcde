//! The exported functions of librdmacm as one table.

use core::ffi::{CStr, c_int, c_void};

use crate::loader::{Library, LoadError, VerbsTable};
use crate::types::*;

/// The name under which the dynamic linker finds the system's connection manager.
pub const LIBRDMACM_SONAME: &CStr = c"librdmacm.so.1";

/// Where our own connection manager takes a loan.
const BORROW: &CStr = c"__rdmalab_borrow";

/// Declares the table, as `verbs_table!` does.
macro_rules! cm_table {
    ($($field:ident: fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?,
        $symbol:literal, $doc:literal;)*) => {
        /// The functions that making connections needs. Each behaves as its manual page says.
        #[derive(Clone, Copy, Debug)]
        pub struct CmTable {
            $(#[doc = $doc] pub $field: unsafe extern "C-unwind" fn($($ty),*) $(-> $ret)?,)*
        }

        impl CmTable {
            /// Takes every function from an open library.
            ///
            /// # Safety
            /// As for `VerbsTable::from_library`, with the ABI of librdmacm.
            unsafe fn from_library(library: &Library) -> Result<Self, LoadError> {
                Ok(Self {
                    $($field: {
                        let symbol = library.symbol($symbol, "RDMACM_1.0")?;
                        // SAFETY: the symbol has the name and the version under which librdmacm
                        // exports a function of exactly this signature, and the library stays
                        // loaded.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C-unwind" fn($($ty),*) $(-> $ret)?,
                            >(symbol)
                        }
                    },)*
                })
            }
        }
    };
}

cm_table! {
    create_event_channel: fn() -> *mut rdma_event_channel,
        "rdma_create_event_channel", "Makes a channel; null and `errno`.";
    destroy_event_channel: fn(channel: *mut rdma_event_channel),
        "rdma_destroy_event_channel", "Frees a channel, after its ids.";
    create_id: fn(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id,
        context: *mut c_void, ps: u32) -> c_int,
        "rdma_create_id", "Makes an id; 0, or -1 and `errno`.";
    destroy_id: fn(id: *mut rdma_cm_id) -> c_int,
        "rdma_destroy_id", "Frees an id, after its events have been acknowledged; 0, or -1.";
    bind_addr: fn(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int,
        "rdma_bind_addr", "Binds an id to an address of ours; 0, or -1 and `errno`.";
    listen: fn(id: *mut rdma_cm_id, backlog: c_int) -> c_int,
        "rdma_listen", "Listens; 0, or -1 and `errno`.";
    resolve_addr: fn(id: *mut rdma_cm_id, source: *mut libc::sockaddr,
        destination: *mut libc::sockaddr, timeout_ms: c_int) -> c_int,
        "rdma_resolve_addr", "Looks for the way to a peer; the result is an event; 0, or -1.";
    resolve_route: fn(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int,
        "rdma_resolve_route", "Looks for a path; the result is an event; 0, or -1 and `errno`.";
    create_qp: fn(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int,
        "rdma_create_qp", "Makes a queue pair on an id, in INIT; 0, or -1 and `errno`.";
    destroy_qp: fn(id: *mut rdma_cm_id),
        "rdma_destroy_qp", "Frees the queue pair of an id.";
    connect: fn(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int,
        "rdma_connect", "Asks for a connection; the result is an event; 0, or -1 and `errno`.";
    accept: fn(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int,
        "rdma_accept", "Accepts a request; 0, or -1 and `errno`.";
    reject: fn(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int,
        "rdma_reject", "Refuses a request; 0, or -1 and `errno`.";
    disconnect: fn(id: *mut rdma_cm_id) -> c_int,
        "rdma_disconnect", "Ends a connection; 0, or -1 and `errno`.";
    get_cm_event: fn(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int,
        "rdma_get_cm_event", "The next event; 0, or -1 and `errno`.";
    ack_cm_event: fn(event: *mut rdma_cm_event) -> c_int,
        "rdma_ack_cm_event", "Gives an event back; 0, or -1 and `errno`.";
    get_src_port: fn(id: *mut rdma_cm_id) -> u16,
        "rdma_get_src_port", "Our port, network byte order.";
}

/// Datagrams of connection managers to and from other hosts: what our own libibverbs exports for
/// our own librdmacm. Addresses are GIDs of 16 bytes, datagrams 256 bytes; what is received is
/// the sender's GID, ours, and the datagram.
#[derive(Clone, Copy, Debug)]
pub struct MadPort {
    /// A descriptor that is readable while datagrams wait, or a negative error number; the least
    /// `int` where no way to other hosts was asked for.
    pub open: unsafe extern "C" fn() -> c_int,
    /// Sends (from, to, datagram); 0, or an error number.
    pub send: unsafe extern "C" fn(*const u8, *const u8, *const u8) -> c_int,
    /// Takes the next one; 1, or 0 when there is none.
    pub receive: unsafe extern "C" fn(*mut u8) -> c_int,
}

/// Verbs of this process, lent to our own connection manager, which looks for a libibverbs
/// otherwise: a second soft device in one process would be another one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CmLoan {
    /// Bytes of this structure: another build's are refused.
    bytes: usize,
    /// The verbs.
    pub verbs: VerbsTable,
    /// The way to other hosts.
    pub mads: MadPort,
}

impl CmLoan {
    /// A loan of these.
    #[must_use]
    pub const fn new(verbs: VerbsTable, mads: MadPort) -> Self {
        Self { bytes: size_of::<Self>(), verbs, mads }
    }

    /// Whether it is of the same build, as far as can be told.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.bytes == size_of::<Self>()
    }
}

impl CmTable {
    /// Loads the connection manager that the dynamic linker finds as `librdmacm.so.1`, which uses
    /// the `libibverbs.so.1` that it finds. It stays loaded.
    ///
    /// # Errors
    /// [`LoadError::Open`] if it is not there, [`LoadError::Symbol`] if it is something else.
    pub fn load() -> Result<Self, LoadError> {
        let library = Library::open(LIBRDMACM_SONAME)?;
        // SAFETY: a library that exports these names under these versions is librdmacm, or stands
        // in for it; `Library` never closes it.
        unsafe { Self::from_library(&library) }
    }

    /// Loads our own connection manager from a file and lends it these verbs. Whoever did so first
    /// in this process has lent; the same loan again is no error.
    ///
    /// # Errors
    /// As [`CmTable::load`]; also when it is of another build, or uses other verbs already.
    pub fn load_with(path: &CStr, loan: &CmLoan) -> Result<Self, LoadError> {
        let library = Library::open(path)?;
        let name = || path.to_string_lossy().into_owned();
        let refused = |reason: &str| LoadError::Open { library: name(), reason: reason.to_owned() };
        let borrow = library.plain_symbol(BORROW);
        let borrow = borrow.ok_or_else(|| refused("it is no connection manager of this build"))?;
        // SAFETY: only our own library has that symbol, and exports a function of this signature
        // under it in every build.
        let borrow = unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const CmLoan) -> c_int>(
                borrow,
            )
        };
        // SAFETY: a live loan, which it copies, after a look at the first word, which is its size
        // in every build.
        match unsafe { borrow(loan) } {
            // SAFETY: as in `load`.
            0 => unsafe { Self::from_library(&library) },
            libc::EALREADY => Err(refused("it uses other verbs already")),
            _ => Err(refused("it is of another build: use libraries and programs of one")),
        }
    }
}
