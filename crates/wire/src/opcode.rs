//! The opcodes of the base transport header and what each implies (IBA vol. 1, 9.2.1, table of
//! opcodes; RoCEv2 annex A17 for the congestion notification packet).

/// The kind of service that an opcode belongs to: its high three bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// RoCEv2 congestion notification, which belongs to no transport service.
    Cnp,
}

/// The operation that a packet belongs to, independent of its place in the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Part of a SEND, with or without immediate data or invalidation.
    Send,
    /// Part of an RDMA WRITE, with or without immediate data.
    Write,
    /// An RDMA READ request.
    ReadRequest,
    /// Part of the answer to an RDMA READ.
    ReadResponse,
    /// An acknowledgement, positive or negative.
    Acknowledge,
    /// The answer to an atomic: acknowledgement and original value.
    AtomicAcknowledge,
    /// An atomic compare-and-swap request.
    CompareSwap,
    /// An atomic fetch-and-add request.
    FetchAdd,
    /// A congestion notification.
    CongestionNotification,
}

/// The place of a packet in its message. Single packets (READ requests, atomics, ACKs) are `Only`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Position {
    First,
    Middle,
    Last,
    Only,
}

/// Data that a packet carries in addition to the operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suffix {
    /// Nothing.
    None,
    /// Four bytes of immediate data.
    Immediate,
    /// A remote key to invalidate.
    Invalidate,
}

macro_rules! opcodes {
    ($($name:ident = $byte:literal,
        $transport:ident, $operation:ident, $position:ident, $suffix:ident;)*) => {
        /// An opcode of RC, UC or UD, or the RoCEv2 congestion notification. RD and XRC are left
        /// out.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Opcode {
            $($name = $byte,)*
        }

        impl Opcode {
            /// Every opcode, in the order of their bytes.
            pub const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            /// Decodes the first byte of a BTH; `None` for reserved opcodes, RD and XRC.
            #[inline]
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The transport service.
            #[inline]
            pub const fn transport(self) -> Transport {
                match self {
                    $(Self::$name => Transport::$transport,)*
                }
            }

            /// The operation.
            #[inline]
            pub const fn operation(self) -> Operation {
                match self {
                    $(Self::$name => Operation::$operation,)*
                }
            }

            /// The place in the message.
            #[inline]
            pub const fn position(self) -> Position {
                match self {
                    $(Self::$name => Position::$position,)*
                }
            }

            /// Immediate data, invalidation or neither.
            #[inline]
            pub const fn suffix(self) -> Suffix {
                match self {
                    $(Self::$name => Suffix::$suffix,)*
                }
            }
        }
    };
}

opcodes! {
    RcSendFirst = 0x00, Rc, Send, First, None;
    RcSendMiddle = 0x01, Rc, Send, Middle, None;
    RcSendLast = 0x02, Rc, Send, Last, None;
    RcSendLastImm = 0x03, Rc, Send, Last, Immediate;
    RcSendOnly = 0x04, Rc, Send, Only, None;
    RcSendOnlyImm = 0x05, Rc, Send, Only, Immediate;
    RcWriteFirst = 0x06, Rc, Write, First, None;
    RcWriteMiddle = 0x07, Rc, Write, Middle, None;
    RcWriteLast = 0x08, Rc, Write, Last, None;
    RcWriteLastImm = 0x09, Rc, Write, Last, Immediate;
    RcWriteOnly = 0x0a, Rc, Write, Only, None;
    RcWriteOnlyImm = 0x0b, Rc, Write, Only, Immediate;
    RcReadRequest = 0x0c, Rc, ReadRequest, Only, None;
    RcReadResponseFirst = 0x0d, Rc, ReadResponse, First, None;
    RcReadResponseMiddle = 0x0e, Rc, ReadResponse, Middle, None;
    RcReadResponseLast = 0x0f, Rc, ReadResponse, Last, None;
    RcReadResponseOnly = 0x10, Rc, ReadResponse, Only, None;
    RcAcknowledge = 0x11, Rc, Acknowledge, Only, None;
    RcAtomicAcknowledge = 0x12, Rc, AtomicAcknowledge, Only, None;
    RcCompareSwap = 0x13, Rc, CompareSwap, Only, None;
    RcFetchAdd = 0x14, Rc, FetchAdd, Only, None;
    RcSendLastInv = 0x16, Rc, Send, Last, Invalidate;
    RcSendOnlyInv = 0x17, Rc, Send, Only, Invalidate;
    UcSendFirst = 0x20, Uc, Send, First, None;
    UcSendMiddle = 0x21, Uc, Send, Middle, None;
    UcSendLast = 0x22, Uc, Send, Last, None;
    UcSendLastImm = 0x23, Uc, Send, Last, Immediate;
    UcSendOnly = 0x24, Uc, Send, Only, None;
    UcSendOnlyImm = 0x25, Uc, Send, Only, Immediate;
    UcWriteFirst = 0x26, Uc, Write, First, None;
    UcWriteMiddle = 0x27, Uc, Write, Middle, None;
    UcWriteLast = 0x28, Uc, Write, Last, None;
    UcWriteLastImm = 0x29, Uc, Write, Last, Immediate;
    UcWriteOnly = 0x2a, Uc, Write, Only, None;
    UcWriteOnlyImm = 0x2b, Uc, Write, Only, Immediate;
    UdSendOnly = 0x64, Ud, Send, Only, None;
    UdSendOnlyImm = 0x65, Ud, Send, Only, Immediate;
    Cnp = 0x81, Cnp, CongestionNotification, Only, None;
}

