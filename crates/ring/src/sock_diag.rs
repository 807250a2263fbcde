//! Asks the kernel's socket table which user owns a named socket (`sock_diag(7)`, family AF_UNIX).
//!
//! A datagram socket cannot get its peer's credentials before it has received something, and any
//! user may bind any abstract name. So a sender asks here before it sends descriptors.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_UID: u32 = 0x40;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_UID: u16 = 7;
const HEADER_BYTES: usize = 16;
/// Bytes of `unix_diag_msg`, which precedes the attributes.
const FIXED_BYTES: usize = 16;
/// Parts of the kernel's answer that are read at most; each is tens of kilobytes.
const PARTS: usize = 1 << 14;

/// The user that created the socket which holds the abstract name `\0name`; `None` if the name is
/// free. It dumps all sockets of the namespace: use it to set up connections, not in a hot path.
///
/// # Errors
/// When the kernel has no such table (no `unix_diag`), or a filter forbids netlink.
pub(crate) fn holder_uid(name: &str) -> io::Result<Option<u32>> {
    let socket = ask()?;
    let mut wanted = vec![0];
    wanted.extend_from_slice(name.as_bytes());
    let mut part = vec![0_u8; 1 << 16];
    for _ in 0..PARTS {
        let fd = socket.as_raw_fd();
        // SAFETY: writes at most `part.len()` bytes to a live buffer.
        let got = unsafe { libc::recv(fd, part.as_mut_ptr().cast(), part.len(), 0) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        match search(&part[..got], &wanted)? {
            Search::Found(uid) => return Ok(Some(uid)),
            Search::End => return Ok(None),
            Search::More => {}
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Sends the request for the names and users of all sockets of the family.
fn ask() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes integers only.
    let raw = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut request = Vec::with_capacity(HEADER_BYTES + 24);
    // nlmsghdr: length, type, flags, sequence number, port.
    request.extend_from_slice(&(HEADER_BYTES as u32 + 24).to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&flags.to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    // unix_diag_req: family, protocol, padding; states, inode, what to show, cookie.
    request.extend_from_slice(&[libc::AF_UNIX as u8, 0, 0, 0]);
    for word in [u32::MAX, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_UID, u32::MAX, u32::MAX] {
        request.extend_from_slice(&word.to_ne_bytes());
    }
    // SAFETY: reads `request.len()` bytes of a live buffer; an unconnected netlink socket sends to
    // the kernel.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

enum Search {
    Found(u32),
    End,
    More,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Looks for the holder of `wanted` in one part of the answer: a run of netlink messages.
fn search(mut part: &[u8], wanted: &[u8]) -> io::Result<Search> {
    while let (Some(length), Some(kind)) = (u32_at(part, 0), u16_at(part, 4)) {
        let length = length as usize;
        let message = part.get(HEADER_BYTES..length).ok_or(io::ErrorKind::InvalidData)?;
        match libc::c_int::from(kind) {
            libc::NLMSG_DONE => return Ok(Search::End),
            libc::NLMSG_ERROR => {
                let code = u32_at(message, 0).unwrap_or(0).cast_signed();
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            _ => {}
        }
        if let Some(uid) = uid_if_named(message.get(FIXED_BYTES..).unwrap_or(&[]), wanted) {
            return Ok(Search::Found(uid));
        }
        part = part.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(Search::More)
}

/// The user among a socket's attributes, if its name is `wanted`.
fn uid_if_named(mut attributes: &[u8], wanted: &[u8]) -> Option<u32> {
    let (mut uid, mut named) = (None, false);
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let length = usize::from(length);
        let value = attributes.get(4..length)?;
        match kind {
            UNIX_DIAG_NAME => named = value == wanted,
            UNIX_DIAG_UID => uid = u32_at(value, 0),
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    uid.filter(|_| named)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn broken_answers_end() {
        assert!(matches!(search(&[], b"x"), Ok(Search::More)));
        assert!(search(&[0; 16], b"x").is_err(), "length zero");
        assert!(search(&[0xff; 40], b"x").is_err(), "length beyond the part");
        assert_eq!(uid_if_named(&[0; 8], b"x"), None, "length zero");
        assert_eq!(uid_if_named(&[0xff; 8], b"x"), None, "length beyond the part");
    }
}
