//! Opening, connecting and closing sockets.

use core::ffi::c_int;
use std::sync::Arc;

use libc::{sockaddr, socklen_t};
use rdmalab_abi::{IBV_QPT_RC, RDMA_PS_TCP};

use super::settings::Sizes;
use super::socket::{Socket, find, get, insert, number, sockets};
use super::stream::{Stream, StreamState};
use super::{connection, options};
use crate::errno::{CallResult, Errno, answer, failed};
use crate::{endpoint, id};

/// Creates a socket; returns its number, or -1 and `errno`.
pub unsafe fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let is_known = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & libc::SOCK_STREAM == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if !is_known {
        let error = failed(libc::ENOTSUP, "rsocket", || {
            "only streams over IPv4 and IPv6 (AF_INET, AF_INET6; SOCK_STREAM)".to_owned()
        });
        return answer(Err(error));
    }
    let (channel, context) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a null channel asks for a channel that belongs to the id.
    let made = unsafe { id::create(channel, context, RDMA_PS_TCP, IBV_QPT_RC) };
    number(made.map(|id| {
        // SAFETY: the id that was just made.
        unsafe { (*id).route.addr.src_storage.ss_family = domain as libc::sa_family_t };
        insert(Socket::new(Stream::new(id, Sizes::DEFAULT)))
    }))
}

/// Binds a socket; returns 0, or -1 and `errno`.
pub unsafe fn rbind(socket: c_int, addr: *const sockaddr, _length: socklen_t) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        // SAFETY: the socket's id, and the caller's address.
        unsafe { id::bind(stream.id, addr)? };
        stream.state = StreamState::Bound;
        Ok(())
    }))
}

/// Starts to listen; returns 0, or -1 and `errno`.
pub unsafe fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        if stream.state != StreamState::Listening {
            // SAFETY: the socket's id.
            unsafe { endpoint::listen(stream.id, backlog)? };
            stream.state = StreamState::Listening;
        }
        Ok(())
    }))
}

/// Accepts the next connection; returns its socket, or -1 and `errno`.
pub unsafe fn raccept(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's out-parameters, or null.
    number(get(socket).and_then(|socket| unsafe { accept(&socket, addr, length) }))
}

unsafe fn accept(
    socket: &Socket,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> CallResult<c_int> {
    let (id, sizes, is_nonblocking) = socket.next_request()?;
    let mut stream = Stream::new(id, sizes);
    connection::accept_request(&mut stream)?;
    let accepted = Socket::new(stream);
    if !is_nonblocking {
        match accepted.open(accepted.lock(), false) {
            (_, Ok(()) | Err(Errno(libc::EINTR))) => {}
            (mut stream, Err(error)) => {
                stream.free();
                return Err(error);
            }
        }
    }
    // SAFETY: the id's address, and the caller's out-parameters.
    unsafe { options::copy_address(&raw const (*id).route.addr.dst_storage, addr, length) };
    Ok(insert(accepted))
}

/// Connects a socket; returns 0, or -1 and `errno`.
pub unsafe fn rconnect(socket: c_int, addr: *const sockaddr, length: socklen_t) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        if matches!(stream.state, StreamState::New | StreamState::Bound) {
            let room = size_of::<libc::sockaddr_storage>();
            let bytes = (length as usize).min(room);
            // SAFETY: the caller's address of that length, and the id's room for any.
            unsafe {
                let to = (&raw mut (*stream.id).route.addr.dst_storage).cast::<u8>();
                to.copy_from_nonoverlapping(addr.cast(), bytes);
            }
        }
        let begun = connection::connect(&mut stream);
        stream.waiters.wake();
        match begun {
            Err(Errno(libc::EINPROGRESS)) if !stream.is_nonblocking => socket.open(stream, false).1,
            begun => begun,
        }
    }))
}

/// Shuts down sending, receiving, or both; returns 0, or -1 and `errno`.
pub unsafe fn rshutdown(socket: c_int, how: c_int) -> c_int {
    answer(get(socket).and_then(|socket| shut(&socket, how)))
}

fn shut(socket: &Socket, how: c_int) -> CallResult<()> {
    let mut stream = socket.lock();
    if !stream.is_connected() {
        return Ok(());
    }
    match how {
        libc::SHUT_RD => {
            stream.is_readable = false;
            stream.waiters.wake();
            return Ok(());
        }
        libc::SHUT_WR => stream.is_writable = false,
        _ => (stream.is_readable, stream.is_writable) = (false, false),
    }
    stream.waiters.wake();
    let ends = !stream.is_readable;
    let ready = |stream: &Stream| stream.can_control() || !stream.is_connected();
    let (mut stream, waited) = socket.wait_until(stream, false, ready);
    waited?;
    if stream.is_connected() {
        stream.send_shutdown(ends)?;
    }
    let sent = |stream: &Stream| stream.all_sent() || !stream.is_connected();
    let (_stream, waited) = socket.wait_until(stream, false, sent);
    waited
}

/// Closes a socket; returns 0, or -1 and `errno`.
pub unsafe fn rclose(socket: c_int) -> c_int {
    let Some(found) = find(socket) else { return answer(Err(Errno(libc::EBADF))) };
    // This fails if the peer is gone.
    let _as_far_as_possible = shut(&found, libc::SHUT_RDWR);
    {
        let mut stream = found.lock();
        if stream.is_closed() {
            return answer(Err(Errno(libc::EBADF)));
        }
        stream.free();
    }
    // The number is removed only now: until here a call on it must not take it for an ordinary
    // descriptor. Perhaps a new socket has the number already.
    let mut all = sockets();
    if all.get(&socket).is_some_and(|now| Arc::ptr_eq(now, &found)) {
        all.remove(&socket);
    }
    0
}
