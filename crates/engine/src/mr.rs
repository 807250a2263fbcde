//! The checks of memory access: keys, ranges, rights and protection domains.
//!
//! Every device calls these functions, so that soft and simulated adapters cannot differ. They get
//! an entry of the owner's key table by value, a consistent snapshot.

use crate::vocab::{Access, PdId, Sge};
use rdmalab_wire::ids::Qpn;

/// The kind of object that a key names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum KeyKind {
    /// A memory region.
    Region = 1,
    /// A window bound by the verb; any QP of its PD may use it.
    WindowType1 = 2,
    /// A window bound by a work request; only its QP may use it.
    WindowType2 = 3,
}

/// Where the bytes of a region are, for processes that can map them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backing {
    /// Number of the owner's shared segment; 0: private memory of its process.
    pub segment: u32,
    /// Offset of the region's first byte in it.
    pub offset: u64,
}

/// An entry of a key table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyEntry {
    /// The whole key.
    pub key: u32,
    /// The kind of the object.
    pub kind: KeyKind,
    /// First address, as peers and work requests use it.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
    /// Add this (modulo 2^64) to an iova to get the owner's virtual address.
    pub host_delta: u64,
    /// Rights.
    pub access: Access,
    /// Protection domain.
    pub pd: PdId,
    /// The QP that a type 2 window belongs to.
    pub qpn: Qpn,
    /// Whether pages are mapped on demand.
    pub on_demand: bool,
    /// The memory of the bytes.
    pub backing: Backing,
}

/// Why an access was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such key, or it was invalidated.
    Key,
    /// The key belongs to another protection domain, or the window to another QP.
    Domain,
    /// Outside the region.
    Bounds,
    /// The region does not grant this right.
    Rights,
}

/// Why the bytes could not be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyError {
    /// A local scatter/gather element failed its check.
    Protection,
    /// The memory is not mapped any more.
    Fault,
    /// The scatter list of an atomic is not 8 bytes long, or that of a datagram is longer than the
    /// path MTU.
    Length,
}

impl KeyEntry {
    /// The owner's virtual address of `iova`.
    #[inline]
    pub const fn host_address(&self, iova: u64) -> u64 {
        iova.wrapping_add(self.host_delta)
    }

    #[inline]
    fn covers(&self, addr: u64, bytes: u64) -> bool {
        match addr.checked_sub(self.iova) {
            Some(offset) => offset <= self.length && bytes <= self.length - offset,
            None => false,
        }
    }

    /// The owner's address of a range that was checked.
    #[inline]
    fn host_range(&self, addr: u64, bytes: u64) -> u64 {
        let host = self.host_address(addr);
        let offset = host.wrapping_sub(self.host_address(self.iova));
        debug_assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.length),
            "{bytes} bytes at {addr:#x} leave the region: {self:?}"
        );
        host
    }
}

/// Checks a scatter/gather element of this adapter's own work request; `write` when the adapter
/// will write there. Returns the virtual address (IBA vol. 1, 10.6.3).
#[inline]
pub fn check_local(
    entry: Option<&KeyEntry>,
    pd: PdId,
    sge: &Sge,
    write: bool,
) -> Result<u64, Refusal> {
    let entry = entry.ok_or(Refusal::Key)?;
    if entry.key != sge.lkey || entry.kind != KeyKind::Region {
        return Err(Refusal::Key);
    }
    if entry.pd != pd {
        return Err(Refusal::Domain);
    }
    if !entry.covers(sge.addr, sge.length as u64) {
        return Err(Refusal::Bounds);
    }
    if write && !entry.access.contains(Access::LOCAL_WRITE) {
        return Err(Refusal::Rights);
    }
    Ok(entry.host_range(sge.addr, sge.length as u64))
}

/// Checks an access by a peer through QP `qpn` (IBA vol. 1, 9.7.4.1.5 and 10.6.3, 10.6.7). Callers
/// do not check requests of zero bytes (C9-88).
#[inline]
pub fn check_remote(
    entry: Option<&KeyEntry>,
    rkey: u32,
    pd: PdId,
    qpn: Qpn,
    need: Access,
    addr: u64,
    bytes: u64,
) -> Result<u64, Refusal> {
    let entry = entry.ok_or(Refusal::Key)?;
    if entry.key != rkey {
        return Err(Refusal::Key);
    }
    if entry.pd != pd || (entry.kind == KeyKind::WindowType2 && entry.qpn != qpn) {
        return Err(Refusal::Domain);
    }
    if !entry.covers(addr, bytes) {
        return Err(Refusal::Bounds);
    }
    if !entry.access.contains(need) {
        return Err(Refusal::Rights);
    }
    Ok(entry.host_range(addr, bytes))
}

/// Checks the rights requested at registration: remote writing and atomics need local writing (IBA
/// vol. 1, 11.2.8.2); unknown mandatory bits are refused, optional ones ignored.
pub fn check_registration(access: Access, length: u64, addr: u64) -> Result<Access, &'static str> {
    let mandatory = Access(access.0 & !Access::OPTIONAL_RANGE);
    if mandatory.0 & !Access::KNOWN != 0 {
        return Err("unknown access flag: only the bits of enum ibv_access_flags are defined");
    }
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if mandatory.intersects(writes) && !mandatory.contains(Access::LOCAL_WRITE) {
        return Err("REMOTE_WRITE and REMOTE_ATOMIC also need IBV_ACCESS_LOCAL_WRITE");
    }
    if addr.checked_add(length).is_none() {
        return Err("the region wraps around the end of the address space");
    }
    Ok(mandatory)
}

