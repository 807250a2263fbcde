//! The port table: which ids are bound to a port, and which listen there. A port is exclusive among
//! the processes of this host. Within a process, ids may have it at different addresses.
//!
//! The rules are those of `cma_check_port`, `rdma_listen` and `rdma_set_reuseaddr` in the kernel's
//! `drivers/infiniband/core/cma.c`.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rdmalab_ring::mad_socket;

use super::{CmState, EPHEMERAL, IdState, service_of};
use crate::errno::{CallResult, Errno, errno_of, failed, port_taken};

impl IdState {
    /// Whether the id is for the address family of `ip` only. The kernel's default for IPv6 is the
    /// sysctl `bindv6only`, which is 0.
    fn is_family_only(&self, ip: IpAddr) -> bool {
        self.is_family_only.unwrap_or(ip.is_ipv4())
    }

    /// Says whether the id shares its port with others that do.
    ///
    /// # Errors
    /// `EINVAL` if the id listens already, or stops sharing while it has an address.
    pub fn set_reuse_address(&mut self, reuses: bool) -> CallResult<()> {
        if reuses && self.listening.is_some() || !reuses && self.source.is_some() {
            return Err(Errno(libc::EINVAL));
        }
        self.reuse_address = reuses;
        Ok(())
    }
}

impl CmState {
    /// Binds an id to an address; port 0 asks for any free one.
    ///
    /// # Errors
    /// If another id has the port, and not both are of this process and have set
    /// `RDMA_OPTION_ID_REUSEADDR`: `EADDRNOTAVAIL` if one of the addresses is the wildcard, else
    /// `EADDRINUSE`.
    pub fn bind(&mut self, number: u64, address: SocketAddr) -> CallResult<()> {
        let ps = self.id(number)?.ps;
        let port = match address.port() {
            0 => self.any_port(ps)?,
            port => {
                let service = service_of(ps, port);
                let id = self.id(number)?;
                let (reuses, is_family_only) = (id.reuse_address, id.is_family_only(address.ip()));
                self.check_port(number, service, address.ip(), is_family_only, reuses)
                    .map_err(|errno| port_taken(errno, "rdma_bind_addr", port))?;
                self.claim(ps, port).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        port_taken(errno_of_taken(service, address.ip()), "rdma_bind_addr", port)
                    }
                    _ => failed(errno_of(&error).0, "rdma_bind_addr", || {
                        format!("port {port}: {error}")
                    }),
                })?;
                port
            }
        };
        let service = service_of(ps, port);
        self.ports.entry(service).or_default().push(number);
        let id = self.id(number)?;
        if address.ip().is_unspecified() {
            // Another id of this process may show it already.
            id.wildcard = mad_socket::claim_wildcard(service).ok();
        }
        id.bound = Some(service);
        id.source = Some(SocketAddr::new(address.ip(), port));
        Ok(())
    }

    fn claim(&mut self, ps: u32, port: u16) -> io::Result<()> {
        self.transport.claim(service_of(ps, port))
    }

    /// Fails if an id with the address `at` conflicts with another id of this process on the port;
    /// `reuses`: unless the other shares the port as well.
    fn check_port(
        &self,
        number: u64,
        service: u64,
        at: IpAddr,
        is_family_only: bool,
        reuses: bool,
    ) -> Result<(), i32> {
        let others = self.ports.get(&service).into_iter().flatten().filter(|id| **id != number);
        for other in others.filter_map(|other| self.ids.get(other)) {
            let Some(ip) = other.source.map(|source| source.ip()) else { continue };
            let is_separate =
                is_family_only && other.is_family_only(ip) && at.is_ipv4() != ip.is_ipv4();
            if is_separate || reuses && other.reuse_address {
                continue;
            }
            if at.is_unspecified() || ip.is_unspecified() {
                return Err(libc::EADDRNOTAVAIL);
            }
            if crate::address::plain(at) == crate::address::plain(ip) {
                return Err(libc::EADDRINUSE);
            }
        }
        Ok(())
    }

    /// The next ephemeral port.
    pub fn next_port(&mut self) -> u16 {
        let port = EPHEMERAL.start + self.next_port;
        self.next_port = (self.next_port + 1) % (EPHEMERAL.end - EPHEMERAL.start);
        port
    }

    fn any_port(&mut self, ps: u32) -> CallResult<u16> {
        for _ in EPHEMERAL {
            let port = self.next_port();
            if self.ports.contains_key(&service_of(ps, port)) {
                continue;
            }
            match self.claim(ps, port) {
                Ok(()) => return Ok(port),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(errno_of(&error)),
            }
        }
        Err(Errno(libc::EADDRNOTAVAIL))
    }

    /// Releases the port of an id.
    pub fn release_port(&mut self, number: u64) {
        let Some(service) = self.ids.get_mut(&number).and_then(|id| {
            id.wildcard = None;
            id.bound.take()
        }) else {
            return;
        };
        if let Some(holders) = self.ports.get_mut(&service) {
            holders.retain(|holder| *holder != number);
            if holders.is_empty() {
                self.ports.remove(&service);
                self.transport.release(service);
            }
        }
    }

    /// Starts to listen on the port that an id is bound to. From now on the id does not share it.
    ///
    /// # Errors
    /// As [`Self::bind`] if another id of this process is bound there, even if both share the port.
    /// `EINVAL` if this id is not bound.
    pub fn start_listening(&mut self, number: u64, backlog: usize) -> CallResult<()> {
        let id = self.id(number)?;
        let (Some(service), Some(source)) = (id.bound, id.source) else {
            return Err(Errno(libc::EINVAL));
        };
        if id.listening.is_some() {
            return Ok(());
        }
        let is_family_only = id.is_family_only(source.ip());
        self.check_port(number, service, source.ip(), is_family_only, false)
            .map_err(|errno| port_taken(errno, "rdma_listen", source.port()))?;
        self.listeners.entry(service).or_default().push(number);
        self.manager.listen(service, backlog);
        self.transport.set_listening(service, true);
        let id = self.id(number)?;
        id.listening = Some(service);
        id.reuse_address = false;
        Ok(())
    }

    /// Stops listening.
    pub fn stop_listening(&mut self, number: u64) {
        let Some(service) = self.ids.get_mut(&number).and_then(|id| id.listening.take()) else {
            return;
        };
        self.manager.unlisten(service);
        if let Some(ids) = self.listeners.get_mut(&service) {
            ids.retain(|id| *id != number);
            if ids.is_empty() {
                self.listeners.remove(&service);
                self.transport.set_listening(service, false);
            }
        }
    }
}

/// The error of binding to `at` if another process has the port. Its address is not known, except
/// for the wildcard.
fn errno_of_taken(service: u64, at: IpAddr) -> i32 {
    let is_wildcard_taken = || {
        let claimed = mad_socket::claim_wildcard(service);
        claimed.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    match at.is_unspecified() || is_wildcard_taken() {
        true => libc::EADDRNOTAVAIL,
        false => libc::EADDRINUSE,
    }
}
