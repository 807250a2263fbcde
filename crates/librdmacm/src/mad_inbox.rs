//! The frames that other processes of this host send to this one, in the order of sending.
//!
//! A process has several sockets: one for its slot, and one for each of its services. Two sockets
//! have no common order, but programs rely on one: a client that first establishes a connection and
//! then asks for another one is a client with two connections, and not one in reverse. The kernel's
//! connection manager receives all datagrams by one queue pair and handles them in one ordered work
//! queue. So frames carry the time of sending, and [`in_order`] restores the order.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rdmalab_ring::mad_socket::{self, MadFrame, Received};

/// The connections of other processes, and their frames.
#[derive(Default)]
pub struct MadInbox {
    pub accepted: Vec<OwnedFd>,
    /// Frames that must wait for the next call of [`MadInbox::receive`].
    waiting: Vec<MadFrame>,
    /// `accept` failed for want of a descriptor. The listening sockets stay readable, so polling
    /// them would spin.
    pub is_out_of_fds: bool,
}

impl MadInbox {
    /// The frames that have come to these listening sockets, in the order of sending.
    pub fn receive(&mut self, listening: &[&OwnedFd]) -> Vec<MadFrame> {
        let waiting = std::mem::take(&mut self.waiting);
        let (frames, waiting) = in_order(waiting, || self.drain(listening));
        self.waiting = waiting;
        frames
    }

    /// Whether [`MadInbox::receive`] has frames although no socket is readable.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads all sockets once until they are empty.
    fn drain(&mut self, listening: &[&OwnedFd]) -> Vec<MadFrame> {
        self.is_out_of_fds = false;
        for socket in listening {
            loop {
                match mad_socket::accept(socket.as_fd()) {
                    Ok(Some(fd)) => self.accepted.push(fd),
                    Ok(None) => break,
                    // The kernel allocates a descriptor before it looks for a connection, so the
                    // error alone does not mean that a connection waits.
                    Err(_) => {
                        self.is_out_of_fds |= is_readable(socket);
                        break;
                    }
                }
            }
        }
        let mut frames = Vec::new();
        self.accepted.retain(|fd| {
            loop {
                match mad_socket::receive(fd.as_fd()) {
                    Received::Frame(frame) => frames.push(*frame),
                    Received::Invalid => {}
                    Received::Empty => return true,
                    Received::Closed => return false,
                }
            }
        });
        frames
    }
}

/// The frames of `waiting` and of a drain of all sockets, in the order of sending, and those that
/// must wait for the next call.
///
/// A drain reads one socket after the other. It may miss a frame in the first socket and find a
/// later one of the same sender in the second. But when the drain ends, all frames that were sent
/// before any that it found are in the sockets. A second drain finds them. It also finds frames
/// that were sent later still, for which the same holds: these wait.
fn in_order(
    waiting: Vec<MadFrame>,
    mut drain: impl FnMut() -> Vec<MadFrame>,
) -> (Vec<MadFrame>, Vec<MadFrame>) {
    let mut frames = waiting;
    frames.extend(drain());
    let Some(last_ns) = frames.iter().map(|frame| frame.sent_ns).max() else {
        return Default::default();
    };
    let (missed, later): (Vec<_>, Vec<_>) =
        drain().into_iter().partition(|frame| frame.sent_ns <= last_ns);
    frames.extend(missed);
    frames.sort_by_key(|frame| frame.sent_ns);
    (frames, later)
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rdmalab_ring::mad_socket::MAD_BYTES;

    use super::*;

    const SENDERS: u64 = 3;
    const SOCKETS: usize = 4;
    const FRAMES: usize = 50;
    const SEEDS: u64 = 500;

    /// Senders that send to any socket, also between the reads of a drain.
    struct World {
        random: rdmalab_random::Random,
        sockets: [VecDeque<MadFrame>; SOCKETS],
        now_ns: u64,
        sent: usize,
    }

    impl World {
        fn send_some(&mut self) {
            while self.sent < FRAMES && self.random.below(3) > 0 {
                self.now_ns += 1 + self.random.below(3);
                let slot = 1 + self.random.below(SENDERS) as u16;
                let socket = self.random.below(SOCKETS as u64) as usize;
                let frame = MadFrame { slot, sent_ns: self.now_ns, mad: [0; MAD_BYTES] };
                self.sockets[socket].push_back(frame);
                self.sent += 1;
            }
        }

        fn drain(&mut self) -> Vec<MadFrame> {
            let mut frames = Vec::new();
            for socket in 0..SOCKETS {
                self.send_some();
                frames.extend(self.sockets[socket].drain(..));
            }
            frames
        }
    }

    #[test]
    fn frames_of_several_sockets_come_in_the_order_of_sending() {
        for seed in 0..SEEDS {
            let random = rdmalab_random::Random::new(seed);
            let mut world = World { random, sockets: Default::default(), now_ns: 1, sent: 0 };
            let (mut received, mut waiting) = (Vec::new(), Vec::new());
            while received.len() < FRAMES {
                let (frames, later) = in_order(waiting, || world.drain());
                received.extend(frames);
                waiting = later;
            }
            assert!(received.is_sorted_by_key(|frame| frame.sent_ns), "seed {seed}");
        }
    }
}
