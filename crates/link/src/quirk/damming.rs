//! Packet damming: requests that arrive while the responder serves a repeated READ are lost.
//!
//! Named `damming [FROM..TO]`: the responder serves a repeated READ for a random time between those
//! two, and its response leaves at the end of this time. The default is 75 us to 1.5 ms.
//!
//! Fukuoka, Sato and Taura ("Pitfalls of InfiniBand with On-Demand Paging", ISPASS 2021) observed
//! this on ConnectX-4. The rule explains their three cases:
//! - Two READs, the first of which faults. The second is posted while the first waits for its
//!   retransmission. Both leave together. The second arrives while the responder serves the
//!   retransmitted one, and is lost. The requester notices the loss only at the ACK time-out.
//! - Three READs. The third arrives after the service. The second is missing, so the responder
//!   sends a NAK (PSN sequence error), and the requester need not wait for the time-out.
//! - A SEND that is posted after its READ completed. The READ had been retransmitted, the response
//!   to its first transmission arrived, and the responder still serves the retransmission.
//!
//! What the responder saw before passes; otherwise a connection could not recover. It has not seen
//! a request that it lost, so this one is lost again if it is repeated within such a time.
//!
//! [`Service`] is this rule for one queue pair. The simulator's adapters use it with the times of
//! their own parameters, which they draw by themselves.

use rdmalab_engine::qp::Standing;
use rdmalab_wire::ids::{Psn, Qpn};

use super::{Fate, Moment, Quirk, Reception};
use crate::bounded::BoundedMap;
use crate::packet::{Class, PacketInfo};
use crate::units;
use rdmalab_random::scaled;

/// The default time for serving a repeated READ, ns.
const SERVICE_NS: (u64, u64) = (75_000, 1_500_000);

/// What the responder of one queue pair does while it serves a repeated READ. `T` is a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service<T> {
    /// When the service ends. The response to the READ leaves then, at the earliest.
    pub until: T,
    /// The PSN after the requests that the responder has seen without a gap.
    seen_to: Option<Psn>,
    /// The last READ that a fault rule answered with an RNR NAK. The rule stands for a missing
    /// page, after whose arrival the adapter serves the READ.
    answered: Option<Psn>,
}

impl<T: Copy + Ord> Service<T> {
    /// A packet arrives at `now`. Returns whether it is lost. A READ that is served again keeps the
    /// responder busy to `end`, which is asked for in this case only.
    pub fn arrives(&mut self, packet: &PacketInfo, now: T, end: impl FnOnce() -> T) -> bool {
        let Some(standing) = packet.standing else { return false };
        let is_answered = self.answered.take_if(|psn| *psn == packet.psn).is_some();
        if packet.class == Class::Read && (is_answered || standing == Standing::Taken) {
            self.until = self.until.max(end());
        }
        let is_new = standing != Standing::Taken && !packet.psn.is_before(self.seen_to(packet));
        let is_lost = is_new && now < self.until;
        if !is_lost {
            self.sees(packet);
        }
        is_lost
    }

    /// A fault rule answers a request with an RNR NAK, in place of the queue pair.
    pub fn rnr_nak_is_given(&mut self, packet: &PacketInfo) {
        self.sees(packet);
        self.answered = (packet.class == Class::Read).then_some(packet.psn);
    }

    fn seen_to(&self, packet: &PacketInfo) -> Psn {
        match self.seen_to {
            Some(seen_to) if !packet.is_in_order() || packet.psn.is_before(seen_to) => seen_to,
            // Nothing before a request in order is missing.
            _ => packet.psn,
        }
    }

    fn sees(&mut self, packet: &PacketInfo) {
        let (seen_to, end) = (self.seen_to(packet), packet.psn.add(packet.psns));
        if self.seen_to.is_none() && !packet.is_in_order() {
            return;
        }
        let has_gap = seen_to.is_before(packet.psn);
        self.seen_to = Some(if !has_gap && seen_to.is_before(end) { end } else { seen_to });
    }
}

