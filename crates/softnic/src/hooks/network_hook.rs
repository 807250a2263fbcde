//! The hook for packets to and from other hosts.

use parking_lot::Mutex;
use rdmalab_link::address::IpFields;
use rdmalab_link::expand;
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::{Direction, PacketContext, PacketHook, Verdict};
use rdmalab_link::packet::{Class, Flow, Medium, PacketInfo};
use rdmalab_link::pcapng;
use rdmalab_link::receive::Verifier;
use rdmalab_wire::ids::Qpn;
use rdmalab_wire::packet::Packet;

use super::Hooks;
use super::deferred::{self, DeferredPacket};
use super::tap::Record;
use crate::process::Process;

/// The hop limit to show if the context has none.
const HOPS: u8 = 64;

/// Captures the packets of the network path, and applies the fault rules to outgoing ones.
pub(crate) struct NetworkHook {
    hooks: &'static Hooks,
    verifier: Mutex<Verifier>,
}

impl NetworkHook {
    pub(crate) fn new(hooks: &'static Hooks) -> NetworkHook {
        NetworkHook { hooks, verifier: Mutex::default() }
    }

    fn record(&self, context: &PacketContext, ip: &IpFields, packet: &[u8], comment: &str) {
        let Some(tap) = self.hooks.tap else { return };
        // An interface makes one device.
        let Some(entry) = tap.entry(0, packet.len()) else { return };
        let hop_limit = if ip.hop_limit == 0 { HOPS } else { ip.hop_limit };
        let record = Record {
            direction: context.direction,
            headers: &FrameHeaders::of(context.tuple, &IpFields { hop_limit, ..*ip }),
            bytes: packet.len(),
            complete: true,
            spoilt: false,
            comment,
        };
        let fill = |place: &mut [u8]| place.copy_from_slice(&packet[..place.len()]);
        entry.record(&record, fill, None);
    }
}

/// The view of a packet that rules and quirks get.
fn packet_of(context: &PacketContext, packet: &[u8]) -> Option<PacketInfo> {
    let headers = Packet::parse(packet).ok()?.headers;
    let opcode = headers.bth.opcode;
    Some(PacketInfo {
        flow: Flow {
            source: context.tuple.source,
            destination: context.tuple.destination,
            destination_qp: context.destination_qp,
            source_qp: headers.deth.map_or(Qpn::new(0), |deth| deth.source_qp),
            is_response: opcode.is_response(),
        },
        local_qp: context.local_qp,
        medium: Medium::Network,
        class: Class::of(opcode, headers.aeth.map(|aeth| aeth.syndrome)),
        psn: context.psn,
        psns: context.psns,
        transmission: Some(context.transmission),
        standing: None,
        bytes: pcapng::frame_bytes(&context.tuple, packet.len()) as u32,
        payload: context.payload,
    })
}

/// The byte of the BTH that the invariant CRC does not cover: it has the congestion marks, which
/// switches set (IBA vol. 1, 7.8.1).
const UNCOVERED: usize = 4;

/// Changes one of the bits of a packet that the receiver checks.
fn spoil(packet: &mut [u8], number: u64) {
    let bit = number as usize % ((packet.len() - 1) * 8);
    let byte = if bit / 8 < UNCOVERED { bit / 8 } else { bit / 8 + 1 };
    packet[byte] ^= 1 << (bit % 8);
}

/// The payload of a packet.
fn payload_of(packet: &mut [u8]) -> &mut [u8] {
    let found = Packet::parse(packet).ok();
    let bounds =
        found.map(|packet| (packet.headers.bth.opcode.header_bytes(), packet.payload.len()));
    let (at, bytes) = bounds.unwrap_or_default();
    &mut packet[at..at + bytes]
}

impl PacketHook for NetworkHook {
    fn outgoing(&self, context: &PacketContext, packet: &mut [u8]) -> Verdict {
        debug_assert!(context.direction == Direction::Out);
        let Some(faults) = self.hooks.faults else {
            self.record(context, &context.ip, packet, "");
            return Verdict::Pass;
        };
        let Some(info) = packet_of(context, packet) else { return Verdict::Pass };
        let (fate, decided_ns) = &faults.packet_leaves(&info);
        if fate.damage.is_some() && fate.damage(payload_of(packet)) {
            expand::seal(&context.tuple, context.ip.identification, packet);
        }
        if let Some(number) = fate.corrupt {
            spoil(packet, number);
        }
        if self.hooks.tap.is_some() {
            self.record(context, &context.ip, packet, &faults.comment(fate));
        }
        let Some(network) = Process::existing().and_then(Process::network) else {
            return Verdict::Pass;
        };
        if fate.lost {
            return Verdict::Drop;
        }
        let sends_now =
            deferred::defer(&info.flow, (fate, *decided_ns), || DeferredPacket::Network {
                route: network.route_of(context.tuple, &context.ip),
                packet: (&*packet).into(),
                intact: fate.corrupt.is_none(),
            });
        if sends_now { Verdict::Pass } else { Verdict::Drop }
    }

    fn incoming(&self, context: &PacketContext, packet: &[u8]) {
        // A socket does not report the identification, which the invariant CRC covers. If it cannot
        // be computed, the packet is damaged, and the capture shows that.
        let parsed = Packet::parse(packet).ok();
        let solved = parsed
            .and_then(|parsed| self.verifier.lock().verify(&context.tuple, &parsed, packet).ok());
        let ip = IpFields { identification: solved.unwrap_or_default(), ..context.ip };
        self.record(context, &ip, packet, "");
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_wire::packet::ICRC_BYTES;

    use super::*;

    #[test]
    fn whichever_bit_is_damaged_the_crc_tells() {
        let tuple = rdmalab_link::address::FourTuple {
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
        rdmalab_link::expand::seal(&tuple, 0, &mut sound);
        let is_right = |packet: &[u8]| tuple.icrc(0, packet).to_le_bytes() == packet[icrc_at..];
        assert!(is_right(&sound));
        let mut met = std::collections::BTreeSet::new();
        for number in 0..1000 {
            let mut packet = sound.clone();
            spoil(&mut packet, number);
            assert!(!is_right(&packet), "bit {number}");
            met.insert(packet);
        }
        assert_eq!(met.len(), (sound.len() - 1) * 8, "each bit but those of one byte");
        assert_eq!(payload_of(&mut sound), [0x5a; 8]);
    }
}
