//! The messages that refuse, delay and end a connection, and those that ask for a datagram service.

use super::{BODY_BYTES, piece, put, put24};
use crate::bytes::{be16, be24, be32, be64};
use crate::ids::Qpn;

/// Reasons of a REJ (IBA vol. 1, table 115) that this project sends or explains.
pub mod reason {
    /// No queue pair is free.
    pub const NO_QP: u16 = 1;
    /// No resources are free.
    pub const NO_RESOURCES: u16 = 3;
    /// The answer took too long.
    pub const TIMEOUT: u16 = 4;
    /// No such communication is known.
    pub const INVALID_COMM_ID: u16 = 6;
    /// No process listens for that service.
    pub const INVALID_SERVICE_ID: u16 = 8;
    /// The queue pair is still connected at the passive side.
    pub const STALE_CONNECTION: u16 = 10;
    /// The program refuses.
    pub const CONSUMER: u16 = 28;
}

/// MRA: asks the peer to wait longer (IBA vol. 1, 12.6.6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's identifier.
    pub local_id: u32,
    /// The receiver's identifier.
    pub remote_id: u32,
    /// Which message took long: 0 a REQ, 1 a REP; 2 bits.
    pub about: u8,
    /// How long the answer will take, 4.096 us x 2^n, 5 bits.
    pub service_timeout: u8,
    /// Private data of the program.
    pub private_data: [u8; Mra::PRIVATE_BYTES],
}

impl Mra {
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 222;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            about: b[8] >> 6,
            service_timeout: b[9] >> 3,
            private_data: piece(b, 10),
        }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        b[8] = self.about << 6;
        b[9] = self.service_timeout << 3;
        put(b, 10, &self.private_data);
    }
}

/// REJ: refuses (IBA vol. 1, 12.6.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's identifier; 0 if it has none.
    pub local_id: u32,
    /// The receiver's identifier.
    pub remote_id: u32,
    /// Which message is refused: 0 a REQ, 1 a REP, 2 none; 2 bits.
    pub about: u8,
    /// Why: see [`reason`].
    pub reason: u16,
    /// Bytes of `info` that are used, 7 bits.
    pub info_length: u8,
    /// More about the reason.
    pub info: [u8; Rej::INFO_BYTES],
    /// Private data of the program.
    pub private_data: [u8; Rej::PRIVATE_BYTES],
}

impl Rej {
    /// Bytes of additional information.
    pub const INFO_BYTES: usize = 72;
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 148;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            about: b[8] >> 6,
            info_length: b[9] >> 1,
            reason: be16(b, 10),
            info: piece(b, 12),
            private_data: piece(b, 84),
        }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        b[8] = self.about << 6;
        b[9] = self.info_length << 1;
        put(b, 10, &self.reason.to_be_bytes());
        put(b, 12, &self.info);
        put(b, 84, &self.private_data);
    }
}

/// DREQ: asks to end the connection (IBA vol. 1, 12.6.10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's identifier.
    pub local_id: u32,
    /// The receiver's identifier.
    pub remote_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Private data of the program.
    pub private_data: [u8; Dreq::PRIVATE_BYTES],
}

impl Dreq {
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 220;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        Self {
            local_id: be32(b, 0),
            remote_id: be32(b, 4),
            remote_qpn: Qpn::new(be24(b, 8)),
            private_data: piece(b, 12),
        }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.local_id.to_be_bytes());
        put(b, 4, &self.remote_id.to_be_bytes());
        put24(b, 8, self.remote_qpn.get(), 0);
        put(b, 12, &self.private_data);
    }
}

/// DREP: the connection is over (IBA vol. 1, 12.6.11).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's identifier.
    pub local_id: u32,
    /// The receiver's identifier.
    pub remote_id: u32,
    /// Private data of the program.
    pub private_data: [u8; Drep::PRIVATE_BYTES],
}

impl Drep {
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

/// SIDR_REQ: asks where datagrams for a service go (IBA vol. 1, 12.11.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// The requester's identifier.
    pub request_id: u32,
    /// P_Key.
    pub pkey: u16,
    /// The service that is requested.
    pub service_id: u64,
    /// Private data; with IP addresses the first 36 bytes are an [`IpHeader`](super::IpHeader).
    pub private_data: [u8; SidrReq::PRIVATE_BYTES],
}

impl SidrReq {
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 216;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        Self {
            request_id: be32(b, 0),
            pkey: be16(b, 4),
            service_id: be64(b, 8),
            private_data: piece(b, 16),
        }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.request_id.to_be_bytes());
        put(b, 4, &self.pkey.to_be_bytes());
        put(b, 8, &self.service_id.to_be_bytes());
        put(b, 16, &self.private_data);
    }
}

/// SIDR_REP: where datagrams for a service go (IBA vol. 1, 12.11.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The requester's identifier.
    pub request_id: u32,
    /// 0 accepted, 1 no such service, 2 refused, 3 no queue pair, 4 redirected, 5 unsupported.
    pub status: u8,
    /// Bytes of `info` that are used.
    pub info_length: u8,
    /// The service's queue pair.
    pub qpn: Qpn,
    /// The service that was requested.
    pub service_id: u64,
    /// The service's Q_Key.
    pub qkey: u32,
    /// More about the status.
    pub info: [u8; SidrRep::INFO_BYTES],
    /// Private data of the program.
    pub private_data: [u8; SidrRep::PRIVATE_BYTES],
}

impl SidrRep {
    /// Bytes of additional information.
    pub const INFO_BYTES: usize = 72;
    /// Bytes of private data.
    pub const PRIVATE_BYTES: usize = 136;

    pub(super) fn read(b: &[u8; BODY_BYTES]) -> Self {
        Self {
            request_id: be32(b, 0),
            status: b[4],
            info_length: b[5],
            qpn: Qpn::new(be24(b, 8)),
            service_id: be64(b, 12),
            qkey: be32(b, 20),
            info: piece(b, 24),
            private_data: piece(b, 96),
        }
    }

    pub(super) fn write(&self, b: &mut [u8; BODY_BYTES]) {
        put(b, 0, &self.request_id.to_be_bytes());
        b[4] = self.status;
        b[5] = self.info_length;
        put24(b, 8, self.qpn.get(), 0);
        put(b, 12, &self.service_id.to_be_bytes());
        put(b, 20, &self.qkey.to_be_bytes());
        put(b, 24, &self.info);
        put(b, 96, &self.private_data);
    }
}
