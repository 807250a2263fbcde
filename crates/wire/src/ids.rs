//! The numbers of the specification as types, so that a PSN cannot be passed as a QPN.

use core::fmt;

/// Mask of the 24-bit fields of the base transport header.
pub const MASK_24: u32 = 0x00ff_ffff;

/// A packet sequence number: 24 bits, compared modulo 2^24 (IBA vol. 1, 9.2.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Takes the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Self {
        Self(value & MASK_24)
    }

    /// The value, below 2^24.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// This PSN advanced by `packets`, modulo 2^24.
    #[inline]
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// This PSN moved back by `packets`, modulo 2^24.
    #[inline]
    pub const fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// How far `self` lies after `earlier`, in -2^23 ..= 2^23 - 1.
    #[inline]
    pub const fn distance_from(self, earlier: Psn) -> i32 {
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }

    /// Whether `self` comes before `other` in the window of 2^23 packets.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether `self` is `other` or comes after it.
    #[inline]
    pub const fn is_at_or_after(self, other: Psn) -> bool {
        self.distance_from(other) >= 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {}", self.0)
    }
}

macro_rules! id24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
        pub struct $name(u32);
        impl $name {
            /// Takes the low 24 bits of `value`.
            #[inline]
            pub const fn new(value: u32) -> Self { Self(value & MASK_24) }
            /// The value, below 2^24.
            #[inline]
            pub const fn get(self) -> u32 { self.0 }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), " {:#08x}"), self.0)
            }
        }
    };
}

id24! {
    /// A queue pair number: 24 bits; 0 and 1 are the management QPs, 0xffffff means multicast.
    Qpn
}
id24! {
    /// A message sequence number: 24 bits, the count of completed request messages (IBA 9.7.7.1).
    Msn
}

impl Qpn {
    /// The destination QP of every multicast packet (IBA 10.5.2).
    pub const MULTICAST: Qpn = Qpn(MASK_24);
}

impl Msn {
    /// The next message sequence number, modulo 2^24.
    #[inline]
    pub const fn next(self) -> Self {
        Self::new(self.0.wrapping_add(1))
    }

    /// This number advanced by `messages`, modulo 2^24.
    #[inline]
    pub const fn add(self, messages: u32) -> Self {
        Self::new(self.0.wrapping_add(messages))
    }
}

macro_rules! id_plain {
    ($(#[$doc:meta])* $name:ident, $int:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
        pub struct $name(pub $int);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), " {:#x}"), self.0)
            }
        }
    };
}

id_plain! {
    /// A local key: names a memory region to its owner.
    LKey, u32
}
id_plain! {
    /// A remote key: names a memory region or window to a peer. The low 8 bits are the owner's to
    /// choose for type 2 windows (IBA 10.6.7.2).
    RKey, u32
}
id_plain! {
    /// A queue key: must match for a datagram to be accepted (IBA 10.2.5).
    QKey, u32
}
id_plain! {
    /// A partition key: bit 15 is full membership (IBA 10.9.3).
    PKey, u16
}
id_plain! {
    /// A local identifier: the address of a port within a subnet.
    Lid, u16
}

impl PKey {
    /// The default partition, full member.
    pub const DEFAULT: PKey = PKey(0xffff);

    /// Whether a packet with key `other` may reach a holder of `self`: equal low 15 bits, not both
    /// limited members, and never the invalid key (IBA 10.9.3).
    #[inline]
    pub const fn matches(self, other: PKey) -> bool {
        let base = self.0 & 0x7fff;
        base != 0 && base == other.0 & 0x7fff && (self.0 | other.0) & 0x8000 != 0
    }
}

/// A global identifier: 128 bits, laid out as an IPv6 address in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether this is a multicast GID (ff00::/8).
    pub const fn is_multicast(&self) -> bool {
        self.0[0] == 0xff
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gid {}", core::net::Ipv6Addr::from(self.0))
    }
}

/// A path MTU: 256 ... 4096 bytes of payload in a packet (`enum ibv_mtu`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PathMtu {
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

impl PathMtu {
    /// Payload bytes of a full packet.
    #[inline]
    pub const fn bytes(self) -> u32 {
        128 << (self as u32)
    }

    /// The base-2 logarithm of [`PathMtu::bytes`].
    #[inline]
    pub const fn shift(self) -> u32 {
        7 + self as u32
    }

    /// How many packets a message of `bytes` takes; a message of zero bytes takes one.
    #[inline]
    pub const fn packets(self, bytes: u32) -> u32 {
        if bytes == 0 { 1 } else { ((bytes - 1) >> self.shift()) + 1 }
    }

    /// From the numbering of `enum ibv_mtu`; `None` outside 1 ..= 5.
    pub const fn from_ibv(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            _ => return None,
        })
    }

    /// From [`PathMtu::bytes`]; `None` for any other number of bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        (1..=5).filter_map(Self::from_ibv).find(|mtu| mtu.bytes() == bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_compares_across_the_wrap() {
        let last = Psn::new(0xff_ffff);
        assert!(last.is_before(last.add(1)));
        assert_eq!(last.add(1).get(), 0);
        assert_eq!(Psn::new(5).distance_from(Psn::new(0xff_fffb)), 10);
        assert_eq!(Psn::new(0xff_fffb).distance_from(Psn::new(5)), -10);
    }

    #[test]
    fn packets_of_a_message() {
        assert_eq!(PathMtu::Mtu256.packets(0), 1);
        assert_eq!(PathMtu::Mtu256.packets(256), 1);
        assert_eq!(PathMtu::Mtu256.packets(257), 2);
        assert_eq!(PathMtu::Mtu256.packets(1 << 31), 1 << 23);
    }

    #[test]
    fn bytes_of_packets() {
        for (bytes, mtu) in [(256, Some(1)), (1024, Some(3)), (4096, Some(5)), (128, None)] {
            assert_eq!(PathMtu::from_bytes(bytes).map(|mtu| mtu as u32), mtu, "{bytes}");
        }
        assert_eq!((PathMtu::from_bytes(0), PathMtu::from_bytes(1500)), (None, None));
    }

    #[test]
    fn limited_members_do_not_reach_each_other() {
        assert!(PKey(0xffff).matches(PKey(0x7fff)));
        assert!(!PKey(0x7fff).matches(PKey(0x7fff)));
        assert!(!PKey(0x8001).matches(PKey(0x8002)));
    }
}
