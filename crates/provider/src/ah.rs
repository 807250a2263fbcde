//! Address handles, and addresses of the senders of datagrams.

use core::sync::atomic::Ordering;

use rdmalab_abi::{IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_grh, ibv_pd, ibv_wc};
use rdmalab_engine::backend::{Backend, GidType, VerbsError, VerbsResult};
use rdmalab_engine::vocab::AhAttr;
use rdmalab_wire::ids::{Gid, Lid};

use crate::object::{AhObject, AhOwn, PdObject};
use crate::registry::new_cookie;
use crate::{context, convert};

/// Hop limit of a reply: the largest, since the distance to the sender is unknown.
const HOP_LIMIT: u8 = 0xff;

/// Makes an address handle.
///
/// # Safety
/// `pd` is of this backend.
pub(crate) unsafe fn create<B: Backend>(
    pd: *mut ibv_pd,
    attr: &ibv_ah_attr,
) -> VerbsResult<*mut ibv_ah> {
    let attr = convert::ah_attr_from_c(attr);
    // SAFETY: by the contract.
    let (own, context) = unsafe { (PdObject::<B>::find(pd)?, (*pd).context) };
    B::check_ah(&own.backend, &attr)?;
    // SAFETY: the context of a live domain.
    let of_context = unsafe { context::own::<B>(context) };
    if of_context.address_handles.fetch_add(1, Ordering::Relaxed) >= of_context.max_ah {
        of_context.address_handles.fetch_sub(1, Ordering::Relaxed);
        let most = of_context.max_ah;
        return Err(VerbsError::no_room(format!(
            "an open device can have {most} address handles: destroy some first"
        )));
    }
    own.address_handles.fetch_add(1, Ordering::Relaxed);
    let public = ibv_ah { context, pd, handle: new_cookie() as u32 };
    Ok(AhObject::leak(public, AhOwn { pd, attr }))
}

/// Frees an address handle.
///
/// # Safety
/// `ah` is of this backend, and not used afterwards.
pub(crate) unsafe fn destroy<B: Backend>(ah: *mut ibv_ah) -> VerbsResult<()> {
    // SAFETY: by the contract; a PD with address handles is not freed.
    unsafe {
        let own = AhObject::find(ah)?;
        PdObject::<B>::own(own.pd).address_handles.fetch_sub(1, Ordering::Relaxed);
        context::own::<B>((*ah).context).address_handles.fetch_sub(1, Ordering::Relaxed);
        AhObject::free(ah);
    }
    Ok(())
}

/// The address of the sender of a datagram.
///
/// # Safety
/// `context` is of this backend; `grh` points to the 40 bytes before the payload when `wc` says
/// that they hold a header.
pub(crate) unsafe fn from_wc<B: Backend>(
    context: *mut ibv_context,
    port_num: u8,
    wc: &ibv_wc,
    grh: *const ibv_grh,
) -> VerbsResult<ibv_ah_attr> {
    let mut attr = AhAttr {
        dlid: Lid(wc.slid),
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num,
        ..AhAttr::default()
    };
    if wc.wc_flags & IBV_WC_GRH != 0 {
        if grh.is_null() {
            return Err(VerbsError::invalid("the completion has a GRH, but grh is null"));
        }
        // SAFETY: by the contract; the buffer need not be aligned, and any bytes are valid.
        let bytes = unsafe { grh.cast::<[u8; 40]>().read_unaligned() };
        let route = Route::read(&bytes)?;
        // SAFETY: by the contract.
        let backend = unsafe { &context::own::<B>(context).backend };
        attr.is_global = true;
        attr.dgid = route.from;
        attr.flow_label = route.flow_label;
        attr.traffic_class = route.traffic_class;
        attr.hop_limit = HOP_LIMIT;
        attr.sgid_index = source_index::<B>(backend, port_num, route.to)?;
    }
    Ok(convert::ah_attr_to_c(&attr))
}

/// Sender and receiver of a datagram.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    from: Gid,
    to: Gid,
    flow_label: u32,
    traffic_class: u8,
}

impl Route {
    /// Reads the 40 bytes before the payload: a GRH, which has the form of an IPv6 header, or 20
    /// bytes of nothing and an IPv4 header (IBA annex A17.4.5.2).
    fn read(bytes: &[u8; 40]) -> VerbsResult<Route> {
        let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        match (bytes[0] >> 4, bytes[20] >> 4) {
            (6, _) => Ok(Route {
                from: Gid(field(bytes, 8)),
                to: Gid(field(bytes, 24)),
                flow_label: word & 0xf_ffff,
                traffic_class: (word >> 20) as u8,
            }),
            (0, 4) => Ok(Route {
                from: mapped(field(bytes, 32)),
                to: mapped(field(bytes, 36)),
                flow_label: 0,
                traffic_class: bytes[21],
            }),
            (v6, v4) => Err(VerbsError::invalid(format!(
                "the 40 bytes of grh are no header: versions {v6} and {v4}, neither 6 nor 4"
            ))),
        }
    }
}

/// `N` bytes at `at`.
fn field<const N: usize>(bytes: &[u8; 40], at: usize) -> [u8; N] {
    core::array::from_fn(|i| bytes[at + i])
}

/// An IPv4 address as a GID.
fn mapped(address: [u8; 4]) -> Gid {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&address);
    Gid(gid)
}

/// The index of the local GID that a datagram was sent to.
fn source_index<B: Backend>(ctx: &B::Context, port_num: u8, to: Gid) -> VerbsResult<u8> {
    if to.is_multicast() {
        // A reply is unicast, and is sent from the port's first GID.
        return Ok(0);
    }
    let entries = B::query_port(ctx, port_num)?.gid_tbl_len.min(u32::from(u8::MAX) + 1);
    let mut found = None;
    for index in 0..entries {
        // An index without an entry is skipped: tables have holes.
        let Ok(entry) = B::query_gid(ctx, port_num, index) else { continue };
        if entry.gid == to {
            // An address may have entries for several versions of RoCE. Only datagrams of the
            // routable version arrive here.
            if entry.gid_type != GidType::RoceV1 {
                return Ok(index as u8);
            }
            found.get_or_insert(index as u8);
        }
    }
    found.ok_or_else(|| {
        VerbsError::invalid(format!("{to:?}, which the datagram was sent to, is not of this port"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_header_are_read() {
        let mut bytes = [0; 40];
        bytes[..4].copy_from_slice(&0x6ab1_2345_u32.to_be_bytes());
        bytes[8] = 1;
        bytes[24] = 2;
        let route = Route::read(&bytes).expect("it is a GRH");
        assert_eq!((route.flow_label, route.traffic_class), (0x1_2345, 0xab));
        assert_eq!((route.from.0[0], route.to.0[0]), (1, 2));

        let mut bytes = [0; 40];
        bytes[20..22].copy_from_slice(&[0x45, 7]);
        bytes[32..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let route = Route::read(&bytes).expect("it is an IPv4 header");
        assert_eq!(route.from, mapped([10, 0, 0, 1]));
        assert_eq!(route.to, mapped([10, 0, 0, 2]));
        assert_eq!(route.traffic_class, 7);

        assert!(Route::read(&[0; 40]).is_err());
    }
}