impl Opcode {
    /// The byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The opcode with these properties, if the specification has one.
    pub const fn find(
        transport: Transport,
        operation: Operation,
        position: Position,
        suffix: Suffix,
    ) -> Option<Self> {
        let mut i = 0;
        while i < Self::ALL.len() {
            let opcode = Self::ALL[i];
            if opcode.transport() as u8 == transport as u8
                && opcode.operation() as u8 == operation as u8
                && opcode.position() as u8 == position as u8
                && opcode.suffix() as u8 == suffix as u8
            {
                return Some(opcode);
            }
            i += 1;
        }
        None
    }

    /// First of several packets of a message.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self.position(), Position::First)
    }

    /// Neither first nor last of its message.
    #[inline]
    pub const fn is_middle(self) -> bool {
        matches!(self.position(), Position::Middle)
    }

    /// Last of several packets of a message.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(self.position(), Position::Last)
    }

    /// The whole message in one packet; also READ requests, atomics and ACKs.
    #[inline]
    pub const fn is_only(self) -> bool {
        matches!(self.position(), Position::Only)
    }

    /// Begins a message: first or only.
    #[inline]
    pub const fn starts_message(self) -> bool {
        matches!(self.position(), Position::First | Position::Only)
    }

    /// Ends a message: last or only.
    #[inline]
    pub const fn ends_message(self) -> bool {
        matches!(self.position(), Position::Last | Position::Only)
    }

    /// Sent by a responder to a requester.
    #[inline]
    pub const fn is_response(self) -> bool {
        use Operation::{Acknowledge, AtomicAcknowledge, ReadResponse};
        matches!(self.operation(), ReadResponse | Acknowledge | AtomicAcknowledge)
    }

    /// May carry payload bytes: SENDs, WRITEs and READ responses. The 16 reserved bytes of a CNP
    /// count as payload too.
    #[inline]
    pub const fn has_payload(self) -> bool {
        use Operation::{CongestionNotification, ReadResponse, Send, Write};
        matches!(self.operation(), Send | Write | ReadResponse | CongestionNotification)
    }

    /// Carries an RDMA extended header: address, remote key and length.
    #[inline]
    pub const fn has_reth(self) -> bool {
        match self.operation() {
            Operation::Write => self.starts_message(),
            Operation::ReadRequest => true,
            _ => false,
        }
    }

    /// Carries an ACK extended header: syndrome and MSN.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        match self.operation() {
            Operation::Acknowledge | Operation::AtomicAcknowledge => true,
            Operation::ReadResponse => !self.is_middle(),
            _ => false,
        }
    }

    /// Carries an atomic extended header: address, remote key and operands.
    #[inline]
    pub const fn has_atomic_eth(self) -> bool {
        matches!(self.operation(), Operation::CompareSwap | Operation::FetchAdd)
    }

    /// Carries the original value of an atomic.
    #[inline]
    pub const fn has_atomic_ack_eth(self) -> bool {
        matches!(self.operation(), Operation::AtomicAcknowledge)
    }

    /// Carries a datagram extended header: queue key and source QP.
    #[inline]
    pub const fn has_deth(self) -> bool {
        matches!(self.transport(), Transport::Ud)
    }

    /// Carries immediate data.
    #[inline]
    pub const fn has_immdt(self) -> bool {
        matches!(self.suffix(), Suffix::Immediate)
    }

    /// Carries a remote key to invalidate.
    #[inline]
    pub const fn has_ieth(self) -> bool {
        matches!(self.suffix(), Suffix::Invalidate)
    }

    /// Bytes of the BTH and the extended headers after it: where the payload begins.
    #[inline]
    pub const fn header_bytes(self) -> usize {
        HEADER_BYTES[self.byte() as usize] as usize
    }

    const fn count_header_bytes(self) -> usize {
        12 + 16 * self.has_reth() as usize
            + 4 * self.has_aeth() as usize
            + 28 * self.has_atomic_eth() as usize
            + 8 * self.has_atomic_ack_eth() as usize
            + 8 * self.has_deth() as usize
            + 4 * self.has_immdt() as usize
            + 4 * self.has_ieth() as usize
    }
}

