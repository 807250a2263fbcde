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
use super::faults::Parcel;
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
            let bit = number as usize % (packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        if self.armed.tap.is_some() {
            self.record(passage, &passage.below, packet, &faults.comment(fate));
        }
        let Some(wire) = Process::existing().and_then(Process::wire) else { return Verdict::Pass };
        if fate.lost {
            return Verdict::Lose;
        }
        let Below { traffic_class, hop_limit, .. } = passage.below;
        let goes_now = faults.hold(&sending.flow, &decision, || Parcel::Network {
            route: wire.route_of(passage.path, traffic_class, hop_limit),
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
