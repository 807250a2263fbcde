//! Options, flags and addresses of sockets.

use core::ffi::{c_int, c_void};

use super::protocol::SGE_BYTES;
use super::settings::is_kept;
use super::socket::{get, number};
use super::stream::{Stream, StreamState};
use crate::cm_id::own;
use crate::errno::{CallResult, Errno, answer, failed};
use crate::process::process;
use libc::{sockaddr, sockaddr_storage, socklen_t};

/// Level of the options of RDMA sockets, and their names.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// The smallest and the largest queue, in entries.
const QUEUE_RANGE: (c_int, c_int) = (16, 0xfffe);
/// The smallest and the largest buffer, in bytes.
const BUFFER_RANGE: (c_int, c_int) = (4096, 1 << 28);

/// Sets an option; returns 0, or -1 and `errno`.
pub unsafe fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) && length >= 8 {
            // SAFETY: the caller's value of that length.
            stream.options.linger = unsafe { value.cast::<(c_int, c_int)>().read_unaligned() };
            return Ok(());
        }
        if value.is_null() || (length as usize) < size_of::<c_int>() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller's value of that length.
        set(&mut stream, level, name, unsafe { value.cast::<c_int>().read_unaligned() })
    }))
}

fn set(stream: &mut Stream, level: c_int, name: c_int, value: c_int) -> CallResult<()> {
    let is_early =
        matches!(stream.state, StreamState::New | StreamState::Bound | StreamState::Listening);
    let queue = |value: c_int| value.clamp(QUEUE_RANGE.0, QUEUE_RANGE.1) as u16;
    let buffer = |value: c_int| (value.clamp(BUFFER_RANGE.0, BUFFER_RANGE.1) & !1) as u32;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => {
            let mut inner = process()?.lock();
            // SAFETY: the socket's id.
            inner.id(unsafe { own(stream.id)? }.number)?.set_reuse_address(value != 0)?;
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF) if is_early => {
            stream.sizes.receive_buffer = buffer(value);
            return Ok(());
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF) if is_early => {
            stream.sizes.send_buffer = buffer(value);
            return Ok(());
        }
        // A connection keeps its buffers: the new size is ignored.
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF) => return Ok(()),
        (SOL_RDMA, RDMA_SQSIZE..=RDMA_IOMAPSIZE) if !is_early => {
            return Err(failed(libc::EINVAL, "rsetsockopt", || {
                "sizes must be set before the socket connects".to_owned()
            }));
        }
        (SOL_RDMA, RDMA_SQSIZE) => {
            stream.sizes.send_queue = queue(value);
            return Ok(());
        }
        (SOL_RDMA, RDMA_RQSIZE) => {
            stream.sizes.receive_queue = queue(value);
            return Ok(());
        }
        (SOL_RDMA, RDMA_INLINE) => {
            stream.sizes.inline = value.clamp(SGE_BYTES as c_int, 1024) as u32;
            return Ok(());
        }
        (SOL_RDMA, RDMA_IOMAPSIZE) => {
            stream.sizes.iomaps = value.clamp(0, 0x7f00) as u16;
            return Ok(());
        }
        _ => {}
    }
    if !is_kept(level, name) {
        return Err(failed(libc::ENOTSUP, "rsetsockopt", || {
            format!("option {name} of level {level:#x} is not known")
        }));
    }
    stream.options.keep(level, name, value);
    Ok(())
}

/// Reads an option; returns 0, or -1 and `errno`.
pub unsafe fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) {
            // SAFETY: the caller's out-parameter, of that length.
            return unsafe { write(stream.options.linger, value, length) };
        }
        let answer = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => std::mem::take(&mut stream.error),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => stream.sizes.receive_buffer as c_int,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => stream.sizes.send_buffer as c_int,
            (SOL_RDMA, RDMA_SQSIZE) => c_int::from(stream.sizes.send_queue),
            (SOL_RDMA, RDMA_RQSIZE) => c_int::from(stream.sizes.receive_queue),
            (SOL_RDMA, RDMA_INLINE) => stream.sizes.inline as c_int,
            (SOL_RDMA, RDMA_IOMAPSIZE) => c_int::from(stream.sizes.iomaps),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => stream.path_mtu(),
            _ if is_kept(level, name) => stream.options.kept(level, name),
            _ => return Err(Errno(libc::ENOTSUP)),
        };
        // SAFETY: the caller's out-parameter, of that length.
        unsafe { write(answer, value, length) }
    }))
}

unsafe fn write<T>(from: T, value: *mut c_void, length: *mut socklen_t) -> CallResult<()> {
    // SAFETY: the caller's contract.
    unsafe {
        if value.is_null() || length.is_null() || (*length as usize) < size_of::<T>() {
            return Err(Errno(libc::EINVAL));
        }
        value.cast::<T>().write_unaligned(from);
        *length = size_of::<T>() as socklen_t;
    }
    Ok(())
}

/// Reads or sets flags, above all `O_NONBLOCK`; returns the flags or 0, or -1 and `errno`.
pub fn rfcntl(socket: c_int, command: c_int, argument: c_int) -> c_int {
    number(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        match command {
            libc::F_GETFL => Ok(stream.options.flags),
            libc::F_SETFL => {
                stream.options.flags = argument;
                stream.is_nonblocking = argument & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            other => Err(failed(libc::ENOTSUP, "rfcntl", || format!("command {other}"))),
        }
    }))
}

/// Copies as much of an address as fits to the caller, and sets `length` to its whole length.
///
/// # Safety
/// `addr` and `length` are the caller's out-parameters, or null.
pub unsafe fn copy_address(
    from: *const sockaddr_storage,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) {
    if addr.is_null() || length.is_null() {
        return;
    }
    // SAFETY: the caller's contract, and an address of the id's.
    unsafe {
        let whole = match c_int::from((*from).ss_family) {
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => size_of::<libc::sockaddr_in>(),
        };
        let bytes = whole.min(*length as usize);
        addr.cast::<u8>().copy_from_nonoverlapping(from.cast(), bytes);
        *length = whole as socklen_t;
    }
}

/// The peer's address; returns 0, or -1 and `errno`.
pub unsafe fn rgetpeername(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int {
    answer(get(socket).and_then(|socket| {
        let stream = socket.lock();
        if stream.is_closed() {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: the socket's id, and the caller's out-parameters.
        unsafe { copy_address(&raw const (*stream.id).route.addr.dst_storage, addr, length) };
        Ok(())
    }))
}

/// The local address; returns 0, or -1 and `errno`.
pub unsafe fn rgetsockname(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int {
    answer(get(socket).and_then(|socket| {
        let stream = socket.lock();
        if stream.is_closed() {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: the socket's id, and the caller's out-parameters.
        unsafe { copy_address(&raw const (*stream.id).route.addr.src_storage, addr, length) };
        Ok(())
    }))
}