/// [`Opcode::header_bytes`] by the opcode's byte: a table, because every packet needs it.
const HEADER_BYTES: [u8; 256] = {
    let mut all = [0; 256];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        all[Opcode::ALL[i].byte() as usize] = Opcode::ALL[i].count_header_bytes() as u8;
        i += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_unique_and_decode_to_themselves() {
        for byte in 0..=255u8 {
            let found = Opcode::ALL.iter().copied().find(|opcode| opcode.byte() == byte);
            assert_eq!(Opcode::from_byte(byte), found);
        }
    }

    #[test]
    fn the_four_properties_name_an_opcode() {
        for &o in Opcode::ALL {
            let found = Opcode::find(o.transport(), o.operation(), o.position(), o.suffix());
            assert_eq!(found, Some(o));
        }
        use {Operation::ReadRequest, Position::Only, Transport::Uc};
        assert_eq!(Opcode::find(Uc, ReadRequest, Only, Suffix::None), None);
    }

    #[test]
    fn other_transports_and_reserved_opcodes_are_refused() {
        for byte in [0x15, 0x18, 0x1c, 0x1d, 0x2c, 0x40, 0x60, 0x66, 0x80, 0xa0, 0xa4, 0xb7, 0xff] {
            assert_eq!(Opcode::from_byte(byte), None, "{byte:#x}");
        }
    }

    #[test]
    fn header_lengths() {
        let bytes = |opcode: Opcode| opcode.header_bytes();
        assert_eq!(bytes(Opcode::RcSendMiddle), 12);
        assert_eq!(bytes(Opcode::RcSendLastInv), 16);
        assert_eq!(bytes(Opcode::RcWriteFirst), 28);
        assert_eq!(bytes(Opcode::RcWriteMiddle), 12);
        assert_eq!(bytes(Opcode::RcWriteLastImm), 16);
        assert_eq!(bytes(Opcode::UcWriteOnlyImm), 32);
        assert_eq!(bytes(Opcode::RcReadRequest), 28);
        assert_eq!(bytes(Opcode::RcReadResponseMiddle), 12);
        assert_eq!(bytes(Opcode::RcReadResponseOnly), 16);
        assert_eq!(bytes(Opcode::RcAcknowledge), 16);
        assert_eq!(bytes(Opcode::RcAtomicAcknowledge), 24);
        assert_eq!(bytes(Opcode::RcCompareSwap), 40);
        assert_eq!(bytes(Opcode::UdSendOnly), 20);
        assert_eq!(bytes(Opcode::UdSendOnlyImm), 24);
        assert_eq!(bytes(Opcode::Cnp), 12);
    }
}