/// The quirk `damming`.
#[derive(Debug)]
pub struct Damming {
    /// The least and the greatest time for serving a repeated READ, ns.
    service_ns: (u64, u64),
    /// For each queue pair the service of a repeated READ, in ns.
    services: BoundedMap<Qpn, Service<u64>>,
}

impl Default for Damming {
    fn default() -> Self {
        Damming::new(SERVICE_NS)
    }
}

impl Damming {
    /// The responder serves a repeated READ for a time between these two, ns.
    pub fn new(service_ns: (u64, u64)) -> Damming {
        Damming { service_ns, services: BoundedMap::default() }
    }

    /// Parses the words after the name in a specification.
    ///
    /// # Errors
    /// A message that says what is allowed.
    pub(crate) fn parse(words: &[&str]) -> Result<Box<dyn Quirk>, String> {
        let wrong =
            || "damming takes at most one time range, as in damming 75us..1500us".to_owned();
        let times = match words {
            [] => SERVICE_NS,
            [range] => units::window(range)?,
            _ => return Err(wrong()),
        };
        if times.1 > units::MAX_DELAY_NS {
            return Err(wrong());
        }
        Ok(Box::new(Damming::new(times)))
    }
}

impl Quirk for Damming {
    fn labels(&self) -> Vec<String> {
        let (least, most) = self.service_ns;
        vec![format!("damming {}us..{}us", least as f64 / 1e3, most as f64 / 1e3)]
    }

    fn watches_arrivals(&self) -> bool {
        true
    }

