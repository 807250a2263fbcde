//! The network's seam and its counters of drops, for programs and tests.

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_link::seam::Seam;

use super::network::drops_of;
use crate::process::Process;

/// Puts a tap or fault rules into the way of every packet of this process, for good.
///
/// # Errors
/// That no interface is open, or that there is a seam already.
pub fn set_network_seam(seam: Box<dyn Seam>) -> VerbsResult<()> {
    let network = Process::existing().and_then(|process| process.network());
    let network = network.ok_or_else(|| {
        VerbsError::invalid("no network is open: name an interface, and open a device first")
    })?;
    let set = network.seam.set(seam);
    network.connected.request_close();
    set.map_err(|_| VerbsError::busy("the network has a seam already"))
}

/// Packets that this process dropped, by reason, since it opened the network; empty without one.
pub fn network_drops() -> Vec<(&'static str, u64)> {
    let network = Process::existing().and_then(|process| process.network());
    network.map(drops_of).unwrap_or_default()
}