/// Calls `each` with the parts of a scatter/gather list that make up `bytes` bytes from `offset`.
#[inline]
pub fn for_each_piece(
    sges: &[Sge],
    offset: u64,
    bytes: u64,
    mut each: impl FnMut(&Sge) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let (mut skip, mut left) = (offset, bytes);
    for sge in sges {
        let length = u64::from(sge.length);
        if skip >= length {
            skip -= length;
            continue;
        }
        if left == 0 {
            break;
        }
        let take = (length - skip).min(left);
        debug_assert!(take > 0 && skip + take <= length, "a piece leaves its element");
        each(&Sge { addr: sge.addr.wrapping_add(skip), length: take as u32, lkey: sge.lkey })?;
        left -= take;
        skip = 0;
    }
    if left == 0 { Ok(()) } else { Err(CopyError::Protection) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> KeyEntry {
        KeyEntry {
            key: 0x1234_5600,
            kind: KeyKind::Region,
            iova: 0x1000,
            length: 0x100,
            host_delta: 0x7000_0000,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ,
            pd: PdId(3),
            qpn: Qpn::new(0),
            on_demand: false,
            backing: Backing::default(),
        }
    }

    fn remote(need: Access, addr: u64, bytes: u64) -> Result<u64, Refusal> {
        check_remote(Some(&region()), 0x1234_5600, PdId(3), Qpn::new(9), need, addr, bytes)
    }

    #[test]
    fn the_last_byte_is_inside_and_the_next_is_not() {
        assert_eq!(remote(Access::REMOTE_READ, 0x10ff, 1), Ok(0x7000_10ff));
        assert_eq!(remote(Access::REMOTE_READ, 0x10ff, 2), Err(Refusal::Bounds));
        assert_eq!(remote(Access::REMOTE_READ, 0xfff, 1), Err(Refusal::Bounds));
        assert_eq!(remote(Access::REMOTE_READ, u64::MAX, 2), Err(Refusal::Bounds));
        assert_eq!(remote(Access::REMOTE_READ, 0x1000, u64::MAX), Err(Refusal::Bounds));
    }

    #[test]
    fn rights_domain_and_key_are_each_needed() {
        assert_eq!(remote(Access::REMOTE_WRITE, 0x1000, 1), Err(Refusal::Rights));
        let entry = region();
        let ask = |key, pd| {
            check_remote(Some(&entry), key, pd, Qpn::new(9), Access::REMOTE_READ, 0x1000, 1)
        };
        assert_eq!(ask(0x1234_5601, PdId(3)), Err(Refusal::Key));
        assert_eq!(ask(0x1234_5600, PdId(4)), Err(Refusal::Domain));
    }

    #[test]
    fn a_type_2_window_belongs_to_its_qp() {
        let mut window = region();
        window.kind = KeyKind::WindowType2;
        window.qpn = Qpn::new(7);
        let ask = |qpn| {
            check_remote(
                Some(&window),
                window.key,
                PdId(3),
                Qpn::new(qpn),
                Access::REMOTE_READ,
                0x1000,
                1,
            )
        };
        assert!(ask(7).is_ok());
        assert_eq!(ask(8), Err(Refusal::Domain));
        let sge = Sge { addr: 0x1000, length: 1, lkey: window.key };
        assert_eq!(check_local(Some(&window), PdId(3), &sge, false), Err(Refusal::Key));
    }

    #[test]
    fn remote_writing_needs_local_writing() {
        assert!(check_registration(Access::REMOTE_WRITE, 1, 0).is_err());
        assert!(check_registration(Access(1 << 9), 1, 0).is_err());
        assert!(check_registration(Access(1 << 20), 1, 0).is_ok());
        assert!(check_registration(Access::LOCAL_WRITE, 2, u64::MAX).is_err());
    }

    fn touched(offset: u64, bytes: u64) -> (Vec<(u64, u32)>, Result<(), CopyError>) {
        let sge = |addr, length| Sge { addr, length, lkey: 1 };
        let mut pieces = Vec::new();
        let list = [sge(100, 10), sge(200, 0), sge(300, 10)];
        let result = for_each_piece(&list, offset, bytes, |sge| {
            pieces.push((sge.addr, sge.length));
            Ok(())
        });
        (pieces, result)
    }

    #[test]
    fn pieces_cross_elements() {
        assert_eq!(touched(8, 5), (vec![(108, 2), (300, 3)], Ok(())));
        assert_eq!(touched(0, 20), (vec![(100, 10), (300, 10)], Ok(())));
        assert_eq!(touched(20, 0), (vec![], Ok(())));
    }

    #[test]
    fn a_list_that_is_too_short_is_refused() {
        assert_eq!(touched(15, 6), (vec![(305, 5)], Err(CopyError::Protection)));
        assert_eq!(touched(u64::MAX, 1), (vec![], Err(CopyError::Protection)));
    }
}
