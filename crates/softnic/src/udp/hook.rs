//! The network's hook and its counters of drops, for programs and tests.

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_link::hook::PacketHook;

use super::network::drops_of;
use crate::process::Process;

/// Puts a tap or fault rules into the way of every packet of this process, for good.
///
/// # Errors
/// That no interface is open, or that there is a hook already.
pub fn set_packet_hook(hook: Box<dyn PacketHook>) -> VerbsResult<()> {
    let network = Process::existing().and_then(|process| process.network());
    let network = network.ok_or_else(|| {
        VerbsError::invalid("no network is open: name an interface, and open a device first")
    })?;
    let set = network.hook.set(hook);
    network.connected.request_close();
    set.map_err(|_| VerbsError::busy("the network has a hook already"))
}

/// Packets that this process dropped, by reason, since it opened the network; empty without one.
pub fn network_drops() -> Vec<(&'static str, u64)> {
    let network = Process::existing().and_then(|process| process.network());
    network.map(drops_of).unwrap_or_default()
}
