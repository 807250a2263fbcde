//! The exported functions of rsockets, each with the value (`or`) that it returns after a panic.

use core::ffi::{c_int, c_void};

use libc::{fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sockaddr, socklen_t, timeval};

use crate::rsocket;

export! {
    /// Creates a socket; returns its number, or -1 and `errno`.
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int,
        or -1, via rsocket::rsocket;
    /// Binds a socket; returns 0, or -1 and `errno`.
    fn rbind(socket: c_int, addr: *const sockaddr, length: socklen_t) -> c_int,
        or -1, via rsocket::rbind;
    /// Starts to listen; returns 0, or -1 and `errno`.
    fn rlisten(socket: c_int, backlog: c_int) -> c_int,
        or -1, via rsocket::rlisten;
    /// Accepts the next connection; returns its socket, or -1 and `errno`.
    fn raccept(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int,
        or -1, via rsocket::raccept;
    /// Connects a socket; returns 0, or -1 and `errno`.
    fn rconnect(socket: c_int, addr: *const sockaddr, length: socklen_t) -> c_int,
        or -1, via rsocket::rconnect;
    /// Shuts down one direction or both; returns 0, or -1 and `errno`.
    fn rshutdown(socket: c_int, how: c_int) -> c_int,
        or -1, via rsocket::rshutdown;
    /// Closes a socket; returns 0, or -1 and `errno`.
    fn rclose(socket: c_int) -> c_int,
        or -1, via rsocket::rclose;
    /// Receives; returns the number of bytes, or -1 and `errno`.
    fn rrecv(socket: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize,
        or -1, via rsocket::rrecv;
    /// Receives; returns the number of bytes, or -1 and `errno`.
    fn rrecvfrom(
        socket: c_int, buf: *mut c_void, len: usize, flags: c_int, addr: *mut sockaddr,
        length: *mut socklen_t
    ) -> isize,
        or -1, via rsocket::rrecvfrom;
    /// Receives; returns the number of bytes, or -1 and `errno`.
    fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> isize,
        or -1, via rsocket::rrecvmsg;
    /// Receives; returns the number of bytes, or -1 and `errno`.
    fn rread(socket: c_int, buf: *mut c_void, len: usize) -> isize,
        or -1, via rsocket::rread;
    /// Receives; returns the number of bytes, or -1 and `errno`.
    fn rreadv(socket: c_int, iov: *const iovec, number: c_int) -> isize,
        or -1, via rsocket::rreadv;
    /// Sends; returns the number of bytes, or -1 and `errno`.
    fn rsend(socket: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize,
        or -1, via rsocket::rsend;
    /// Sends; returns the number of bytes, or -1 and `errno`.
    fn rsendto(
        socket: c_int, buf: *const c_void, len: usize, flags: c_int, addr: *const sockaddr,
        length: socklen_t
    ) -> isize,
        or -1, via rsocket::rsendto;
    /// Sends; returns the number of bytes, or -1 and `errno`.
    fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> isize,
        or -1, via rsocket::rsendmsg;
    /// Sends; returns the number of bytes, or -1 and `errno`.
    fn rwrite(socket: c_int, buf: *const c_void, len: usize) -> isize,
        or -1, via rsocket::rwrite;
    /// Sends; returns the number of bytes, or -1 and `errno`.
    fn rwritev(socket: c_int, iov: *const iovec, number: c_int) -> isize,
        or -1, via rsocket::rwritev;
    /// Waits for events; returns the number of ready entries, or -1 and `errno`.
    fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout_ms: c_int) -> c_int,
        or -1, via rsocket::rpoll;
    /// Waits for events; returns the number of ready entries, or -1 and `errno`.
    fn rselect(
        nfds: c_int, readfds: *mut fd_set, writefds: *mut fd_set, exceptfds: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int,
        or -1, via rsocket::rselect;
    /// The peer's address; returns 0, or -1 and `errno`.
    fn rgetpeername(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int,
        or -1, via rsocket::rgetpeername;
    /// The local address; returns 0, or -1 and `errno`.
    fn rgetsockname(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int,
        or -1, via rsocket::rgetsockname;
    /// Sets an option; returns 0, or -1 and `errno`.
    fn rsetsockopt(
        socket: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t
    ) -> c_int,
        or -1, via rsocket::rsetsockopt;
    /// Reads an option; returns 0, or -1 and `errno`.
    fn rgetsockopt(
        socket: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t
    ) -> c_int,
        or -1, via rsocket::rgetsockopt;
    /// Maps memory for the peer; returns its offset, or -1 and `errno`.
    fn riomap(
        socket: c_int, buf: *mut c_void, len: usize, prot: c_int, flags: c_int, offset: off_t
    ) -> off_t,
        or -1, via rsocket::riomap;
    /// Removes a mapping; returns 0, or -1 and `errno`.
    fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> c_int,
        or -1, via rsocket::riounmap;
    /// Writes into a mapping of the peer; returns the number of bytes, or -1 and `errno`.
    fn riowrite(
        socket: c_int, buf: *const c_void, count: usize, offset: off_t, flags: c_int
    ) -> usize,
        or usize::MAX, via rsocket::riowrite;
}

/// Reads or sets flags; returns the flags or 0, or -1 and `errno`. In C the last argument is
/// variadic, and our target machines pass it like a named one.
#[unsafe(export_name = "__rdmalab_rfcntl")]
extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_int) -> c_int {
    crate::guard::guard(-1, || rsocket::rfcntl(socket, command, argument))
}

include!(concat!(env!("OUT_DIR"), "/symver_rsocket.rs"));
