//! Multicast groups on the network.
//!
//! A membership makes the interface and the switches pass a group's packets. A separate socket
//! holds it, so that it ends with its process. The packets come to the shared socket, which
//! receives every group that any process of the host has joined.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rdmalab_engine::backend::VerbsResult;
use rdmalab_link::address::destination_of;
use rdmalab_wire::ids::Gid;

use super::Network;
use super::network::NetworkPort;
use crate::error::os_error;

impl NetworkPort {
    /// Joins the group of a GID on the network, if there is one.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn join(&self, group: Gid) -> VerbsResult<()> {
        self.opened.get().map_or(Ok(()), |network| network.join(group))
    }

    /// Leaves the group of a GID on the network, if there is one.
    pub(crate) fn leave(&self, group: &Gid) {
        if let Some(network) = self.opened.get() {
            network.memberships.lock().remove(group);
        }
    }
}

impl Network {
    /// Joins the group of a GID on the interface, if this process has not joined it.
    ///
    /// # Errors
    /// The kernel's error.
    fn join(&self, group: Gid) -> VerbsResult<()> {
        let mut memberships = self.memberships.lock();
        if memberships.contains_key(&group) {
            return Ok(());
        }
        let address = destination_of(group);
        let joined = join(address, self.interface.index).map_err(|error| {
            os_error(&format!("cannot join {address} on {}", self.interface.name), &error)
        })?;
        memberships.insert(group, joined);
        Ok(())
    }
}

fn join(group: IpAddr, interface: u32) -> std::io::Result<OwnedFd> {
    let family = if group.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let failed = || Err(std::io::Error::last_os_error());
    // SAFETY: takes integers.
    let raw = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return failed();
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let done = match group {
        IpAddr::V4(v4) => {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: u32::from(v4).to_be() },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: interface as libc::c_int,
            };
            let (level, option) = (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP);
            let length = size_of_val(&request) as libc::socklen_t;
            let (fd, from) = (socket.as_raw_fd(), (&raw const request).cast());
            // SAFETY: the kernel reads a live structure of the length given.
            unsafe { libc::setsockopt(fd, level, option, from, length) }
        }
        IpAddr::V6(v6) => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr { s6_addr: v6.octets() },
                ipv6mr_interface: interface,
            };
            let (level, option) = (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP);
            let length = size_of_val(&request) as libc::socklen_t;
            let (fd, from) = (socket.as_raw_fd(), (&raw const request).cast());
            // SAFETY: as above.
            unsafe { libc::setsockopt(fd, level, option, from, length) }
        }
    };
    if done < 0 { failed() } else { Ok(socket) }
}
