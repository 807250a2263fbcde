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
//! Retransmitted requests pass; otherwise a connection could not recover.
//!
//! [`Service`] is this rule for one queue pair. The simulator's adapters use it with the times of
//! their own parameters, which they draw by themselves.

use rdmalab_wire::ids::Qpn;

use super::{Fate, Moment, Quirk, Reception};
use crate::bounded::BoundedMap;
use crate::packet::{Class, PacketInfo};
use crate::units;
use rdmalab_random::scaled;

/// The default time for serving a repeated READ, ns.
const SERVICE_NS: (u64, u64) = (75_000, 1_500_000);

/// What a request is to the responder that gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// One that it has not seen before. The caller decides whether it has seen one that was lost.
    New,
    /// A repeated one, but for a READ that is served again.
    Repeated,
    /// A repeated READ that is served again.
    RepeatedRead,
}

/// What the responder of one queue pair does while it serves a repeated READ. `T` is a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service<T> {
    /// When the service ends. The response to the READ leaves then, at the earliest.
    pub until: T,
}

impl<T: Copy + Ord> Service<T> {
    /// A request arrives at `now`. Returns whether it is lost. A READ that is served again keeps
    /// the responder busy to `end`, which is asked for in this case only.
    pub fn arrives(&mut self, request: Request, now: T, end: impl FnOnce() -> T) -> bool {
        if request == Request::RepeatedRead {
            self.until = self.until.max(end());
        }
        request == Request::New && now < self.until
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

    fn service(&self, qp: Qpn) -> Service<u64> {
        self.services.get(&qp).copied().unwrap_or_default()
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
        if packet.flow.is_response {
            return Reception::ACCEPT;
        }
        let request = match packet.is_repeated() {
            false => Request::New,
            true if packet.class == Class::Read => Request::RepeatedRead,
            true => Request::Repeated,
        };
        let mut service = self.service(packet.local_qp);
        let is_lost = service.arrives(request, moment.now_ns, || {
            let (least, most) = self.service_ns;
            let more = scaled(moment.draw(0, packet), most - least);
            moment.now_ns.saturating_add(least + more)
        });
        if request == Request::RepeatedRead {
            *self.services.entry(packet.local_qp) = service;
        }
        if is_lost { Reception::DROP } else { Reception::ACCEPT }
    }

    fn response_leaves(&mut self, packet: &PacketInfo, moment: &Moment<'_>) -> Fate {
        let left_ns = self.service(packet.local_qp).until.saturating_sub(moment.now_ns);
        match packet.class == Class::ReadResponse && left_ns > 0 {
            true => Fate::delay(left_ns),
            false => Fate::PASS,
        }
    }

    fn queue_pair_reset(&mut self, qp: Qpn) {
        self.services.forget(|known| *known == qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quirk::tests::{armed, arriving, leaving};
    use crate::quirk::{Chain, Reply};

    fn reply(chain: &mut Chain, packet: &PacketInfo, now_ns: u64) -> Reply {
        chain.packet_arrived(packet, now_ns).reply
    }

    const SERVICE: (u64, u64) = (100_000, 200_000);

    #[test]
    fn first_transmissions_are_lost_while_a_repeated_read_is_served() {
        let mut chain = armed(Damming::new(SERVICE));
        let read = arriving(Class::Read, 5);
        assert_eq!(reply(&mut chain, &read, 0), Reply::Accept);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 6), 10), Reply::Accept);
        assert_eq!(chain.packet_leaves(&leaving(Class::ReadResponse, 5), 10), Fate::PASS);
        // The READ is retransmitted, and its service begins.
        assert_eq!(reply(&mut chain, &read, 1_000), Reply::Accept);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 7), 1_010), Reply::Drop);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 6), 1_020), Reply::Accept);
        let fate = chain.packet_leaves(&leaving(Class::ReadResponse, 5), 1_000);
        assert!((SERVICE.0..SERVICE.1).contains(&fate.delay_ns), "{fate:?}");
        let over_ns = 1_000 + fate.delay_ns;
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 8), over_ns - 1), Reply::Drop);
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 9), over_ns), Reply::Accept);
        // The one that was lost is now a retransmission.
        assert_eq!(reply(&mut chain, &arriving(Class::Send, 7), 1_030), Reply::Accept);
        assert_eq!(chain.packet_leaves(&leaving(Class::ReadResponse, 5), over_ns), Fate::PASS);
    }

    #[test]
    fn a_queue_pair_is_dammed_alone() {
        let mut chain = armed(Damming::default());
        let read = arriving(Class::Read, 5);
        chain.packet_arrived(&read, 0);
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
