//! Checks of address vectors.

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::vocab::AhAttr;

use super::Network;

/// Refuses an address vector to which no packet can be sent.
///
/// # Errors
/// There is no such source GID, or an error of [`super::Network::check_address`].
pub(crate) fn check_address(network: Option<&Network>, ah: &AhAttr) -> VerbsResult<()> {
    let (index, gids) = (u32::from(ah.sgid_index), crate::device::gid_count());
    if ah.is_global && index >= gids {
        return Err(VerbsError::invalid(format!(
            "sgid_index {index}: the port has {gids} GIDs, from 0"
        )));
    }
    network.map_or(Ok(()), |network| network.check_address(ah))
}
