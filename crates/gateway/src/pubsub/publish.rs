//! The writing half of a node that publishes.

use std::time::{Duration, Instant};

use rdmalab_sample::{Form, Format, Handle, Pool, Signal};

use super::peers::{Peer, Peers};
use crate::node::Sink;

/// Time from one look for peers and for what they say to the next.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes that wait for a peer at most, however many samples may. Their list takes up to four times
/// as much memory: it keeps as many bytes that were sent, and doubles when it grows.
pub const PEER_BYTES_MAX: usize = 16 << 20;
/// The longest wait for peers that do not end their connection at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// The writing half.
pub struct Publishing {
    peers: Peers,
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    /// Samples that wait for a peer at most.
    room: usize,
    bytes: Vec<u8>,
    next_look: Instant,
    /// Whether nobody had room for the last sample, so that nobody has got it.
    is_full: bool,
}

impl Publishing {
    /// Publishes samples of these signals. At most `room` samples wait for each peer.
    pub fn new(peers: Peers, format: Box<dyn Format>, signals: &[Signal], room: usize) -> Self {
        Self {
            peers,
            format,
            signals: signals.to_vec(),
            room,
            bytes: Vec::new(),
            next_look: Instant::now(),
            is_full: false,
        }
    }

    /// Looks for peers if that is due, and sends what waits.
    fn look(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + LOOK;
        self.peers.look(Duration::ZERO)?;
        self.peers.hear(|_, _| true);
        Ok(())
    }

    /// The most samples that wait for one peer.
    fn waiting(&self) -> u64 {
        self.peers.all.iter().map(|peer| peer.waiting).max().unwrap_or(0) as u64
    }
}

impl Sink for Publishing {
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        self.look()?;
        self.bytes.clear();
        self.is_full = false;
        let sample = [pool.get(sample)];
        if let Err(why) = self.format.encode(Form::Message, &self.signals, &sample, &mut self.bytes)
        {
            self.peers.tell(why.to_string());
            return Ok(false);
        }
        let (mut taken, mut full) = (0, 0);
        for peer in self.peers.all.iter_mut().filter(|peer| peer.wire.wants(&self.bytes)) {
            if peer.waiting > 0 {
                peer.push();
            }
            if peer.waiting >= self.room || peer.unsent() + self.bytes.len() > PEER_BYTES_MAX {
                full += 1;
            } else {
                peer.send(&self.bytes);
                taken += 1;
            }
        }
        self.is_full = taken == 0 && full > 0;
        // A sample that one of several peers has not got is dropped too.
        Ok(taken > 0 && full == 0)
    }

    fn is_ready(&self) -> bool {
        self.peers.all.iter().any(|peer| peer.wire.is_ready())
    }

    fn may_retry(&self) -> bool {
        self.is_full
    }

    fn is_behind(&self) -> bool {
        self.peers.all.iter().any(|peer| peer.waiting > 0)
    }

    fn flush(&mut self) -> Result<(), String> {
        self.peers.all.iter_mut().for_each(Peer::push);
        self.look()
    }

    fn lost(&self) -> u64 {
        self.waiting()
    }

    fn close(&mut self, limit: Duration) -> Result<u64, String> {
        let until = Instant::now() + limit;
        self.flush()?;
        while self.waiting() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            self.flush()?;
        }
        let lost = self.lost();
        self.peers.finish(until.min(Instant::now() + FAREWELL))?;
        Ok(lost)
    }
}
