//! The contents of an ACK extended transport header: the syndrome, with the tables of both timers.

/// The reason in a negative acknowledgement (IBA vol. 1, 9.7.5.2.8, NAK codes).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A packet with a later PSN than expected arrived: the requester has to send again.
    PsnSequenceError = 0,
    /// The request breaks a rule: an unexpected opcode, a bad length, too many READs or atomics.
    InvalidRequest = 1,
    /// The remote key, the range or the rights of the request are not valid.
    RemoteAccessError = 2,
    /// The responder failed although the request was well formed.
    RemoteOperationalError = 3,
    /// A reliable datagram request was wrong; other transports never send it.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// From the low 5 bits of the syndrome; `None` for the reserved codes 5 ..= 31.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::PsnSequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccessError,
            3 => Self::RemoteOperationalError,
            4 => Self::InvalidRdRequest,
            _ => return None,
        })
    }
}

/// The delay that an RNR NAK asks for, as its 5-bit code (IBA vol. 1, 9.7.5.2.8, RNR NAK timer).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RnrTimer(u8);

/// Delays by code, in units of 10 us. Code 0 is the longest.
const RNR_DELAYS_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// Takes a code of 0 ..= 31 (`min_rnr_timer` of `ibv_modify_qp`); `None` above.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The code, below 32.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The delay: 655.36 ms for code 0, else 0.01 ms (code 1) to 491.52 ms (code 31).
    #[inline]
    pub const fn nanoseconds(self) -> u64 {
        RNR_DELAYS_10US[(self.0 & 31) as usize] as u64 * 10_000
    }
}

/// The local ACK timeout of a QP, as its 5-bit exponent (IBA vol. 1, 9.7.6.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No timeout: the requester never notices lost packets by itself.
    pub const INFINITE: AckTimeout = AckTimeout(0);

    /// Takes an exponent of 0 ..= 31 (`timeout` of `ibv_modify_qp`); `None` above.
    pub const fn new(exponent: u8) -> Option<Self> {
        if exponent < 32 { Some(Self(exponent)) } else { None }
    }

    /// The exponent, below 32.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The timeout, 4.096 us x 2^exponent; `None` when it is infinite (exponent 0).
    #[inline]
    pub const fn nanoseconds(self) -> Option<u64> {
        if self.0 == 0 { None } else { Some(4096 << (self.0 & 31)) }
    }
}

/// The first byte of an AETH, decoded (IBA vol. 1, 9.7.5.1.1). Bit 7 is reserved, bits 6:5 are the
/// kind, bits 4:0 its value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// Positive acknowledgement, with the responder's end-to-end credits.
    Ack {
        /// The 5-bit credit code; [`Syndrome::UNLIMITED_CREDITS`] if the responder gives no
        /// credits.
        credits: u8,
    },
    /// The responder had no receive WQE: try again after the delay.
    RnrNak(RnrTimer),
    /// The request failed or came out of order.
    Nak(NakCode),
}

impl Syndrome {
    /// The credit code of a responder that does not take part in end-to-end flow control.
    pub const UNLIMITED_CREDITS: u8 = 31;

    /// An acknowledgement without flow control, as RoCE devices send it.
    pub const ACK: Syndrome = Syndrome::Ack { credits: Self::UNLIMITED_CREDITS };

    /// Decodes the byte; `None` for the reserved kinds and NAK codes.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        let value = byte & 31;
        match byte >> 5 {
            0 => Some(Self::Ack { credits: value }),
            1 => Some(Self::RnrNak(RnrTimer(value))),
            3 => match NakCode::from_bits(value) {
                Some(code) => Some(Self::Nak(code)),
                None => None,
            },
            _ => None,
        }
    }

    /// Encodes the byte; only the low 5 bits of a credit code are used.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 31,
            Self::RnrNak(timer) => 0x20 | timer.0,
            Self::Nak(code) => 0x60 | code as u8,
        }
    }
}

/// The number of receive WQEs for a 5-bit credit code; `None` for "unlimited" and codes above 31
/// (IBA vol. 1, 9.7.7.2.3, end-to-end credit encoding).
pub const fn credit_count(code: u8) -> Option<u32> {
    match code {
        0..=1 => Some(code as u32),
        2..=30 if code & 1 == 0 => Some(1 << (code / 2)),
        3..=29 => Some(3 << ((code - 3) / 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_byte_is_reserved_or_its_own_encoding() {
        let mut valid = 0;
        for byte in 0..=255u8 {
            if let Some(syndrome) = Syndrome::from_byte(byte) {
                assert_eq!(syndrome.byte(), byte);
                valid += 1;
            }
        }
        assert_eq!(valid, 32 + 32 + 5);
    }

    #[test]
    fn well_known_syndromes() {
        assert_eq!(Syndrome::from_byte(0x1f), Some(Syndrome::ACK));
        assert_eq!(Syndrome::from_byte(0x2c), Some(Syndrome::RnrNak(RnrTimer(12))));
        assert_eq!(Syndrome::from_byte(0x60), Some(Syndrome::Nak(NakCode::PsnSequenceError)));
        assert_eq!(Syndrome::from_byte(0x64), Some(Syndrome::Nak(NakCode::InvalidRdRequest)));
        assert_eq!(Syndrome::from_byte(0x65), None);
        assert_eq!(Syndrome::from_byte(0x40), None);
        assert_eq!(Syndrome::from_byte(0x9f), None);
    }

    #[test]
    fn rnr_delays_grow_but_for_code_zero() {
        let ns = |code| RnrTimer::new(code).unwrap().nanoseconds();
        assert_eq!(ns(0), 655_360_000);
        assert_eq!(ns(1), 10_000);
        assert_eq!(ns(12), 640_000);
        assert_eq!(ns(25), 61_440_000);
        assert_eq!(ns(31), 491_520_000);
        // From code 4 on, each second code doubles, so an error in the table fails here.
        assert!((6..32).all(|code| ns(code) == 2 * ns(code - 2)));
        assert!(RnrTimer::new(32).is_none());
    }

    #[test]
    fn ack_timeouts() {
        assert_eq!(AckTimeout::INFINITE.nanoseconds(), None);
        assert_eq!(AckTimeout::new(1).unwrap().nanoseconds(), Some(8192));
        assert_eq!(AckTimeout::new(14).unwrap().nanoseconds(), Some(67_108_864));
        assert_eq!(AckTimeout::new(31).unwrap().nanoseconds(), Some(4096 << 31));
        assert!(AckTimeout::new(32).is_none());
    }

    #[test]
    fn credits() {
        let counts: [u32; 9] = core::array::from_fn(|code| credit_count(code as u8).unwrap());
        assert_eq!(counts, [0, 1, 2, 3, 4, 6, 8, 12, 16]);
        assert_eq!(credit_count(29), Some(24576));
        assert_eq!(credit_count(30), Some(32768));
        assert_eq!(credit_count(31), None);
    }
}
