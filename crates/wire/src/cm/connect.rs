//! The messages that establish a connection.

use super::{BODY_BYTES, piece, put, put24};
use crate::bytes::{be16, be24, be32, be64};
use crate::ids::{Gid, Psn, Qpn};

/// The path in a REQ. LIDs are 0xffff where a router decides (RoCE, hop limit above 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// LID of the active side.
    pub local_lid: u16,
    /// LID of the passive side.
    pub remote_lid: u16,
    /// GID of the active side.
    pub local_gid: Gid,
    /// GID of the passive side.
    pub remote_gid: Gid,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Rate as a code, 6 bits; 0 is the port's rate.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Whether no router is needed.
    pub is_subnet_local: bool,
    /// Local ACK time-out as 4.096 us x 2^n, 5 bits.
    pub ack_timeout: u8,
}

/// REQ: asks for a connection (IBA vol. 1, 12.6.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Req {
    /// The active side's identifier.
    pub local_id: u32,
    /// The service that is requested.
    pub service_id: u64,
    /// The active side's node.
    pub ca_guid: u64,
    /// Q_Key of datagrams; unused for connections.
    pub qkey: u32,
    /// The active side's queue pair.
    pub qpn: Qpn,
    /// READs and atomics that the active side answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that it has in flight at a time.
    pub initiator_depth: u8,
    /// How long the passive side may take to answer, 4.096 us x 2^n, 5 bits.
    pub remote_response_timeout: u8,
    /// 0 RC, 1 UC, 3 extended, 2 bits.
    pub service_type: u8,
    /// Whether the hardware controls the flow.
    pub flow_control: bool,
    /// The first PSN that the passive side sends: each side chooses the PSN that it expects.
    pub starting_psn: Psn,
    /// How long the active side takes to answer, 4.096 us x 2^n, 5 bits.
    pub local_response_timeout: u8,
    /// Retries after time-outs, 3 bits.
    pub retry_count: u8,
    /// P_Key.
    pub pkey: u16,
    /// Path MTU as a code, 1 to 5.
    pub path_mtu: u8,
    /// Retries after RNR, 3 bits; 7 is for ever.
    pub rnr_retry_count: u8,
    /// How often a message of the connection manager is sent again, 4 bits.
    pub max_cm_retries: u8,
    /// Whether the active side uses a shared receive queue.
    pub srq: bool,
    /// Which extended transport: 1 is XRC; 3 bits.
    pub extended_transport: u8,
    /// The primary path. The alternate path is ignored.
    pub path: Path,
    /// Private data; with IP addresses the first 36 bytes are an [`IpHeader`](super::IpHeader).
    pub private_data: [u8; Req::PRIVATE_BYTES],
}

impl Req {
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 92;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        let flow = be32(b, 88);
        Self {
            local_id: be32(b, 0),
            service_id: be64(b, 8),
            ca_guid: be64(b, 16),
            qkey: be32(b, 28),
            qpn: Qpn::new(be24(b, 32)),
            responder_resources: b[35],
            initiator_depth: b[39],
            remote_response_timeout: b[43] >> 3,
            service_type: b[43] >> 1 & 3,
            flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(be24(b, 44)),
            local_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: be16(b, 48),
            path_mtu: b[50] >> 4,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            extended_transport: b[51] & 7,
            path: Path {
                local_lid: be16(b, 52),
                remote_lid: be16(b, 54),
                local_gid: Gid(piece(b, 56)),
                remote_gid: Gid(piece(b, 72)),
                flow_label: flow >> 12,
                rate: (flow & 0x3f) as u8,
                traffic_class: b[92],
                hop_limit: b[93],
                service_level: b[94] >> 4,
                is_subnet_local: b[94] & 8 != 0,
                ack_timeout: b[95] >> 3,
            },
            private_data: piece(b, 140),
        }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 8, &self.service_id.to_be_bytes());
        put(b, 16, &self.ca_guid.to_be_bytes());
        put(b, 28, &self.qkey.to_be_bytes());
        put24(b, 32, self.qpn.get(), self.responder_resources);
        put24(b, 36, 0, self.initiator_depth);
        let service = (self.service_type & 3) << 1 | u8::from(self.flow_control);
        put24(b, 40, 0, self.remote_response_timeout << 3 | service);
        let retries = self.local_response_timeout << 3 | self.retry_count & 7;
        put24(b, 44, self.starting_psn.get(), retries);
        put(b, 48, &self.pkey.to_be_bytes());
        b[50] = self.path_mtu << 4 | self.rnr_retry_count & 7;
        b[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | self.extended_transport & 7;
        self.path.write(b);
        put(b, 140, &self.private_data);
    }
}

impl Path {
    fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 52, &self.local_lid.to_be_bytes());
        put(b, 54, &self.remote_lid.to_be_bytes());
        put(b, 56, &self.local_gid.0);
        put(b, 72, &self.remote_gid.0);
        let flow = self.flow_label << 12 | u32::from(self.rate & 0x3f);
        put(b, 88, &flow.to_be_bytes());
        b[92] = self.traffic_class;
        b[93] = self.hop_limit;
        b[94] = self.service_level << 4 | u8::from(self.is_subnet_local) << 3;
        b[95] = self.ack_timeout << 3;
    }
}

/// REP: accepts a connection (IBA vol. 1, 12.6.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The passive side's identifier.
    pub local_id: u32,
    /// The active side's identifier.
    pub remote_id: u32,
    /// Q_Key of datagrams; unused for connections.
    pub qkey: u32,
    /// The passive side's queue pair.
    pub qpn: Qpn,
    /// The first PSN that the active side sends.
    pub starting_psn: Psn,
    /// READs and atomics that the passive side answers at a time.
    pub responder_resources: u8,
    /// READs and atomics that it has in flight at a time.
    pub initiator_depth: u8,
    /// How long its adapter takes to acknowledge, 4.096 us x 2^n, 5 bits.
    pub target_ack_delay: u8,
    /// Answer to the alternate path, 2 bits; 0 is accepted.
    pub failover: u8,
    /// Whether the hardware controls the flow.
    pub flow_control: bool,
    /// Retries after RNR, 3 bits; 7 is for ever.
    pub rnr_retry_count: u8,
    /// Whether the passive side uses a shared receive queue.
    pub srq: bool,
    /// The passive side's node.
    pub ca_guid: u64,
    /// Private data of the program.
    pub private_data: [u8; Rep::PRIVATE_BYTES],
}

impl Rep {
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 196;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            qkey: be32(b, 8),
            qpn: Qpn::new(be24(b, 12)),
            starting_psn: Psn::new(be24(b, 20)),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover: b[26] >> 1 & 3,
            flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            ca_guid: be64(b, 28),
            private_data: piece(b, 36),
        }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        put(b, 8, &self.qkey.to_be_bytes());
        put24(b, 12, self.qpn.get(), 0);
        put24(b, 20, self.starting_psn.get(), 0);
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] = self.target_ack_delay << 3 | (self.failover & 3) << 1 | u8::from(self.flow_control);
        b[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(b, 28, &self.ca_guid.to_be_bytes());
        put(b, 36, &self.private_data);
    }
}

/// RTU: data may flow (IBA vol. 1, 12.6.9).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The active side's identifier.
    pub local_id: u32,
    /// The passive side's identifier.
    pub remote_id: u32,
    /// Private data of the program.
    pub private_data: [u8; Rtu::PRIVATE_BYTES],
}

impl Rtu {
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 224;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        Self { local_id: be32(b, 0), remote_id: be32(b, 4), private_data: piece(b, 8) }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        put(b, 8, &self.private_data);
    }
}
