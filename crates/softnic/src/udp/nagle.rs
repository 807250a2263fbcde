//! Nagle's algorithm (RFC 896) for requests: which requests wait for more of them.
//!
//! The kernel takes up to 64 packets of one length in a system call (`UDP_SEGMENT`), and the call
//! costs more than all their headers. A program that posts small requests one by one would pay it
//! for each. So while an acknowledgement is due, SENDs and WRITEs of one packet wait until they
//! fill a run. They leave earlier when packets have come and half as many requests wait as are in
//! flight. If each acknowledgement let them go, single requests would get single acknowledgements,
//! and stay single.
//!
//! A few polls that find the network empty let them go, so requests wait only if the program has
//! polled lately. They also leave when the queue pair changes, when a caller sleeps inside a verb,
//! and when the process exits. A request that finds hardly any packets in flight, as in a
//! ping-pong, leaves at once. If none of this happens, the progress thread sends them in the second
//! round in which it finds them, or before it sleeps, and the queue pair's requests leave at once
//! for a while. If the program is killed before, they are lost, as if it had been killed before it
//! posted them.

use rdmalab_engine::qp::Qp;

use super::send_batch::RUN_BYTES;
use super::socket::SEGMENTS_MAX;

/// With fewer packets in flight, a request leaves at once.
const IN_FLIGHT_MIN: u32 = 4;
/// After so many polls that found the network empty the requests leave.
const EMPTY_POLLS: u32 = 4;
/// The requests of so many posts leave at once after the program has not polled while some waited.
const PAUSE_POSTS: u32 = 64;
/// A program that posts so often without a poll is taken for one that does not poll.
const POSTS_PER_POLL: u32 = 256;

/// What lies in a send queue.
pub(crate) struct Queue {
    /// Requests that were not sent yet.
    waiting: u32,
    /// Packets in flight, if an acknowledgement is due.
    in_flight: u32,
    /// Payload of the last request.
    last_bytes: u32,
    /// Positions of the first and after the last request that was not sent yet.
    positions: (u32, u32),
}

impl Queue {
    pub(crate) fn of(qp: &Qp) -> Queue {
        let (waiting, next) = (qp.waiting_requests(), qp.next_request());
        Queue {
            waiting,
            in_flight: qp.packets_to_be_acknowledged(),
            last_bytes: qp.last_request_bytes(),
            positions: (next, next.wrapping_add(waiting)),
        }
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Nagle {
    /// Requests wait now.
    waits: bool,
    /// While requests wait: the position after the last of them.
    small_until: u32,
    /// Polls that found the network empty since the last post.
    empty_polls: u32,
    /// The progress thread has seen the requests wait, and no packet came and no poll since then.
    is_seen: bool,
    /// The requests of how many more posts leave at once.
    pause_posts: u32,
    /// How often callers had made progress at the last post, and the posts since that changed.
    calls: u64,
    posts_since_call: u32,
}

impl Nagle {
    /// While requests wait: the position up to which all are small.
    pub(crate) fn small_until(&self) -> Option<u32> {
        self.waits.then_some(self.small_until)
    }

    /// Whether the requests, to which a post added, should wait; `calls` is how often callers have
    /// made progress.
    pub(crate) fn on_post(&mut self, queue: &Queue, calls: u64) -> bool {
        self.posts_since_call = if calls == self.calls { self.posts_since_call + 1 } else { 0 };
        self.calls = calls;
        self.empty_polls = 0;
        if self.pause_posts > 0 {
            self.pause_posts -= 1;
            return false;
        }
        let run = SEGMENTS_MAX.min(RUN_BYTES as u32 / queue.last_bytes.max(1));
        let should_wait = queue.in_flight >= IN_FLIGHT_MIN
            && queue.waiting < run
            && self.posts_since_call < POSTS_PER_POLL;
        if should_wait && !self.waits {
            self.is_seen = false;
        }
        self.waits = should_wait;
        self.small_until = queue.positions.1;
        self.waits
    }

    /// Whether the requests still wait, after packets have come.
    pub(crate) fn on_arrival(&mut self, queue: &Queue) -> bool {
        self.is_seen = false;
        self.waits &= 2 * queue.waiting < queue.in_flight;
        self.waits
    }

    /// Whether the requests still wait, after a poll found the network empty.
    pub(crate) fn on_empty_poll(&mut self) -> bool {
        self.is_seen = false;
        self.empty_polls += 1;
        self.waits &= self.empty_polls < EMPTY_POLLS;
        self.waits
    }

    /// Whether the requests still wait, in a round of the progress thread.
    pub(crate) fn on_round(&mut self) -> bool {
        self.waits && !std::mem::replace(&mut self.is_seen, true)
    }

    /// The requests are sent whatever is in flight.
    pub(crate) fn stop(&mut self) {
        self.waits = false;
    }

    /// The progress thread has to send requests that waited, because the program does not poll.
    pub(crate) fn on_late(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.pause_posts = PAUSE_POSTS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(waiting: u32, in_flight: u32) -> Queue {
        Queue { waiting, in_flight, last_bytes: 64, positions: (0, waiting) }
    }

    #[test]
    fn a_request_waits_only_behind_others_and_never_in_a_full_run() {
        let mut nagle = Nagle::default();
        let mut post = |waiting, in_flight| nagle.on_post(&queue(waiting, in_flight), 1);
        assert!(!post(1, 0), "nothing is in flight");
        assert!(!post(1, IN_FLIGHT_MIN - 1), "a ping-pong");
        assert!(post(1, IN_FLIGHT_MIN));
        assert!(!post(SEGMENTS_MAX, 100), "they fill a run");
        assert!(post(20, 41));
        assert!(!nagle.on_post(&Queue { last_bytes: 4096, ..queue(15, 100) }, 1), "as well");
        assert!(nagle.on_post(&queue(20, 41), 1) && nagle.on_arrival(&queue(20, 41)));
        assert!(!nagle.on_arrival(&queue(20, 40)));
        assert!(!nagle.on_arrival(&queue(20, 41)), "they have left");
    }

    #[test]
    fn polls_that_find_nothing_let_them_go() {
        let mut nagle = Nagle::default();
        assert!(nagle.on_post(&queue(1, 100), 1));
        assert!((1..EMPTY_POLLS).all(|_| nagle.on_empty_poll()));
        assert!(nagle.on_post(&queue(2, 100), 1), "a program that posts between polls is busy");
        assert!((1..EMPTY_POLLS).all(|_| nagle.on_empty_poll()));
        assert!(!nagle.on_empty_poll() && !nagle.on_arrival(&queue(2, 100)));
    }

    #[test]
    fn a_program_that_does_not_poll_is_not_kept_waiting() {
        let mut nagle = Nagle::default();
        let posts = (0..2 * POSTS_PER_POLL).filter(|_| nagle.on_post(&queue(1, 100), 0));
        assert_eq!(posts.count() as u32, POSTS_PER_POLL - 1);
        assert!(nagle.on_post(&queue(1, 100), 1));
        nagle.stop();
        nagle.on_late();
        assert!(nagle.on_post(&queue(1, 100), 2), "nothing waited");
        assert!(nagle.on_round() && nagle.on_empty_poll());
        assert!(nagle.on_round() && nagle.on_post(&queue(2, 100), 2));
        assert!(!nagle.on_round(), "the second round: a post is no progress");
        nagle.on_late();
        assert!((0..PAUSE_POSTS).all(|_| !nagle.on_post(&queue(1, 100), 2)));
        assert!(nagle.on_post(&queue(1, 100), 2));
    }
}
