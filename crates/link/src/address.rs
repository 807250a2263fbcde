//! The addresses of a datagram, and the headers that follow from them.

use std::net::IpAddr;

use rdmalab_wire::grh::Grh;
use rdmalab_wire::icrc::Icrc;
use rdmalab_wire::ids::Gid;
use rdmalab_wire::ip::{Ethernet, Ipv4, Udp, gid_of_ipv4, ipv4_of_gid};

/// Bytes before the BTH, at most: Ethernet, IPv6 and UDP header.
pub const FRAME_HEADER_BYTES: usize = Ethernet::BYTES + Grh::BYTES + Udp::BYTES;

/// The two ends of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FourTuple {
    /// The sender's address; of the same family as the destination.
    pub source: IpAddr,
    /// The receiver's address.
    pub destination: IpAddr,
    /// The sender's UDP port.
    pub source_port: u16,
    /// The receiver's UDP port, 4791 unless both ends agreed on another.
    pub destination_port: u16,
}

/// The fields of the IP header that a receiver of datagrams gets, besides the addresses in the
/// [`FourTuple`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpFields {
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// IPv6's flow label, 20 bits.
    pub flow_label: u32,
    /// IPv4's identification, as recovered from the invariant CRC.
    pub identification: u16,
}

/// The address behind a GID of a RoCEv2 port.
pub fn address_of(gid: Gid) -> IpAddr {
    match ipv4_of_gid(gid) {
        Some(v4) => IpAddr::V4(v4),
        None => IpAddr::V6(gid.0.into()),
    }
}

/// The GID of an address.
pub fn gid_of(address: IpAddr) -> Gid {
    match address {
        IpAddr::V4(v4) => gid_of_ipv4(v4),
        IpAddr::V6(v6) => Gid(v6.octets()),
    }
}

/// The multicast scope interface-local: its packets never leave the host. The scope is the low half
/// of the second byte (RFC 4291, 2.7).
const INTERFACE_LOCAL: u8 = 1;
/// The multicast scope link-local: its packets reach all hosts on one link.
pub const LINK_LOCAL: u8 = 2;

/// The same group in scope `to`. `None` unless `gid` is an IPv6 group of scope `from`.
fn rescoped(gid: Gid, from: u8, to: u8) -> Option<Gid> {
    let mut octets = gid.0;
    if !gid.is_multicast() || octets[1] & 0xf != from {
        return None;
    }
    octets[1] = octets[1] & 0xf0 | to;
    Some(Gid(octets))
}

/// The address that packets for a GID are sent to. An RDMA adapter ignores the scope of a multicast
/// group, but IPv6 does not: no kernel sends packets of interface-local scope (ffx1::) to a
/// network, or takes them from one. Packets for such a group use link-local scope instead, which no
/// router forwards either.
pub fn destination_of(gid: Gid) -> IpAddr {
    address_of(rescoped(gid, INTERFACE_LOCAL, LINK_LOCAL).unwrap_or(gid))
}

/// The groups whose packets are sent to an address: the inverse of [`destination_of`].
pub fn groups_at(address: IpAddr) -> impl Iterator<Item = Gid> {
    let gid = gid_of(address);
    std::iter::once(gid).chain(rescoped(gid, LINK_LOCAL, INTERFACE_LOCAL))
}

/// Whether a GID names a multicast group: ff00::/8, or an IPv4 group as RoCEv2 writes it,
/// ::ffff:224.0.0.0/100.
pub fn is_group(gid: Gid) -> bool {
    gid.is_multicast() || ipv4_of_gid(gid).is_some_and(|v4| v4.is_multicast())
}

impl FourTuple {
    /// Whether both addresses are of the same family.
    pub fn is_sound(&self) -> bool {
        self.source.is_ipv4() == self.destination.is_ipv4()
    }

    fn udp(&self, packet_bytes: usize) -> Udp {
        let udp = Udp::roce(self.source_port, packet_bytes as u16);
        Udp { destination_port: self.destination_port, ..udp }
    }

    fn ipv4(&self, ip: &IpFields, packet_bytes: usize) -> Option<Ipv4> {
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (self.source, self.destination) else {
            return None;
        };
        Some(Ipv4 {
            type_of_service: ip.traffic_class,
            total_length: (Ipv4::BYTES + Udp::BYTES + packet_bytes) as u16,
            identification: ip.identification,
            // RoCEv2 is never fragmented, and senders set this bit (observed with rdma_rxe).
            dont_fragment: true,
            time_to_live: ip.hop_limit,
            protocol: Ipv4::UDP,
            source,
            destination,
        })
    }

