//! UDP datagrams between the same two processes on the same path: the network without RDMA.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rdmalab_measure::limits::datagrams::{self, Batch, DATAGRAM_BYTES};
use rdmalab_measure::{Clock, stats};
use rdmalab_rank::Rank;
use rdmalab_verbs::Context;

use super::spin::{Spin, Stopped};
use super::trips::half_round_trip;
use crate::bench::task::Timings;

/// The port of the device.
const PORT: u8 = 1;
/// If no datagram arrives for this long, a flood is over; missing datagrams were lost.
const SILENCE: Duration = Duration::from_millis(30);
/// Bytes that are timed together.
const TIMED_BYTES: usize = 1 << 20;
/// The longest message of a round trip, in bytes.
const TRIP_BYTES: usize = 8192;

/// A socket, and the address of the other rank's socket.
pub struct DatagramPair {
    socket: UdpSocket,
    to: SocketAddr,
}

impl DatagramPair {
    /// Opens a socket on the address of the device's GID, and exchanges addresses with the other
    /// rank.
    pub fn open<R: Rank>(rank: &R, context: &Context, gid_index: u8) -> Result<Self, Stopped> {
        let text = |e: &dyn std::fmt::Display| format!("datagrams: {e}");
        let gid = context.query_gid(PORT, gid_index.into()).map_err(|e| text(&e))?;
        let address = IpAddr::V6(gid).to_canonical();
        let socket = datagrams::socket(address).map_err(|e| text(&e))?;
        let ours = socket.local_addr().map_err(|e| text(&e))?.to_string();
        let all = rank.exchange(ours.as_bytes()).map_err(|e| text(&e))?;
        let theirs = all.get(1 - rank.index().min(1)).map(|bytes| String::from_utf8_lossy(bytes));
        let to = theirs.as_deref().unwrap_or_default().parse().map_err(|e| text(&e))?;
        Ok(Self { socket, to })
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Stopped> {
        self.socket.send_to(bytes, self.to).map(drop).map_err(|e| format!("datagram: {e}"))
    }

    fn receive(&self, buffer: &mut [u8], spin: Spin) -> Result<(), Stopped> {
        let look = || match self.socket.recv_from(buffer) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            other => Some(other.map(drop)),
        };
        spin.until(look, || Ok(()))?.map_err(|e| format!("datagram: {e}"))
    }

    /// Half of the median round trip over batches. `[batches, round trips per batch]`.
    pub fn trips(
        &self,
        clock: &Clock,
        spin: Spin,
        bytes: usize,
        [batches, trips]: [u64; 2],
    ) -> Result<Timings, Stopped> {
        let (out, mut buffer) = ([0x5a; TRIP_BYTES], [0; TRIP_BYTES]);
        let bytes = bytes.min(TRIP_BYTES);
        half_round_trip(clock, [batches, trips], |count| {
            for _ in 0..count {
                self.send(&out[..bytes])?;
                self.receive(&mut buffer, spin)?;
            }
            Ok(())
        })
    }

    /// The other end of [`DatagramPair::trips`].
    pub fn answer(&self, spin: Spin, bytes: usize, count: u64) -> Result<Timings, Stopped> {
        let mut buffer = [0; TRIP_BYTES];
        for _ in 0..count {
            self.receive(&mut buffer, spin)?;
            self.send(&buffer[..bytes.min(TRIP_BYTES)])?;
        }
        Ok(Timings::default())
    }

    /// Sends `bytes` as fast as the kernel accepts them.
    pub fn flood(&self, spin: Spin, bytes: u64) -> Result<Timings, Stopped> {
        let mut batch = Batch::default();
        let mut left = bytes.div_ceil(DATAGRAM_BYTES as u64);
        while left > 0 {
            let look = || match batch.send(&self.socket, self.to) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => None,
                other => Some(other),
            };
            let sent = spin.until(look, || Ok(()))?;
            left = left.saturating_sub(sent.map_err(|e| format!("sendmmsg: {e}"))? as u64);
        }
        Ok(Timings::default())
    }

    /// Receives until no datagram arrives for [`SILENCE`]. The result is the time for
    /// `message_bytes`, from the median over pieces of a MiB.
    pub fn drain(
        &self,
        clock: &Clock,
        spin: Spin,
        message_bytes: usize,
    ) -> Result<Timings, Stopped> {
        let mut batch = Batch::default();
        let take = |batch: &mut Batch| match batch.receive(&self.socket) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some).map_err(|e| format!("recvmmsg: {e}")),
        };
        spin.until(|| take(&mut batch).transpose(), || Ok(()))??;
        let (mut since, mut bytes, mut received_at) = (clock.now(), 0, Instant::now());
        let mut ns_per_byte = Vec::new();
        loop {
            let Some(got) = take(&mut batch)? else {
                if received_at.elapsed() > SILENCE {
                    break;
                }
                spin.pause();
                continue;
            };
            received_at = Instant::now();
            bytes += got;
            if bytes >= TIMED_BYTES {
                let now = clock.now();
                ns_per_byte.push(clock.ns_between(since, now) / bytes as f64);
                (since, bytes) = (now, 0);
            }
        }
        if ns_per_byte.is_empty() {
            return Err("sendmmsg: too few datagrams arrived".to_owned());
        }
        stats::sort(&mut ns_per_byte);
        let message_ns = Some(stats::median(&ns_per_byte) * message_bytes as f64);
        Ok(Timings { message_ns, ..Timings::default() })
    }
}
