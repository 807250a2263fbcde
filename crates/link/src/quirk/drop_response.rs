//! The response to the N-th READ or atomic of a queue pair is sent but lost, for example the
//! response to the second of two outstanding READs.
//!
//! Named `drop-response N`. The responder's device drops all packets of this response once. The
//! requester repeats the request after its time-out, and then the response arrives.

use rdmalab_wire::ids::{Psn, Qpn};

use super::{Fate, Moment, Quirk, Reception};
use crate::bounded::BoundedMap;
use crate::packet::{Class, PacketInfo};

/// The quirk `drop-response`.
#[derive(Debug)]
pub struct DropResponse {
    number: u64,
    /// The READs and atomics that each queue pair received so far.
    asked: BoundedMap<Qpn, Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    requests: u64,
    /// The PSN after the latest request. A request before it is a retransmission.
    next: Option<Psn>,
    /// The PSNs of the response that are still to be dropped: from the first, before the second.
    lost: Option<(Psn, Psn)>,
}

impl DropResponse {
    /// Loses the response to request `number` of each queue pair, counted from 1.
    pub fn new(number: u64) -> DropResponse {
        DropResponse { number, asked: BoundedMap::default() }
    }

    /// Parses the words after the name in a specification.
    ///
    /// # Errors
    /// A message that says what is allowed.
    pub(crate) fn parse(words: &[&str]) -> Result<Box<dyn Quirk>, String> {
        let number = match words {
            [number] => number.parse().ok().filter(|number| *number > 0),
            _ => None,
        };
        let number =
            number.ok_or("drop-response needs one number, 1 or more, as in drop-response 2")?;
        Ok(Box::new(DropResponse::new(number)))
    }
}

impl Quirk for DropResponse {
    fn labels(&self) -> Vec<String> {
        vec![format!("drop-response {}", self.number)]
    }

    fn watches_arrivals(&self) -> bool {
        true
    }

    fn packet_arrived(&mut self, packet: &PacketInfo, _moment: &Moment<'_>) -> Reception {
        if packet.is_in_order() && matches!(packet.class, Class::Read | Class::Atomic) {
            let asked = self.asked.entry(packet.local_qp);
            if asked.next.is_none_or(|next| !packet.psn.is_before(next)) {
                let end = packet.psn.add(packet.psns);
                asked.next = Some(end);
                asked.requests += 1;
                if asked.requests == self.number {
                    asked.lost = Some((packet.psn, end));
                }
            }
        }
        Reception::ACCEPT
    }

    fn response_leaves(&mut self, packet: &PacketInfo, _moment: &Moment<'_>) -> Fate {
        if !matches!(packet.class, Class::ReadResponse | Class::AtomicResponse) {
            return Fate::PASS;
        }
        let asked = self.asked.entry(packet.local_qp);
        match asked.lost {
            Some((next, end)) if !packet.psn.is_before(next) && packet.psn.is_before(end) => {
                asked.lost = Some((packet.psn.add(1), end));
                Fate::DROP
            }
            _ => Fate::PASS,
        }
    }

    fn queue_pair_reset(&mut self, qp: Qpn) {
        self.asked.forget(|known| *known == qp);
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_engine::qp::Standing;

    use super::*;
    use crate::quirk::Chain;
    use crate::quirk::tests::{armed, arriving, leaving};

    fn read(chain: &mut Chain, psn: u32, psns: u32) {
        let request = PacketInfo { psns, ..arriving(Class::Read, psn) };
        assert_eq!(chain.packet_arrived(&request, 0), Reception::ACCEPT);
    }

    fn lost(chain: &mut Chain, class: Class, psns: std::ops::Range<u32>) -> Vec<u32> {
        let is_lost = |psn: &u32| chain.packet_leaves(&leaving(class, *psn), 0).lost;
        psns.filter(is_lost).collect()
    }

    #[test]
    fn the_response_to_the_second_read_is_lost_once() {
        let mut chain = armed(DropResponse::new(2));
        read(&mut chain, 5, 2);
        // A retransmission before the response does not count.
        read(&mut chain, 5, 2);
        read(&mut chain, 7, 3);
        read(&mut chain, 10, 1);
        assert_eq!(lost(&mut chain, Class::Ack, 5..11), []);
        assert_eq!(lost(&mut chain, Class::ReadResponse, 5..11), [7, 8, 9]);
        assert_eq!(lost(&mut chain, Class::ReadResponse, 5..11), []);
        assert_eq!(chain.met(), [3]);
    }

    #[test]
    fn what_came_out_of_order_is_not_counted() {
        let mut chain = armed(DropResponse::new(1));
        let early = PacketInfo { standing: Some(Standing::Ahead), ..arriving(Class::Read, 9) };
        chain.packet_arrived(&early, 0);
        chain.packet_arrived(&arriving(Class::Send, 4), 0);
        read(&mut chain, 5, 1);
        assert_eq!(lost(&mut chain, Class::ReadResponse, 4..10), [5]);
    }

    #[test]
    fn a_queue_pair_that_was_reset_counts_anew() {
        let mut chain = armed(DropResponse::new(2));
        read(&mut chain, 5, 1);
        chain.queue_pair_reset(arriving(Class::Read, 5).local_qp);
        read(&mut chain, 6, 1);
        assert_eq!(lost(&mut chain, Class::ReadResponse, 5..8), []);
        read(&mut chain, 7, 1);
        assert_eq!(lost(&mut chain, Class::ReadResponse, 5..8), [7]);
    }

    #[test]
    fn a_number_is_needed() {
        for words in [&[][..], &["0"], &["x"], &["1", "2"]] {
            assert!(DropResponse::parse(words).is_err(), "{words:?}");
        }
    }
}
