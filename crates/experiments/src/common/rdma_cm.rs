//! The connection manager, as experiments use it.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{CmAddress, CmChannel, CmEvent, CmEventKind, CmId, Context, VerbsError};

use crate::common::completions::{failed, timed_out};
use crate::common::limits::Limits;
use crate::common::params::Common;

/// Time to find an address of this host, in milliseconds.
const RESOLVE_MS: u32 = 2000;
/// The longest sleep until an event: then the rank has to check that the other ranks still live.
const SLICE_NS: u64 = 100_000_000;

/// The next event, within the rank's patience.
pub(crate) fn event<R: Rank>(
    rank: &R,
    channel: &CmChannel,
    what: &str,
) -> Result<CmEvent, Stopped> {
    let begin = rank.now();
    loop {
        if let Some(event) = channel.wait_ns(SLICE_NS).map_err(failed)? {
            return Ok(event);
        }
        // Fails if another rank is gone.
        rank.spin_for(0, || None::<()>)?;
        let waited_ns = rank.clock().ns_between(begin, rank.now());
        if waited_ns > rank.patience_ns() as f64 {
            return Err(timed_out(rank.patience_ns(), what));
        }
    }
}

/// An IP address of the point's device and port, for a program that connects by itself.
///
/// # Errors
/// Why no address works.
pub fn ip_address(
    context: &Context,
    limits: &Limits,
    common: &Common,
) -> Result<CmAddress, String> {
    let manager = context.library().connection_manager().map_err(|e| e.to_string())?;
    let channel = manager.create_channel().map_err(|e| e.to_string())?;
    bound(context, limits, common, || channel.create_id()).map(|(_, _, address)| address)
}

/// Fails unless this rank reaches that address by the point's device and port.
///
/// # Errors
/// The address is not found, or found by another port.
pub fn reaches<R: Rank>(
    rank: &R,
    context: &Context,
    common: &Common,
    address: &CmAddress,
) -> Result<(), Stopped> {
    let manager = context.library().connection_manager().map_err(failed)?;
    let channel = manager.create_channel().map_err(failed)?;
    let id = channel.create_id().map_err(failed)?;
    id.resolve_address(address, RESOLVE_MS).map_err(failed)?;
    let found = event(rank, &channel, "the address of rank 1")?;
    let device = context.device_name();
    match id.context() {
        Some(own) if leads_to(&id, &own, context, common) => Ok(()),
        Some(own) => Err(failed(format!(
            "{address} is reached by {}, port {}, and not by {device}, port {}",
            own.device_name(),
            id.device_port(),
            common.port
        ))),
        None if found.kind == CmEventKind::AddressResolved => {
            Err(failed(format!("{address} is not reached by a device")))
        }
        None => Err(failed(format!("{address} is not found: {:?}", found.kind))),
    }
}

/// An id that is bound to an address of the point's device and port, the device as opened by the
/// connection manager, and the address. The error says why no address works.
pub(crate) fn bound(
    context: &Context,
    limits: &Limits,
    common: &Common,
    create: impl Fn() -> Result<CmId, VerbsError>,
) -> Result<(CmId, Context, CmAddress), String> {
    let mut why = String::new();
    for address in addresses(context, limits, common) {
        let id = create().map_err(|e| e.to_string())?;
        match id.bind(&address) {
            Err(error) => why = format!("; {address}: {error}"),
            Ok(()) => match id.context() {
                Some(own) if leads_to(&id, &own, context, common) => return Ok((id, own, address)),
                _ => why = format!("; {address} belongs to another port"),
            },
        }
    }
    let device = context.device_name();
    Err(format!(
        "no IP address of {device}, port {}, was found among its GIDs and this host's interfaces; \
         connection managers need one (an InfiniBand port gets it by IPoIB){why}",
        common.port
    ))
}

/// Addresses that may be of the port. On InfiniBand no GID tells one; then those of interfaces.
fn addresses<'a>(
    context: &'a Context,
    limits: &Limits,
    common: &'a Common,
) -> impl Iterator<Item = CmAddress> + 'a {
    let is_free = common.gid_index.is_none();
    let indices = match common.gid_index {
        Some(index) => u32::from(index)..u32::from(index) + 1,
        None => 0..limits.gids,
    };
    let gids = indices.filter_map(|index| context.query_gid(common.port, index).ok());
    // Loopback leads to some device, maybe to this one.
    let loopback = is_free.then(CmAddress::loopback);
    let others = is_free.then(CmAddress::of_this_host).into_iter().flatten();
    gids.filter_map(CmAddress::of_gid).chain(loopback).chain(others)
}

fn leads_to(id: &CmId, own: &Context, context: &Context, common: &Common) -> bool {
    let is_port = [0, common.port].contains(&id.device_port());
    is_port && own.device_name() == context.device_name()
}
