//! The table of sockets, and how threads wait on one.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdmalab_abi::rdma_cm_id;

use super::connection;
use super::settings::Sizes;
use super::stream::{Stream, StreamState};
use super::wakeup::Wakeup;
use crate::endpoint;
use crate::errno::{CallResult, Errno, answer};

/// How long a thread polls the completion queue before it sleeps, ns.
const SPIN_NS: u64 = 10_000;
/// How long a thread sleeps at most if it got no descriptor by which other threads wake it, ms.
const POLL_MS: c_int = 10;

/// A socket.
pub struct Socket {
    stream: Mutex<Stream>,
}

static SOCKETS: Mutex<BTreeMap<c_int, Arc<Socket>>> = Mutex::new(BTreeMap::new());

pub fn sockets() -> MutexGuard<'static, BTreeMap<c_int, Arc<Socket>>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The socket of a number; `None` if it is an ordinary descriptor.
pub fn find(socket: c_int) -> Option<Arc<Socket>> {
    sockets().get(&socket).cloned()
}

pub fn get(socket: c_int) -> CallResult<Arc<Socket>> {
    find(socket).ok_or(Errno(libc::EBADF))
}

impl Socket {
    pub fn new(stream: Stream) -> Socket {
        Socket { stream: Mutex::new(stream) }
    }

    pub fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes progress on the connection until `done` holds or the socket is closed.
    pub fn wait_until<'a>(
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
            let now_ns = crate::os::now_ns();
            if now_ns < *spin_until.get_or_insert(now_ns + SPIN_NS) {
                drop(stream);
                std::hint::spin_loop();
                stream = self.lock();
                continue;
            }
            if !stream.arm() {
                // A completion may have come before the queue was armed.
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

    /// Sleeps until a descriptor is readable or another thread signals this one. The lock is
    /// released meanwhile, so that other threads may use the socket, or close it.
    pub fn sleep<'a>(
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

    /// Takes the next connection request of a listener. Waits for it, unless the socket is
    /// nonblocking. Returns the id, and the sizes and the mode that the connection inherits.
    pub fn next_request(&self) -> CallResult<(*mut rdma_cm_id, Sizes, bool)> {
        let mut stream = self.lock();
        loop {
            if stream.is_closed() {
                return Err(Errno(libc::EBADF));
            }
            if stream.state != StreamState::Listening {
                return Err(Errno(libc::EINVAL));
            }
            let is_nonblocking = stream.is_nonblocking;
            // SAFETY: the listener's id; closing it takes the lock first.
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

    /// Waits until connecting has succeeded or failed. With `nonblocking` it does not wait, and
    /// returns `EINPROGRESS`. A signal ends the wait, but not the connecting.
    pub fn open<'a>(
        &'a self,
        mut stream: MutexGuard<'a, Stream>,
        nonblocking: bool,
    ) -> (MutexGuard<'a, Stream>, CallResult<()>) {
        loop {
            let advanced = self.advance(&mut stream);
            if nonblocking || advanced != Err(Errno(libc::EINPROGRESS)) {
                // Another thread may have seen the failure, or have closed the socket.
                let has_failed = advanced.is_ok() && stream.state == StreamState::Failed;
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

    /// As [`Socket::open`], for a call that sends or receives.
    pub fn open_for<'a>(
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

    /// Continues connecting, without waiting; `EINPROGRESS` until the connection is established.
    pub fn advance(&self, stream: &mut Stream) -> CallResult<()> {
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

pub fn readable(fd: c_int) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until a descriptor is ready, `wakeup` is signalled, or the time-out is over (-1: never).
pub fn sleep_on(
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

/// The return value of a C function: the number of bytes, or -1 and `errno`.
pub fn count(result: CallResult<usize>) -> isize {
    match result {
        Ok(bytes) => bytes as isize,
        Err(error) => answer(Err(error)) as isize,
    }
}

/// The return value of a C function: the number of a socket, or -1 and `errno`.
pub fn number(result: CallResult<c_int>) -> c_int {
    result.unwrap_or_else(|error| answer(Err(error)))
}

pub fn insert(socket: Socket) -> c_int {
    let fd = socket.lock().channel_fd();
    sockets().insert(fd, Arc::new(socket));
    fd
}
