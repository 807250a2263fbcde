//! How processes of a host come to share one socket.
//!
//! The first process binds the port. A process that finds it taken asks the others by control
//! message. The owner of the socket answers with its descriptor, and with the descriptor of a piece
//! of memory whose lock names the owner (`ownership`, `handover`).

use std::os::fd::{BorrowedFd, OwnedFd};

use rdmalab_engine::backend::{VerbsError, VerbsResult};

use super::interface::{self, Interface};
use super::io::UdpIo;
use super::network::NetworkPort;
use super::ownership::Ownership;
use super::packet_path::ArmedHook;
use super::record_lock::{lock, register_standby};
use super::{Network, handover, socket};
use crate::control::{ControlKind, ControlMessage};
use crate::error::os_error;
use crate::hooks::network_hook::NetworkHook;
use crate::peer_table::live_slots;
use crate::poll::wait_readable;
use crate::process::Process;

/// How long a process that has the socket may take to answer, ns.
const ANSWER_NS: u64 = 2_000_000_000;
/// How long only the owner is asked, ns. If it is stopped, others are asked too, few at first,
/// because the descriptors of a second answer are never closed.
const READER_NS: u64 = 500_000_000;
/// The request is repeated after this time, ns: a full control socket may lose it.
const ASK_AGAIN_NS: u64 = 100_000_000;

/// Opens the network of a process, if an interface was named.
///
/// # Errors
/// The interface does not exist, or the port is taken; the message says what to do.
pub(crate) fn open_network(process: &'static Process) -> VerbsResult<()> {
    let Some(interface) = interface::named()? else { return Ok(()) };
    let began_ns = crate::clock::now_ns();
    let mut ask_at_ns = 0;
    loop {
        let now_ns = crate::clock::now_ns();
        match socket::open(interface) {
            Ok(socket) => {
                let ownership = Ownership::create()
                    .map_err(|error| os_error("cannot make memory for a lock", &error))?;
                // No other process has seen the memory: the lock is free, and no term has
                // begun.
                if lock(ownership.fd(), false) {
                    ownership.begin(0);
                }
                return set_network(process, Network::new(interface, socket, ownership));
            }
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let (name, port) = (&interface.name, interface.port);
                let what = format!("cannot open UDP port {port} on interface {name}");
                return Err(os_error(&what, &error));
            }
        }
        if now_ns >= ask_at_ns {
            ask_at_ns = now_ns + ASK_AGAIN_NS;
            let waited_ns = (now_ns - began_ns).checked_sub(READER_NS);
            let round = waited_ns.map(|ns| (ns / ASK_AGAIN_NS) as u32);
            request_socket(process, interface, round);
        }
        wait_readable(&[process.host.control_socket_fd()], 10);
        process.host.read_control_socket();
        if let Some((socket, memory)) = process.network.offer.lock().take() {
            let ownership = Ownership::join(memory)
                .map_err(|error| os_error("cannot share the socket", &error))?;
            return set_network(process, Network::new(interface, socket, ownership));
        }
        if now_ns >= began_ns + ANSWER_NS {
            return Err(port_taken(interface));
        }
    }
}

fn set_network(process: &'static Process, network: Network) -> VerbsResult<()> {
    let reads = network.ownership.is_ours();
    register_standby(network.ownership_fd());
    if let Some(hooks) = process.hooks {
        let _ = network.hook.set(ArmedHook::new(Box::new(NetworkHook::new(hooks))));
    }
    let _ = process.network.opened.set(network);
    handover::hand_over_at_exit();
    if reads {
        return Ok(());
    }
    // The owner of the socket, now or later, forwards only to processes that it knows.
    process.host.exchange_hellos();
    let Some(udp) = UdpIo::of(process) else { return Ok(()) };
    udp.network.ownership.request_lock();
    udp.start_standby()
}

/// Asks the owner for the socket. In round 0 also asks one other process, and in each later
/// round twice as many further ones. One answer is enough, but most processes may not have the
/// socket, or may be stopped.
fn request_socket(process: &Process, interface: &Interface, round: Option<u32>) {
    let (key, other_slots) = (socket_key(interface), other_slots(process.host.slot));
    let chosen = round.map_or(0..0, |round| asked_in_round(round, other_slots.len()));
    for (index, slot) in other_slots.into_iter().enumerate() {
        let kind = match chosen.contains(&index) {
            true => ControlKind::AnySocketRequest,
            false => ControlKind::SocketRequest,
        };
        let message = process.host.control.message(kind, 0, key);
        let _ = process.host.control.send(slot, &message, &[]);
    }
}