    fn packet_arrived(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Reception {
        if packet.standing.is_none() {
            return Reception::ACCEPT;
        }
        let (least, most) = self.service_ns;
        let service = self.services.entry(packet.local_qp);
        let is_lost = service.arrives(packet, moment.now_ns, || {
            let more = scaled(moment.draw(0, packet), most - least);
            moment.now_ns.saturating_add(least + more)
        });
        if is_lost { Reception::DROP } else { Reception::ACCEPT }
    }

    fn rnr_nak_is_given(&mut self, packet: &PacketInfo) {
        self.services.entry(packet.local_qp).rnr_nak_is_given(packet);
    }

    fn response_leaves(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Fate {
        let until_ns = self.services.get(&packet.local_qp).map_or(0, |service| service.until);
        let left_ns = until_ns.saturating_sub(moment.now_ns);
        if left_ns > 0 { Fate::delay(left_ns) } else { Fate::PASS }
    }

    fn queue_pair_reset(&mut self, qp: Qpn) {
        self.services.forget(|known| *known == qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::quirk::tests::{armed, arriving, leaving};
    use crate::quirk::{Answer, Chain, Reply};

    fn reply(chain: &mut Chain, packet: &PacketInfo, now_ns: u64) -> Reply {
        chain.packet_arrived(packet, now_ns).reply
    }

    const SERVICE: (u64, u64) = (100_000, 200_000);

    fn taken(class: Class, psn: u32) -> PacketInfo {
        PacketInfo { standing: Some(Standing::Taken), ..arriving(class, psn) }
    }

    fn ahead(class: Class, psn: u32) -> PacketInfo {
        PacketInfo { standing: Some(Standing::Ahead), ..arriving(class, psn) }
    }

    #[test]
    fn first_transmissions_are_lost_while_a_repeated_read_is_served() {
        let mut chain = armed(Damming::new(SERVICE));
        assert_eq!(reply(&mut chain, &arriving(Class::Read, 5), 0), Reply::Accept);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 6), 10), Reply::Accept);
        assert_eq!(chain.packet_leaves(&leaving(Class::ReadResponse, 5), 10), Fate::PASS);
        // The READ is retransmitted, and its service begins.
        assert_eq!(reply(&mut chain, &taken(Class::Read, 5), 1_000), Reply::Accept);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 7), 1_010), Reply::Drop);
        assert_eq!(reply(&mut chain, &taken(Class::Send, 6), 1_020), Reply::Accept);
        let fate = chain.packet_leaves(&leaving(Class::ReadResponse, 5), 1_000);
        assert!((SERVICE.0..SERVICE.1).contains(&fate.delay_ns), "{fate:?}");
        let behind = chain.packet_leaves(&leaving(Class::Ack, 6), 1_000);
        assert_eq!(behind, fate, "responses leave in order");
        let over_ns = 1_000 + fate.delay_ns;
        // The one that was lost is lost again, and those after it as well.
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 7), 1_030), Reply::Drop);
        assert_eq!(reply(&mut chain, &ahead(Class::Send, 8), over_ns - 1), Reply::Drop);
        assert_eq!(reply(&mut chain, &ahead(Class::Send, 9), over_ns), Reply::Accept);
        assert_eq!(chain.packet_leaves(&leaving(Class::ReadResponse, 5), over_ns), Fate::PASS);
        // The responder sees 7 and 8 now. It forgot 9, which came after a gap.
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 7), over_ns), Reply::Accept);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 8), over_ns), Reply::Accept);
        assert_eq!(reply(&mut chain, &taken(Class::Read, 5), over_ns), Reply::Accept);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 9), over_ns), Reply::Drop);
    }

    /// Answers the first transmission of PSN 5.
    struct FirstRead;

    impl Quirk for FirstRead {
        fn labels(&self) -> Vec<String> {
            vec!["first".to_owned()]
        }

        fn packet_arrived(&mut self, packet: &PacketInfo, _moment: &Moment<'_>) -> Reception {
            match packet.psn == Psn::new(5) && !packet.is_repeated() {
                true => Reception { met: 1, reply: Reply::Answer(Answer::RnrNak) },
                false => Reception::ACCEPT,
            }
        }
    }

    #[test]
    fn a_read_is_served_again_if_a_rule_or_nobody_answered_it() {
        let quirks: Vec<Box<dyn Quirk>> =
            vec![Box::new(FirstRead), Box::new(Damming::new(SERVICE))];
        let mut chain = Chain::new(Draws::new(1), 0, quirks);
        let answer = Reply::Answer(Answer::RnrNak);
        let mut comes = |packet: &PacketInfo, now_ns| reply(&mut chain, packet, now_ns);
        // The second request was seen before its service, though it was not executed.
        assert_eq!(comes(&arriving(Class::Read, 5), 0), answer);
        assert_eq!(comes(&ahead(Class::Read, 6), 10), Reply::Accept);
        assert_eq!(comes(&arriving(Class::Read, 5), 1_000), Reply::Accept);
        assert_eq!(comes(&arriving(Class::Read, 6), 1_000), Reply::Accept);
        assert_eq!(comes(&arriving(Class::Read, 7), 1_000), Reply::Drop);
        // The queue pair answered this one with an RNR NAK, and will not serve it by itself.
        assert_eq!(comes(&arriving(Class::Read, 7), 1_000_000), Reply::Accept);
        assert_eq!(comes(&arriving(Class::Read, 7), 2_000_000), Reply::Accept);
        assert_eq!(comes(&ahead(Class::Read, 8), 2_000_000), Reply::Accept);
    }

    #[test]
    fn a_queue_pair_is_dammed_alone() {
        let mut chain = armed(Damming::default());
        let read = taken(Class::Read, 5);
        chain.packet_arrived(&read, 0);
        let mut other = arriving(Class::Send, 6);
        other.local_qp = Qpn::new(99);
        other.flow.destination_qp = Qpn::new(99);
        assert_eq!(reply(&mut chain, &other, 1), Reply::Accept);
        assert_eq!(reply(&mut chain, &arriving(Class::Write, 6), 1), Reply::Drop);
        chain.queue_pair_reset(read.local_qp);
        assert_eq!(reply(&mut chain, &arriving(Class::Write, 7), 2), Reply::Accept);
    }

    #[test]
    fn times_are_a_range() {
        assert_eq!(Damming::parse(&[]).unwrap().labels(), ["damming 75us..1500us"]);
        let asked = Damming::parse(&["1ms..2.5ms"]).unwrap();
        assert_eq!(asked.labels(), ["damming 1000us..2500us"]);
        for words in [&["5us"][..], &["2us..1us"], &["1us.."], &["1us..2us", "x"]] {
            assert!(Damming::parse(words).is_err(), "{words:?}");
        }
    }
}
