//! How many packets a reliable connection to another host may have in flight: TCP's congestion
//! window (RFC 5681), counted in packets. It grows while packets are acknowledged, and halves when
//! the engine repeats packets because some were lost, once for all losses of one window. What it
//! bounds most is what waits in the receiver's socket buffer: a sender does not know how long the
//! kernel lets that be. Responses to READs count as packets, too.

use std::sync::atomic::{AtomicU32, Ordering};

use rdmalab_engine::qp::Qp;
use rdmalab_engine::vocab::{QpState, QpType};
use rdmalab_wire::ids::Psn;

/// The window of a new connection. Twice as many packets of 1 KiB, one by one, would still fit into
/// the receive buffer that a process without rights gets (425 984 bytes).
pub(crate) const FIRST_WINDOW_PACKETS: u32 = 128;
/// The least window, after a time-out.
const LEAST_WINDOW_PACKETS: u32 = 16;
/// The largest window of a connection, and of all of a process together, as far as each has the
/// first window. `ib_write_bw` between two namespaces gains nothing from more; with 4 queue pairs
/// of 512 packets each it loses 9 %.
const LARGEST_WINDOW_PACKETS: u32 = 512;
/// Bytes of the largest window, unless the first one is longer.
const LARGEST_WINDOW_BYTES: u32 = 512 << 10;

/// Connections of this process to other hosts.
static CONNECTIONS: AtomicU32 = AtomicU32::new(0);

/// One of [`CONNECTIONS`], which counts until it is dropped.
#[derive(Debug)]
struct Connection;

