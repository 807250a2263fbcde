//! Memory that an adapter or a peer may write while this process reads it.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::context::Context;
use crate::library::{Library, SoftHooks};

impl Context {
    /// Memory of the kind that this device accesses fastest, see [`Buffer::alloc`].
    ///
    /// # Errors
    /// When there is not enough memory; `InvalidInput` for no bytes.
    pub fn alloc_buffer(&self, bytes: usize) -> io::Result<Buffer> {
        Buffer::alloc(self.library(), bytes)
    }
}

/// The kind of memory of a buffer. It decides how a soft peer accesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Shared memory of the soft device: peers on this host map it and copy straight into it.
    Shared,
    /// Anonymous memory of this process, like a program's heap: a peer needs the kernel, or this
    /// process, to write to it. Adapters usually work with this kind.
    Private,
}

impl std::fmt::Display for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Backing::Shared => "memfd-backed",
            Backing::Private => "foreign",
        })
    }
}

/// Zeroed, page-aligned memory, which lives as long as a clone or a region of it.
///
/// Peers write it at any time, so there is no `&[u8]` of it: bytes are read and written by atomics,
/// or by copies in which each byte is some value that was there.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// The functions that free it, if it is shared.
    hooks: Option<SoftHooks>,
}

// SAFETY: the memory belongs to the process, and is reached through atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.hooks {
            // SAFETY: this came from the same hooks' `alloc_shared`, and the last handle is gone; a
            // region that could not be deregistered keeps a handle for ever.
            Some(hooks) => unsafe { (hooks.free_shared)(self.start.as_ptr()) },
            // SAFETY: as above, from `mmap` in `private`.
            None => unsafe {
                libc::munmap(self.start.as_ptr().cast(), self.bytes);
            },
        }
    }
}

impl Buffer {
    /// The kind of memory that suits the library best: shared for the soft device, else private.
    ///
    /// # Errors
    /// When there is not enough memory; `InvalidInput` for no bytes.
    pub fn alloc(library: &Library, bytes: usize) -> io::Result<Self> {
        let Some(hooks) = library.hooks() else { return Self::private(bytes) };
        if bytes == 0 {
            return Err(no_bytes());
        }
        let start = (hooks.alloc_shared)(bytes)?;
        Ok(Self(Arc::new(Memory { start, bytes, hooks: Some(*hooks) })))
    }

    /// Anonymous memory of this process, with all pages present.
    ///
    /// # Errors
    /// When there is not enough memory; `InvalidInput` for no bytes.
    pub fn private(bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Err(no_bytes());
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping wherever the kernel likes; nothing existing is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(no_bytes)?;
        Ok(Self(Arc::new(Memory { start, bytes, hooks: None })))
    }

    /// The kind of memory.
    #[must_use]
    pub fn backing(&self) -> Backing {
        if self.0.hooks.is_some() { Backing::Shared } else { Backing::Private }
    }

