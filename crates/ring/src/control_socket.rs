//! Finds the processes of this host and user, and sends them descriptors, without a file that could
//! be left behind.
//!
//! A process claims a slot by binding a datagram socket to an abstract name. Abstract names belong
//! to a network namespace, have one holder at a time, and vanish with it. But any user in the
//! namespace may bind any name, and may send. So datagrams of other users are dropped. Descriptors
//! are sent only to a slot whose holder is known to be of our user: from datagrams that it sent, or
//! from the kernel's socket table.

use crate::sock_diag;
use core::fmt;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Slots are 1 ..= this: slot numbers below 1024, without 0.
pub const SLOT_MAX: u16 = 1023;
/// The longest datagram, in bytes.
pub const MAIL_BYTES_MAX: usize = 4096;
/// The most descriptors in one datagram.
pub const MAIL_FDS_MAX: usize = 16;

/// Datagrams that one call of `recv` drops at most.
const DROPS: usize = 64;
/// 64-bit words of control data: room for all descriptors and the sender's credentials.
const CONTROL_WORDS: usize = 24;

const _: () = {
    // SAFETY: arithmetic on integers.
    let (fds, creds) = unsafe {
        (
            libc::CMSG_SPACE((MAIL_FDS_MAX * size_of::<RawFd>()) as u32),
            libc::CMSG_SPACE(size_of::<libc::ucred>() as u32),
        )
    };
    assert!((fds + creds) as usize <= CONTROL_WORDS * 8);
};

/// This process's slot in the host registry, and its datagram socket.
#[derive(Debug)]
pub struct ControlSocket {
    /// -1 once closed in a forked child.
    fd: AtomicI32,
    slot: u16,
    version: u32,
    uid: u32,
    /// Slots from which datagrams of our user came, so their holders are of our user.
    known: [AtomicU64; 16],
}

/// A datagram of a process of the same user.
#[derive(Debug)]
pub struct Datagram {
    /// The sender's process id, as seen from here; 0 if it lives in a pid namespace that we cannot
    /// see.
    pub pid: i32,
    /// The sender's user id: always ours.
    pub uid: u32,
    /// The sender's slot, as the kernel reports it. `None` if the sending socket holds no slot.
    pub from: Option<u16>,
    /// The content.
    pub bytes: Vec<u8>,
    /// The descriptors that came with it, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// Why a datagram was not sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// No process holds that slot.
    NoSuchPeer,
    /// The peer's control socket is full (the kernel's default is ten datagrams); try again later.
    Full,
    /// There were descriptors to send, and the slot's holder is of another user, or its user is
    /// unknown: wait for datagrams from it first.
    Unverified,
    /// The kernel's error; `InvalidInput` for more than [`MAIL_BYTES_MAX`] bytes or
    /// [`MAIL_FDS_MAX`] descriptors, or a slot out of range.
    Io(io::Error),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::NoSuchPeer => f.write_str("no process holds that slot"),
            SendError::Full => f.write_str("the peer's control_socket is full"),
            SendError::Unverified => {
                f.write_str("the holder of that slot is not known to be the same user")
            }
            SendError::Io(error) => write!(f, "mail could not be sent: {error}"),
        }
    }
}

impl std::error::Error for SendError {}

/// A slot in use, as the kernel's list of sockets shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LiveSlot {
    /// The slot.
    pub slot: u16,
    /// The user in the slot's name.
    pub uid: u32,
    /// The registry's version in the slot's name.
    pub version: u32,
    /// The socket's inode: the process with a descriptor `socket:[inode]` holds the slot.
    pub inode: u64,
}

