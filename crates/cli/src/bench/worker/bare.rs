//! The network without RDMA, between the same two processes on the same path.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rdmalab_measure::limits::datagrams::{self, Batch, DATAGRAM_BYTES};
use rdmalab_measure::{Clock, stats};
use rdmalab_rank::Rank;
use rdmalab_verbs::Context;

use super::patience::{Patience, Stopped};
use super::trips::half_trips;
use crate::bench::work::Found;

/// The port of the device.
const PORT: u8 = 1;
/// Nothing came for so long: the flood is over, and what is missing was lost.
const SILENCE: Duration = Duration::from_millis(30);
/// Bytes that are timed together.
const TIMED_BYTES: usize = 1 << 20;
/// The longest message of a round trip, bytes.
const TRIP_BYTES: usize = 8192;

/// Two sockets that know each other.
pub struct Bare {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Bare {
    /// A socket on the address behind the device's GID, and where the other rank has its own.
    pub fn meet<R: Rank>(rank: &R, context: &Context, gid_index: u8) -> Result<Self, Stopped> {
        let text = |e: &dyn std::fmt::Display| format!("bare datagrams: {e}");
        let gid = context.query_gid(PORT, gid_index.into()).map_err(|e| text(&e))?;
        let address = IpAddr::V6(gid).to_canonical();
        let socket = datagrams::socket(address).map_err(|e| text(&e))?;
        let ours = socket.local_addr().map_err(|e| text(&e))?.to_string();
        let all = rank.exchange(ours.as_bytes()).map_err(|e| text(&e))?;
        let theirs = all.get(1 - rank.index().min(1)).map(|bytes| String::from_utf8_lossy(bytes));
        let to = theirs.as_deref().unwrap_or_default().parse().map_err(|e| text(&e))?;
        Ok(Self { socket, to })
    }

    fn say(&self, bytes: &[u8]) -> Result<(), Stopped> {
        self.socket.send_to(bytes, self.to).map(drop).map_err(|e| format!("bare datagram: {e}"))
    }

    fn hear(&self, buffer: &mut [u8], patience: Patience) -> Result<(), Stopped> {
        let look = || match self.socket.recv_from(buffer) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            other => Some(other.map(drop)),
        };
        patience.until(look, || Ok(()))?.map_err(|e| format!("bare datagram: {e}"))
    }

    /// Round trips in batches; half of the median one. `[batches, trips of a batch]`.
    pub fn trips(
        &self,
        clock: &Clock,
        patience: Patience,
        bytes: usize,
        [batches, trips]: [u64; 2],
    ) -> Result<Found, Stopped> {
        let (out, mut buffer) = ([0x5a; TRIP_BYTES], [0; TRIP_BYTES]);
        let bytes = bytes.min(TRIP_BYTES);
        half_trips(clock, [batches, trips], |count| {
            for _ in 0..count {
                self.say(&out[..bytes])?;
                self.hear(&mut buffer, patience)?;
            }
            Ok(())
        })
    }

    /// The other end of [`Bare::trips`].
    pub fn answer(&self, patience: Patience, bytes: usize, count: u64) -> Result<Found, Stopped> {
        let mut buffer = [0; TRIP_BYTES];
        for _ in 0..count {
            self.hear(&mut buffer, patience)?;
            self.say(&buffer[..bytes.min(TRIP_BYTES)])?;
        }
        Ok(Found::default())
    }

    /// Sends so many bytes, as fast as the kernel takes them.
    pub fn flood(&self, patience: Patience, bytes: u64) -> Result<Found, Stopped> {
        let mut batch = Batch::default();
        let mut left = bytes.div_ceil(DATAGRAM_BYTES as u64);
        while left > 0 {
            let look = || match batch.send(&self.socket, self.to) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => None,
                other => Some(other),
            };
            let sent = patience.until(look, || Ok(()))?;
            left = left.saturating_sub(sent.map_err(|e| format!("bare sendmmsg: {e}"))? as u64);
        }
        Ok(Found::default())
    }

    /// Takes what comes until nothing does. Found is the time of `message_bytes`, the median over
    /// pieces of a MiB.
    pub fn drain(
        &self,
        clock: &Clock,
        patience: Patience,
        message_bytes: usize,
    ) -> Result<Found, Stopped> {
        let mut batch = Batch::default();
        let take = |batch: &mut Batch| match batch.receive(&self.socket) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some).map_err(|e| format!("bare recvmmsg: {e}")),
        };
        patience.until(|| take(&mut batch).transpose(), || Ok(()))??;
        let (mut since, mut bytes, mut heard) = (clock.now(), 0, Instant::now());
        let mut ns_per_byte = Vec::new();
        loop {
            let Some(got) = take(&mut batch)? else {
                if heard.elapsed() > SILENCE {
                    break;
                }
                patience.rest();
                continue;
            };
            heard = Instant::now();
            bytes += got;
            if bytes >= TIMED_BYTES {
                let now = clock.now();
                ns_per_byte.push(clock.ns_between(since, now) / bytes as f64);
                (since, bytes) = (now, 0);
            }
        }
        if ns_per_byte.is_empty() {
            return Err("bare sendmmsg: hardly a datagram arrived".to_owned());
        }
        stats::sort(&mut ns_per_byte);
        let message_ns = Some(stats::median(&ns_per_byte) * message_bytes as f64);
        Ok(Found { message_ns, ..Found::default() })
    }
}
