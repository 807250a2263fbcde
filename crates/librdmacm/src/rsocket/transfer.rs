//! Sending and receiving on a socket.

use core::ffi::{c_int, c_void};

use libc::{iovec, msghdr, sockaddr, socklen_t};

use super::iomap;
use super::options::rgetpeername;
use super::socket::{Socket, count, get};
use super::stream::Stream;
use crate::errno::{CallResult, Errno, answer};

fn receive(socket: &Socket, to: &[iovec], flags: c_int) -> CallResult<usize> {
    let mut stream = socket.open_for(socket.lock(), flags)?;
    if !stream.was_connected() {
        return Err(Errno(libc::ENOTCONN));
    }
    let wanted: usize = to.iter().map(|piece| piece.iov_len).sum();
    let nonblocking = stream.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
    let mut got = 0;
    while got < wanted {
        if !stream.has_data() {
            if got > 0 && flags & libc::MSG_WAITALL == 0 {
                break;
            }
            let ready = |stream: &Stream| stream.has_data() || !stream.is_readable;
            let (after, waited) = socket.wait_until(stream, nonblocking, ready);
            stream = after;
            match waited {
                Ok(()) => {}
                Err(_) if got > 0 => break,
                Err(error) => return Err(error),
            }
            if !stream.has_data() {
                break;
            }
        }
        let is_peek = flags & libc::MSG_PEEK != 0;
        got += stream.take(to, got, is_peek);
        if is_peek {
            break;
        }
    }
    let _credits_follow = stream.work();
    Ok(got)
}

fn send(socket: &Socket, from: &[iovec], flags: c_int) -> CallResult<usize> {
    let mut stream = socket.open_for(socket.lock(), flags)?;
    if !stream.was_connected() {
        return Err(Errno(libc::ENOTCONN));
    }
    let wanted: usize = from.iter().map(|piece| piece.iov_len).sum();
    let nonblocking = stream.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
    stream = iomap::announce(socket, stream, nonblocking)?;
    let mut sent = 0;
    while sent < wanted {
        if !stream.can_send() {
            let ready = |stream: &Stream| stream.can_send() || !stream.is_writable;
            let (after, waited) = socket.wait_until(stream, nonblocking, ready);
            stream = after;
            match waited {
                Ok(()) => {}
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if !stream.is_writable {
            if sent > 0 {
                break;
            }
            return Err(Errno(libc::ECONNRESET));
        }
        sent += stream.put(from, sent, wanted - sent)?;
    }
    Ok(sent)
}

fn one(buffer: *const c_void, length: usize) -> iovec {
    iovec { iov_base: buffer.cast_mut(), iov_len: length }
}

/// # Safety
/// `pieces` is null, or points to `number` elements.
unsafe fn pieces<'a>(pieces: *const iovec, number: c_int) -> &'a [iovec] {
    match usize::try_from(number) {
        // SAFETY: the caller's contract.
        Ok(number) if !pieces.is_null() && number > 0 => unsafe {
            std::slice::from_raw_parts(pieces, number)
        },
        _ => &[],
    }
}

/// Receives; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rrecv(socket: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    count(get(socket).and_then(|socket| receive(&socket, &[one(buf, len)], flags)))
}

/// Receives, and reports the peer's address; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> isize {
    // SAFETY: the caller's buffer and out-parameters.
    unsafe {
        let got = rrecv(socket, buf, len, flags);
        if got > 0 && !addr.is_null() {
            rgetpeername(socket, addr, length);
        }
        got
    }
}

/// Receives into pieces; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's message.
    let to = unsafe { pieces((*msg).msg_iov, (*msg).msg_iovlen as c_int) };
    count(get(socket).and_then(|socket| receive(&socket, to, flags)))
}

/// Receives; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rread(socket: c_int, buf: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { rrecv(socket, buf, len, 0) }
}

/// Receives into pieces; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rreadv(socket: c_int, iov: *const iovec, number: c_int) -> isize {
    // SAFETY: the caller's pieces.
    let to = unsafe { pieces(iov, number) };
    count(get(socket).and_then(|socket| receive(&socket, to, 0)))
}

/// Sends; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rsend(socket: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize {
    count(get(socket).and_then(|socket| send(&socket, &[one(buf, len)], flags)))
}

/// Sends to the peer; returns the number of bytes, or -1 and `errno` (`EISCONN` with an address).
pub unsafe fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const sockaddr,
    _length: socklen_t,
) -> isize {
    if !addr.is_null() {
        return answer(Err(Errno(libc::EISCONN))) as isize;
    }
    // SAFETY: the caller's buffer.
    unsafe { rsend(socket, buf, len, flags) }
}

/// Sends pieces; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's message.
    let from = unsafe { pieces((*msg).msg_iov, (*msg).msg_iovlen as c_int) };
    count(get(socket).and_then(|socket| send(&socket, from, flags)))
}

/// Sends; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rwrite(socket: c_int, buf: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { rsend(socket, buf, len, 0) }
}

/// Sends pieces; returns the number of bytes, or -1 and `errno`.
pub unsafe fn rwritev(socket: c_int, iov: *const iovec, number: c_int) -> isize {
    // SAFETY: the caller's pieces.
    let from = unsafe { pieces(iov, number) };
    count(get(socket).and_then(|socket| send(&socket, from, 0)))
}
