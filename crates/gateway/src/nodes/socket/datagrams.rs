//! A socket for datagrams.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

/// A socket for datagrams, which both halves use, and where it sends.
#[derive(Debug)]
pub enum Datagrams {
    /// UDP.
    Udp(UdpSocket, Option<SocketAddr>),
    /// Between paths of files.
    Unix {
        /// The socket.
        socket: UnixDatagram,
        /// Its own path, which is removed at the end.
        here: Option<String>,
        /// The path to send to.
        there: Option<String>,
    },
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        if let Self::Unix { here: Some(path), .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Datagrams {
    /// Takes one datagram.
    pub fn receive(&self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Udp(socket, _) => socket.recv(into),
            Self::Unix { socket, .. } => socket.recv(into),
        }
    }

    /// Sends one datagram.
    pub fn send(&self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Udp(socket, Some(there)) => socket.send_to(bytes, there),
            Self::Unix { socket, there: Some(there), .. } => socket.send_to(bytes, there),
            Self::Udp(_, None) | Self::Unix { there: None, .. } => {
                Err(ErrorKind::NotConnected.into())
            }
        }
    }

    /// What becomes readable when there is one.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket, _) => socket.as_fd(),
            Self::Unix { socket, .. } => socket.as_fd(),
        }
    }
}
