//! Addresses of datagrams.

use std::net::Ipv6Addr;
use std::sync::Arc;

use rdmalab_abi as abi;

use crate::buffer::Buffer;
use crate::domain::Pd;
use crate::endpoint::QpEndpoint;
use crate::error::VerbsError;
use crate::object::Object;
use crate::path::Path;

/// Bytes in front of each received datagram: the room for a GRH, used or not.
pub const UD_GRH_BYTES: usize = size_of::<abi::ibv_grh>();

/// The destination of datagrams. Cheap to clone. Keep it until its datagrams have completed.
#[derive(Clone, Debug)]
pub struct AddressHandle(Arc<AhInner>);

#[derive(Debug)]
struct AhInner {
    raw: Object<abi::ibv_ah>,
    pd: Pd,
}

impl Drop for AhInner {
    fn drop(&mut self) {
        // SAFETY: made by this library, and destroyed once.
        let _ = unsafe { (self.pd.context().library().table().destroy_ah)(self.raw.as_ptr()) };
    }
}

impl Pd {
    /// Creates an address handle for the port with the endpoint's LID and GID; the endpoint's queue
    /// pair number and PSN are not used.
    ///
    /// # Errors
    /// `EINVAL` for an address that the port cannot reach.
    pub fn create_ah(&self, to: &QpEndpoint, path: &Path) -> Result<AddressHandle, VerbsError> {
        let library = self.context().library();
        let mut attr = path.to_raw(to);
        // SAFETY: the domain is alive, and the attributes are valid.
        let raw = unsafe { (library.table().create_ah)(self.raw(), &raw mut attr) };
        let raw = library.not_null("ibv_create_ah", raw)?;
        Ok(AddressHandle(Arc::new(AhInner { raw: raw.into(), pd: self.clone() })))
    }
}

impl AddressHandle {
    pub(crate) fn raw(&self) -> *mut abi::ibv_ah {
        self.0.raw.as_ptr()
    }
}

/// The global route header in front of a received datagram (IBA 8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Source.
    pub sgid: Ipv6Addr,
    /// Destination.
    pub dgid: Ipv6Addr,
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

impl Grh {
    /// Reads the header at the start of a received datagram; valid if
    /// [`Wc::has_grh`](crate::Wc::has_grh).
    ///
    /// # Panics
    /// When the 40 bytes go beyond the end.
    #[must_use]
    pub fn read(buffer: &Buffer, offset: usize) -> Self {
        let mut bytes = [0; UD_GRH_BYTES];
        buffer.read_bytes(offset, &mut bytes);
        let gid = |at: usize| {
            let mut raw = [0; 16];
            raw.copy_from_slice(&bytes[at..at + 16]);
            Ipv6Addr::from(raw)
        };
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Self {
            sgid: gid(8),
            dgid: gid(24),
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grh_is_read_where_it_lies() {
        let buffer = Buffer::private(64).unwrap();
        buffer.write_bytes(8, &[0x6a, 0xb1, 0x23, 0x45]);
        buffer.write_bytes(16, &Ipv6Addr::LOCALHOST.octets());
        let grh = Grh::read(&buffer, 8);
        assert_eq!((grh.sgid, grh.dgid), (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED));
        assert_eq!((grh.traffic_class, grh.flow_label), (0xab, 0x1_2345));
    }
}
