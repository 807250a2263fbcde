//! The exported functions of librdmacm as one table.

use core::ffi::{CStr, c_int, c_void};

use crate::loader::{Library, LoadError, VerbsTable};
use crate::types::*;

/// The name under which the dynamic linker finds the system's connection manager.
pub const LIBRDMACM_SONAME: &CStr = c"librdmacm.so.1";

/// The function through which this project's connection manager receives a [`CmLoan`].
const BORROW: &CStr = c"__rdmalab_borrow";

/// Declares the table, as `verbs_table!` does.
macro_rules! cm_table {
    ($($field:ident: fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?,
        $symbol:literal, $doc:literal;)*) => {
        /// The functions for making connections. Each behaves as its manual page says.
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
    join_multicast: fn(id: *mut rdma_cm_id, addr: *mut libc::sockaddr,
        context: *mut c_void) -> c_int,
        "rdma_join_multicast", "Joins a group; the result is an event; 0, or -1 and `errno`.";
    get_cm_event: fn(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int,
        "rdma_get_cm_event", "The next event; 0, or -1 and `errno`.";
    ack_cm_event: fn(event: *mut rdma_cm_event) -> c_int,
        "rdma_ack_cm_event", "Gives an event back; 0, or -1 and `errno`.";
    get_src_port: fn(id: *mut rdma_cm_id) -> u16,
        "rdma_get_src_port", "Our port, network byte order.";
}

/// Sends and receives datagrams of connection managers to and from other hosts: this project's
/// libibverbs exports it for this project's librdmacm. Addresses are GIDs of 16 bytes, datagrams
/// have 256 bytes; a received record is the sender's GID, the local GID, and the datagram.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MadPort {
    /// A descriptor that is readable while datagrams wait, or a negative error number; `-ENODEV` if
    /// and only if no interface to other hosts was configured.
    pub open: unsafe extern "C" fn() -> c_int,
    /// Sends (from, to, datagram); 0, or an error number.
    pub send: unsafe extern "C" fn(*const u8, *const u8, *const u8) -> c_int,
    /// Takes the next datagram; 1, or 0 when there is none.
    pub receive: unsafe extern "C" fn(*mut u8) -> c_int,
    /// Adds a datagram on another path to the capture (from, to, datagram, whether it was
    /// received); 0, or another number if nothing is or will be captured.
    pub note: unsafe extern "C" fn(*const u8, *const u8, *const u8, c_int) -> c_int,
}

/// Verbs of this process for this project's connection manager. Without them it would load a
/// libibverbs, and a second soft device in one process would be a separate one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CmLoan {
    /// Bytes of this structure: a loan of another size is refused.
    bytes: usize,
    /// A hash of the sources that it was built from: a loan with another hash is refused.
    build: u64,
    /// The verbs.
    pub verbs: VerbsTable,
    /// The port for datagrams to other hosts.
    pub mads: MadPort,
}

impl CmLoan {
    /// A loan of these functions.
    #[must_use]
    pub const fn new(verbs: VerbsTable, mads: MadPort) -> Self {
        Self { bytes: size_of::<Self>(), build: BUILD, verbs, mads }
    }

    /// Copies a loan that another shared object made; `None` if that object was built from other
    /// sources of this interface.
    ///
    /// # Safety
    /// Two words can be read at `from`, and if they are those of this build, a loan.
    #[must_use]
    pub const unsafe fn take(from: *const Self) -> Option<Self> {
        // SAFETY: the caller's contract; the first two words are checked before the rest is read.
        unsafe {
            if (*from).bytes != size_of::<Self>() || (*from).build != BUILD {
                return None;
            }
            Some(*from)
        }
    }

    /// Whether all functions are the same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let words = |loan: *const Self| {
            // SAFETY: a live structure that consists of words only, without padding.
            unsafe { core::slice::from_raw_parts(loan.cast::<usize>(), WORDS) }
        };
        words(self) == words(other)
    }
}

