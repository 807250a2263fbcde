//! Workers of other machines: the client's side of a server.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::hello::Hello;
use super::stream::Stream;
use super::team::Met;

/// Where servers listen unless told otherwise; perftest's port too.
pub const DEFAULT_PORT: u16 = 18515;
/// How long a host may take to answer at all.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// How long a server may take to say hello. It does so as soon as it has heard ours; others, as
/// perftest's servers at the same port, wait for more.
const HELLO: Duration = Duration::from_secs(10);

/// Connects to a server and greets the worker that it starts.
pub(super) fn meet(address: &str, limit: Duration) -> Result<Met, String> {
    let mut stream = connect(address)?;
    let at = |what: &'static str| move |e: io::Error| format!("{address}: {what} {e}");
    let says = "the other end";
    Hello::ours(None).write(&mut stream).map_err(at(says))?;
    Hello::read(&mut stream, HELLO).map_err(at(says))?;
    Hello::ours(None).write(&mut stream).map_err(at(says))?;
    let hello = Hello::read(&mut stream, limit);
    let hello = hello.map_err(at("the server's worker (see the server's messages)"))?;
    Ok(Met { stream, child: None, hello })
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
        None => format!("{address} has no address"),
        Some((to, error)) if error.kind() == io::ErrorKind::ConnectionRefused => format!(
            "nobody listens at {to}: start `rdmalab serve --bind ADDRESS` there (without --bind it \
             serves its own machine only)"
        ),
        Some((to, error)) => format!("cannot reach {to}: {error}"),
    })
}

/// The socket addresses of `HOST` or `HOST:PORT`; an IPv6 address with port stands in brackets.
///
/// # Errors
/// A sentence, when the name is not known.
pub fn addresses(address: &str) -> Result<Vec<SocketAddr>, String> {
    if let Ok(ip) = address.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, DEFAULT_PORT)]);
    }
    let found = match address.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => address.to_socket_addrs(),
        Some((_, port)) => return Err(format!("{address}: {port:?} is no port (1 to 65535)")),
        None => (address, DEFAULT_PORT).to_socket_addrs(),
    };
    found.map(Iterator::collect).map_err(|e| format!("{address}: the name is not known: {e}"))
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
        assert!(addresses("localhost:http").unwrap_err().contains("no port"));
    }
}