impl Connection {
    fn new() -> Connection {
        CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        Connection
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The window of one connection.
#[derive(Debug)]
pub(crate) struct CongestionWindow {
    /// Held to be counted.
    _connection: Option<Connection>,
    packets: u32,
    /// Below this the window grows by each acknowledged packet (slow start), and from it on by one
    /// for each window of them.
    threshold_packets: u32,
    /// Acknowledged packets that have not made the window grow yet.
    credit_packets: u32,
    /// What the engine said when this was last updated.
    seen: Option<Seen>,
    /// How often the engine had repeated lost packets then.
    losses: u32,
    /// The first PSN after those that were in flight when the window was halved. Losses before it
    /// do not halve the window again.
    recovered_at: Option<Psn>,
}

/// What the engine says of a connection.
#[derive(Clone, Copy, Debug)]
struct Seen {
    acknowledged: Psn,
    /// The first PSN that was never sent.
    next_new: Psn,
}

impl Default for CongestionWindow {
    fn default() -> CongestionWindow {
        CongestionWindow {
            _connection: None,
            packets: FIRST_WINDOW_PACKETS,
            threshold_packets: LARGEST_WINDOW_PACKETS,
            credit_packets: 0,
            seen: None,
            losses: 0,
            recovered_at: None,
        }
    }
}

impl CongestionWindow {
    /// Begins again, because the connection has another address now, which may be on this host.
    pub(crate) fn restart(&mut self, qp: &Qp, is_remote: bool) {
        let _connection = is_remote.then(Connection::new);
        *self =
            CongestionWindow { _connection, losses: qp.losses(), ..CongestionWindow::default() };
    }

    /// Called after a packet of the connection arrived.
    pub(crate) fn on_arrival(&mut self, qp: &mut Qp) {
        // Before RTS the engine has no PSNs to send.
        if qp.qp_type == QpType::Rc && matches!(qp.state, QpState::Rts | QpState::Sqd) {
            let now = Seen { acknowledged: qp.acknowledged_psn(), next_new: qp.next_new_psn() };
            self.note(now, qp.losses());
            let share = LARGEST_WINDOW_PACKETS / CONNECTIONS.load(Ordering::Relaxed).max(1);
            let most = share.min(LARGEST_WINDOW_BYTES / qp.mtu.bytes()).max(FIRST_WINDOW_PACKETS);
            self.packets = self.packets.min(most);
            qp.window_packets = self.packets;
        }
    }

    /// Called after a timer expired, before anything is sent again.
    pub(crate) fn on_timer(&mut self, qp: &mut Qp) {
        if qp.losses() != self.losses {
            self.losses = qp.losses();
            self.halve(qp.next_new_psn());
            self.packets = LEAST_WINDOW_PACKETS;
            qp.window_packets = self.packets;
        }
    }

    fn note(&mut self, now: Seen, losses: u32) {
        let before = self.seen.replace(now).unwrap_or(now);
        let acknowledged = now.acknowledged.distance_from(before.acknowledged).max(0) as u32;
        let in_flight = before.next_new.distance_from(before.acknowledged).max(0) as u32;
        if self.recovered_at.is_some_and(|psn| !now.acknowledged.is_before(psn)) {
            self.recovered_at = None;
        }
        if losses != self.losses {
            self.losses = losses;
            if self.recovered_at.is_none() {
                self.halve(now.next_new);
            }
        } else if in_flight >= self.packets / 2 {
            // A window that is not used says nothing about a larger one (RFC 7661).
            self.grow(acknowledged);
        }
    }

    fn halve(&mut self, next_new: Psn) {
        self.threshold_packets = (self.packets / 2).max(LEAST_WINDOW_PACKETS);
        (self.packets, self.credit_packets) = (self.threshold_packets, 0);
        self.recovered_at = Some(next_new);
    }

    fn grow(&mut self, acknowledged: u32) {
        if self.packets < self.threshold_packets {
            self.packets = (self.packets + acknowledged).min(self.threshold_packets);
            return;
        }
        self.credit_packets += acknowledged;
        if self.credit_packets >= self.packets {
            self.credit_packets -= self.packets;
            self.packets = (self.packets + 1).min(LARGEST_WINDOW_PACKETS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that has always as many packets in flight as its window allows.
    struct Busy {
        window: CongestionWindow,
        now: Seen,
    }

    impl Busy {
        fn new() -> Busy {
            let psn = Psn::new(0xff_fff0);
            let now = Seen { acknowledged: psn, next_new: psn.add(FIRST_WINDOW_PACKETS) };
            let mut busy = Busy { window: CongestionWindow::default(), now };
            busy.window.note(now, 0);
            busy
        }

        /// Acknowledges so many packets, and sends new ones. Returns the window.
        fn acknowledge(&mut self, packets: u32) -> u32 {
            self.now.acknowledged = self.now.acknowledged.add(packets);
            self.window.note(self.now, self.window.losses);
            self.send();
            self.window.packets
        }

        fn acknowledge_windows(&mut self, count: u32) -> Vec<u32> {
            (0..count).map(|_| self.acknowledge(self.window.packets)).collect()
        }

        fn send(&mut self) {
            let limit = self.now.acknowledged.add(self.window.packets);
            if self.now.next_new.is_before(limit) {
                self.now.next_new = limit;
            }
            self.window.note(self.now, self.window.losses);
        }

        fn lose(&mut self) -> u32 {
            self.window.note(self.now, self.window.losses + 1);
            self.window.packets
        }
    }

    #[test]
    fn it_doubles_up_to_the_largest_and_halves_at_a_loss() {
        let mut busy = Busy::new();
        assert_eq!(busy.window.packets, FIRST_WINDOW_PACKETS, "nothing was acknowledged yet");
        assert_eq!(busy.acknowledge_windows(3), [256, 512, 512]);
        assert_eq!(busy.lose(), 256);
        assert_eq!([busy.lose(), busy.lose()], [256, 256], "losses of the same window");
        // What was in flight is acknowledged.
        busy.acknowledge(512);
        let before = busy.window.packets;
        let after = busy.acknowledge_windows(3);
        assert_eq!(after, [before + 1, before + 2, before + 3], "one per window");
        for _ in 0..20 {
            busy.lose();
            busy.acknowledge(512);
        }
        assert!(busy.window.packets < LEAST_WINDOW_PACKETS + 40, "{:?}", busy.window);
        busy.acknowledge_windows(1000);
        assert_eq!(busy.window.packets, LARGEST_WINDOW_PACKETS);
    }

    #[test]
    fn part_of_a_window_is_not_forgotten() {
        let mut busy = Busy::new();
        assert_eq!(busy.lose(), 64);
        assert_eq!([60, 3, 1].map(|packets| busy.acknowledge(packets)), [64, 64, 65]);
    }

    #[test]
    fn it_does_not_grow_without_being_used() {
        let mut window = CongestionWindow::default();
        let mut psn = Psn::new(7);
        for _ in 0..1000 {
            window.note(Seen { acknowledged: psn, next_new: psn.add(1) }, 0);
            psn = psn.add(1);
        }
        assert_eq!(window.packets, FIRST_WINDOW_PACKETS);
    }
}
