//! Sizes and options of a socket.

use core::ffi::c_int;

/// The sizes of a connection. An accepted socket inherits those of its listener.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub send_queue: u16,
    pub receive_queue: u16,
    pub inline: u32,
    pub send_buffer: u32,
    pub receive_buffer: u32,
    /// How many mappings the peer may announce.
    pub iomaps: u16,
}

impl Sizes {
    /// The sizes of a new socket, those of rdma-core.
    pub const DEFAULT: Self = Self {
        send_queue: 384,
        receive_queue: 384,
        inline: 64,
        send_buffer: 1 << 17,
        receive_buffer: 1 << 17,
        iomaps: 0,
    };
}

/// Options that are stored and change nothing else.
#[derive(Debug, Default)]
pub struct Options {
    /// The flags of `rfcntl`.
    pub flags: c_int,
    kept: Vec<(c_int, c_int, c_int)>,
    /// `struct linger`.
    pub linger: (c_int, c_int),
}

impl Options {
    /// The value of an option, 0 if it was not set.
    pub fn kept(&self, level: c_int, name: c_int) -> c_int {
        let found = self.kept.iter().find(|(l, n, _)| (*l, *n) == (level, name));
        found.map_or(0, |(.., value)| *value)
    }

    /// Stores the value of an option.
    pub fn keep(&mut self, level: c_int, name: c_int, value: c_int) {
        self.kept.retain(|(l, n, _)| (*l, *n) != (level, name));
        self.kept.push((level, name, value));
    }
}

/// Options that a program may set although they change nothing here.
pub fn is_kept(level: c_int, name: c_int) -> bool {
    matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE | libc::SO_OOBINLINE | libc::SO_REUSEADDR)
            | (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_MAXSEG)
            | (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT)
            | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
    )
}
