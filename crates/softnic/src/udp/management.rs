//! The management queue pair, QP1: datagrams of connection managers.
//!
//! QP1 belongs to a host, not to a process. Every process that opened QP1 gets every datagram that
//! arrives, and handles its own: those with the service id of one of its listeners, or the
//! communication id of one of its connections. So communication ids must differ between the
//! processes of a host; the process slot ([`process_slot`]) should be a part of them.

use std::os::fd::RawFd;
use std::sync::Arc;

use rdmalab_driver::{Memory as _, Path as _};
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::train::Train;
use rdmalab_engine::vocab::AhAttr;
use rdmalab_link::address::{FourTuple, IpFields, address_of};
use rdmalab_link::expand;
pub use rdmalab_wire::ids::Gid;
use rdmalab_wire::ids::PathMtu;
use rdmalab_wire::ip::ROCE_V2_PORT;
use rdmalab_wire::opcode::Transport;

use super::forward;
use super::mad_queue::MadQueue;
pub use super::mad_queue::{MAD_BYTES, ManagementDatagram};
pub(crate) use super::mad_queue::{QP1, QP1_QKEY};
use super::receiver::Arrival;
use crate::peer::Peer;
use crate::poll::wait_readable;
use crate::process::Process;
use crate::qp::QpLinks;

/// How long the first datagram to this host waits for the hellos of its processes, ns.
const HANDSHAKE_NS: u64 = 300_000_000;

/// Sends a MAD to QP1 of another host.
pub(super) fn send_management(
    process: &Process,
    ah: &AhAttr,
    mad: &[u8; MAD_BYTES],
) -> VerbsResult<()> {
    let Some(network) = process.network() else {
        return Err(VerbsError::new(
            libc::ENETUNREACH,
            format!(
                "{} is on another host: name the interface that leads there \
                     (RDMALAB_INTERFACE, --interface)",
                address_of(ah.dgid)
            ),
        ));
    };
    // Do not wait: the sender holds locks that other threads need. A datagram that fails is
    // sent again, like a lost one.
    network.check_address_within(ah, 0)?;
    if let Some(route) = network.route(ah) {
        let train = process.management.next_train();
        let Some(mut path) = network.path(&route, Transport::Ud, PathMtu::Mtu256) else {
            return Err(VerbsError::busy(
                "the process exits while another of its threads is sending",
            ));
        };
        // A copy within this process does not fail.
        let _ = path.push(&train, true, |_, mut to| QpLinks::put(mad, &mut to));
        path.flush();
        // If the exit handlers have closed this process's capture, append the datagram to it.
        if let Some(tap) = process.hooks.and_then(|hooks| hooks.tap) {
            tap.write_if_late();
        }
    }
    Ok(())
}

/// QP1 of this host, as one process sees it. A connection manager sends and receives MADs by it:
/// always among the processes of this host, and over the network if `RDMALAB_INTERFACE` opens it.
///
/// ```no_run
/// use rdmalab_softnic::management::ManagementPort;
///
/// let port = ManagementPort::open()?;
/// let own = port.gids();
/// port.send(1, own[1], &[0; 256])?;
/// while let Some(datagram) = port.receive() {
///     println!("from {:?}: attribute {:02x?}", datagram.from, &datagram.mad[16..18]);
/// }
/// # Ok::<(), rdmalab_engine::backend::VerbsError>(())
/// ```
#[derive(Clone, Copy)]
pub struct ManagementPort {
    process: &'static Process,
    queue: &'static MadQueue,
}

impl ManagementPort {
    /// Opens QP1: datagrams that arrive are queued from now on. Every call returns the same queue.
    ///
    /// # Errors
    /// The errors of opening a device.
    pub fn open() -> VerbsResult<ManagementPort> {
        let process = Process::get()?;
        let queue = process.management.open()?;
        Ok(ManagementPort { process, queue })
    }

    /// A descriptor that is readable while datagrams wait.
    pub fn raw_fd(&self) -> RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.queue.event)
    }

    /// The GIDs of the port, by index.
    pub fn gids(&self) -> Vec<Gid> {
        (0..crate::device::gid_count())
            .filter_map(|index| crate::device::gid_of(0, index))
            .collect()
    }

    /// The next datagram, without waiting. Makes progress, so that it may be called in a loop.
    pub fn receive(&self) -> Option<ManagementDatagram> {
        self.process.caller_progress();
        let found = self.queue.waiting.lock().pop_front();
        if found.is_some() {
            self.queue.event.take_one();
        }
        found
    }

    /// Sends a MAD from the GID with this index to QP1 at `to`. It may be lost, like any datagram.
    ///
    /// # Errors
    /// `EINVAL` if there is no such GID or the IP versions differ, `ENETUNREACH` for another host
    /// without an interface, the kernel's error if there is no route.
    pub fn send(&self, sgid_index: u8, to: Gid, mad: &[u8; MAD_BYTES]) -> VerbsResult<()> {
        self.process.check_usable()?;
        let ah = AhAttr { dgid: to, sgid_index, is_global: true, port_num: 1, ..AhAttr::default() };
        let Some(from) = crate::device::gid_of(0, u32::from(sgid_index)) else {
            return Err(VerbsError::invalid(format!("GID index {sgid_index}: there is none")));
        };
        if crate::device::is_here(&ah) {
            let train = self.process.management.next_train();
            return self.send_here(from, to, &train, mad);
        }
        send_management(self.process, &ah, mad)
    }

    /// The processes of this host that say hello in time.
    fn met_peers(&self) -> Vec<Arc<Peer>> {
        let give_up_ns = crate::clock::now_ns() + HANDSHAKE_NS;
        loop {
            let are_met = self.process.host.advance_handshakes();
            if are_met || crate::clock::now_ns() >= give_up_ns {
                return self.process.host.peers.known();
            }
            wait_readable(&[self.process.host.control_socket_fd()], 1);
        }
    }

    /// Sends a MAD to every process of this host, this one included.
    fn send_here(&self, from: Gid, to: Gid, train: &Train, mad: &[u8]) -> VerbsResult<()> {
        let (source_port, destination_port) = (ROCE_V2_PORT, ROCE_V2_PORT);
        // Two addresses of this host may differ in IP version: then the destination is the source.
        let (mut source, destination) = (address_of(from), address_of(to));
        if source.is_ipv4() != destination.is_ipv4() {
            source = destination;
        }
        let tuple = FourTuple { source, destination, source_port, destination_port };
        let mut bytes = [0u8; MAD_BYTES + expand::MAX_OVERHEAD_BYTES];
        let Some(parts) = expand::write_headers(train, Transport::Ud, &mut bytes) else {
            return Err(VerbsError::invalid("the MAD cannot be sent as a datagram"));
        };
        bytes[parts.payload_at..parts.payload_at + MAD_BYTES].copy_from_slice(mad);
        let bytes = &mut bytes[..parts.packet_bytes];
        expand::seal(&tuple, 0, bytes);
        let arrival = Arrival { tuple, ip: IpFields::default(), bytes, forwarded: false };
        for peer in self.met_peers() {
            if !peer.is_self {
                forward::push(&peer, &arrival);
            }
        }
        if let Ok(packet) = rdmalab_link::receive::parse(arrival.bytes) {
            // A full queue loses the datagram, as the network may.
            let _ = self.process.management.take(&tuple, &packet);
        }
        Ok(())
    }
}

/// The process slot of this process, 1 ..= 1023: different for every process of the host.
///
/// # Errors
/// The errors of opening a device.
pub fn process_slot() -> VerbsResult<u16> {
    Ok(Process::get()?.host.slot)
}
