//! A chain of quirks, which are called one after the other.

use rdmalab_engine::qp::TimerKind;
use rdmalab_wire::ids::Qpn;

use super::{Answer, Completion, Fate, Moment, Quirk, Reception, Reply};
use crate::bounded::BoundedMap;
use crate::draws::Draws;
use crate::packet::{Flow, PacketInfo};
use crate::transmissions::Transmissions;

/// Labels of a chain, at most: each is a bit of [`Fate::met`].
pub const MAX_LABELS: usize = 64;

struct Link {
    quirk: Box<dyn Quirk>,
    first_label: u32,
}

/// Calls its quirks in order, and counts the packets that each label applied to.
pub struct Chain {
    links: Vec<Link>,
    draws: Draws,
    /// Time when the chain was armed, ns.
    start_ns: u64,
    labels: Vec<String>,
    /// Number of packets that each label applied to.
    met: Vec<u64>,
    watches_arrivals: bool,
    watches_completions: bool,
    sent: BoundedMap<Flow, Transmissions>,
    arrived: BoundedMap<Flow, Transmissions>,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.labels).finish()
    }
}

impl Chain {
    /// A chain that is armed at `start_ns`. Its quirks have [`MAX_LABELS`] labels together at most,
    /// because each label is a bit of [`Fate::met`].
    pub fn new(draws: Draws, start_ns: u64, quirks: Vec<Box<dyn Quirk>>) -> Chain {
        let (mut links, mut labels) = (Vec::new(), Vec::new());
        for quirk in quirks {
            links.push(Link { first_label: labels.len() as u32, quirk });
            labels.extend(links.last().map_or_else(Vec::new, |link| link.quirk.labels()));
        }
        assert!(labels.len() <= MAX_LABELS, "{} labels", labels.len());
        let watches_arrivals = links.iter().any(|link| link.quirk.watches_arrivals());
        let watches_completions = links.iter().any(|link| link.quirk.watches_completions());
        let met = vec![0; labels.len()];
        let (sent, arrived) = Default::default();
        Chain {
            links,
            draws,
            start_ns,
            labels,
            met,
            watches_arrivals,
            watches_completions,
            sent,
            arrived,
        }
    }

    /// The labels of all quirks.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Number of packets that each label applied to so far.
    pub fn met(&self) -> &[u64] {
        &self.met
    }

    /// Whether a quirk needs [`Chain::packet_arrived`].
    pub fn watches_arrivals(&self) -> bool {
        self.watches_arrivals
    }

    /// Whether a quirk needs [`Chain::message_completed`].
    pub fn watches_completions(&self) -> bool {
        self.watches_completions
    }

