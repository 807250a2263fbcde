//! Reads and writes fixed-size pieces, without panics and without double bounds checks.

use crate::error::ParseError;

/// Takes the first `N` bytes off `input`.
#[inline]
pub(crate) fn take<'a, const N: usize>(input: &mut &'a [u8]) -> Result<&'a [u8; N], ParseError> {
    let Some((head, tail)) = input.split_first_chunk::<N>() else {
        return Err(ParseError::Truncated { needed: N, got: input.len() });
    };
    *input = tail;
    Ok(head)
}

/// Writes pieces one after another. The caller has made sure that they fit; a piece that does not
/// fit is dropped.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the beginning of `out`.
    #[inline]
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    /// Appends `piece`.
    #[inline]
    pub(crate) fn put(&mut self, piece: &[u8]) {
        if let Some(space) = self.out.get_mut(self.at..self.at + piece.len()) {
            space.copy_from_slice(piece);
            self.at += piece.len();
        }
    }

    /// Bytes written.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.at
    }
}

/// The big-endian 16 bits at `at`. All callers pass a constant, so the compiler drops the check.
#[inline]
pub(crate) const fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 24 bits at `at`.
#[inline]
pub(crate) const fn be24<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// The big-endian 32 bits at `at`.
#[inline]
pub(crate) const fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The big-endian 64 bits at `at`.
#[inline]
pub(crate) const fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    (be32(bytes, at) as u64) << 32 | be32(bytes, at + 4) as u64
}
