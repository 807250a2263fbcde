//! Many datagrams in one system call and nothing else: the limit for bulk transfer over a UDP link.
//! The two ends may be on different machines, so each function is for one end.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

/// Datagrams of one call: the most that Linux cuts one send into, so that both sides of a
/// comparison ask the kernel equally often.
pub const BATCH: usize = 64;
/// Payload of a datagram, bytes: a RoCEv2 packet with 1024 bytes in it, the most that an MTU of
/// 1500 leaves to a path MTU of InfiniBand. 12 of the rest are the BTH, 4 the invariant CRC.
pub const DATAGRAM_BYTES: usize = 1024 + 16;
/// Bytes that the kernel should keep for each direction; it may grant less.
const BUFFER_BYTES: libc::c_int = 8 << 20;

/// A socket of that address, whose calls do not wait, with as large buffers as the kernel grants.
///
/// # Errors
/// What the kernel says.
pub fn socket(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_nonblocking(true)?;
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        for option in [forced, plain] {
            let bytes = BUFFER_BYTES;
            let length = size_of_val(&bytes) as libc::socklen_t;
            let value = (&raw const bytes).cast();
            let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
            // SAFETY: the kernel reads an integer of the length given.
            if unsafe { libc::setsockopt(fd, level, option, value, length) } == 0 {
                break;
            }
        }
    }
    Ok(socket)
}

/// The buffers of a batch, and what the kernel wants to know of them.
pub struct Batch {
    data: Vec<[u8; DATAGRAM_BYTES]>,
}

impl Default for Batch {
    fn default() -> Self {
        Self { data: vec![[0x5a; DATAGRAM_BYTES]; BATCH] }
    }
}

impl Batch {
    /// Sends the batch, or as much of it as there is room for; returns how many datagrams.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room, else what the kernel says.
    pub fn send(&mut self, socket: &UdpSocket, to: SocketAddr) -> io::Result<usize> {
        let (mut v4, mut v6);
        let (name, length): (*mut libc::c_void, usize) = match to {
            SocketAddr::V4(to) => {
                v4 = address4(to);
                ((&raw mut v4).cast(), size_of_val(&v4))
            }
            SocketAddr::V6(to) => {
                v6 = address6(to);
                ((&raw mut v6).cast(), size_of_val(&v6))
            }
        };
        self.call(name, length as libc::socklen_t, |headers| {
            let count = BATCH as libc::c_uint;
            // SAFETY: so many headers, which point to live buffers of the lengths that they say.
            unsafe { libc::sendmmsg(socket.as_raw_fd(), headers, count, 0) }
        })
        .map(|(datagrams, _)| datagrams)
    }

    /// Takes what has come, at most a batch; returns how many bytes.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has come, else what the kernel says.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.call(std::ptr::null_mut(), 0, |headers| {
            let (count, none) = (BATCH as libc::c_uint, std::ptr::null_mut());
            let flags = libc::MSG_DONTWAIT as _;
            // SAFETY: as above; no time limit.
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, count, flags, none) }
        })
        .map(|(_, bytes)| bytes)
    }

    /// Calls the kernel with the buffers; returns how many it used, and bytes.
    fn call(
        &mut self,
        name: *mut libc::c_void,
        name_bytes: libc::socklen_t,
        call: impl FnOnce(*mut libc::mmsghdr) -> libc::c_int,
    ) -> io::Result<(usize, usize)> {
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut pieces: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        for ((header, piece), data) in headers.iter_mut().zip(&mut pieces).zip(&mut self.data) {
            *piece = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: DATAGRAM_BYTES };
            header.msg_hdr.msg_iov = piece;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = name;
            header.msg_hdr.msg_namelen = name_bytes;
        }
        let done = call(headers.as_mut_ptr());
        let Ok(done) = usize::try_from(done) else { return Err(io::Error::last_os_error()) };
        let bytes = headers[..done].iter().map(|header| header.msg_len as usize).sum();
        Ok((done, bytes))
    }
}

fn address4(to: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

fn address6(to: SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: to.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
        sin6_scope_id: to.scope_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_arrives() {
        for address in ["127.0.0.1", "::1"] {
            let Ok(receiver) = socket(address.parse().unwrap()) else { continue };
            let sender = socket(address.parse().unwrap()).unwrap();
            let (mut sent, mut received) = (Batch::default(), Batch::default());
            received.data.iter_mut().for_each(|data| data.fill(0));
            let nothing = received.receive(&receiver).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            let count = sent.send(&sender, receiver.local_addr().unwrap()).unwrap();
            let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
            let mut bytes = 0;
            while bytes < count * DATAGRAM_BYTES && std::time::Instant::now() < until {
                bytes += received.receive(&receiver).unwrap_or(0);
            }
            assert_eq!(bytes, count * DATAGRAM_BYTES);
            assert_eq!(received.data[0], sent.data[0]);
        }
    }
}
