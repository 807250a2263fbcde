//! Sockets over queue pairs (`<rdma/rsocket.h>`): streams only.
//!
//! What goes over the wire is what rdma-core sends, so that either end may be its: each
//! end has a receive buffer in two halves; a half that is free is announced by writing its address
//! into a list at the peer (`SGL_ENTRIES`), who fills it with WRITEs whose immediate data tell how much.
//!
//! A socket's number is the descriptor of its id's event channel. Datagram sockets are refused.

mod connection;
mod iomap;
mod memory;
mod options;
mod poll;
mod stream;
mod wakeup;

use core::ffi::{c_int, c_void};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{iovec, msghdr, sockaddr, socklen_t};
use rdmalab_abi::*;

use crate::errno::{CallResult, Errno, answer, failed};
use crate::{connect, endpoint, id};

pub use iomap::{riomap, riounmap, riowrite};
pub use options::{rfcntl, rgetpeername, rgetsockname, rgetsockopt, rsetsockopt};
pub use poll::{rpoll, rselect};
use stream::{State, Stream};
use wakeup::Wakeup;

/// Sizes that a socket has unless told otherwise: work requests, inline bytes, buffers.
const QUEUE: u16 = 384;
const INLINE: u32 = 64;
const BUFFER: u32 = 1 << 17;
/// How long a thread looks again and again before it sleeps, ns.
const SPIN_NS: u64 = 10_000;
/// How long a thread sleeps that nobody can wake, because no descriptor was left for it, ms.
const POLL_MS: c_int = 10;
/// What the ends say to each other first.
const VERSION: u8 = 1;

/// What a connection is made with, and what its listener hands on.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub send_queue: u16,
    pub receive_queue: u16,
    pub inline: u32,
    pub send_buffer: u32,
    pub receive_buffer: u32,
    /// Mappings that the peer may announce.
    pub iomaps: u16,
}

/// A socket.
pub struct Socket {
    stream: Mutex<Stream>,
}

static SOCKETS: Mutex<BTreeMap<c_int, Arc<Socket>>> = Mutex::new(BTreeMap::new());

fn sockets() -> MutexGuard<'static, BTreeMap<c_int, Arc<Socket>>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The socket of a number; `None` if it is an ordinary descriptor.
fn find(socket: c_int) -> Option<Arc<Socket>> {
    sockets().get(&socket).cloned()
}

fn get(socket: c_int) -> CallResult<Arc<Socket>> {
    find(socket).ok_or(Errno(libc::EBADF))
}

impl Socket {
    fn new(stream: Stream) -> Socket {
        Socket { stream: Mutex::new(stream) }
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the connection until `done` says so. A socket that is closed is done.
    fn wait_until<'a>(
        &'a self,
        mut stream: MutexGuard<'a, Stream>,
        nonblocking: bool,
        done: impl Fn(&Stream) -> bool,
    ) -> (MutexGuard<'a, Stream>, CallResult<()>) {
        let mut spin_until = None;
        loop {
            let worked = stream.work();
            if done(&stream) || stream.is_closed() {
                return (stream, Ok(()));
            }
            if let Err(error) = worked {
                return (stream, Err(error));
            }
            if nonblocking {
                return (stream, Err(Errno(libc::EWOULDBLOCK)));
            }
            let now_ns = crate::state::now_ns();
            if now_ns < *spin_until.get_or_insert(now_ns + SPIN_NS) {
                drop(stream);
                std::hint::spin_loop();
                stream = self.lock();
                continue;
            }
            if !stream.arm() {
                // Something may have come before the completion queue was armed.
                continue;
            }
            let descriptors = stream.descriptors();
            let (after, slept) = self.sleep(stream, &descriptors);
            stream = after;
            spin_until = None;
            if let Err(error) = slept {
                return (stream, Err(error));
            }
        }
    }