/// The user of this process. The kernel marks datagrams with the real user and sockets with the
/// effective one; a process in which they differ acts for another user and is refused.
fn own_uid() -> io::Result<u32> {
    // SAFETY: both always succeed and touch no memory.
    let (real, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    if real != effective {
        let why = "a set-user-ID program cannot take part: its real and effective user differ";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(real)
}

fn name_of(version: u32, uid: u32, slot: u16) -> String {
    format!("rdmalab/{version}/{uid}/{slot}")
}

/// `rdmalab/VERSION/UID/SLOT`, exactly as [`name_of`] writes it.
fn parse_name(name: &str) -> Option<(u32, u32, u16)> {
    let mut parts = name.strip_prefix("rdmalab/")?.split('/');
    let version = parts.next()?.parse().ok()?;
    let uid = parts.next()?.parse().ok()?;
    let slot = parts.next()?.parse().ok()?;
    let known = (1..=SLOT_MAX).contains(&slot) && name_of(version, uid, slot) == name;
    known.then_some((version, uid, slot))
}

/// The abstract address of a name, and its length.
pub(crate) fn address_of(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A leading zero byte makes it abstract. Our names are short: 44 bytes at most.
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = core::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    (address, length as libc::socklen_t)
}

/// The abstract name in an address that the kernel filled in.
fn name_in(address: &libc::sockaddr_un, length: libc::socklen_t) -> Option<String> {
    let path_at = core::mem::offset_of!(libc::sockaddr_un, sun_path);
    let length = (length as usize).checked_sub(path_at)?;
    let path = address.sun_path.get(..length)?;
    let (zero, name) = path.split_first()?;
    if *zero != 0 {
        return None;
    }
    String::from_utf8(name.iter().map(|byte| byte.to_ne_bytes()[0]).collect()).ok()
}

fn draw_start() -> u16 {
    let mut bytes = [0_u8; 2];
    // SAFETY: writes at most two bytes to a live array. On failure they stay zero, which is a valid
    // start: the random number only keeps slots from being reused soon.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    u16::from_ne_bytes(bytes)
}

impl ControlSocket {
    /// Claims a free slot among the processes of this user, network namespace and `version` (of the
    /// protocol between the processes). The search starts at a random slot, so that a slot is
    /// seldom reused soon.
    ///
    /// # Errors
    /// `AddrInUse` when all slots are taken, `PermissionDenied` in a set-user-ID program, else the
    /// kernel's error.
    pub fn claim(version: u32) -> io::Result<ControlSocket> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes integers only.
        let raw = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // This precedes `bind`, so that no datagram can arrive without credentials.
        ask_for_credentials(&fd)?;
        let uid = own_uid()?;
        let start = draw_start();
        for step in 0..SLOT_MAX {
            let slot = (start % SLOT_MAX + step) % SLOT_MAX + 1;
            let (address, length) = address_of(&name_of(version, uid, slot));
            // SAFETY: reads `length` bytes of a live structure.
            let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
            if bound == 0 {
                let fd = AtomicI32::new(std::os::fd::IntoRawFd::into_raw_fd(fd));
                let known = [const { AtomicU64::new(0) }; 16];
                return Ok(ControlSocket { fd, slot, version, uid, known });
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EADDRINUSE) {
                return Err(error);
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "all {SLOT_MAX} process slots of user {uid} on this host are taken; end some of \
                 the programs that use the soft device"
            ),
        ))
    }

    /// The slot that this process holds, 1 ..= [`SLOT_MAX`].
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// The socket, to be polled for datagrams; -1 after [`ControlSocket::close_in_child`].
    pub fn raw_fd(&self) -> RawFd {
        self.fd.load(Ordering::Relaxed)
    }

    /// Closes the socket in the child of a fork, where it would keep the parent's slot alive.
    /// Async-signal-safe. Every later use in the child fails.
    pub fn close_in_child(&self) {
        let fd = self.fd.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: the descriptor was ours, and the swap made us the only one to close it.
            unsafe { libc::close(fd) };
        }
    }

    /// Sends a datagram to the holder of slot `to`, without blocking. It arrives whole or not at
    /// all; descriptors are duplicated.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&self, to: u16, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        let fits = bytes.len() <= MAIL_BYTES_MAX && fds.len() <= MAIL_FDS_MAX;
        if !fits || !(1..=SLOT_MAX).contains(&to) {
            return Err(SendError::Io(io::ErrorKind::InvalidInput.into()));
        }
        if !fds.is_empty() && !self.is_ours(to)? {
            return Err(SendError::Unverified);
        }
        let error = match self.send_now(to, bytes, fds) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => {
                let (word, bit) = self.known_bit(to);
                word.fetch_and(!bit, Ordering::Relaxed);
                Err(SendError::NoSuchPeer)
            }
            Some(libc::EAGAIN | libc::ENOBUFS) => Err(SendError::Full),
            _ => Err(SendError::Io(error)),
        }
    }

    fn known_bit(&self, slot: u16) -> (&AtomicU64, u64) {
        (&self.known[usize::from(slot / 64) % 16], 1 << (slot % 64))
    }

    /// Whether the holder of a slot is known to be a process of our user.
    fn is_ours(&self, slot: u16) -> Result<bool, SendError> {
        let (word, bit) = self.known_bit(slot);
        if slot == self.slot || word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(true);
        }
        match sock_diag::holder_uid(&name_of(self.version, self.uid, slot)) {
            Ok(Some(uid)) => Ok(uid == self.uid),
            Ok(None) => Err(SendError::NoSuchPeer),
            // There is no socket table here: only its datagrams show the holder's user.
            Err(_) => Ok(false),
        }
    }

    fn send_now(&self, to: u16, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (mut address, length) = address_of(&name_of(self.version, self.uid, to));
        let mut content =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let mut control = [0_u64; CONTROL_WORDS];
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = length;
        message.msg_iov = &raw mut content;
        message.msg_iovlen = 1;
        if !fds.is_empty() {
            let payload = size_of_val(fds) as u32;
            message.msg_control = control.as_mut_ptr().cast();
            // SAFETY: arithmetic on integers; at most MAIL_FDS_MAX descriptors, so it fits (the
            // constant assertion above).
            message.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as _;
            // SAFETY: the control buffer is aligned, large enough for one header and `fds`, and a
            // BorrowedFd is, as documented, a transparent RawFd.
            unsafe {
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
                libc::CMSG_DATA(header)
                    .copy_from_nonoverlapping(fds.as_ptr().cast(), payload as usize);
            }
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: all pointers in the message are to live buffers of the lengths given.
        let sent = unsafe { libc::sendmsg(self.raw_fd(), &raw const message, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next datagram, without blocking. Datagrams of other users, and those beyond the limits,
    /// are dropped with their descriptors.
    pub fn recv(&self) -> Option<Datagram> {
        for _ in 0..DROPS {
            match self.recv_one() {
                Received::Datagram(mail) => {
                    if let Some(from) = mail.from {
                        let (word, bit) = self.known_bit(from);
                        word.fetch_or(bit, Ordering::Relaxed);
                    }
                    return Some(mail);
                }
                Received::Dropped => {}
                Received::Nothing => return None,
            }
        }
        None
    }

    fn recv_one(&self) -> Received {
        let mut bytes = vec![0_u8; MAIL_BYTES_MAX];
        let mut control = [0_u64; CONTROL_WORDS];
        let mut content = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        // SAFETY: as above.
        let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        message.msg_iov = &raw mut content;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: all pointers in the message are to live buffers of the lengths given.
        let got = unsafe { libc::recvmsg(self.raw_fd(), &raw mut message, flags) };
        let Ok(got) = usize::try_from(got) else {
            return Received::Nothing;
        };
        // SAFETY: the kernel has just filled the message and its control buffer, which live.
        let (fds, sender) = unsafe { take_control(&message) };
        let Some(sender) = sender else {
            return Received::Dropped;
        };
        let cut = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
        if cut || sender.uid != self.uid {
            return Received::Dropped;
        }
        bytes.truncate(got);
        let from = name_in(&address, message.msg_namelen).and_then(|name| self.slot_in(&name));
        Received::Datagram(Datagram { pid: sender.pid, uid: sender.uid, from, bytes, fds })
    }

    /// The slot in a name of this registry.
    fn slot_in(&self, name: &str) -> Option<u16> {
        let (version, uid, slot) = parse_name(name)?;
        (version == self.version && uid == self.uid).then_some(slot)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.close_in_child();
    }
}

enum Received {
    Datagram(Datagram),
    Dropped,
    Nothing,
}

fn ask_for_credentials(fd: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = size_of_val(&on) as libc::socklen_t;
    // SAFETY: reads one live integer.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            length,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the descriptors and the sender's credentials out of a received message.
///
/// # Safety
/// `message` must have just been filled by `recvmsg`, its control buffer must be alive, and this
/// must be called once for it: it takes ownership of the descriptors in it.
unsafe fn take_control(message: &libc::msghdr) -> (Vec<OwnedFd>, Option<libc::ucred>) {
    let mut fds = Vec::new();
    let mut sender = None;
    // SAFETY: the kernel wrote well-formed headers, and the macros stay within `msg_controllen`.
    // Each header is followed by as much data as its length says.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            let length = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for index in 0..length / size_of::<RawFd>() {
                        let raw = data.cast::<RawFd>().add(index).read_unaligned();
                        fds.push(OwnedFd::from_raw_fd(raw));
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                    sender = Some(data.cast::<libc::ucred>().read_unaligned());
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    (fds, sender)
}

/// All slots that are held in this network namespace, of any user and version, in order. Any user
/// can bind any name: the holder need not be the user in the name.
///
/// # Errors
/// When the kernel's list cannot be read.
pub fn list_live_slots() -> io::Result<Vec<LiveSlot>> {
    // `thread-self`, because each thread has its own network namespace.
    let mut slots = parse_socket_list(&std::fs::read("/proc/thread-self/net/unix")?);
    slots.sort_unstable();
    slots.dedup();
    Ok(slots)
}

/// Lines of `/proc/net/unix`: number, references, protocol, flags, type, state, inode, path; the
/// path of an abstract name begins with `@`.
fn parse_socket_list(list: &[u8]) -> Vec<LiveSlot> {
    let live = |line: &[u8]| {
        let line = core::str::from_utf8(line).ok()?;
        let mut fields = line.split_ascii_whitespace().skip(6);
        let inode = fields.next()?.parse().ok()?;
        let (version, uid, slot) = parse_name(fields.next()?.strip_prefix('@')?)?;
        Some(LiveSlot { slot, uid, version, inode })
    };
    list.split(|byte| *byte == b'\n').filter_map(live).collect()
}

#[cfg(all(test, not(loom)))]
mod tests;
