//! Batches of received datagrams, with the addresses and header fields that the kernel reports.
//!
//! The system calls are made without glibc, as in [`super::socket`].

use std::net::IpAddr;
use std::os::fd::RawFd;

use rdmalab_link::address::{FourTuple, IpFields};

use super::socket::{CONTROL_WORDS, plain_address};

/// At most this many messages are received in one call.
pub(crate) const RECEIVE_MAX: usize = 16;
/// Bytes of the longest received message: a whole run of segments.
const RECEIVE_BYTES: usize = 65_536;

/// At most this many errors in a row are skipped by a read of a connected socket.
const ERRORS_MAX: u32 = 4;

/// A message as the kernel delivered it: one datagram, or a run of equally long ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) tuple: FourTuple,
    pub(crate) ip: IpFields,
    pub(crate) bytes: usize,
    /// Length of each datagram but the last.
    pub(crate) segment_bytes: usize,
}

/// Buffers to receive into.
pub(crate) struct ReceiveBatch {
    data: Vec<u8>,
    names: [libc::sockaddr_in6; RECEIVE_MAX],
    control: [[u64; CONTROL_WORDS]; RECEIVE_MAX],
    headers: [libc::mmsghdr; RECEIVE_MAX],
    pieces: [libc::iovec; RECEIVE_MAX],
    own_port: u16,
}

// SAFETY: the pointers in it lead to its own buffers, and are set anew before each call.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    pub(crate) fn new(own_port: u16) -> Box<ReceiveBatch> {
        // SAFETY: all-zero is a valid value of these plain C structures.
        let (names, headers, pieces) = unsafe { std::mem::zeroed() };
        Box::new(ReceiveBatch {
            // Zeroed pages cost nothing until something arrives there.
            data: vec![0; RECEIVE_MAX * RECEIVE_BYTES],
            names,
            control: [[0; CONTROL_WORDS]; RECEIVE_MAX],
            headers,
            pieces,
            own_port,
        })
    }

    /// Receives up to `limit` messages without waiting; returns how many.
    pub(crate) fn receive(&mut self, fd: RawFd, limit: usize) -> usize {
        let limit = limit.clamp(1, RECEIVE_MAX);
        for index in 0..limit {
            let at = &mut self.data[index * RECEIVE_BYTES..][..RECEIVE_BYTES];
            self.pieces[index] =
                libc::iovec { iov_base: at.as_mut_ptr().cast(), iov_len: RECEIVE_BYTES };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = (&raw mut self.names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_iov = &raw mut self.pieces[index];
            header.msg_iovlen = 1;
            header.msg_control = self.control[index].as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&self.control[index]) as _;
            header.msg_flags = 0;
        }
        let (headers, flags) = (self.headers.as_mut_ptr(), libc::MSG_DONTWAIT);
        if limit == 1 {
            // The simpler call costs less.
            let header = &mut self.headers[0];
            let message = &raw mut header.msg_hdr;
            // SAFETY: the header points to our own buffers, of the lengths it says.
            let got = unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags) };
            header.msg_len = u32::try_from(got).unwrap_or(0);
            return usize::from(got >= 0);
        }
        // SAFETY: the first `limit` headers point to our own buffers, of the lengths they say.
        let got = unsafe {
            let no_limit = std::ptr::null_mut::<libc::timespec>();
            libc::syscall(libc::SYS_recvmmsg, fd, headers, limit as u32, flags, no_limit)
        };
        usize::try_from(got).unwrap_or(0)
    }

    /// Receives one datagram of a connected socket as message 0; returns its length. Skips errors
    /// that come before it: routers report them for packets that another socket sent.
    pub(crate) fn receive_plain(&mut self, fd: RawFd) -> Option<usize> {
        let (at, flags) = (self.data.as_mut_ptr(), libc::MSG_DONTWAIT);
        let nobody = std::ptr::null_mut::<libc::sockaddr>();
        let no_length = std::ptr::null_mut::<libc::socklen_t>();
        for _ in 0..ERRORS_MAX {
            // SAFETY: the kernel writes at most so many bytes, which are the buffer's first ones.
            let got = unsafe {
                libc::syscall(libc::SYS_recvfrom, fd, at, RECEIVE_BYTES, flags, nobody, no_length)
            };
            if got >= 0 {
                return Some(got as usize);
            }
            if std::io::Error::last_os_error().kind() == std::io::ErrorKind::WouldBlock {
                return None;
            }
        }
        None
    }

    /// Message `index`; `None` if the kernel truncated it or did not report its destination.
    pub(crate) fn message(&self, index: usize) -> Option<Message> {
        let header = &self.headers[index];
        if header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return None;
        }
        let bytes = header.msg_len as usize;
        let mut found =
            AncillaryData { destination: None, ip: IpFields::default(), segment_bytes: 0 };
        let header = &raw const header.msg_hdr;
        // SAFETY: the kernel filled the control buffer that the header points to, and its length.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(header);
            while !at.is_null() {
                found.take(at);
                at = libc::CMSG_NXTHDR(header, at);
            }
        }
        let name = &self.names[index];
        let tuple = FourTuple {
            source: plain_address(name.sin6_addr.s6_addr),
            destination: found.destination?,
            source_port: u16::from_be(name.sin6_port),
            destination_port: self.own_port,
        };
        let segment_bytes = if found.segment_bytes == 0 { bytes } else { found.segment_bytes };
        tuple.is_sound().then_some(Message { tuple, ip: found.ip, bytes, segment_bytes })
    }

    /// The bytes of message `index`, writable because a fault rule may change them.
    pub(crate) fn bytes(&mut self, index: usize, bytes: usize) -> &mut [u8] {
        &mut self.data[index * RECEIVE_BYTES..][..bytes.min(RECEIVE_BYTES)]
    }
}

/// The contents of control data.
struct AncillaryData {
    destination: Option<IpAddr>,
    ip: IpFields,
    segment_bytes: usize,
}

impl AncillaryData {
    /// Reads one control message.
    ///
    /// # Safety
    /// `at` is a control message that the kernel wrote.
    unsafe fn take(&mut self, at: *const libc::cmsghdr) {
        // SAFETY: the kernel writes elements whole; each kind has the type that is read here.
        unsafe {
            let data = libc::CMSG_DATA(at);
            let int = || data.cast::<libc::c_int>().read_unaligned();
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    self.destination = Some(plain_address(info.ipi6_addr.s6_addr));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.ip.traffic_class = int() as u8,
                (libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO) => {
                    let first_word = u32::from_be(data.cast::<u32>().read_unaligned());
                    self.ip.flow_label = first_word & 0xf_ffff;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => self.ip.hop_limit = int() as u8,
                (libc::IPPROTO_IP, libc::IP_TOS) => self.ip.traffic_class = data.read(),
                (libc::IPPROTO_IP, libc::IP_TTL) => self.ip.hop_limit = int() as u8,
                (libc::SOL_UDP, libc::UDP_GRO) => self.segment_bytes = int().max(0) as usize,
                _ => {}
            }
        }
    }
}
