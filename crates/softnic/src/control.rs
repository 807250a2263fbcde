//! The control messages that processes of a host send each other.

use std::os::fd::BorrowedFd;

use parking_lot::Mutex;
use rdmalab_ring::control_socket::{ControlSocket, Datagram, SendError};

const MAGIC: [u8; 4] = *b"RDML";
const BYTES: usize = 32;

/// The type of a control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlKind {
    /// "Here is my segment, my event, and the ring that you fill."
    Hello,
    /// "Send me your memory of that number."
    MemoryRequest,
    /// "Here it is."
    Memory,
    /// "Send me the host's UDP socket, if you own it."
    SocketRequest,
    /// "Send it to me if you have it: its owner does not answer."
    AnySocketRequest,
    /// "Here it is, with the lock that names its owner."
    Socket,
    /// "I have freed my memory of that number."
    MemoryFreed,
}

/// A control message; descriptors travel beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ControlMessage {
    pub(crate) kind: ControlKind,
    /// The sender's process slot.
    pub(crate) slot: u16,
    /// A random number that tells the sender from earlier holders of its slot.
    pub(crate) incarnation: u64,
    /// The receiver's `incarnation`; 0 if the sender does not know the receiver.
    pub(crate) echo: u64,
    /// The number of the memory.
    pub(crate) memory_id: u32,
}

impl ControlMessage {
    pub(crate) fn new(
        kind: ControlKind,
        slot: u16,
        incarnation: u64,
        echo: u64,
        id: u32,
    ) -> ControlMessage {
        ControlMessage { kind, slot, incarnation, echo, memory_id: id }
    }

    pub(crate) fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            ControlKind::Hello => 1,
            ControlKind::MemoryRequest => 2,
            ControlKind::Memory => 3,
            ControlKind::SocketRequest => 5,
            ControlKind::AnySocketRequest => 7,
            ControlKind::Socket => 6,
            ControlKind::MemoryFreed => 4,
        };
        bytes[6..8].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.echo.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.memory_id.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a control message of this version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ControlMessage> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC {
            return None;
        }
        let kind = match bytes[4] {
            1 => ControlKind::Hello,
            2 => ControlKind::MemoryRequest,
            3 => ControlKind::Memory,
            4 => ControlKind::MemoryFreed,
            5 => ControlKind::SocketRequest,
            6 => ControlKind::Socket,
            7 => ControlKind::AnySocketRequest,
            _ => return None,
        };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Some(ControlMessage {
            kind,
            slot: u16::from_le_bytes([bytes[6], bytes[7]]),
            incarnation: word(8),
            echo: word(16),
            memory_id: word(24) as u32,
        })
    }
}

/// The control socket of this process.
pub(crate) struct ControlPort {
    control_socket: ControlSocket,
    /// Tells this process apart from earlier holders of its slot.
    pub(crate) incarnation: u64,
    /// Held by the thread that reads the control socket.
    reading: Mutex<()>,
}

impl ControlPort {
    /// A port with a control socket that this process has claimed.
    pub(crate) fn new(control_socket: ControlSocket, incarnation: u64) -> ControlPort {
        ControlPort { control_socket, incarnation, reading: Mutex::new(()) }
    }

    /// Makes a message from this process; [`ControlMessage`] explains `echo` and `id`.
    pub(crate) fn message(&self, kind: ControlKind, echo: u64, id: u32) -> ControlMessage {
        ControlMessage::new(kind, self.control_socket.slot(), self.incarnation, echo, id)
    }

    /// Sends a message to the process at `slot`, with descriptors.
    pub(crate) fn send(
        &self,
        slot: u16,
        message: &ControlMessage,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), SendError> {
        self.control_socket.send(slot, &message.to_bytes(), fds)
    }

    /// Calls `handle` for every message in the socket. One thread reads at a time.
    pub(crate) fn read(&self, mut handle: impl FnMut(&ControlMessage, Datagram)) {
        let _reading = self.reading.lock();
        while let Some(datagram) = self.control_socket.recv() {
            // The kernel reports the socket that the message came from. The slot in the message is
            // only trusted if it is the same.
            if let Some(message) = ControlMessage::from_bytes(&datagram.bytes)
                && datagram.from == Some(message.slot)
            {
                handle(&message, datagram);
            }
        }
    }

    /// The descriptor that is readable while messages wait.
    pub(crate) fn fd(&self) -> i32 {
        self.control_socket.raw_fd()
    }

    /// In the child of a fork: the control socket is the parent's.
    pub(crate) fn close_in_child(&self) {
        self.control_socket.close_in_child();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_nonsense_does_not() {
        use ControlKind::*;
        let of_socket = [SocketRequest, AnySocketRequest, Socket];
        for kind in [Hello, MemoryRequest, Memory, MemoryFreed].into_iter().chain(of_socket) {
            let message = ControlMessage::new(kind, 1023, u64::MAX, 7, 0x0102_0304);
            assert_eq!(ControlMessage::from_bytes(&message.to_bytes()), Some(message));
        }
        assert_eq!(ControlMessage::from_bytes(&[0; BYTES]), None);
        assert_eq!(ControlMessage::from_bytes(b"RDML"), None);
    }
}
