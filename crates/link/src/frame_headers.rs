//! The Ethernet, IP and UDP headers of the packets of a flow, as a capture shows them.

use rdmalab_wire::ip::{Ethernet, Ipv4};

use crate::address::{FRAME_HEADER_BYTES, FourTuple, IpFields};

/// The Ethernet, IP and UDP headers of a flow's frames, built once for each flow. Packets differ
/// only in the lengths and in IPv4's checksum, which are filled in for each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeaders {
    tuple: FourTuple,
    /// The headers of a packet without any bytes.
    start: [u8; FRAME_HEADER_BYTES],
    bytes: usize,
    /// The ones' complement of the IPv4 checksum in `start`.
    sum: u32,
}

/// Bytes of the UDP header, the last one.
const UDP: usize = 8;
/// Offset of IPv4's total length.
const TOTAL_LENGTH_AT: usize = Ethernet::BYTES + 2;
/// Offset of IPv4's header checksum.
const CHECKSUM_AT: usize = Ethernet::BYTES + 10;
/// Offset of IPv6's payload length.
const PAYLOAD_LENGTH_AT: usize = Ethernet::BYTES + 4;

/// A locally administered Ethernet address for an interface that has none. It contains the last
/// bytes of the IP address, which tell interfaces apart.
fn mac(ip: std::net::IpAddr) -> [u8; 6] {
    match ip {
        std::net::IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [2, 0, a, b, c, d]
        }
        std::net::IpAddr::V6(v6) => {
            let o = v6.octets();
            [2, o[11], o[12], o[13], o[14], o[15]]
        }
    }
}

#[inline]
fn put(out: &mut [u8; FRAME_HEADER_BYTES], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

impl FrameHeaders {
    /// The headers of packets between these addresses.
    pub fn of(tuple: FourTuple, ip: &IpFields) -> FrameHeaders {
        let mut start = [0; FRAME_HEADER_BYTES];
        let macs = (mac(tuple.destination), mac(tuple.source));
        let bytes = tuple.write_frame_headers(ip, 0, macs, &mut start);
        let sum = u16::from_be_bytes([start[CHECKSUM_AT], start[CHECKSUM_AT + 1]]);
        FrameHeaders { tuple, start, bytes, sum: u32::from(!sum) }
    }

    /// The addresses and ports.
    pub fn tuple(&self) -> &FourTuple {
        &self.tuple
    }

    /// Length of these headers, bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of a frame with a packet of `packet_bytes` (BTH to ICRC).
    #[inline]
    pub fn frame_bytes(&self, packet_bytes: usize) -> usize {
        self.bytes + packet_bytes
    }

    /// Whether the packets travel over IPv4.
    #[inline]
    pub(crate) fn is_v4(&self) -> bool {
        self.bytes == Ethernet::BYTES + Ipv4::BYTES + UDP
    }

    /// Writes the headers of a packet of `packet_bytes`. UDP's checksum is zero. All of `out` is
    /// written, even behind shorter headers, because a copy of constant length is the cheapest.
    #[inline]
    pub(crate) fn write(&self, packet_bytes: usize, out: &mut [u8; FRAME_HEADER_BYTES]) {
        out.copy_from_slice(&self.start);
        let udp_length = (UDP + packet_bytes) as u16;
        if self.is_v4() {
            // RFC 1624: add the change of a field to the sum, then add the carries at the low end.
            let sum = self.sum + packet_bytes as u32;
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            put(out, TOTAL_LENGTH_AT, Ipv4::BYTES as u16 + udp_length);
            put(out, CHECKSUM_AT, !(sum as u16));
            put(out, Ethernet::BYTES + Ipv4::BYTES + 4, udp_length);
        } else {
            put(out, PAYLOAD_LENGTH_AT, udp_length);
            put(out, FRAME_HEADER_BYTES - UDP + 4, udp_length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_are_those_of_the_path(
            v6: bool,
            port: u16,
            id: u16,
            packet_bytes in 0..5000usize,
            hop_limit: u8,
        ) {
            let (source, destination) = match v6 {
                true => ("fe80::1".parse().unwrap(), "ff02::2".parse().unwrap()),
                false => ("10.0.0.1".parse().unwrap(), "224.0.0.2".parse().unwrap()),
            };
            let tuple =
                FourTuple { source, destination, source_port: port, destination_port: 4791 };
            let ip = IpFields { hop_limit, identification: id, ..IpFields::default() };
            let headers = FrameHeaders::of(tuple, &ip);
            let (mut ours, mut theirs) = ([0xee; FRAME_HEADER_BYTES], [0; FRAME_HEADER_BYTES]);
            let macs = (mac(destination), mac(source));
            let bytes = tuple.write_frame_headers(&ip, packet_bytes, macs, &mut theirs);
            headers.write(packet_bytes, &mut ours);
            prop_assert_eq!(bytes, headers.bytes());
            prop_assert_eq!(&ours[..bytes], &theirs[..bytes]);
        }
    }
}
