//! How many packets a reliable connection to another host may have in flight: TCP's congestion
//! window (RFC 5681), counted in packets. It grows while packets are acknowledged, and halves when
//! the engine repeats packets because some were lost. What it bounds most is the receiver's socket
//! buffer: a sender does not know how long the kernel lets it be.

use rdmalab_engine::qp::Qp;
use rdmalab_engine::vocab::QpType;
use rdmalab_wire::ids::Psn;

/// The window of a new connection. Twice as many packets would still fit into the receive buffer
/// that a process without rights gets (425 984 bytes, packets of 1 KiB one by one).
pub(crate) const FIRST_WINDOW_PACKETS: u32 = 128;
/// The least window: the kernel cuts one run of up to 64 packets.
const LEAST_WINDOW_PACKETS: u32 = 16;
/// The largest window. `ib_write_bw` between two namespaces gains nothing from more.
const LARGEST_WINDOW_PACKETS: u32 = 512;

/// The window of one connection.
#[derive(Debug)]
pub(crate) struct CongestionWindow {
    packets: u32,
    /// Below this the window grows by each acknowledged packet (slow start), and from it on by one
    /// for each window of them.
    threshold_packets: u32,
    /// Acknowledged packets that have not made the window grow yet.
    credit_packets: u32,
    /// The first PSN that was not acknowledged when this was last updated.
    acknowledged: Option<Psn>,
    /// How often the engine had repeated lost packets then.
    losses: u32,
}

impl Default for CongestionWindow {
    fn default() -> CongestionWindow {
        CongestionWindow {
            packets: FIRST_WINDOW_PACKETS,
            threshold_packets: LARGEST_WINDOW_PACKETS,
            credit_packets: 0,
            acknowledged: None,
            losses: 0,
        }
    }
}

impl CongestionWindow {
    /// Called after a packet of the connection arrived.
    pub(crate) fn update(&mut self, qp: &mut Qp) {
        if qp.qp_type == QpType::Rc {
            self.note(qp.acknowledged_psn(), qp.losses());
            qp.window_packets = self.packets;
        }
    }

    fn note(&mut self, acknowledged: Psn, losses: u32) {
        let before = self.acknowledged.replace(acknowledged).unwrap_or(acknowledged);
        let packets = acknowledged.distance_from(before).max(0) as u32;
        if losses != self.losses {
            self.losses = losses;
            self.threshold_packets = (self.packets / 2).max(LEAST_WINDOW_PACKETS);
            (self.packets, self.credit_packets) = (self.threshold_packets, 0);
        } else if self.packets < self.threshold_packets {
            self.packets = (self.packets + packets).min(self.threshold_packets);
        } else {
            self.credit_packets += packets;
            self.packets += self.credit_packets / self.packets;
            self.credit_packets %= self.packets;
        }
        self.packets = self.packets.min(LARGEST_WINDOW_PACKETS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges `packets` in windows; returns the window after each.
    fn acknowledge(window: &mut CongestionWindow, psn: &mut Psn, rounds: u32) -> Vec<u32> {
        let mut after = Vec::new();
        for _ in 0..rounds {
            *psn = psn.add(window.packets);
            window.note(*psn, window.losses);
            after.push(window.packets);
        }
        after
    }

    #[test]
    fn it_doubles_up_to_the_largest_and_halves_at_a_loss() {
        let (mut window, mut psn) = (CongestionWindow::default(), Psn::new(0xff_fff0));
        window.note(psn, 0);
        assert_eq!(window.packets, FIRST_WINDOW_PACKETS, "nothing was acknowledged yet");
        assert_eq!(acknowledge(&mut window, &mut psn, 3), [256, 512, 512]);
        window.note(psn, 1);
        assert_eq!(window.packets, 256);
        assert_eq!(acknowledge(&mut window, &mut psn, 3), [257, 258, 259], "one per window");
        for losses in 2..20 {
            window.note(psn, losses);
        }
        assert_eq!(window.packets, LEAST_WINDOW_PACKETS);
        assert_eq!(acknowledge(&mut window, &mut psn, 2), [17, 18]);
        acknowledge(&mut window, &mut psn, 1000);
        assert_eq!(window.packets, LARGEST_WINDOW_PACKETS);
    }

    #[test]
    fn part_of_a_window_is_not_forgotten() {
        let (mut window, mut psn) = (CongestionWindow::default(), Psn::new(5));
        window.note(psn, 1);
        assert_eq!(window.packets, 64);
        for packets in [60, 3, 1] {
            psn = psn.add(packets);
            window.note(psn, 1);
        }
        assert_eq!(window.packets, 65);
    }
}
