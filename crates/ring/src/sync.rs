//! The atomics of this crate: loom's under `cfg(loom)`, else those of `core`.
//!
//! Everything shared is laid out as 64-bit words at byte offsets from a base pointer. In a real
//! build a word is eight bytes of a mapped segment; under `cfg(loom)` it is an element of an array
//! of loom atomics, and byte offset `8 * i` means element `i`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// The size of what callers treat as a private line, in bytes: twice a cache line, because the
/// spatial prefetcher of x86 fetches lines in pairs; one word under loom, which has no lines.
pub(crate) const LINE: usize = if cfg!(loom) { 8 } else { 128 };

/// The address of byte `offset` of a region.
///
/// # Safety
/// `base` must point to a region of more than `offset` bytes (or exactly `offset`, for a pointer
/// that is not read through).
#[inline(always)]
pub(crate) unsafe fn at(base: *mut u8, offset: usize) -> *mut u8 {
    let stride = if cfg!(loom) { size_of::<AtomicU64>() / 8 } else { 1 };
    // SAFETY: the caller promises that the region reaches to `offset`; under loom one word of eight
    // bytes stands for one loom atomic, so the same element is `stride` times as far.
    unsafe { base.add(offset * stride) }
}

/// The shared word at byte `offset` of a region.
///
/// # Safety
/// `base` must be 8-byte aligned and point to a region that is at least `offset + 8` bytes long and
/// stays mapped, readable (and writable, where the caller stores) for `'a`. `offset` must be a
/// multiple of eight. Nobody may touch the word except through atomics.
#[inline(always)]
pub(crate) unsafe fn word<'a>(base: *mut u8, offset: usize) -> &'a AtomicU64 {
    debug_assert!(offset.is_multiple_of(8));
    // SAFETY: in bounds, aligned and mapped for 'a, as the caller promises. A reference to an
    // atomic word is sound while other processes write it: that is what the atomic is for.
    unsafe { &*at(base, offset).cast::<AtomicU64>() }
}

/// Memory for tests: zeroed words that behave like a fresh segment.
#[cfg(test)]
pub(crate) struct Words(Vec<AtomicU64>);

#[cfg(test)]
impl Words {
    /// A zeroed region of `bytes` bytes, a multiple of eight, aligned to 64 (to a word under loom).
    pub(crate) fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(8));
        let spare = if cfg!(loom) { 0 } else { 7 };
        Words((0..bytes / 8 + spare).map(|_| AtomicU64::new(0)).collect())
    }

    /// The base of the region.
    pub(crate) fn base(&self) -> *mut u8 {
        let first: *mut u8 = self.0.as_ptr().cast_mut().cast();
        if cfg!(loom) { first } else { first.wrapping_add(first.align_offset(64)) }
    }
}

/// The smallest page of this machine, in bytes.
pub fn page_bytes() -> usize {
    // SAFETY: a query without side effects.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Makes the pages of a mapped range now, so that the first touch does not fault. A hint: kernels
/// before 5.14 ignore it.
pub(crate) fn populate(start: *mut u8, bytes: usize) {
    #[cfg(not(loom))]
    {
        let before = start.addr() % page_bytes();
        // SAFETY: the advice changes no content, and fails where nothing is mapped.
        unsafe {
            libc::madvise(
                start.wrapping_sub(before).cast(),
                before + bytes,
                libc::MADV_POPULATE_WRITE,
            )
        };
    }
    #[cfg(loom)]
    let _ = (start, bytes);
}

/// Prefetches a word's line for writing; no operation on processors without such an instruction.
#[inline(always)]
pub(crate) fn prefetch_to_write(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a hint; it touches nothing, whatever the address. Processors without it do nothing.
    // The intrinsic would become a prefetch for reading, unless the whole build were for
    // processors that have this one.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]", in(reg) core::ptr::from_ref(word),
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    let _ = word;
}

/// Prefetches a word's line for reading; no operation on processors without such an instruction.
#[inline(always)]
pub(crate) fn prefetch_to_read(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a hint; it touches nothing, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(word).cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    let _ = word;
}