/// Words of a loan: size, build, and functions.
const WORDS: usize = size_of::<CmLoan>() / size_of::<usize>();

const _: () = assert!(
    size_of::<CmLoan>() == 16 + size_of::<VerbsTable>() + size_of::<MadPort>()
        && size_of::<usize>() == size_of::<u64>()
);

/// A hash of the sources that declare the lent functions, their order and their meaning.
const BUILD: u64 = {
    let version = fnv(0xcbf2_9ce4_8422_2325, env!("CARGO_PKG_VERSION"));
    fnv(fnv(version, include_str!("manager.rs")), include_str!("loader.rs"))
};

/// FNV-1a.
const fn fnv(mut hash: u64, text: &str) -> u64 {
    let (bytes, mut at) = (text.as_bytes(), 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

impl CmTable {
    /// Loads the connection manager that the dynamic linker finds as `librdmacm.so.1`, which uses
    /// the `libibverbs.so.1` that the linker finds. It stays loaded.
    ///
    /// # Errors
    /// [`LoadError::Open`] if it is not there, [`LoadError::Symbol`] if it is another library.
    pub fn load() -> Result<Self, LoadError> {
        let library = Library::open(LIBRDMACM_SONAME)?;
        // SAFETY: a library that exports these names under these versions is librdmacm, or a
        // replacement for it; `Library` never closes it.
        unsafe { Self::from_library(&library) }
    }

    /// Loads this project's connection manager from a file and lends it these verbs. The first loan
    /// in a process is kept; the same loan again is no error.
    ///
    /// # Errors
    /// As [`CmTable::load`]; also when it is of another build, or uses other verbs already.
    pub fn load_with(path: &CStr, loan: &CmLoan) -> Result<Self, LoadError> {
        let library = Library::open(path)?;
        let name = || path.to_string_lossy().into_owned();
        let refused = |reason: &str| LoadError::Open { library: name(), reason: reason.to_owned() };
        let borrow = library.plain_symbol(BORROW);
        let borrow = borrow.ok_or_else(|| refused("it is no connection manager of this build"))?;
        // SAFETY: only this project's library has that symbol, and in every build it is a function
        // of this signature.
        let borrow = unsafe {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const CmLoan) -> c_int>(
                borrow,
            )
        };
        // SAFETY: a live loan, which the function copies after it has checked the size and build in
        // the first words. Older builds check the size alone, which differs from this one.
        match unsafe { borrow(loan) } {
            // SAFETY: as in `load`.
            0 => unsafe { Self::from_library(&library) },
            libc::EALREADY => Err(refused("it uses other verbs already")),
            _ => Err(refused("it is of another build: use libraries and programs of one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn number() -> c_int {
        1
    }

    unsafe extern "C" fn other_number() -> c_int {
        2
    }

    unsafe extern "C" fn send(_: *const u8, _: *const u8, _: *const u8) -> c_int {
        0
    }

    unsafe extern "C" fn receive(_: *mut u8) -> c_int {
        0
    }

    unsafe extern "C" fn note(_: *const u8, _: *const u8, _: *const u8, _: c_int) -> c_int {
        0
    }

    #[test]
    fn a_loan_of_another_build_is_refused() {
        let mads = MadPort { open: number, send, receive, note };
        let loan = CmLoan::new(VerbsTable::UNSUPPORTED, mads);
        let taken = |loan: &CmLoan| {
            // SAFETY: a live loan.
            unsafe { CmLoan::take(loan) }
        };
        assert!(taken(&loan).is_some_and(|taken| taken.is_same(&loan)));
        assert!(taken(&CmLoan { bytes: loan.bytes - 8, ..loan }).is_none());
        assert!(taken(&CmLoan { build: loan.build + 1, ..loan }).is_none());
        let other = CmLoan { mads: MadPort { open: other_number, ..mads }, ..loan };
        assert!(!other.is_same(&loan), "another way out");
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv(0xcbf2_9ce4_8422_2325, "foobar"), 0x8594_4171_f739_67e8);
    }
}