    /// The address of its first byte.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.0.start.as_ptr() as u64
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Always false: a buffer has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A byte: to poll on, or to write.
    ///
    /// # Panics
    /// When the offset lies beyond the end.
    #[must_use]
    pub fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(offset < self.len(), "byte {offset} of a buffer of {}", self.len());
        // SAFETY: within the mapping, which lives as long as `self`; an atomic may be shared with
        // other writers.
        unsafe { AtomicU8::from_ptr(self.0.start.as_ptr().add(offset)) }
    }

    /// Eight bytes as one number: to poll on, or to write.
    ///
    /// # Panics
    /// When the offset is not a multiple of 8, or the eight bytes go beyond the end.
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        let fits = offset.checked_add(8).is_some_and(|end| end <= self.len());
        assert!(fits && offset.is_multiple_of(8), "word {offset} of a buffer of {}", self.len());
        // SAFETY: as above; aligned, since the start is page-aligned.
        unsafe { AtomicU64::from_ptr(self.0.start.as_ptr().add(offset).cast()) }
    }

    /// All whole words of the buffer.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        let start = self.0.start.as_ptr().cast::<AtomicU64>();
        // SAFETY: within the mapping, which lives as long as `self`; aligned, since the start is
        // page-aligned; atomics may be shared with other writers.
        unsafe { std::slice::from_raw_parts(start, self.len() / 8) }
    }

    /// Reads eight bytes that a peer may write at once. Later reads see all that was written
    /// before.
    ///
    /// # Panics
    /// As [`Buffer::word`].
    #[must_use]
    #[inline]
    pub fn read_u64(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Acquire)
    }

    /// Writes eight bytes at once, after everything that was written before.
    ///
    /// # Panics
    /// As [`Buffer::word`].
    #[inline]
    pub fn write_u64(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Release);
    }

    /// Copies bytes in, in no particular order.
    ///
    /// # Panics
    /// When they go beyond the end.
    pub fn write_bytes(&self, offset: usize, bytes: &[u8]) {
        self.assert_range(offset, bytes.len());
        let mut at = offset;
        let (mut rest, mut eight) = (bytes, [0u8; 8]);
        while !rest.is_empty() {
            let step = if at.is_multiple_of(8) && rest.len() >= 8 { 8 } else { 1 };
            let (now, later) = rest.split_at(step);
            if step == 8 {
                eight.copy_from_slice(now);
                self.word(at).store(u64::from_ne_bytes(eight), Ordering::Relaxed);
            } else {
                self.byte(at).store(now[0], Ordering::Relaxed);
            }
            (at, rest) = (at + step, later);
        }
    }

    /// Copies bytes into the buffer as fast as memory allows. As with [`Buffer::write_bytes`], a
    /// concurrent reader finds each byte old or new.
    ///
    /// # Panics
    /// When they go beyond the end.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.assert_range(offset, bytes.len());
        #[cfg(target_arch = "x86_64")]
        {
            let to = self.addr() as usize + offset;
            // SAFETY: the range lies within the buffer, which is alive and writable, and apart from
            // the slice. Peers may write there meanwhile. Therefore this is a string move in
            // assembler: for a memcpy of Rust that would be a data race.
            unsafe {
                std::arch::asm!(
                    "rep movsb",
                    inout("rcx") bytes.len() => _,
                    inout("rsi") bytes.as_ptr() => _,
                    inout("rdi") to => _,
                    options(nostack, preserves_flags),
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        self.write_bytes(offset, bytes);
    }

    /// [`Buffer::copy_in`] from another place of the buffer.
    ///
    /// # Panics
    /// When either goes beyond the end, or they overlap.
    pub fn copy_within(&self, from: usize, to: usize, bytes: usize) {
        self.assert_range(from, bytes);
        self.assert_range(to, bytes);
        assert!(from + bytes <= to || to + bytes <= from, "{bytes} bytes from {from} to {to}");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: both ranges lie within the buffer, which is alive and writable, and apart from
        // each other. Others may write there meanwhile: see `copy_in`.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rsi") self.addr() as usize + from => _,
                inout("rdi") self.addr() as usize + to => _,
                options(nostack, preserves_flags),
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        for i in 0..bytes {
            let byte = self.byte(from + i).load(Ordering::Relaxed);
            self.byte(to + i).store(byte, Ordering::Relaxed);
        }
    }

    /// Copies bytes out of the buffer. Bytes that are written meanwhile may be old or new.
    ///
    /// # Panics
    /// When they go beyond the end.
    pub fn read_bytes(&self, offset: usize, bytes: &mut [u8]) {
        self.assert_range(offset, bytes.len());
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let step = if at.is_multiple_of(8) && rest.len() >= 8 { 8 } else { 1 };
            let (now, later) = rest.split_at_mut(step);
            if step == 8 {
                now.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            } else {
                now[0] = self.byte(at).load(Ordering::Relaxed);
            }
            (at, rest) = (at + step, later);
        }
    }

    /// Sets a range to one byte.
    ///
    /// # Panics
    /// When it goes beyond the end.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) {
        self.assert_range(offset, bytes);
        (offset..offset + bytes).for_each(|at| self.byte(at).store(value, Ordering::Relaxed));
    }

    /// Spins until the byte at `offset` has this value, which a peer writes last; everything that
    /// the peer wrote before is then visible. Calls `give_up` after each [`Self::SPINS_PER_CHECK`]
    /// loads, and stops if it returns true. Returns whether the value arrived.
    ///
    /// # Panics
    /// As [`Buffer::byte`].
    #[inline]
    pub fn spin_until(&self, offset: usize, value: u8, give_up: impl FnMut() -> bool) -> bool {
        let byte = self.byte(offset);
        spin(|| byte.load(Ordering::Acquire) == value, give_up)
    }

    /// Loads between two calls of `give_up`: some microseconds.
    pub const SPINS_PER_CHECK: u32 = 4096;

    fn assert_range(&self, offset: usize, bytes: usize) {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.len());
        assert!(fits, "{bytes} bytes at {offset} of a buffer of {}", self.len());
    }
}