    /// Sleeps until one of the descriptors is readable, or another thread has news. Meanwhile
    /// others may use the socket, and close it.
    fn sleep<'a>(
        &'a self,
        mut stream: MutexGuard<'a, Stream>,
        descriptors: &[c_int],
    ) -> (MutexGuard<'a, Stream>, CallResult<()>) {
        let wakeup = Wakeup::own();
        stream.waiters.add(wakeup.as_ref());
        drop(stream);
        let polls = descriptors.iter().map(|&fd| readable(fd)).collect();
        let slept = sleep_on(polls, wakeup.as_ref(), -1);
        let mut stream = self.lock();
        stream.waiters.remove(wakeup.as_ref());
        (stream, slept)
    }

    /// Takes the next request to a listener, waiting for it unless the socket does not; with what
    /// the connection inherits.
    fn next_request(&self) -> CallResult<(*mut rdma_cm_id, Sizes, bool)> {
        let mut stream = self.lock();
        loop {
            if stream.is_closed() {
                return Err(Errno(libc::EBADF));
            }
            if stream.state != State::Listening {
                return Err(Errno(libc::EINVAL));
            }
            let is_nonblocking = stream.is_nonblocking;
            // SAFETY: the listener's id; who closes it has to take the lock first.
            match unsafe { endpoint::try_request(stream.id) } {
                Err(Errno(libc::EAGAIN)) if !is_nonblocking => {}
                found => return found.map(|id| (id, stream.sizes, is_nonblocking)),
            }
            let channel = stream.channel_fd();
            let (after, slept) = self.sleep(stream, &[channel]);
            stream = after;
            slept?;
        }
    }

    /// Waits for a connection that is being made, unless `nonblocking`: then `EINPROGRESS` says
    /// that it still is. A signal ends the wait, and not what is waited for.
    fn open<'a>(
        &'a self,
        mut stream: MutexGuard<'a, Stream>,
        nonblocking: bool,
    ) -> (MutexGuard<'a, Stream>, CallResult<()>) {
        loop {
            let advanced = self.advance(&mut stream);
            if nonblocking || advanced != Err(Errno(libc::EINPROGRESS)) {
                // Another thread may have seen it fail, or have closed it.
                let has_failed = advanced.is_ok() && stream.state == State::Failed;
                let opened = if has_failed { Err(stream.failure()) } else { advanced };
                return (stream, opened);
            }
            let channel = stream.channel_fd();
            let (after, slept) = self.sleep(stream, &[channel]);
            if slept.is_err() {
                return (after, slept);
            }
            stream = after;
        }
    }

    /// The same for who wants to send or to receive.
    fn open_for<'a>(
        &'a self,
        stream: MutexGuard<'a, Stream>,
        flags: c_int,
    ) -> CallResult<MutexGuard<'a, Stream>> {
        if !stream.is_opening() {
            return Ok(stream);
        }
        let nonblocking = stream.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
        let (stream, opened) = self.open(stream, nonblocking);
        match opened {
            Err(Errno(libc::EINPROGRESS)) => Err(Errno(libc::EAGAIN)),
            opened => opened.map(|()| stream),
        }
    }

    /// Goes on with a connection that is being made; `EINPROGRESS` while it is not there.
    fn advance(&self, stream: &mut Stream) -> CallResult<()> {
        if !stream.is_opening() {
            return Ok(());
        }
        let advanced = connection::advance(stream);
        if !stream.is_opening() {
            stream.waiters.wake();
        }
        advanced
    }
}

fn readable(fd: c_int) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the descriptors is ready, the wakeup is_signalled, or the time is over (-1: never).
fn sleep_on(
    mut polls: Vec<libc::pollfd>,
    wakeup: Option<&Wakeup>,
    timeout_ms: c_int,
) -> CallResult<()> {
    let timeout_ms = match (wakeup, timeout_ms) {
        (None, -1) => POLL_MS,
        (None, timeout_ms) => timeout_ms.min(POLL_MS),
        (Some(_), timeout_ms) => timeout_ms,
    };
    polls.extend(wakeup.map(|wakeup| readable(wakeup.fd())));
    // SAFETY: a live array of that length.
    let slept = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout_ms) };
    let slept = if slept < 0 { Err(crate::errno::last_errno()) } else { Ok(()) };
    if let (Some(wakeup), Some(last)) = (wakeup, polls.last())
        && last.revents != 0
    {
        wakeup.clear();
    }
    slept
}

/// -1 and `errno`, or the number of bytes.
fn count(result: CallResult<usize>) -> isize {
    match result {
        Ok(bytes) => bytes as isize,
        Err(error) => answer(Err(error)) as isize,
    }
}

/// -1 and `errno`, or a socket.
fn number(result: CallResult<c_int>) -> c_int {
    result.unwrap_or_else(|error| answer(Err(error)))
}

fn insert(socket: Socket) -> c_int {
    let fd = socket.lock().channel_fd();
    sockets().insert(fd, Arc::new(socket));
    fd
}

/// Makes a socket; -1 and `errno`.
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
    // SAFETY: a null channel asks for one of the id's own.
    let made = unsafe { id::create(channel, context, RDMA_PS_TCP, IBV_QPT_RC) };
    number(made.map(|id| {
        // SAFETY: the id that was just made.
        unsafe { (*id).route.addr.src_storage.ss_family = domain as libc::sa_family_t };
        let sizes = Sizes {
            send_queue: QUEUE,
            receive_queue: QUEUE,
            inline: INLINE,
            send_buffer: BUFFER,
            receive_buffer: BUFFER,
            iomaps: 0,
        };
        insert(Socket::new(Stream::new(id, sizes)))
    }))
}

