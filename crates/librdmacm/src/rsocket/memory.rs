//! Buffers of sockets, which the adapter reads and writes, and copying from and to them.

use core::ffi::c_int;
use std::ptr::null_mut;

use libc::iovec;
use rdmalab_abi::*;

use super::protocol::SGE_BYTES;
use crate::device::verbs;
use crate::errno::{CallResult, Errno, last_errno};

/// Memory at the peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sge {
    pub addr: u64,
    pub key: u32,
    pub length: u32,
}

/// A buffer that the adapter reads or writes. This library only copies from and to it.
pub struct Buffer {
    pub at: *mut u8,
    mr: *mut ibv_mr,
}

impl Buffer {
    pub const NONE: Self = Self { at: null_mut(), mr: null_mut() };

    pub fn new(pd: *mut ibv_pd, bytes: usize, access: u32) -> CallResult<Self> {
        // SAFETY: plain allocation, and its registration; both are undone by `free`.
        unsafe {
            let at: *mut u8 = libc::calloc(bytes.max(1), 1).cast();
            if at.is_null() {
                return Err(Errno(libc::ENOMEM));
            }
            let mr = (verbs()?.reg_mr)(pd, at.cast(), bytes, access as c_int);
            if mr.is_null() {
                let error = last_errno();
                libc::free(at.cast());
                return Err(error);
            }
            Ok(Self { at, mr })
        }
    }

    pub fn free(&mut self) {
        if let (false, Ok(verbs)) = (self.at.is_null(), verbs()) {
            // SAFETY: made by `new`, freed once.
            unsafe {
                (verbs.dereg_mr)(self.mr);
                libc::free(self.at.cast());
            }
        }
        *self = Self::NONE;
    }

    pub fn address(&self) -> u64 {
        self.at as u64
    }

    pub fn keys(&self) -> (u32, u32) {
        // SAFETY: null, or registered.
        unsafe { self.mr.as_ref() }.map_or((0, 0), |mr| (mr.lkey, mr.rkey))
    }
}

/// An entry of the target SGL in the peer's byte order.
pub fn entry_bytes(sge: Sge, swaps: bool) -> [u8; SGE_BYTES] {
    let mut bytes = [0; SGE_BYTES];
    let (addr, key, length) = match swaps {
        true => (sge.addr.swap_bytes(), sge.key.swap_bytes(), sge.length.swap_bytes()),
        false => (sge.addr, sge.key, sge.length),
    };
    bytes[..8].copy_from_slice(&addr.to_ne_bytes());
    bytes[8..12].copy_from_slice(&key.to_ne_bytes());
    bytes[12..].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// Calls `each` for the parts of `pieces` that hold `bytes` bytes, after the first `skip` bytes.
pub fn gather(
    pieces: &[iovec],
    mut skip: usize,
    mut bytes: usize,
    mut each: impl FnMut(*const u8, usize),
) {
    for piece in pieces {
        if skip >= piece.iov_len {
            skip -= piece.iov_len;
            continue;
        }
        let length = (piece.iov_len - skip).min(bytes);
        if length == 0 {
            return;
        }
        each(piece.iov_base.cast::<u8>().wrapping_add(skip), length);
        bytes -= length;
        skip = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_walked_from_any_byte() {
        let data = *b"abcdefgh";
        let piece = |from: usize, to: usize| iovec {
            iov_base: data[from..to].as_ptr().cast_mut().cast(),
            iov_len: to - from,
        };
        let pieces = [piece(0, 3), piece(3, 3), piece(3, 8)];
        for skip in 0..8 {
            for bytes in 0..=8 - skip {
                let mut seen: Vec<u8> = Vec::new();
                gather(&pieces, skip, bytes, |at, length| {
                    // SAFETY: within `data`.
                    seen.extend_from_slice(unsafe { std::slice::from_raw_parts(at, length) });
                });
                assert_eq!(seen, data[skip..skip + bytes], "{skip} {bytes}");
            }
        }
    }

    #[test]
    fn entries_are_swapped_for_peers_of_the_other_order() {
        let sge = Sge { addr: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, length: 0x1011_1213 };
        let (plain, swapped) = (entry_bytes(sge, false), entry_bytes(sge, true));
        let mut back = swapped;
        back[..8].reverse();
        back[8..12].reverse();
        back[12..].reverse();
        assert_eq!(back, plain);
    }
}