/// Spins without a pause instruction, which would add its own latency.
#[inline(always)]
fn spin(mut is_there: impl FnMut() -> bool, mut give_up: impl FnMut() -> bool) -> bool {
    loop {
        for _ in 0..Buffer::SPINS_PER_CHECK {
            if is_there() {
                return true;
            }
        }
        if give_up() {
            return is_there();
        }
    }
}

fn no_bytes() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a buffer has at least one byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_odd_places_arrive_whole() {
        let buffer = Buffer::private(64).unwrap();
        let text: Vec<u8> = (1..=29).collect();
        buffer.write_bytes(3, &text);
        let mut back = vec![0; 31];
        buffer.read_bytes(2, &mut back);
        assert_eq!((back[0], &back[1..30], back[30]), (0, &text[..], 0));
        buffer.copy_in(1, &text);
        buffer.read_bytes(0, &mut back);
        assert_eq!((back[0], &back[1..30], back[30]), (0, &text[..], 28));
        buffer.copy_within(1, 33, 29);
        buffer.read_bytes(32, &mut back);
        assert_eq!((back[0], &back[1..30], back[30]), (0, &text[..], 0));
        buffer.fill(0, 64, 7);
        assert_eq!(buffer.words().len(), 8);
        assert!(
            buffer.words().iter().all(|word| word.load(Ordering::Relaxed) == buffer.read_u64(0))
        );
        assert_eq!(buffer.read_u64(56), 0x0707_0707_0707_0707);
    }

    #[test]
    fn the_ends_are_guarded() {
        let buffer = Buffer::private(16).unwrap();
        let caught =
            |f: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err();
        assert!(caught(&|| buffer.copy_in(8, &[0; 9])));
        assert!(caught(&|| buffer.copy_within(0, 4, 5)));
        assert!(caught(&|| {
            let _ = buffer.read_u64(9);
        }));
        assert!(caught(&|| {
            let _ = buffer.read_u64(16);
        }));
        assert!(caught(&|| {
            let _ = buffer.read_u64(usize::MAX - 7);
        }));
        assert!(caught(&|| buffer.write_bytes(10, &[0; 7])));
        assert!(caught(&|| buffer.fill(usize::MAX, 2, 0)));
        assert!(caught(&|| {
            let _ = buffer.byte(16);
        }));
        assert!(!caught(&|| buffer.write_bytes(10, &[0; 6])));
        assert!(Buffer::private(0).is_err());
    }

    #[test]
    fn spinning_ends_with_the_value_or_when_told() {
        let buffer = Buffer::private(8).unwrap();
        assert!(!buffer.spin_until(7, 9, || true));
        let writer = buffer.clone();
        let thread = std::thread::spawn(move || writer.write_u64(0, 9 << 56));
        assert!(buffer.spin_until(7, 9, || false));
        thread.join().unwrap();
    }
}
