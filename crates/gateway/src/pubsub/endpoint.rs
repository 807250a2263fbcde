//! Addresses: `tcp://HOST:PORT` and `ipc://PATH`.

use std::io::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rdmalab_config::{At, ConfigError, OneOrMany};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::tcp::notice_a_dead_peer;

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
    file: Option<PathBuf>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
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
                remove_left(path);
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Listener { socket: listener.into(), file: Some(path.clone()) })
            }
        }
    }

    /// Begins to connect. The socket becomes writable when that is over.
    ///
    /// # Errors
    /// As the system says.
    pub fn connect(&self) -> Result<OwnedFd> {
        let family = match &self.place {
            Place::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Place::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Place::Ipc(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let connected = match &self.place {
            Place::Tcp(address) => rustix::net::connect(&socket, address),
            Place::Ipc(path) => rustix::net::connect(&socket, &SocketAddrUnix::new(path)?),
        };
        match connected {
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
    let any = if ipv6 { "[::]" } else { "0.0.0.0" };
    let full = match text.strip_prefix('*') {
        Some(port) if binds => format!("{any}{port}"),
        Some(_) => return Err("* is no address to connect to".to_owned()),
        None => text.to_owned(),
    };
    let mut found = full.to_socket_addrs().map_err(|error| error.to_string())?;
    match found.next() {
        Some(address) if address.port() == 0 => Err("it has no port".to_owned()),
        Some(address) => Ok(address),
        None => Err("no address".to_owned()),
    }
}

/// Removes the file of a socket that a killed process left: one where nobody listens. Any other
/// file stays.
fn remove_left(path: &Path) {
    let probe = UnixStream::connect(path);
    if probe.is_err_and(|error: Error| error.kind() == ErrorKind::ConnectionRefused)
        && std::fs::metadata(path).is_ok_and(|data| data.file_type().is_socket())
    {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn only_sockets_where_nobody_listens_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let [file, left, used] = ["file", "left", "used"].map(|name| dir.path().join(name));
        std::fs::write(&file, "text").unwrap();
        drop(UnixListener::bind(&left).unwrap());
        let _listener = UnixListener::bind(&used).unwrap();
        [&file, &left, &used].into_iter().for_each(|path| remove_left(path));
        assert_eq!([&file, &left, &used].map(|path| path.exists()), [true, false, true]);
    }
}
