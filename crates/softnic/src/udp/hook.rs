//! The network's hook and its counters of drops, for programs and tests.

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_link::hook::PacketHook;

use super::network::drops_of;
use super::packet_path::ArmedHook;
use crate::process::Process;

/// Passes every packet of this process through a tap or fault rules, until the process ends.
///
/// # Errors
/// No interface is open, or there is a hook already.
pub fn set_packet_hook(hook: Box<dyn PacketHook>) -> VerbsResult<()> {
    let network = Process::existing().and_then(|process| process.network());
    let network = network.ok_or_else(|| {
        VerbsError::invalid("no network is open: name an interface, and open a device first")
    })?;
    let set = network.hook.set(ArmedHook::new(hook));
    network.connected.request_close();
    set.map_err(|_| VerbsError::busy("the network has a hook already"))
}

/// Packets that this process dropped, by reason, since it opened the network; empty without one.
pub fn network_drops() -> Vec<(&'static str, u64)> {
    let network = Process::existing().and_then(|process| process.network());
    network.map(drops_of).unwrap_or_default()
}
