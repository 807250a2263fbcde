//! What TCP connections of several node-types have in common.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

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
