//! Datagrams over the loopback device, to and fro.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use super::cpu::{self, Spin};
use super::limit::{Limit, Unsupported, median_ns_per_call};
use super::peer::{Line, Map, Peers, beside};
use crate::clock::Clock;
use crate::quantity::Quantity;

const WARM_UP: usize = 100;
const ROUND_TRIPS: usize = 1000;
const MAX_PAYLOAD_BYTES: usize = 9000;

/// How the two ends wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// Each end asks its socket again and again.
    Spin,
    /// Each end sleeps in `recvfrom`.
    Block,
}

/// The round trip of a datagram between two pinned ends, by `sendto` and `recvfrom` on sockets
/// that are not connected, as a driver with many peers uses them. Every round trip is stamped.
pub struct UdpPingPong {
    clock: Clock,
    cores: (usize, usize),
    ends: Peers,
    waiting: Waiting,
    payload_bytes: usize,
    stop: Map,
}

impl UdpPingPong {
    /// Datagrams of `payload_bytes`, at most 9000.
    ///
    /// # Errors
    /// When no memory can be mapped.
    pub fn new(
        clock: Clock,
        cores: (usize, usize),
        ends: Peers,
        waiting: Waiting,
        payload_bytes: usize,
    ) -> Result<Self, Unsupported> {
        Ok(Self {
            clock,
            cores,
            ends,
            waiting,
            payload_bytes: payload_bytes.min(MAX_PAYLOAD_BYTES),
            stop: Map::shared(size_of::<Line>())?,
        })
    }

    /// A socket of the loopback device that waits as asked for, and its address.
    fn socket(&self) -> Result<(UdpSocket, SocketAddr), Unsupported> {
        let open = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            match self.waiting {
                Waiting::Spin => socket.set_nonblocking(true)?,
                // Its timer is part of what is measured: some tens of ns.
                Waiting::Block => socket.set_read_timeout(Some(cpu::PATIENCE))?,
            }
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        open().map_err(|e| Unsupported::from_io("no UDP socket on 127.0.0.1", &e))
    }

    /// The median round trip.
    fn time(&self, socket: &UdpSocket, to: SocketAddr) -> Result<f64, Unsupported> {
        let failed = |e| Unsupported::from_io("loopback datagram", &e);
        let spin = Spin::between(self.cores);
        let mut buffer = [0x5A; MAX_PAYLOAD_BYTES];
        let mut round_trip = || {
            socket.send_to(&buffer[..self.payload_bytes], to).map_err(failed)?;
            let received = || match socket.recv_from(&mut buffer) {
                Err(e) if e.kind() == ErrorKind::Interrupted => None,
                Err(e) if is_nothing_yet(&e) && self.waiting == Waiting::Spin => None,
                other => Some(other),
            };
            let answer = match spin.until(received) {
                None => return Err(cpu::no_answer()),
                Some(Err(e)) if is_nothing_yet(&e) => return Err(cpu::no_answer()),
                Some(other) => other.map_err(failed)?,
            };
            match answer {
                (bytes, from) if (bytes, from) == (self.payload_bytes, to) => Ok(()),
                (bytes, from) => Err(Unsupported(format!("{bytes} unexpected bytes from {from}"))),
            }
        };
        for _ in 0..WARM_UP {
            round_trip()?;
        }
        median_ns_per_call(&self.clock, ROUND_TRIPS, 1, round_trip)
    }
}

impl Limit for UdpPingPong {
    fn name(&self) -> String {
        let waiting = match self.waiting {
            Waiting::Spin => "spinning",
            Waiting::Block => "blocking",
        };
        let (bytes, ends) = (self.payload_bytes, self.ends.name());
        format!("UDP loopback, {bytes} B, {waiting}, two {ends}")
    }

    fn quantity(&self) -> Quantity {
        Quantity::RoundTrip
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        let (socket, _) = self.socket()?;
        let (their_socket, to) = self.socket()?;
        let stop = &self.stop.lines()[0].0;
        let spin = Spin::between(self.cores);
        let theirs = || echo(&their_socket, spin, stop);
        let ours = || {
            let time = self.time(&socket, to);
            // A blocked end looks at `stop` when something wakes it.
            stop.store(1, Ordering::Release);
            let _ = socket.send_to(&[0], to);
            time
        };
        // SAFETY: the other end receives into its stack and sends from it, by system calls alone.
        unsafe { beside(self.ends, self.cores, stop, theirs, ours) }
    }
}

/// Sends back what comes, until stopped.
fn echo(socket: &UdpSocket, spin: Spin, stop: &AtomicU64) {
    let mut buffer = [0; MAX_PAYLOAD_BYTES];
    while stop.load(Ordering::Relaxed) == 0 {
        match socket.recv_from(&mut buffer) {
            // A datagram that cannot be sent back is lost, and the other end says so.
            Ok((bytes, from)) => drop(socket.send_to(&buffer[..bytes], from)),
            Err(e) if is_nothing_yet(&e) => spin.rest(),
            Err(_) => return,
        }
    }
}

/// Nothing has come: at once, after the time-out, or because of a signal.
fn is_nothing_yet(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