/// Binds a socket; 0, or -1 and `errno`.
pub unsafe fn rbind(socket: c_int, addr: *const sockaddr, _length: socklen_t) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        // SAFETY: the socket's id, and the caller's address.
        unsafe { id::bind(stream.id, addr)? };
        stream.state = State::Bound;
        Ok(())
    }))
}

/// Listens; 0, or -1 and `errno`.
pub unsafe fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        if stream.state != State::Listening {
            // SAFETY: the socket's id.
            unsafe { endpoint::listen(stream.id, backlog)? };
            stream.state = State::Listening;
        }
        Ok(())
    }))
}

/// Takes the next connection; -1 and `errno`.
pub unsafe fn raccept(socket: c_int, addr: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's place for the address, or null.
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
    // SAFETY: the id's address, and the caller's place for it.
    unsafe { options::give(&raw const (*id).route.addr.dst_storage, addr, length) };
    Ok(insert(accepted))
}

/// Connects; 0, or -1 and `errno`.
pub unsafe fn rconnect(socket: c_int, addr: *const sockaddr, length: socklen_t) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        if matches!(stream.state, State::New | State::Bound) {
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

/// Ends what is sent, received, or both; 0, or -1 and `errno`.
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

/// Closes a socket; 0, or -1 and `errno`.
pub unsafe fn rclose(socket: c_int) -> c_int {
    let Some(found) = find(socket) else { return answer(Err(Errno(libc::EBADF))) };
    // A peer that is gone cannot be told.
    let _as_far_as_possible = shut(&found, libc::SHUT_RDWR);
    {
        let mut stream = found.lock();
        if stream.is_closed() {
            return answer(Err(Errno(libc::EBADF)));
        }
        stream.free();
    }
    // Not before: who calls meanwhile would take its number for an ordinary descriptor. By now a
    // new socket may have the number.
    let mut all = sockets();
    if all.get(&socket).is_some_and(|now| Arc::ptr_eq(now, &found)) {
        all.remove(&socket);
    }
    0
}

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
/// `pieces` are that many, or null.
unsafe fn pieces<'a>(pieces: *const iovec, number: c_int) -> &'a [iovec] {
    match usize::try_from(number) {
        // SAFETY: the caller's contract.
        Ok(number) if !pieces.is_null() && number > 0 => unsafe {
            std::slice::from_raw_parts(pieces, number)
        },
        _ => &[],
    }
}

/// Receives; the number of bytes, or -1 and `errno`.
pub unsafe fn rrecv(socket: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize {
    count(get(socket).and_then(|socket| receive(&socket, &[one(buf, len)], flags)))
}

/// Receives, and tells from whom; the number of bytes, or -1 and `errno`.
pub unsafe fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut sockaddr,
    length: *mut socklen_t,
) -> isize {
    // SAFETY: the caller's buffer, and place for the address.
    unsafe {
        let got = rrecv(socket, buf, len, flags);
        if got > 0 && !addr.is_null() {
            rgetpeername(socket, addr, length);
        }
        got
    }
}

/// Receives into pieces; the number of bytes, or -1 and `errno`.
pub unsafe fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's message.
    let to = unsafe { pieces((*msg).msg_iov, (*msg).msg_iovlen as c_int) };
    count(get(socket).and_then(|socket| receive(&socket, to, flags)))
}

/// Receives; the number of bytes, or -1 and `errno`.
pub unsafe fn rread(socket: c_int, buf: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { rrecv(socket, buf, len, 0) }
}

/// Receives into pieces; the number of bytes, or -1 and `errno`.
pub unsafe fn rreadv(socket: c_int, iov: *const iovec, number: c_int) -> isize {
    // SAFETY: the caller's pieces.
    let to = unsafe { pieces(iov, number) };
    count(get(socket).and_then(|socket| receive(&socket, to, 0)))
}

/// Sends; the number of bytes, or -1 and `errno`.
pub unsafe fn rsend(socket: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize {
    count(get(socket).and_then(|socket| send(&socket, &[one(buf, len)], flags)))
}

/// Sends to the peer, whoever is named; the number of bytes, or -1 and `errno`.
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

/// Sends pieces; the number of bytes, or -1 and `errno`.
pub unsafe fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's message.
    let from = unsafe { pieces((*msg).msg_iov, (*msg).msg_iovlen as c_int) };
    count(get(socket).and_then(|socket| send(&socket, from, flags)))
}

/// Sends; the number of bytes, or -1 and `errno`.
pub unsafe fn rwrite(socket: c_int, buf: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's buffer.
    unsafe { rsend(socket, buf, len, 0) }
}

/// Sends pieces; the number of bytes, or -1 and `errno`.
pub unsafe fn rwritev(socket: c_int, iov: *const iovec, number: c_int) -> isize {
    // SAFETY: the caller's pieces.
    let from = unsafe { pieces(iov, number) };
    count(get(socket).and_then(|socket| send(&socket, from, 0)))
}
