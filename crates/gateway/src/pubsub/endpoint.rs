//! Addresses: `tcp://HOST:PORT` and `ipc://PATH`.

use std::io::Result;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rdmalab_config::{At, ConfigError, OneOrMany};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::sockets::{addresses, connect_to, notice_a_dead_peer, remove_left};

/// What an address must be like.
const LIKE: &str = "it must be like \"tcp://127.0.0.1:12000\" or \"ipc:///tmp/samples\"";

/// Where a node listens, or to what it connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As it was configured.
    pub text: String,
    /// Whether the node listens there.
    pub binds: bool,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Tcp(SocketAddr),
    Ipc(PathBuf),
}

/// A socket that listens. A file that it made is removed with it.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    file: Option<(PathBuf, Option<(u64, u64)>)>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, own)) = &self.file
            && identity(path) == *own
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Endpoint {
    /// The endpoints of a half. A `*` is any address of this host, of IPv6 too with `ipv6`.
    ///
    /// # Errors
    /// Which one is wrong, and where.
    pub fn all(
        texts: Option<&OneOrMany<At<String>>>,
        binds: bool,
        ipv6: bool,
    ) -> std::result::Result<Vec<Self>, ConfigError> {
        let one = |text: &At<String>| {
            Self::parse(&text.value, binds, ipv6).map_err(|why| {
                ConfigError::new(&text.at, format!("{:?}: {why}", text.value)).right(LIKE)
            })
        };
        texts.into_iter().flat_map(|texts| &texts.0).map(one).collect()
    }

    fn parse(text: &str, binds: bool, ipv6: bool) -> std::result::Result<Self, String> {
        let place = match text.split_once("://") {
            Some(("tcp", address)) => Place::Tcp(resolve(address, binds, ipv6)?),
            Some(("ipc", path)) if path.is_empty() || path.starts_with('@') => {
                return Err("it is no path of a file".to_owned());
            }
            Some(("ipc", path)) => {
                // Too long a path is an error here.
                SocketAddrUnix::new(path).map_err(|error| error.to_string())?;
                Place::Ipc(path.into())
            }
            Some((other, _)) => return Err(format!("the transport {other} is not built")),
            None => return Err("it has no transport".to_owned()),
        };
        Ok(Self { text: text.to_owned(), binds, place })
    }

    /// Whether it is a path.
    pub fn is_ipc(&self) -> bool {
        matches!(self.place, Place::Ipc(_))
    }

    /// Listens.
    ///
    /// # Errors
    /// As the system says.
    pub fn listen(&self) -> Result<Listener> {
        match &self.place {
            Place::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Listener { socket: listener.into(), file: None })
            }
            Place::Ipc(path) => {
                remove_left(path, SocketType::STREAM);
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Listener { socket: listener.into(), file: Some((path.clone(), identity(path))) })
            }
        }
    }

    /// Begins to connect. The socket becomes writable when that is over.
    ///
    /// # Errors
    /// As the system says.
    pub fn connect(&self) -> Result<OwnedFd> {
        let address = match &self.place {
            Place::Tcp(address) => address,
            Place::Ipc(path) => return connect_to(path, SocketType::STREAM),
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.prepare(&socket);
        Ok(socket)
    }

    /// Sets the options of a new connection. Without them it works too.
    pub fn prepare(&self, socket: &OwnedFd) {
        if !self.is_ipc() {
            let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true);
            let _ = notice_a_dead_peer(socket);
        }
    }
}

/// The first address of a name.
fn resolve(text: &str, binds: bool, ipv6: bool) -> std::result::Result<SocketAddr, String> {
    if text.starts_with('*') && !binds {
        return Err("* is no address to connect to".to_owned());
    }
    let found = addresses(text, if ipv6 { "[::]" } else { "0.0.0.0" })?;
    match choose(&found, ipv6) {
        Some(address) if address.port() == 0 => Err("it has no port".to_owned()),
        Some(address) => Ok(address),
        None => Err("no address".to_owned()),
    }
}

/// The first address; unless IPv6 is wanted, the first one of IPv4 if there is one.
fn choose(found: &[SocketAddr], ipv6: bool) -> Option<SocketAddr> {
    let of_ipv4 = found.iter().find(|address| address.is_ipv4() && !ipv6);
    of_ipv4.or(found.first()).copied()
}

/// Which file a path names: its device and its number there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_ipv4_unless_ipv6_is_wanted() {
        let [six, four] = ["[::1]:5", "127.0.0.1:5"].map(|text| text.parse().unwrap());
        assert_eq!(choose(&[six, four], false), Some(four));
        assert_eq!(choose(&[six, four], true), Some(six));
        assert_eq!(choose(&[six], false), Some(six));
    }

    #[test]
    fn a_listener_removes_its_own_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let end = Endpoint::parse(&format!("ipc://{}", path.display()), true, false).unwrap();
        let first = end.listen().unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = end.listen().unwrap();
        drop(first);
        assert!(path.exists(), "the file of the second one");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn addresses_are_checked() {
        let parse = |text: &str, binds| Endpoint::parse(text, binds, false).map(|end| end.place);
        let tcp = |text: &str| Ok(Place::Tcp(text.parse().unwrap()));
        assert_eq!(parse("tcp://127.0.0.1:12000", false), tcp("127.0.0.1:12000"));
        assert_eq!(parse("tcp://[::1]:12000", true), tcp("[::1]:12000"));
        assert_eq!(parse("tcp://*:12000", true), tcp("0.0.0.0:12000"));
        let ipv6 = Endpoint::parse("tcp://*:12000", true, true).map(|end| end.place);
        assert_eq!(ipv6, tcp("[::]:12000"));
        assert_eq!(parse("ipc:///tmp/a", false), Ok(Place::Ipc("/tmp/a".into())));
        let long = format!("ipc:///{}", "x".repeat(120));
        for (text, why) in [
            ("tcp://*:12000", "* is no address to connect to"),
            ("tcp://127.0.0.1:0", "it has no port"),
            ("tcp://127.0.0.1", "invalid socket address"),
            ("tcp://eth0;127.0.0.1:5", ""),
            ("inproc://a", "the transport inproc is not built"),
            ("127.0.0.1:12000", "it has no transport"),
            ("ipc://", "it is no path"),
            ("ipc://@abstract", "it is no path"),
            (&long, "too long"),
        ] {
            let error = parse(text, false).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
