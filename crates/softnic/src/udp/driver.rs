//! The network of one process together with the parts of the process that packets need.

use super::Network;
use crate::process::Process;

/// Drives the network of a process: reads the socket, sends what queue pairs delay, opens the
/// connected socket of a peer, and passes ownership of the socket on.
#[derive(Clone, Copy)]
pub(crate) struct UdpDriver<'a> {
    pub(super) process: &'a Process,
    pub(super) network: &'a Network,
}

impl<'a> UdpDriver<'a> {
    /// The driver of a process; `None` without a network.
    #[inline]
    pub(crate) fn of(process: &'a Process) -> Option<UdpDriver<'a>> {
        process.network().map(|network| UdpDriver { process, network })
    }
}
