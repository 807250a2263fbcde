//! What each end says of itself in the private data of the connection: the version of the layout,
//! and the number and types of the values that it sends. The layout of a sample has no room for it.

use std::fmt;

/// The first bytes of a hello.
const MAGIC: [u8; 4] = *b"rdgw";
/// The version of the layout of hello and samples.
const VERSION: u8 = 1;
/// Types of up to so many values are listed; of more, only their hash is compared.
const LISTED: usize = 128;
/// Bytes of a hello: magic, version, byte order, number of values, types.
pub const HELLO_BYTES: usize = 4 + 1 + 1 + 2 + LISTED / 4;

/// What a request of rdma_cm can carry.
const _: () = assert!(HELLO_BYTES <= 56);

/// What an end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    values: u16,
    /// Two bits for each value, or a hash in the first eight bytes.
    kinds: [u8; LISTED / 4],
}

/// Why a peer is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It has said nothing about itself.
    Silent,
    /// It uses another version of the layout.
    Version(u8),
    /// It uses the other byte order.
    ByteOrder,
    /// It sends so many values.
    Values {
        /// As it said.
        theirs: u16,
        /// As configured here.
        ours: u16,
    },
    /// It sends values of other types; the first different one, if it is known.
    Kinds(Option<usize>),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str(
                "it does not say what it sends; hello = \"optional\" takes it as the layout of \
                 VILLASnode",
            ),
            Self::Version(theirs) => {
                write!(f, "it uses version {theirs} of the layout, this is version {VERSION}")
            }
            Self::ByteOrder => f.write_str("it uses the other byte order"),
            Self::Values { theirs, ours } => {
                write!(f, "it sends {theirs} values, and in.signals has {ours}")
            }
            Self::Kinds(Some(at)) => {
                write!(f, "the type of its value {at} differs from in.signals")
            }
            Self::Kinds(None) => f.write_str("the types of its values differ from in.signals"),
        }
    }
}

impl Hello {
    /// Of values of these types, as numbers from 0 to 3.
    #[must_use]
    pub fn of(kinds: impl ExactSizeIterator<Item = u8>) -> Self {
        let values = u16::try_from(kinds.len()).unwrap_or(u16::MAX);
        let mut packed = [0; LISTED / 4];
        if usize::from(values) <= LISTED {
            for (at, kind) in kinds.enumerate() {
                packed[at / 4] |= (kind & 3) << (at % 4 * 2);
            }
        } else {
            // FNV-1a.
            let hash = kinds.fold(0xcbf2_9ce4_8422_2325_u64, |hash, kind| {
                (hash ^ u64::from(kind)).wrapping_mul(0x100_0000_01b3)
            });
            packed[..8].copy_from_slice(&hash.to_le_bytes());
        }
        Self { values, kinds: packed }
    }

    /// As private data.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = cfg!(target_endian = "big").into();
        bytes[6..8].copy_from_slice(&self.values.to_le_bytes());
        bytes[8..].copy_from_slice(&self.kinds);
        bytes
    }

    /// From private data, which may be longer.
    ///
    /// # Errors
    /// When there is no hello, or one of another version.
    pub fn read(bytes: &[u8]) -> Result<Self, Mismatch> {
        if bytes.len() < HELLO_BYTES || bytes[..4] != MAGIC {
            return Err(Mismatch::Silent);
        }
        if bytes[4] != VERSION {
            return Err(Mismatch::Version(bytes[4]));
        }
        if bytes[5] != u8::from(cfg!(target_endian = "big")) {
            return Err(Mismatch::ByteOrder);
        }
        let mut kinds = [0; LISTED / 4];
        kinds.copy_from_slice(&bytes[8..HELLO_BYTES]);
        Ok(Self { values: u16::from_le_bytes([bytes[6], bytes[7]]), kinds })
    }

    /// The first of these values, as many as the other one has; all of them if it has more. Their
    /// types must be listed.
    #[must_use]
    pub fn first(&self, other: &Self) -> Self {
        let values = self.values.min(other.values);
        Self::of((0..usize::from(values)).map(|at| self.kind(at)))
    }

    /// The type of a value, where types are listed.
    fn kind(&self, at: usize) -> u8 {
        self.kinds[at / 4] >> (at % 4 * 2) & 3
    }

    /// Whether this is what an end that expects `ours` can take. An end that sends nothing fits
    /// every other one.
    ///
    /// # Errors
    /// The first difference.
    pub fn fits(&self, ours: &Self) -> Result<(), Mismatch> {
        if self.values == 0 || ours.values == 0 || self == ours {
            return Ok(());
        }
        if self.values != ours.values {
            return Err(Mismatch::Values { theirs: self.values, ours: ours.values });
        }
        let listed = usize::from(self.values) <= LISTED;
        let first = listed.then(|| (0..LISTED).find(|&at| self.kind(at) != ours.kind(at)));
        Err(Mismatch::Kinds(first.flatten()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_padding_and_fits_itself() {
        for n in [0, 1, 8, 128, 129, 512] {
            let hello = Hello::of((0..n).map(|i| (i % 4) as u8));
            let mut bytes = hello.to_bytes().to_vec();
            bytes.resize(196, 0);
            assert_eq!(Hello::read(&bytes), Ok(hello), "{n}");
            assert_eq!(hello.fits(&hello), Ok(()));
        }
    }

    #[test]
    fn the_first_values_of_a_longer_list_fit() {
        let ours = Hello::of((0..64).map(|_| 1));
        for n in [1, 3, 64] {
            let theirs = Hello::of((0..n).map(|_| 1));
            assert_eq!(theirs.fits(&ours.first(&theirs)), Ok(()), "{n}");
        }
        let more = Hello::of((0..65).map(|_| 1));
        let too_many = Err(Mismatch::Values { theirs: 65, ours: 64 });
        assert_eq!(more.fits(&ours.first(&more)), too_many);
        let other = Hello::of([1, 2].into_iter());
        assert_eq!(other.fits(&ours.first(&other)), Err(Mismatch::Kinds(Some(1))));
    }

    #[test]
    fn each_difference_is_named() {
        let of = |kinds: &[u8]| Hello::of(kinds.iter().copied());
        let ours = of(&[0, 0, 1]);
        assert_eq!(of(&[0, 0]).fits(&ours), Err(Mismatch::Values { theirs: 2, ours: 3 }));
        assert_eq!(of(&[0, 1, 1]).fits(&ours), Err(Mismatch::Kinds(Some(1))));
        assert_eq!(of(&[]).fits(&ours), Ok(()));
        let long = |last| Hello::of((0..200).map(move |i| if i == 199 { last } else { 0 }));
        assert_eq!(long(0).fits(&long(1)), Err(Mismatch::Kinds(None)));
        assert_eq!(Hello::read(&[0; 56]), Err(Mismatch::Silent));
        assert_eq!(Hello::read(&[]), Err(Mismatch::Silent));
        let mut other = ours.to_bytes();
        other[4] = 9;
        assert_eq!(Hello::read(&other), Err(Mismatch::Version(9)));
        other[4] = 1;
        other[5] ^= 1;
        assert_eq!(Hello::read(&other), Err(Mismatch::ByteOrder));
    }
}
