//! Packets for other hosts, and from them.

use parking_lot::Mutex;
use rdmalab_link::faults::{Class, Flow, Medium, Sending};
use rdmalab_link::outer::Outer;
use rdmalab_link::path::Below;
use rdmalab_link::pcapng;
use rdmalab_link::receive::Verifier;
use rdmalab_link::seam::{Direction, Passage, Seam, Verdict};
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::packet::Packet;

use super::Armed;
use super::faults::HeldPacket;
use super::tap::Record;
use crate::process::Process;

/// What a packet has left of its hops when nobody said how many it may take.
const HOPS: u8 = 64;

/// See the module's text.
pub(crate) struct NetworkSeam {
    armed: &'static Armed,
    verifier: Mutex<Verifier>,
}

impl NetworkSeam {
    pub(crate) fn new(armed: &'static Armed) -> NetworkSeam {
        NetworkSeam { armed, verifier: Mutex::default() }
    }

    fn record(&self, passage: &Passage, below: &Below, packet: &[u8], comment: &str) {
        let Some(tap) = self.armed.tap else { return };
        // An interface makes one device.
        let Some(entry) = tap.entry(0, packet.len()) else { return };
        let hop_limit = if below.hop_limit == 0 { HOPS } else { below.hop_limit };
        let record = Record {
            direction: passage.direction,
            outer: &Outer::of(passage.path, &Below { hop_limit, ..*below }),
            bytes: packet.len(),
            complete: true,
            spoilt: false,
            comment,
        };
        entry.record(&record, |place| place.copy_from_slice(&packet[..place.len()]));
    }
}

/// The packet as the rules see it.
fn sending(passage: &Passage, packet: &[u8]) -> Option<Sending> {
    let headers = Packet::parse(packet).ok()?.headers;
    let opcode = headers.bth.opcode;
    Some(Sending {
        flow: Flow {
            source: passage.path.source,
            destination: passage.path.destination,
            destination_qp: passage.destination_qp,
            source_qp: headers.deth.map_or(Qpn::new(0), |deth| deth.source_qp),
            is_response: opcode.is_response(),
        },
        medium: Medium::Network,
        class: Class::of(opcode, headers.aeth.map(|aeth| aeth.syndrome)),
        psn: passage.psn,
        transmission: Some(passage.transmission),
        bytes: pcapng::frame_bytes(&passage.path, packet.len()) as u32,
        payload: passage.payload,
    })
}

/// The byte of the BTH that the invariant CRC does not cover: congestion marks, which switches set
/// (IBA vol. 1, 7.8.1).
const UNCOVERED: usize = 4;

/// Changes one bit of a packet, of those that its receiver checks.
fn damage(packet: &mut [u8], number: u64) {
    let bit = number as usize % ((packet.len() - 1) * 8);
    let byte = if bit / 8 < UNCOVERED { bit / 8 } else { bit / 8 + 1 };
    packet[byte] ^= 1 << (bit % 8);
}

impl Seam for NetworkSeam {
    fn pass(&self, passage: &Passage, packet: &mut [u8]) -> Verdict {
        debug_assert!(passage.direction == Direction::Out);
        let Some(faults) = self.armed.faults else {
            self.record(passage, &passage.below, packet, "");
            return Verdict::Pass;
        };
        let Some(sending) = sending(passage, packet) else { return Verdict::Pass };
        let decision = faults.decide(&sending);
        let fate = &decision.fate;
        if let Some(number) = fate.corrupt {
            damage(packet, number);
        }
        if self.armed.tap.is_some() {
            self.record(passage, &passage.below, packet, &faults.comment(fate));
        }
        let Some(network) = Process::existing().and_then(Process::network) else {
            return Verdict::Pass;
        };
        if fate.lost {
            return Verdict::Lose;
        }
        let Below { traffic_class, hop_limit, .. } = passage.below;
        let goes_now = faults.hold(&sending.flow, &decision, || HeldPacket::Network {
            route: network.route_of(passage.path, traffic_class, hop_limit),
            packet: (&*packet).into(),
            intact: fate.corrupt.is_none(),
        });
        if goes_now { Verdict::Pass } else { Verdict::Lose }
    }

    fn see(&self, passage: &Passage, packet: &[u8]) {
        // A socket does not show the identification, which the invariant CRC covers. One that
        // cannot be found belongs to a damaged packet, which is shown as such.
        let parsed = Packet::parse(packet).ok();
        let solved = parsed
            .and_then(|parsed| self.verifier.lock().verify(&passage.path, &parsed, packet).ok());
        let below = Below { identification: solved.unwrap_or_default(), ..passage.below };
        self.record(passage, &below, packet, "");
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_wire::packet::ICRC_BYTES;

    use super::*;

    #[test]
    fn whichever_bit_is_damaged_the_crc_tells() {
        let path = rdmalab_link::path::Path {
            source: "10.0.0.1".parse().expect("an address"),
            destination: "10.0.0.2".parse().expect("an address"),
            source_port: 0xc001,
            destination_port: 4791,
        };
        // A SEND of 8 bytes: BTH, payload, CRC.
        let mut sound = vec![0x04, 0x40, 0xff, 0xff, 0, 0, 1, 1, 0x80, 0, 0, 7];
        sound.extend([0x5a; 8]);
        let icrc_at = sound.len();
        sound.extend([0; ICRC_BYTES]);
        rdmalab_link::expand::seal(&path, 0, &mut sound);
        let is_right = |packet: &[u8]| path.icrc(0, packet).to_le_bytes() == packet[icrc_at..];
        assert!(is_right(&sound));
        let mut met = std::collections::BTreeSet::new();
        for number in 0..1000 {
            let mut packet = sound.clone();
            damage(&mut packet, number);
            assert!(!is_right(&packet), "bit {number}");
            met.insert(packet);
        }
        assert_eq!(met.len(), (sound.len() - 1) * 8, "each bit but those of one byte");
    }
}
