//! QP 1 (GSI): management datagrams to and from other hosts. Our libibverbs owns QP 1; its
//! functions are looked up by name at run time, like the verbs.

use core::ffi::{CStr, c_int, c_void};

use rdmalab_abi::MadPort;
use rdmalab_ring::mad_socket::{MAD_BYTES, NO_INTERFACE};
use rdmalab_wire::ids::Gid;

use crate::errno::{CallResult, failed};

/// A received datagram and its addresses.
#[repr(C)]
pub struct ReceivedMad {
    /// The sender's GID.
    pub from: Gid,
    /// The GID of ours that it was sent to.
    pub to: Gid,
    /// The datagram.
    pub mad: [u8; MAD_BYTES],
}

type OpenFn = unsafe extern "C" fn() -> c_int;
type SendFn = unsafe extern "C" fn(*const u8, *const u8, *const u8) -> c_int;
type ReceiveFn = unsafe extern "C" fn(*mut u8) -> c_int;
/// A function that adds a datagram which did not pass the device to the device's captures.
pub type CaptureFn = unsafe extern "C" fn(*const u8, *const u8, *const u8, c_int) -> c_int;

/// QP 1 after it was opened.
#[derive(Clone, Copy)]
pub struct Gsi {
    fd: c_int,
    send: SendFn,
    receive: ReceiveFn,
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: an open library, and a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The functions of the libibverbs that is loaded.
fn libibverbs_port() -> Option<MadPort> {
    let flags = libc::RTLD_NOW | libc::RTLD_NODELETE;
    // SAFETY: a C string; the library is loaded already, and is never closed.
    let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), flags) };
    if library.is_null() {
        return None;
    }
    let open = symbol(library, c"__rdmalab_mad_open")?;
    let send = symbol(library, c"__rdmalab_mad_send")?;
    let receive = symbol(library, c"__rdmalab_mad_receive")?;
    let note = symbol(library, c"__rdmalab_mad_note")?;
    // SAFETY: our library exports these names with exactly these signatures, except for the types
    // that the pointers point to.
    Some(unsafe {
        MadPort {
            open: std::mem::transmute::<*mut c_void, OpenFn>(open),
            send: std::mem::transmute::<*mut c_void, SendFn>(send),
            receive: std::mem::transmute::<*mut c_void, ReceiveFn>(receive),
            note: std::mem::transmute::<*mut c_void, CaptureFn>(note),
        }
    })
}

/// The functions of QP 1, lent or from libibverbs; `None` if libibverbs comes from another build.
pub fn port() -> Option<MadPort> {
    crate::device::lent_mads().or_else(libibverbs_port)
}

/// The result of opening QP 1: a descriptor, or `None` if no interface was named.
fn open_result(answer: c_int) -> CallResult<Option<c_int>> {
    match answer {
        NO_INTERFACE => Ok(None),
        error if error < 0 => Err(failed(error.saturating_neg(), "rdma_cm", || {
            "the way to other hosts does not open (libibverbs.so.1 has said why, if it is of the \
             same build)"
                .to_owned()
        })),
        fd => Ok(Some(fd)),
    }
}

impl Gsi {
    /// Opens QP 1; `None` if no interface was named, which means that no other host can be reached.
    ///
    /// # Errors
    /// `ENOSYS` if libibverbs comes from another build, else the device's error.
    pub fn open() -> CallResult<Option<Gsi>> {
        let Some(MadPort { open, send, receive, .. }) = port() else {
            return Err(failed(libc::ENOSYS, "rdma_cm", || {
                "libibverbs.so.1 is of another version of ours: use two of one build".to_owned()
            }));
        };
        // SAFETY: takes nothing.
        let fd = open_result(unsafe { open() })?;
        Ok(fd.map(|fd| Gsi { fd, send, receive }))
    }

    /// A descriptor that is readable while datagrams wait.
    pub fn fd(&self) -> c_int {
        self.fd
    }

    /// Sends a datagram to QP 1 of the port with the GID `remote`; it may get lost.
    pub fn send(&self, local: Gid, remote: Gid, mad: &[u8; MAD_BYTES]) {
        // SAFETY: three live arrays.
        let errno = unsafe { (self.send)(local.0.as_ptr(), remote.0.as_ptr(), mad.as_ptr()) };
        if errno != 0 {
            // The datagram counts as lost: the protocol sends it again.
            let _reported = failed(errno, "rdma_cm", || {
                format!("no message to {}: error {errno}", remote.to_ip())
            });
        }
    }

    /// The next datagram, without waiting.
    pub fn receive(&self) -> Option<ReceivedMad> {
        let mut received =
            ReceivedMad { from: Gid::default(), to: Gid::default(), mad: [0; MAD_BYTES] };
        // SAFETY: a live structure of the layout that the function writes.
        let got = unsafe { (self.receive)((&raw mut received).cast()) };
        (got == 1).then_some(received)
    }
}

// libibverbs writes the two GIDs and the MAD as plain bytes.
const _: () = assert!(size_of::<ReceivedMad>() == 32 + MAD_BYTES && size_of::<Gid>() == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    /// Every build of libibverbs answers -ENODEV if no interface was named.
    #[test]
    fn without_an_interface_there_is_no_gsi() {
        assert_eq!(open_result(-libc::ENODEV), Ok(None));
        assert_eq!(open_result(-libc::ENXIO), Err(Errno(libc::ENXIO)));
        assert_eq!(open_result(-libc::EADDRINUSE), Err(Errno(libc::EADDRINUSE)));
        assert_eq!(open_result(0), Ok(Some(0)));
    }
}
