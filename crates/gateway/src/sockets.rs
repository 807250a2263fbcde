//! What sockets of several node-types have in common.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// The addresses of `HOST:PORT`. `*` is the host `any`.
///
/// # Errors
/// Why there is none.
pub fn addresses(text: &str, any: &str) -> Result<Vec<SocketAddr>, String> {
    let full = text.strip_prefix('*').map(|rest| format!("{any}{rest}"));
    let found = full.as_deref().unwrap_or(text).to_socket_addrs();
    let found: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.collect();
    if found.is_empty() { Err("no address".to_owned()) } else { Ok(found) }
}

/// Connects to the path of a socket of this kind, without waiting.
///
/// # Errors
/// As the system says.
pub fn connect_to(path: &Path, kind: SocketType) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Removes the file of a socket of this kind that a killed process left: one where nobody listens.
/// Any other file stays.
pub fn remove_left(path: &Path, kind: SocketType) {
    // A connection that waits for room in a queue would keep the start.
    if connect_to(path, kind).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        && std::fs::metadata(path).is_ok_and(|data| data.file_type().is_socket())
    {
        let _ = std::fs::remove_file(path);
    }
}

/// Makes an idle connection fail some seconds after the peer's host has ended without a word
/// (tcp(7), keepalive).
///
/// # Errors
/// When the kernel refuses an option.
pub fn notice_a_dead_peer(stream: impl AsFd + Copy) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// Whether the kernel was told so.
#[cfg(test)]
pub fn would_notice(stream: &std::net::TcpStream) -> bool {
    sockopt::socket_keepalive(stream).unwrap()
        && sockopt::tcp_keepcnt(stream).unwrap() == 3
        && sockopt::tcp_keepidle(stream).unwrap() == Duration::from_secs(1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn only_sockets_that_nobody_has_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let paths = ["file", "left", "used", "left.stream", "used.stream"].map(path);
        std::fs::write(&paths[0], "text").unwrap();
        drop(UnixDatagram::bind(&paths[1]).unwrap());
        let _socket = UnixDatagram::bind(&paths[2]).unwrap();
        drop(UnixListener::bind(&paths[3]).unwrap());
        let _listener = UnixListener::bind(&paths[4]).unwrap();
        for kind in [SocketType::DGRAM, SocketType::STREAM] {
            paths[..1].iter().for_each(|path| remove_left(path, kind));
        }
        paths[1..3].iter().for_each(|path| remove_left(path, SocketType::DGRAM));
        paths[3..].iter().for_each(|path| remove_left(path, SocketType::STREAM));
        assert_eq!(paths.map(|path| path.exists()), [true, false, true, false, true]);
    }
}
