//! The network of one process together with the parts of the process that packets need. It moves no
//! train: `path` and `deliver` call the driver's steps.

use super::Network;
use crate::process::Process;

/// Serves the network of a process: reads the socket, sends what queue pairs delay, opens the
/// connected socket of a peer, and passes ownership of the socket on.
#[derive(Clone, Copy)]
pub(crate) struct UdpIo<'a> {
    pub(super) process: &'a Process,
    pub(super) network: &'a Network,
}

impl<'a> UdpIo<'a> {
    /// Returns that of a process; `None` without a network.
    #[inline]
    pub(crate) fn of(process: &'a Process) -> Option<UdpIo<'a>> {
        process.network().map(|network| UdpIo { process, network })
    }
}