    /// Calls the quirks in order, until `ask` returns `true`: then the rest is not called.
    fn ask(&mut self, now_ns: u64, mut ask: impl FnMut(&mut dyn Quirk, &Moment<'_>) -> bool) {
        let (draws, since_ns) = (&self.draws, now_ns.saturating_sub(self.start_ns));
        for Link { quirk, first_label } in &mut self.links {
            let moment = Moment { now_ns, since_ns, draws, first_label: *first_label };
            if ask(&mut **quirk, &moment) {
                break;
            }
        }
    }

    fn count(&mut self, labels: u64) {
        for (label, met) in self.met.iter_mut().enumerate() {
            *met += labels >> label & 1;
        }
    }

    /// A packet is about to leave. The decisions of the quirks add up. After a quirk dropped the
    /// packet the rest is not called.
    pub fn packet_leaves(&mut self, packet: &PacketInfo, now_ns: u64) -> Fate {
        let counted = packet.transmission;
        let transmission = counted.unwrap_or_else(|| self.sent.entry(packet.flow).next(packet.psn));
        let packet = PacketInfo { transmission: Some(transmission), ..*packet };
        let mut fate = Fate::PASS;
        self.ask(now_ns, |quirk, moment| {
            let next = quirk.packet_leaves(&packet, moment);
            fate = Fate {
                met: fate.met | next.met << moment.first_label,
                lost: next.lost,
                corrupt: fate.corrupt.or(next.corrupt),
                damage: fate.damage.or(next.damage),
                copies: fate.copies + next.copies,
                delay_ns: fate.delay_ns.saturating_add(next.delay_ns),
                behind: fate.behind.max(next.behind),
            };
            fate.lost
        });
        self.count(fate.met);
        fate
    }

    /// A packet has arrived. The first quirk that does not accept it decides.
    pub fn packet_arrived(&mut self, packet: &PacketInfo, now_ns: u64) -> Reception {
        let counted = packet.transmission;
        let transmission =
            counted.unwrap_or_else(|| self.arrived.entry(packet.flow).next(packet.psn));
        let packet = PacketInfo { transmission: Some(transmission), ..*packet };
        let mut decided = Reception::ACCEPT;
        self.ask(now_ns, |quirk, moment| {
            let next = quirk.packet_arrived(&packet, moment);
            let met = decided.met | next.met << moment.first_label;
            decided = Reception { met, ..next };
            decided.reply != Reply::Accept
        });
        self.count(decided.met);
        if decided.reply == Reply::Answer(Answer::RnrNak) && packet.is_in_order() {
            self.links.iter_mut().for_each(|link| link.quirk.rnr_nak_is_given(&packet));
        }
        decided
    }

    /// A timer of a queue pair fired.
    pub fn timer_fired(&mut self, qp: Qpn, kind: TimerKind, now_ns: u64) {
        self.ask(now_ns, |quirk, moment| {
            quirk.timer_fired(qp, kind, moment);
            false
        });
    }

    /// A work request completed.
    pub fn message_completed(&mut self, completion: &Completion, now_ns: u64) {
        self.ask(now_ns, |quirk, moment| {
            quirk.message_completed(completion, moment);
            false
        });
    }

    /// A queue pair was reset or destroyed.
    pub fn queue_pair_reset(&mut self, qp: Qpn) {
        self.arrived.forget(|flow| flow.destination_qp == qp);
        for link in &mut self.links {
            link.quirk.queue_pair_reset(qp);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use rdmalab_engine::vocab::WcStatus;
    use rdmalab_wire::ids::Psn;

    use super::super::Quirk;
    use super::super::tests::{arriving, leaving};
    use super::*;
    use crate::packet::Class;

    /// Reports each call, and drops packets with PSN 13.
    struct Witness(&'static str, Sender<String>);

    impl Witness {
        fn note(&self, what: std::fmt::Arguments<'_>) {
            self.1.send(format!("{} {what}", self.0)).unwrap();
        }
    }

    impl Quirk for Witness {
        fn labels(&self) -> Vec<String> {
            vec![self.0.to_owned()]
        }

        fn watches_arrivals(&self) -> bool {
            true
        }

        fn watches_completions(&self) -> bool {
            true
        }

        fn request_leaves(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Fate {
            let times = packet.transmission.unwrap();
            self.note(format_args!("request {times} at {}", moment.since_ns));
            if packet.psn == Psn::new(13) { Fate::DROP } else { Fate::delay(100) }
        }

        fn response_leaves(&mut self, _packet: &PacketInfo, _moment: &Moment<'_>) -> Fate {
            self.note(format_args!("response"));
            Fate::PASS
        }

        fn packet_arrived(&mut self, packet: &PacketInfo, _moment: &Moment<'_>) -> Reception {
            self.note(format_args!("arrival {}", packet.transmission.unwrap()));
            if packet.psn == Psn::new(13) { Reception::DROP } else { Reception::ACCEPT }
        }

        fn timer_fired(&mut self, qp: Qpn, kind: TimerKind, _moment: &Moment<'_>) {
            self.note(format_args!("timer {} {kind:?}", qp.get()));
        }

        fn message_completed(&mut self, completion: &Completion, _moment: &Moment<'_>) {
            self.note(format_args!("completion {}", completion.wr_id));
        }

        fn queue_pair_reset(&mut self, qp: Qpn) {
            self.note(format_args!("reset {}", qp.get()));
        }
    }

    #[test]
    fn each_quirk_is_asked_at_each_point_until_one_decides() {
        let (said, heard) = channel();
        let quirks: Vec<Box<dyn Quirk>> =
            vec![Box::new(Witness("a", said.clone())), Box::new(Witness("b", said))];
        let mut chain = Chain::new(Draws::new(1), 1_000, quirks);
        let said = |expected: &[&str]| {
            assert_eq!(heard.try_iter().collect::<Vec<_>>(), expected);
        };
        // Delays add up.
        let fate = chain.packet_leaves(&leaving(Class::Send, 5), 1_070);
        assert_eq!(fate, Fate { met: 0b11, delay_ns: 200, ..Fate::PASS });
        said(&["a request 0 at 70", "b request 0 at 70"]);
        assert!(chain.packet_leaves(&leaving(Class::Send, 13), 1_080).lost);
        said(&["a request 0 at 80"]);
        assert_eq!(chain.packet_leaves(&leaving(Class::Ack, 13), 1_080), Fate::PASS);
        said(&["a response", "b response"]);
        assert_eq!(chain.packet_arrived(&arriving(Class::Send, 13), 0).reply, Reply::Drop);
        said(&["a arrival 0"]);
        assert_eq!(chain.packet_arrived(&arriving(Class::Send, 5), 0).reply, Reply::Accept);
        assert_eq!(chain.packet_arrived(&arriving(Class::Send, 5), 0).reply, Reply::Accept);
        said(&["a arrival 0", "b arrival 0", "a arrival 1", "b arrival 1"]);
        chain.timer_fired(Qpn::new(1), TimerKind::Ack, 0);
        said(&["a timer 1 Ack", "b timer 1 Ack"]);
        let (qp, status) = (Qpn::new(1), WcStatus::Success);
        chain.message_completed(&Completion { qp, wr_id: 6, status, is_receive: false }, 0);
        said(&["a completion 6", "b completion 6"]);
        chain.queue_pair_reset(Qpn::new(1));
        said(&["a reset 1", "b reset 1"]);
        assert_eq!(chain.packet_arrived(&arriving(Class::Send, 5), 0).reply, Reply::Accept);
        said(&["a arrival 0", "b arrival 0"]);
        assert_eq!(chain.met(), [3, 1]);
    }
}
