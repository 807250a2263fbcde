//! The connected socket of one peer; [`super::connect_policy`] says when there is one.
//!
//! Only callers that poll use it. It is closed before any thread sleeps, and before another process
//! shares the port. First it is connected to another port, so that the kernel delivers new packets
//! to the shared socket. Then it is read until it stays empty, so that hardly any packet is lost.

use std::os::fd::IntoRawFd;
use std::sync::atomic::{Ordering, fence};

use rdmalab_engine::backend::VerbsResult;
use rdmalab_link::address::{FourTuple, IpFields};

use super::connect_policy::{Action, ConnectPolicy, ReadFrom};
use super::io::UdpIo;
use super::receive_batch::Message;
use super::receiver::{Receiver, SocketState};
use super::{connected_socket, record_lock, socket};
use crate::clock::now_ns;
use crate::qp::{LockedQp, finish};

/// At most this many messages are taken by one read that drains the socket.
const MESSAGES_MAX: usize = 64;
/// Within this many reads a socket must be found empty once.
const SETTLING_READS: u32 = 64;

impl UdpIo<'_> {
    /// Makes the kernel report the IP header fields that UD queue pairs deliver. The connected
    /// socket does not report them.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn expect_datagrams(self) -> VerbsResult<()> {
        self.network.expect_datagrams()?;
        self.disconnect_peer_socket();
        Ok(())
    }

    /// Disconnects the connected socket and takes the packets in it, because a thread will sleep on
    /// the shared socket.
    pub(crate) fn disconnect_peer_socket(self) {
        self.network.connected.request_close();
        if self.network.connected.is_open() {
            self.read(false);
        }
    }

    /// Whether a peer may get a connected socket. Its packets wake no sleeping thread, lack the
    /// headers that UD queue pairs need, and cannot be read by other processes.
    fn may_connect(self) -> bool {
        let UdpIo { process, network } = self;
        let progress_thread = &process.progress_thread;
        !progress_thread.has_waiting_callers()
            && !progress_thread.keeps_doorbell_armed()
            && network.hook.get().is_none()
            && !record_lock::has_standby(network.ownership_fd())
            && !socket::asks_for_headers(network.fd())
            && now_ns() >= network.connected.not_before_ns.load(Ordering::SeqCst)
    }

    /// Opens a connected socket for a peer, if it may have one. The caller locks no queue pair.
    #[cold]
    pub(super) fn open_connected(self, receiver: &mut Receiver, tuple: &FourTuple) {
        let UdpIo { process, network } = self;
        // Clear the request before the check: a later request is seen at the next read.
        network.connected.close_requested.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let may = self.may_connect();
        let opened = may
            .then(|| connected_socket::open(network.fd(), network.interface, tuple).ok())
            .flatten();
        let Some(socket) = opened else { return receiver.policy.on_refused() };
        let own = socket.into_raw_fd();
        network.connected.socket.store(own + 1, Ordering::SeqCst);
        receiver.policy.on_opened();
        // First read what came to the shared socket before. Then read what came to the new socket
        // before it was connected, perhaps from other peers.
        let mut held: LockedQp = None;
        let mut settle = |fd| {
            let mut read = || self.read_socket(fd, receiver, &mut held, false).1;
            (0..SETTLING_READS).any(|_| read() == SocketState::Empty)
        };
        let settled = settle(network.fd()) && settle(own);
        finish(held);
        if !settled || connected_socket::stop_reporting_source(own).is_err() {
            self.apply_policy(&mut receiver.policy, Action::Disconnect);
        }
        // The progress thread may just have gone to sleep on the shared socket.
        process.progress_thread.wake_if_asleep();
    }

    /// Does what the policy decided.
    pub(super) fn apply_policy(self, policy: &mut ConnectPolicy, action: Action) {
        let network = self.network;
        match action {
            Action::Keep => {}
            Action::Disconnect => {
                if let (Some(fd), Some(tuple)) = (network.connected.fd(), policy.connected_tuple())
                    && connected_socket::disconnect(fd, network.interface, &tuple).is_err()
                {
                    // The packets in it are lost, as on a network.
                    network.connected.close();
                }
                policy.on_disconnected();
            }
            Action::Close => {
                network.connected.close();
                policy.on_closed();
            }
        }
    }

    /// Which socket to read now. A reader that does not poll, or a request to close, disconnects
    /// the connected socket.
    #[inline]
    pub(super) fn choose_socket(self, policy: &mut ConnectPolicy, polls: bool) -> ReadFrom {
        if policy.connected_tuple().is_none() {
            return ReadFrom::Shared;
        }
        let read_from = policy.read_from();
        if read_from != ReadFrom::ConnectedThenShared
            && (!polls || self.network.connected.close_requested.load(Ordering::SeqCst))
        {
            self.apply_policy(policy, Action::Disconnect);
            return ReadFrom::ConnectedThenShared;
        }
        read_from
    }

    /// Takes one message from the connected socket, or `all` that lie there. Returns how many
    /// packets, and whether messages may be left.
    pub(super) fn read_connected(
        self,
        receiver: &mut Receiver,
        held: &mut LockedQp,
        all: bool,
    ) -> (u32, SocketState) {
        let Receiver { batch, verifier, policy, .. } = receiver;
        let (Some(tuple), Some(fd)) = (policy.connected_tuple(), self.network.connected.fd())
        else {
            self.apply_policy(policy, Action::Close);
            return (0, SocketState::Empty);
        };
        let mut done = 0;
        for _ in 0..if all { MESSAGES_MAX } else { 1 } {
            let bytes = batch.receive_plain(fd);
            let action = policy.on_connected_read(bytes.is_some());
            if let Some(bytes) = bytes {
                let ip = IpFields::default();
                let message = Message { tuple, ip, bytes, segment_bytes: bytes };
                done += self.take_message(batch, (0, message), verifier, held);
            }
            self.apply_policy(policy, action);
            if bytes.is_none() {
                return (done, SocketState::Empty);
            }
        }
        (done, SocketState::MayHoldMore)
    }
}