/// The slots of the other processes of this host.
fn other_slots(own: u16) -> Vec<u16> {
    let live = live_slots().unwrap_or_default();
    live.iter().map(|live| live.slot).filter(|slot| *slot != own).collect()
}

impl UdpIo<'_> {
    /// Answers another process that asks for the socket: as the owner, or if any process is asked
    /// because the owner did not answer. Says hello, because the owner forwards only to processes
    /// that it knows.
    pub(crate) fn answer_socket_request(self, message: &ControlMessage) {
        let UdpIo { process, network } = self;
        let asks_us = network.ownership.is_ours() || message.kind == ControlKind::AnySocketRequest;
        if message.memory_id != socket_key(network.interface) || !asks_us {
            return;
        }
        // From now on another process may take ownership while this one is stopped, so start the
        // standby threads. If this process is not complete yet, the request will come again.
        let Some(complete) = Process::existing().and_then(UdpIo::of) else { return };
        // If the threads do not start, this process only cannot become the owner again.
        let _ = complete.start_standby();
        // Only the shared socket reports the header fields that the other process may need.
        network.connected.forbid_for_a_while();
        let _ = process.host.send_hello(message.slot);
        let reply =
            process.host.control.message(ControlKind::Socket, message.echo, message.memory_id);
        // SAFETY: the descriptor stays open as long as the process does. A forked child closes it,
        // and reads no control messages.
        let fds = unsafe { [BorrowedFd::borrow_raw(network.fd()), network.ownership.as_fd()] };
        let _ = process.host.control.send(message.slot, &reply, &fds);
    }
}

impl NetworkPort {
    /// Takes the socket that another process sent.
    pub(crate) fn take_offer(&self, fds: Vec<OwnedFd>) {
        let Ok([socket, ownership]) = <[OwnedFd; 2]>::try_from(fds) else { return };
        let mut offer = self.offer.lock();
        if self.opened.get().is_none() && offer.is_none() {
            *offer = Some((socket, ownership));
        } else {
            // This is a second answer. Closing its descriptor of the memory would drop a lock that
            // this process may hold through the first one.
            std::mem::forget(ownership);
        }
    }
}

/// The interface and the port, which identify one of the host's shared sockets.
fn socket_key(interface: &Interface) -> u32 {
    interface.index << 16 | u32::from(interface.port)
}

/// Which of `count` processes are asked in a round: one more than in all earlier ones, at last all.
fn asked_in_round(round: u32, count: usize) -> std::ops::Range<usize> {
    let from = 1_usize.checked_shl(round).unwrap_or(usize::MAX) - 1;
    match from < count {
        true => from..from.saturating_mul(2).saturating_add(1).min(count),
        false => 0..count,
    }
}

fn port_taken(interface: &Interface) -> VerbsError {
    let Interface { name, port, .. } = interface;
    VerbsError::new(
        libc::EADDRINUSE,
        format!(
            "UDP port {port} on interface {name} is taken by another user's programs, by the \
             kernel's rdma_rxe, or by programs of yours that are stopped or of another version: \
             choose another port for both ends (RDMALAB_PORT, --udp-port), \
             another interface, or a network namespace of your own"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_asked_within_a_second_and_a_half_and_few_at_first() {
        let rounds = ((ANSWER_NS - READER_NS) / ASK_AGAIN_NS) as u32;
        assert_eq!([0, 1, 2, 3].map(|round| asked_in_round(round, 100)), [0..1, 1..3, 3..7, 7..15]);
        for count in [0, 1, 2, 3, 40, 4096] {
            let asked: std::collections::BTreeSet<usize> =
                (0..rounds).flat_map(|round| asked_in_round(round, count)).collect();
            assert_eq!(asked, (0..count).collect(), "{count}");
        }
        assert_eq!(asked_in_round(u32::MAX, 5), 0..5);
    }
}
