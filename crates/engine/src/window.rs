//! Memory windows: who may bind or invalidate one, and what its key grants afterwards. The driver
//! owns the key table, and puts the new entry in the place of the former one.

use crate::backend::MwBind;
use crate::mr::{Backing, KeyEntry, KeyKind};
use crate::vocab::{Access, PdId};
use rdmalab_wire::ids::Qpn;

/// Bits of a window's key that the program chooses; the others are the device's (IBA vol. 1,
/// 10.6.7.2.2).
const PROGRAMS_BITS: u32 = 0xff;

/// Binds a window by a work request of queue pair `qpn` in domain `pd` (IBA vol. 1, 10.6.7.2.2).
/// `region` looks up a local key. `None`: the queue pair may not do that.
pub fn bind(
    bind: &MwBind,
    window: &KeyEntry,
    region: impl FnOnce(u32) -> Option<KeyEntry>,
    pd: PdId,
    qpn: Qpn,
) -> Option<KeyEntry> {
    // A type 2 window is unbound by invalidation, not by a second bind or by length 0. Only a
    // type 2 window may be zero-based.
    let (qpn, is_allowed) = match window.kind {
        KeyKind::Region => return None,
        KeyKind::WindowType1 => (Qpn::new(0), !bind.access.contains(Access::ZERO_BASED)),
        KeyKind::WindowType2 => (qpn, window.length == 0 && bind.length > 0),
    };
    if !is_allowed || window.pd != pd || (window.key ^ bind.mw_rkey) & !PROGRAMS_BITS != 0 {
        return None;
    }
    let key = window.key & !PROGRAMS_BITS | bind.new_rkey & PROGRAMS_BITS;
    if bind.length == 0 {
        return Some(KeyEntry { key, ..unbound(window) });
    }
    let region = region(bind.mr_lkey)?;
    let offset = bind.addr.checked_sub(region.iova)?;
    let is_inside = offset <= region.length && bind.length <= region.length - offset;
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let is_granted = region.kind == KeyKind::Region
        && region.pd == pd
        && region.access.contains(Access::MW_BIND)
        && (!bind.access.intersects(writes) || region.access.contains(Access::LOCAL_WRITE));
    if !is_inside || !is_granted {
        return None;
    }
    let iova = if bind.access.contains(Access::ZERO_BASED) { 0 } else { bind.addr };
    Some(KeyEntry {
        key,
        iova,
        length: bind.length,
        host_delta: region.host_address(bind.addr).wrapping_sub(iova),
        access: bind.access.without(Access::ZERO_BASED),
        qpn,
        on_demand: region.on_demand,
        backing: Backing {
            segment: region.backing.segment,
            offset: region.backing.offset.wrapping_add(offset),
        },
        ..*window
    })
}

/// Whether queue pair `qpn` may invalidate a window: by a work request, or by a SEND that it
/// receives (IBA vol. 1, 10.6.7.2.4).
pub fn may_invalidate(window: &KeyEntry, qpn: Qpn) -> bool {
    window.kind == KeyKind::WindowType2 && window.qpn == qpn
}

/// The entry of a window that is bound to nothing.
#[must_use]
pub fn unbound(window: &KeyEntry) -> KeyEntry {
    KeyEntry { length: 0, access: Access::NONE, qpn: Qpn::new(0), ..*window }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);
    const QPN: Qpn = Qpn::new(7);

    fn entry(kind: KeyKind, key: u32, length: u64, access: Access) -> KeyEntry {
        KeyEntry {
            key,
            kind,
            iova: 0x1000,
            length,
            host_delta: 0x10_0000,
            access,
            pd: PD,
            qpn: Qpn::new(0),
            on_demand: false,
            backing: Backing { segment: 3, offset: 0x40 },
        }
    }

    #[test]
    fn a_bind_needs_the_rights_of_its_region_and_a_window_of_its_domain() {
        let region = entry(KeyKind::Region, 0x500, 0x100, Access::MW_BIND);
        let window = entry(KeyKind::WindowType2, 0x601, 0, Access::NONE);
        let read = MwBind {
            mw_rkey: 0x601,
            new_rkey: 0xff02,
            mr_lkey: 0x500,
            addr: 0x1010,
            length: 0xf0,
            access: Access::REMOTE_READ,
        };
        let result = |wanted: &MwBind, window: &KeyEntry, region: KeyEntry| {
            bind(wanted, window, |key| (key == 0x500).then_some(region), PD, QPN)
        };
        let bound = result(&read, &window, region).unwrap();
        assert_eq!((bound.key, bound.qpn, bound.iova, bound.length), (0x602, QPN, 0x1010, 0xf0));
        assert_eq!((bound.host_address(0x1010), bound.backing.offset), (0x10_1010, 0x50));
        assert!(may_invalidate(&bound, QPN) && !may_invalidate(&bound, Qpn::new(8)));
        assert!(!may_invalidate(&unbound(&bound), QPN));
        let at_0 = MwBind { access: Access::REMOTE_READ | Access::ZERO_BASED, ..read };
        let bound_at_0 = result(&at_0, &window, region).unwrap();
        assert_eq!((bound_at_0.iova, bound_at_0.host_address(0)), (0, 0x10_1010));
        assert_eq!(bound_at_0.access, Access::REMOTE_READ);
        // What the window, the region and the request must be.
        let other = PdId(2);
        let refused = [
            (read, bound, region),
            (read, KeyEntry { pd: other, ..window }, region),
            (read, region, region),
            (read, window, KeyEntry { pd: other, ..region }),
            (read, window, window),
            (read, window, KeyEntry { access: Access::NONE, ..region }),
            (MwBind { mw_rkey: 0x701, ..read }, window, region),
            (MwBind { mr_lkey: 0x501, ..read }, window, region),
            (MwBind { length: 0, ..read }, window, region),
            (MwBind { length: 0xf1, ..read }, window, region),
            (MwBind { addr: 0xfff, ..read }, window, region),
            (MwBind { access: Access::REMOTE_WRITE, ..read }, window, region),
            (at_0, KeyEntry { kind: KeyKind::WindowType1, ..window }, region),
        ];
        for (index, (wanted, window, region)) in refused.into_iter().enumerate() {
            assert_eq!(result(&wanted, &window, region), None, "{index}");
        }
        // A window of type 1 is bound again, and unbound by length 0, which needs no region.
        let type_1 = KeyEntry { kind: KeyKind::WindowType1, ..window };
        let bound = result(&MwBind { mw_rkey: 0x601, ..read }, &type_1, region).unwrap();
        assert_eq!(bound.qpn, Qpn::new(0));
        let nothing = MwBind { mw_rkey: 0x602, new_rkey: 3, mr_lkey: 0, length: 0, ..read };
        let gone = result(&nothing, &bound, region).unwrap();
        assert_eq!((gone.key, gone.length, gone.access), (0x603, 0, Access::NONE));
    }
}
