//! Workers of other machines: the client's side of a server.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::handshake::{ConnectedWorker, Hello};
use super::stream::Stream;

/// The default port of servers; perftest has the same.
pub const DEFAULT_PORT: u16 = 18515;
/// How long a host may take to answer at all.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// How long a server may take to send its hello. It does so as soon as it has received the client's
/// hello; other servers, such as perftest's on the same port, wait for more data.
const HELLO: Duration = Duration::from_secs(10);

/// Connects to a server, and exchanges hellos with it and with the worker that it starts.
pub(super) fn start_and_greet(address: &str, limit: Duration) -> Result<ConnectedWorker, String> {
    let mut stream = connect(address)?;
    let at = |what: &'static str| move |e: io::Error| format!("{address}: {what} {e}");
    let says = "the other end";
    Hello::ours(None).write(&mut stream).map_err(at(says))?;
    Hello::read(&mut stream, HELLO).map_err(at(says))?;
    Hello::ours(None).write(&mut stream).map_err(at(says))?;
    let hello = Hello::read(&mut stream, limit);
    let hello = hello.map_err(at("the server's worker (see the server's messages)"))?;
    Ok(ConnectedWorker { stream, child: None, hello })
}

fn connect(address: &str) -> Result<Stream, String> {
    let mut last = None;
    for to in addresses(address)? {
        match TcpStream::connect_timeout(&to, CONNECT).and_then(Stream::tcp) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some((to, error)),
        }
    }
    Err(match last {
        None => format!("{address} does not resolve to an address"),
        Some((to, error)) if error.kind() == io::ErrorKind::ConnectionRefused => format!(
            "nobody listens at {to}: start `rdmalab serve --bind ADDRESS` there (without --bind \
             it accepts only its own machine)"
        ),
        Some((to, error)) => format!("cannot reach {to}: {error}"),
    })
}

/// The socket addresses of `HOST` or `HOST:PORT`; an IPv6 address with port stands in brackets.
///
/// # Errors
/// A sentence, when the name is not known.
pub fn addresses(address: &str) -> Result<Vec<SocketAddr>, String> {
    if let Some(ip) = ip(address) {
        return Ok(vec![SocketAddr::new(ip, DEFAULT_PORT)]);
    }
    let found = match port(address)? {
        Some(_) => address.to_socket_addrs(),
        None => (address, DEFAULT_PORT).to_socket_addrs(),
    };
    found
        .map(Iterator::collect)
        .map_err(|e| format!("{address}: cannot resolve the host name: {e}"))
}

/// The port of `HOST:PORT`, `None` of `HOST`. Does not resolve the host.
///
/// # Errors
/// A sentence, when it is no port.
pub fn port(address: &str) -> Result<Option<u16>, String> {
    let named = address.rsplit_once(':').filter(|_| ip(address).is_none());
    let Some((_, port)) = named else { return Ok(None) };
    let parsed = port.parse().map(Some);
    parsed.map_err(|_| format!("{address}: {port:?} is not a port (1 to 65535)"))
}

/// An address without a port; one of IPv6 may stand in brackets.
fn ip(address: &str) -> Option<IpAddr> {
    address.trim_matches(['[', ']']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_default_port_unless_one_is_named() {
        let first = |a| addresses(a).unwrap()[0].to_string();
        assert_eq!(first("127.0.0.1"), "127.0.0.1:18515");
        assert_eq!(first("127.0.0.1:99"), "127.0.0.1:99");
        assert_eq!(first("::1"), "[::1]:18515");
        assert_eq!(first("[::1]"), "[::1]:18515");
        assert_eq!(first("[::1]:7"), "[::1]:7");
        assert!(addresses("localhost:http").unwrap_err().contains("not a port"));
        assert_eq!((port("::1"), port("host"), port("[::1]:7")), (Ok(None), Ok(None), Ok(Some(7))));
        assert!(port("unknown.invalid:65536").unwrap_err().contains("not a port"));
    }
}
