//! A socket for datagrams.

use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

/// A socket for datagrams, which both halves use.
#[derive(Debug)]
pub enum Datagrams {
    /// UDP.
    Udp(UdpSocket),
    /// Between paths of files. The file is removed at the end.
    Unix(UnixDatagram, Option<String>),
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        if let Self::Unix(_, Some(path)) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Datagrams {
    /// Takes one datagram.
    pub fn receive(&self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.recv(into),
            Self::Unix(socket, _) => socket.recv(into),
        }
    }

    /// What becomes readable when there is one.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Unix(socket, _) => socket.as_fd(),
        }
    }
}
