//! The port table: which ids are bound to a port, and which listen there. A port is exclusive among
//! the processes of this host.

use std::io;
use std::net::SocketAddr;

use super::{CmState, EPHEMERAL, service_of};
use crate::errno::{CallResult, Errno, errno_of, failed};

impl CmState {
    /// Binds an id to an address; port 0 asks for any free one.
    ///
    /// # Errors
    /// `EADDRINUSE` if another process has the port, or if another id of this process has the
    /// address and not both have set `RDMA_OPTION_ID_REUSEADDR`.
    pub fn bind(&mut self, number: u64, address: SocketAddr) -> CallResult<()> {
        let ps = self.id(number)?.ps;
        let port = match address.port() {
            0 => self.any_port(ps)?,
            port => {
                self.check_sharing(number, service_of(ps, port), address)?;
                self.claim(ps, port).map_err(|error| in_use(port, &error))?;
                port
            }
        };
        let service = service_of(ps, port);
        self.ports.entry(service).or_default().push(number);
        let id = self.id(number)?;
        id.bound = Some(service);
        id.source = Some(SocketAddr::new(address.ip(), port));
        Ok(())
    }

    fn claim(&mut self, ps: u32, port: u16) -> io::Result<()> {
        self.transport.claim(service_of(ps, port))
    }

    /// Fails if another id of this process has the port at the same address, unless both share it.
    fn check_sharing(&mut self, number: u64, service: u64, at: SocketAddr) -> CallResult<()> {
        let shares = self.id(number)?.reuse_address;
        for other in self.ports.get(&service).into_iter().flatten() {
            let Some(other) = self.ids.get(other) else { continue };
            let overlaps = other.source.is_none_or(|source| {
                source.ip() == at.ip() || source.ip().is_unspecified() || at.ip().is_unspecified()
            });
            if overlaps && !(shares && other.reuse_address) {
                let error = io::Error::from_raw_os_error(libc::EADDRINUSE);
                return Err(in_use(at.port(), &error));
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
        let Some(service) = self.ids.get_mut(&number).and_then(|id| id.bound.take()) else {
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

    /// Starts to listen on the port that an id is bound to.
    ///
    /// # Errors
    /// `EADDRINUSE` if an id of this process listens there for the same address, `EINVAL` if this
    /// id is not bound.
    pub fn start_listening(&mut self, number: u64, backlog: usize) -> CallResult<()> {
        let id = self.id(number)?;
        let (Some(service), source) = (id.bound, id.source) else {
            return Err(Errno(libc::EINVAL));
        };
        if id.listening.is_some() {
            return Ok(());
        }
        let others = self.listeners.get(&service).into_iter().flatten();
        let same = |other: &u64| self.ids.get(other).is_some_and(|other| other.source == source);
        if others.into_iter().any(same) {
            return Err(Errno(libc::EADDRINUSE));
        }
        self.listeners.entry(service).or_default().push(number);
        self.manager.listen(service, backlog);
        self.transport.set_listening(service, true);
        self.id(number)?.listening = Some(service);
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

fn in_use(port: u16, error: &io::Error) -> Errno {
    failed(errno_of(error).0, "rdma_bind_addr", || match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "port {port} is taken on this host: end the program that has it, or take another"
            )
        }
        _ => format!("port {port}: {error}"),
    })
}
