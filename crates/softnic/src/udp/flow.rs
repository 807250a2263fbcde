//! The socket of one peer that talks alone; [`super::course`] says when.
//!
//! Only callers that poll have one: before anybody sleeps, or another process takes part, it goes.
//! It is connected elsewhere first, so that the kernel gives new packets to the socket for all, and
//! then read until it stays empty: it hardly ever loses one when it goes.

use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering, fence};

use rdmalab_link::path::{IpFields, Path};

use super::Wire;
use super::course::{Course, Turn, Wish};
use super::inbox::Message;
use super::receive::{Held, Left, Receiver};
use super::{flow_socket, share, socket};
use crate::clock::now_ns;
use crate::process::Process;
use crate::progress::finish;

/// Messages of the peer that one look takes, where it takes all.
const MESSAGES_MAX: usize = 64;
/// How long another process may take from asking for the socket to saying that it uses it, ns.
pub(super) const JOIN_NS: u64 = 1_000_000_000;
/// Reads after which a socket is to be empty once.
const SETTLING_READS: u32 = 64;

/// What of it threads share beside the receiver's lock.
#[derive(Default)]
pub(super) struct Shared {
    /// One more than the descriptor; 0 when there is none.
    socket: AtomicI32,
    /// It has to go: whoever reads next sees to it.
    unwanted: AtomicBool,
    /// There is to be none before this time, ns.
    not_before_ns: AtomicU64,
}

impl Shared {
    fn fd(&self) -> Option<i32> {
        Some(self.socket.load(Ordering::SeqCst) - 1).filter(|fd| *fd >= 0)
    }

    /// Closes it, here and in the child of a fork, where it would keep packets from the parent.
    pub(super) fn close(&self) {
        let fd = self.socket.swap(0, Ordering::SeqCst) - 1;
        if fd >= 0 {
            // SAFETY: the descriptor was ours, and the swap made us the only one to close it.
            unsafe { libc::close(fd) };
        }
    }

    /// Whether there is one: who sleeps without it looks again soon.
    pub(super) fn is_open(&self) -> bool {
        self.fd().is_some()
    }

    /// It has to go, and there is to be none for a while: another process is about to take part.
    pub(super) fn make_way(&self) {
        self.not_before_ns.store(now_ns() + JOIN_NS, Ordering::SeqCst);
        self.ask_to_end();
    }

    /// It has to go, where there is one: others want to hear what comes.
    pub(super) fn share(&self) {
        if self.is_open() {
            self.ask_to_end();
        }
    }

    /// It has to go, as soon as somebody reads.
    pub(super) fn ask_to_end(&self) {
        self.unwanted.store(true, Ordering::SeqCst);
    }
}

impl Process {
    /// Somebody will sleep on the socket for all: what came to a peer's own is taken now, and the
    /// kernel gives it no more.
    pub(crate) fn end_flow(&self) {
        let Some(wire) = self.wire() else { return };
        wire.flow.ask_to_end();
        if wire.flow.is_open() {
            self.take_from_wire();
        }
    }

    /// Whether a peer may have a socket of its own: nobody sleeps who would not hear it, and no
    /// datagrams are expected, here or by others, which want to know more of the headers below.
    fn may_have_flow(&self, wire: &Wire) -> bool {
        let helper = &self.helper;
        !helper.has_waiting_callers()
            && !helper.wants_bell_armed()
            && wire.hook.get().is_none()
            && !share::has_heir(wire.ownership_fd())
            && !socket::asks_for_headers(wire.fd())
            && now_ns() >= wire.flow.not_before_ns.load(Ordering::SeqCst)
    }

    /// Gives a peer a socket of its own, if it may have one. No queue pair is locked.
    #[cold]
    pub(super) fn open_flow(&self, wire: &Wire, receiver: &mut Receiver, path: &Path) {
        // Before the question: whoever says so after it is heard at the next look.
        wire.flow.unwanted.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let may = self.may_have_flow(wire);
        let opened = may.then(|| flow_socket::open(wire.fd(), wire.interface, path).ok()).flatten();
        let Some(socket) = opened else { return receiver.course.refused() };
        let own = socket.into_raw_fd();
        wire.flow.socket.store(own + 1, Ordering::SeqCst);
        receiver.course.opened();
        // First what came before it was there; then what came to it before it had one peer only.
        let mut held: Held = None;
        let mut settle = |fd| {
            let mut read = || self.read_socket(wire, fd, receiver, &mut held, false).1;
            (0..SETTLING_READS).any(|_| read() == Left::Nothing)
        };
        let settled = settle(wire.fd()) && settle(own);
        finish(held);
        if !settled || flow_socket::has_one_peer(own).is_err() {
            self.fulfil(wire, &mut receiver.course, Wish::Part);
        }
        // It may just have gone to sleep on the socket for all.
        self.helper.wake_if_asleep();
    }

    /// Does what the course wishes.
    pub(super) fn fulfil(&self, wire: &Wire, course: &mut Course, wish: Wish) {
        match wish {
            Wish::Stay => {}
            Wish::Part => {
                if let (Some(fd), Some(path)) = (wire.flow.fd(), course.own())
                    && flow_socket::turn_away(fd, wire.interface, &path).is_err()
                {
                    // What lies in it is lost, as any packet may be.
                    wire.flow.close();
                }
                course.parted();
            }
            Wish::Close => {
                wire.flow.close();
                course.closed();
            }
        }
    }

    /// Where to look now; one that does not poll, or somebody who sleeps, ends the flow.
    #[inline]
    pub(super) fn turn_or_part(&self, wire: &Wire, course: &mut Course, polls: bool) -> Turn {
        if course.own().is_none() {
            return Turn::Main;
        }
        let turn = course.turn();
        if turn != Turn::Both && (!polls || wire.flow.unwanted.load(Ordering::SeqCst)) {
            self.fulfil(wire, course, Wish::Part);
            return Turn::Both;
        }
        turn
    }

    /// Takes what lies in the peer's own socket: one message, or `all`. Returns how many packets.
    pub(super) fn read_flow(
        &self,
        wire: &Wire,
        receiver: &mut Receiver,
        held: &mut Held,
        all: bool,
    ) -> (u32, Left) {
        let Receiver { inbox, verifier, course, .. } = receiver;
        let (Some(path), Some(fd)) = (course.own(), wire.flow.fd()) else {
            self.fulfil(wire, course, Wish::Close);
            return (0, Left::Nothing);
        };
        let mut done = 0;
        for _ in 0..if all { MESSAGES_MAX } else { 1 } {
            let bytes = inbox.receive_plain(fd);
            let wish = course.looked(bytes.is_some());
            if let Some(bytes) = bytes {
                let ip = IpFields::default();
                let message = Message { path, ip, bytes, segment_bytes: bytes };
                done += self.take_message(wire, inbox, (0, message), verifier, held);
            }
            self.fulfil(wire, course, wish);
            if bytes.is_none() {
                return (done, Left::Nothing);
            }
        }
        (done, Left::Something)
    }
}