    fn ipv6(&self, ip: &IpFields, packet_bytes: usize) -> Grh {
        Grh {
            traffic_class: ip.traffic_class,
            flow_label: ip.flow_label,
            payload_length: (Udp::BYTES + packet_bytes) as u16,
            next_header: Grh::NEXT_UDP,
            hop_limit: ip.hop_limit,
            source: gid_of(self.source),
            destination: gid_of(self.destination),
        }
    }

    /// The invariant CRC of a packet between these addresses. `packet` goes from the BTH to the
    /// ICRC; the ICRC field itself is not read.
    pub fn icrc(&self, identification: u16, packet: &[u8]) -> u32 {
        let ip = IpFields { identification, ..IpFields::default() };
        let udp = self.udp(packet.len());
        match self.ipv4(&ip, packet.len()) {
            Some(ip) => Icrc::of_packet_over_ipv4(&ip, &udp, packet),
            None => {
                let ip = self.ipv6(&ip, packet.len());
                Icrc::of_packet_over_ipv6(&ip, &udp, packet)
            }
        }
    }

    /// Writes the headers of a frame to `out` and returns their length. The frame carries a packet
    /// of `packet_bytes` (BTH to ICRC) between these Ethernet addresses (destination, source).
    /// UDP's checksum is zero.
    #[inline]
    pub fn write_frame_headers(
        &self,
        ip: &IpFields,
        packet_bytes: usize,
        (destination, source): ([u8; 6], [u8; 6]),
        out: &mut [u8; FRAME_HEADER_BYTES],
    ) -> usize {
        let ethertype = if self.source.is_ipv4() { Ethernet::IPV4 } else { Ethernet::IPV6 };
        let ip_at = Ethernet::BYTES;
        out[..ip_at].copy_from_slice(&Ethernet { destination, source, ethertype }.to_bytes());
        let udp_at = match self.ipv4(ip, packet_bytes) {
            Some(ip) => {
                out[ip_at..ip_at + Ipv4::BYTES].copy_from_slice(&ip.to_bytes());
                ip_at + Ipv4::BYTES
            }
            None => {
                let ip = self.ipv6(ip, packet_bytes).to_bytes();
                out[ip_at..ip_at + Grh::BYTES].copy_from_slice(&ip);
                ip_at + Grh::BYTES
            }
        };
        let end = udp_at + Udp::BYTES;
        out[udp_at..end].copy_from_slice(&self.udp(packet_bytes).to_bytes());
        end
    }

    /// The 40 bytes that the kernel writes before a datagram in the receive buffer: the IPv6
    /// header, or 20 zero bytes and the IPv4 header (RoCEv2 annex A17.4.1).
    pub fn grh_area(&self, ip: &IpFields, packet_bytes: usize) -> [u8; 40] {
        match self.ipv4(ip, packet_bytes) {
            Some(ip) => ip.to_grh_area(),
            None => self.ipv6(ip, packet_bytes).to_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_and_addresses() {
        for text in ["10.0.0.1", "fe80::1", "2001:db8::7"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(address_of(gid_of(address)), address);
        }
        for (text, group) in
            [("224.1.2.3", true), ("223.1.2.3", false), ("ff02::1", true), ("fe80::1", false)]
        {
            assert_eq!(is_group(gid_of(text.parse().unwrap())), group, "{text}");
        }
    }

    #[test]
    fn groups_that_no_network_carries_travel_in_the_next_scope() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (group, at) in [
            ("ff01:0:2:c985::1", "ff02:0:2:c985::1"),
            ("ff11::1", "ff12::1"),
            ("ff02::7", "ff02::7"),
            ("ff0e::7", "ff0e::7"),
            ("fe01::1", "fe01::1"),
            ("239.1.1.1", "239.1.1.1"),
            ("10.1.2.3", "10.1.2.3"),
        ] {
            let (gid, at) = (gid_of(address(group)), address(at));
            assert_eq!(destination_of(gid), at, "{group}");
            assert!(groups_at(at).any(|found| found == gid), "{group}");
            assert!(groups_at(at).all(|found| destination_of(found) == at), "{group}");
        }
        assert_eq!(groups_at(address("ff02::7")).count(), 2);
        assert_eq!(groups_at(address("ff0e::7")).count(), 1);
    }

    #[test]
    fn the_area_of_ipv4_has_the_header_last() {
        let tuple = FourTuple {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 4791,
            destination_port: 4791,
        };
        let ip = IpFields { traffic_class: 2, hop_limit: 64, flow_label: 0, identification: 7 };
        let area = tuple.grh_area(&ip, 32);
        assert_eq!(area[..20], [0; 20]);
        assert_eq!(area[20..28], [0x45, 2, 0, 60, 0, 7, 0x40, 0]);
        assert_eq!(area[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
    }
}
