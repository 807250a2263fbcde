//! Waiting for several sockets and ordinary descriptors at once.

use core::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, timeval};

use super::socket::{Socket, find, readable, sleep_on};
use super::stream::{Stream, StreamState};
use super::wakeup::Wakeup;
use crate::errno::{Errno, answer};

/// The wanted events for which a socket is ready now.
fn ready(socket: &Socket, stream: &mut Stream, wanted: i16) -> i16 {
    if stream.is_closed() {
        return libc::POLLNVAL;
    }
    if stream.is_opening() {
        match socket.advance(stream) {
            Err(Errno(libc::EINPROGRESS)) => return 0,
            Err(_) => return libc::POLLERR | (wanted & libc::POLLOUT),
            Ok(()) => {}
        }
    }
    match stream.state {
        StreamState::Failed => return libc::POLLERR | (wanted & libc::POLLOUT),
        StreamState::New | StreamState::Bound => return 0,
        StreamState::Listening => {
            let mut poll = pollfd { fd: stream.channel_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one live pollfd.
            unsafe { libc::poll(&raw mut poll, 1, 0) };
            return poll.revents & wanted;
        }
        _ => {}
    }
    let _seen_below = stream.work();
    let mut holds = 0;
    if wanted & libc::POLLIN != 0 && (stream.has_data() || !stream.is_readable) {
        holds |= libc::POLLIN;
    }
    if wanted & libc::POLLOUT != 0 && stream.can_send() {
        holds |= libc::POLLOUT;
    }
    match stream.state {
        // POLLHUP comes after all data is read: programs that stop at POLLHUP would lose the data.
        StreamState::Disconnected if stream.has_data() => holds | (wanted & libc::POLLIN),
        StreamState::Disconnected => holds | libc::POLLHUP,
        StreamState::Broken => holds | libc::POLLERR,
        _ => holds,
    }
}

/// Polls all entries once; returns how many have events.
fn look(entries: &mut [pollfd], found: &[Option<Arc<Socket>>]) -> c_int {
    let mut count = 0;
    for (entry, socket) in entries.iter_mut().zip(found) {
        entry.revents = 0;
        match socket {
            Some(socket) => entry.revents = ready(socket, &mut socket.lock(), entry.events),
            None if entry.fd >= 0 => {
                // SAFETY: one live pollfd.
                unsafe { libc::poll(entry, 1, 0) };
            }
            None => {}
        }
        count += c_int::from(entry.revents != 0);
    }
    count
}

/// The descriptors of all entries, with their completion queues armed. `None` if a completion may
/// have come before arming.
fn arm(entries: &[pollfd], found: &[Option<Arc<Socket>>]) -> Option<Vec<pollfd>> {
    let mut polls = Vec::new();
    let mut is_fresh = false;
    for (entry, socket) in entries.iter().zip(found) {
        let Some(socket) = socket else {
            polls.push(*entry);
            continue;
        };
        let mut stream = socket.lock();
        if stream.was_connected() && !stream.arm() {
            is_fresh = true;
        }
        polls.extend(stream.descriptors().into_iter().map(readable));
    }
    (!is_fresh).then_some(polls)
}

/// Registers this thread with the sockets, so that other threads wake it, until it is dropped.
struct PollWaiter<'a> {
    found: &'a [Option<Arc<Socket>>],
    wakeup: Option<Wakeup>,
}

impl<'a> PollWaiter<'a> {
    fn new(found: &'a [Option<Arc<Socket>>]) -> Self {
        let wakeup = Wakeup::own();
        found.iter().flatten().for_each(|socket| socket.lock().waiters.add(wakeup.as_ref()));
        Self { found, wakeup }
    }
}

impl Drop for PollWaiter<'_> {
    fn drop(&mut self) {
        let wakeup = self.wakeup.as_ref();
        self.found.iter().flatten().for_each(|socket| socket.lock().waiters.remove(wakeup));
    }
}

/// Waits until an entry is ready; returns how many are, 0 after the time-out, or -1 and `errno`.
pub unsafe fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout_ms: c_int) -> c_int {
    let entries = match nfds {
        0 => &mut [][..],
        // SAFETY: the caller's array of that length.
        number => unsafe { std::slice::from_raw_parts_mut(fds, number as usize) },
    };
    let found: Vec<_> = entries.iter().map(|entry| find(entry.fd)).collect();
    if found.iter().all(Option::is_none) {
        // SAFETY: the caller's array.
        return unsafe { libc::poll(fds, nfds, timeout_ms) };
    }
    let until = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
    let mut waiter = None;
    loop {
        let count = look(entries, &found);
        if count > 0 {
            return count;
        }
        let left_ms = match until {
            None => -1,
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX)
            }
        };
        if left_ms == 0 {
            return 0;
        }
        let Some(waiter) = &waiter else {
            // Look again: another thread may have handled an event before the registration.
            waiter = Some(PollWaiter::new(&found));
            continue;
        };
        let Some(polls) = arm(entries, &found) else { continue };
        if let Err(error) = sleep_on(polls, waiter.wakeup.as_ref(), left_ms) {
            return answer(Err(error));
        }
    }
}

/// The same with sets of descriptors; returns how many are ready, 0, or -1 and `errno`.
pub unsafe fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [
        (readfds, libc::POLLIN),
        (writefds, libc::POLLOUT),
        (exceptfds, libc::POLLERR | libc::POLLHUP),
    ];
    // SAFETY: the caller's sets, or null, for descriptors below `nfds`.
    let has = |set: *mut fd_set, fd| !set.is_null() && unsafe { libc::FD_ISSET(fd, set) };
    let mut polls: Vec<pollfd> = Vec::new();
    for fd in 0..nfds.clamp(0, libc::FD_SETSIZE as c_int) {
        let events = sets.iter().filter(|(set, _)| has(*set, fd)).fold(0, |all, (_, e)| all | e);
        if events != 0 {
            polls.push(pollfd { fd, events, revents: 0 });
        }
    }
    // SAFETY: the caller's time-out, or null.
    let timeout_ms = unsafe { timeout.as_ref() }.map_or(-1, |time| {
        c_int::try_from(time.tv_sec * 1000 + (time.tv_usec + 999) / 1000).unwrap_or(c_int::MAX)
    });
    // SAFETY: our own array.
    let ret = unsafe { rpoll(polls.as_mut_ptr(), polls.len() as nfds_t, timeout_ms) };
    if ret < 0 {
        return ret;
    }
    let mut count = 0;
    for (set, event) in sets {
        // A disconnect counts as readable, an error as readable and writable.
        let event = match event {
            libc::POLLIN => libc::POLLIN | libc::POLLHUP | libc::POLLERR,
            libc::POLLOUT => libc::POLLOUT | libc::POLLERR,
            other => other,
        };
        for poll in &polls {
            if has(set, poll.fd) {
                if poll.revents & event != 0 {
                    count += 1;
                } else {
                    // SAFETY: the caller's set.
                    unsafe { libc::FD_CLR(poll.fd, set) };
                }
            }
        }
    }
    count
}
