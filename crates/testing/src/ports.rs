//! TCP ports for the servers of tests.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that Linux gives to outgoing connections (32768 and above).
const PORTS: std::ops::Range<u16> = 19_000..31_000;

/// A TCP port that nobody listens on. This process is given each one once, until all were given.
///
/// # Panics
/// When none is free.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = u32::from(PORTS.end - PORTS.start);
    for _ in 0..span {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (std::process::id().wrapping_add(step) % span) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && !listens(std::process::id(), port) {
            return port;
        }
    }
    panic!("no TCP port of {PORTS:?} is free");
}

/// Whether somebody listens on a TCP port, in the network namespace of a process. Asked of the
/// kernel, because a connection would be taken for the client.
pub fn listens(process: u32, port: u16) -> bool {
    // Fields of a line: number, local address:port, remote address:port, state; 0A is LISTEN.
    let local = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(format!("/proc/{process}/net/{table}"));
        text.unwrap_or_default().lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().take(4).collect();
            matches!(fields[..], [_, at, _, "0A"] if at.ends_with(&local))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_given_once() {
        const COUNT: usize = 100;
        let given: BTreeSet<u16> = (0..COUNT).map(|_| free_port()).collect();
        assert_eq!(given.len(), COUNT);
    }

    #[test]
    fn who_listens_is_seen() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        assert!(listens(std::process::id(), port));
        drop(listener);
        assert!(!listens(std::process::id(), port));
    }
}
