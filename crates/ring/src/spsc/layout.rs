//! The layout of a ring's memory, and the header that describes it.

use crate::sync::{AtomicU64, LINE, Ordering, at, word};
use core::fmt;
use core::marker::PhantomData;

/// Bytes of a slot: one cache line.
pub const SLOT_BYTES: usize = 64;
/// Words of user body in a slot.
pub const BODY_WORDS: usize = 7;
/// Data reservations start at multiples of this many bytes.
pub const DATA_ALIGN: usize = 64;

/// Bytes before the slots.
const CONTROL_BYTES: usize = if cfg!(loom) { 64 } else { 4096 };
const MAGIC_AT: usize = 0;
pub(super) const GEOMETRY_AT: usize = 8;
const DATA_BYTES_AT: usize = 16;
pub(super) const CONSUMED_SLOTS_AT: usize = if cfg!(loom) { 24 } else { 2 * LINE };
pub(super) const CONSUMED_DATA_AT: usize = if cfg!(loom) { 32 } else { 3 * LINE };
pub(super) const PRODUCER_CLOSED_AT: usize = if cfg!(loom) { 40 } else { 4 * LINE };
pub(super) const CONSUMER_CLOSED_AT: usize = if cfg!(loom) { 48 } else { 5 * LINE };

/// "rdmaring", and the version of the layout in the geometry word beside it.
const MAGIC: u64 = u64::from_le_bytes(*b"rdmaring");
const VERSION: u32 = 1;

/// Words of body that are copied. Loom gets one: more only add states.
pub(super) const COPIED_WORDS: usize = if cfg!(loom) { 1 } else { BODY_WORDS };

/// The shape of a ring: how many slots, how much data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u32,
    data_bytes: u64,
}

/// Why a region cannot be used as a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// The slots are not a power of two in 2..=2^24, or the data area is not a power of two in
    /// 128..=2^40 bytes.
    BadGeometry,
    /// The region is too small for the geometry, or not aligned to 64 bytes.
    BadRegion,
    /// The region does not begin with a ring's magic number.
    NotARing,
    /// The ring was made by another version of this layout.
    Version {
        /// The version found.
        found: u32,
        /// The version that this build reads and writes.
        expected: u32,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::BadGeometry => {
                f.write_str("ring geometry: slots and data bytes must be powers of two in range")
            }
            AttachError::BadRegion => {
                f.write_str("ring region is misaligned or too small for its geometry")
            }
            AttachError::NotARing => f.write_str("region does not hold a ring"),
            AttachError::Version { found, expected } => {
                write!(f, "ring layout version {found}, this build speaks {expected}")
            }
        }
    }
}

impl std::error::Error for AttachError {}

impl Geometry {
    /// 2048 slots and 1 MiB of data.
    pub const DEFAULT: Geometry = Geometry { slots: 2048, data_bytes: 1 << 20 };

    /// A geometry of `slots` slots (a power of two, 2 to 2^24) and `data_bytes` bytes of data area
    /// (a power of two, 128 to 2^40). Errors: [`AttachError::BadGeometry`].
    pub const fn new(slots: u32, data_bytes: u64) -> Result<Self, AttachError> {
        let slots_fit = slots.is_power_of_two() && slots >= 2 && slots <= 1 << 24;
        let data_fits = data_bytes.is_power_of_two() && data_bytes >= 128 && data_bytes <= 1 << 40;
        if slots_fit && data_fits {
            Ok(Geometry { slots, data_bytes })
        } else {
            Err(AttachError::BadGeometry)
        }
    }

    /// The number of slots.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// The size of the data area, in bytes.
    pub const fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The size of the whole ring, in bytes: control page, slots and data.
    pub const fn region_bytes(&self) -> usize {
        self.data_at() + self.data_bytes as usize
    }

    /// Where the data area begins, in bytes from the base. Every ring uses all memory before it.
    pub const fn data_at(&self) -> usize {
        CONTROL_BYTES + self.slots as usize * SLOT_BYTES
    }

    /// The longest reservation that can always be satisfied once the consumer has caught up: half
    /// of the data area, since a reservation that would wrap also uses up the tail that it skips.
    pub const fn max_reservation(&self) -> usize {
        (self.data_bytes / 2) as usize
    }
}

impl Default for Geometry {
    fn default() -> Self {
        Geometry::DEFAULT
    }
}

/// Writes the header of a new ring.
///
/// # Errors
/// [`AttachError::BadRegion`] when `base` is not aligned to 64 bytes or `len` is too small.
///
/// # Safety
/// `base..base + len` must be mapped, writable, zeroed, and not yet shared with the other side.
pub unsafe fn format(base: *mut u8, len: usize, geometry: Geometry) -> Result<(), AttachError> {
    check_region(base, len, geometry)?;
    let shape = u64::from(VERSION) << 32 | u64::from(geometry.slots);
    // SAFETY: the region is at least CONTROL_BYTES long and aligned (just checked), mapped and
    // writable (the caller's promise).
    unsafe {
        word(base, GEOMETRY_AT).store(shape, Ordering::Relaxed);
        word(base, DATA_BYTES_AT).store(geometry.data_bytes, Ordering::Relaxed);
        word(base, MAGIC_AT).store(MAGIC, Ordering::Release);
    }
    Ok(())
}

fn check_region(base: *mut u8, len: usize, geometry: Geometry) -> Result<(), AttachError> {
    let align = if cfg!(loom) { 8 } else { SLOT_BYTES };
    if base.is_null() || !base.addr().is_multiple_of(align) || len < geometry.region_bytes() {
        return Err(AttachError::BadRegion);
    }
    Ok(())
}

/// Reads a header once, checks it against the region, and returns the private copy.
///
/// # Safety
/// `base..base + len` must be mapped and readable.
unsafe fn read_header(base: *mut u8, len: usize) -> Result<Geometry, AttachError> {
    if base.is_null() || !base.addr().is_multiple_of(8) || len < CONTROL_BYTES {
        return Err(AttachError::BadRegion);
    }
    // SAFETY: aligned, and at least CONTROL_BYTES are mapped.
    let (magic, shape, data_bytes) = unsafe {
        (
            word(base, MAGIC_AT).load(Ordering::Acquire),
            word(base, GEOMETRY_AT).load(Ordering::Relaxed),
            word(base, DATA_BYTES_AT).load(Ordering::Relaxed),
        )
    };
    if magic != MAGIC {
        return Err(AttachError::NotARing);
    }
    let found = (shape >> 32) as u32;
    if found != VERSION {
        return Err(AttachError::Version { found, expected: VERSION });
    }
    let geometry = Geometry::new(shape as u32, data_bytes)?;
    check_region(base, len, geometry)?;
    Ok(geometry)
}

/// The parts that both ends know: addresses and masks, private copies of a checked header.
pub(super) struct Shape {
    base: *mut u8,
    slots: *mut u8,
    /// The first byte of the data area.
    pub(super) data: *mut u8,
    /// The number of slots minus one.
    pub(super) slot_mask: u64,
    /// The size of the data area, a power of two.
    pub(super) data_bytes: u64,
}

impl Shape {
    /// # Safety
    /// As [`Producer::attach`].
    pub(super) unsafe fn attach(
        base: *mut u8,
        len: usize,
    ) -> Result<(Shape, Geometry), AttachError> {
        // SAFETY: mapped and readable, as the caller promises.
        let geometry = unsafe { read_header(base, len)? };
        // SAFETY: `read_header` has checked that the region holds all of this geometry.
        let (slots, data) = unsafe { (at(base, CONTROL_BYTES), at(base, geometry.data_at())) };
        let slot_mask = u64::from(geometry.slots) - 1;
        let shape = Shape { base, slots, data, slot_mask, data_bytes: geometry.data_bytes };
        Ok((shape, geometry))
    }

    /// Byte offset of the slot that holds `position`, from the first slot.
    #[inline(always)]
    fn slot_offset(&self, position: u64) -> usize {
        (position & self.slot_mask) as usize * SLOT_BYTES
    }

    #[inline(always)]
    pub(super) fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is one of the constants above, all within the control page, which
        // `attach` found mapped and which stays mapped while this end lives.
        unsafe { word(self.base, offset) }
    }

    /// The slot that holds `position`. Its address is computed once; otherwise the compiler would
    /// compute it again after each store, which might change this structure as far as it knows.
    #[inline(always)]
    pub(super) fn slot(&self, position: u64) -> SlotWords<'_> {
        // SAFETY: the mask keeps the slot within the slots that `attach` found mapped.
        let base = unsafe { at(self.slots, self.slot_offset(position)) };
        SlotWords { base, shape: PhantomData }
    }

    /// Word `index` of the slot that holds `position`.
    #[inline(always)]
    pub(super) fn slot_word(&self, position: u64, index: usize) -> &AtomicU64 {
        self.slot(position).word(index)
    }
}

/// The words of a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotWords<'a> {
    base: *mut u8,
    shape: PhantomData<&'a Shape>,
}

impl<'a> SlotWords<'a> {
    /// Word `index`.
    #[inline(always)]
    pub(super) fn word(self, index: usize) -> &'a AtomicU64 {
        debug_assert!(index <= BODY_WORDS);
        // SAFETY: `base` is a slot, which stays mapped while the shape's end lives; `index` is at
        // most 7, and the offset is a multiple of eight.
        unsafe { word(self.base, index * 8) }
    }
}

/// The sequence number that the slot of `position` carries when it is published.
#[inline(always)]
pub(super) fn seq_of(position: u64) -> u32 {
    (position as u32).wrapping_add(1)
}

#[inline(always)]
pub(super) fn align_up(bytes: u64) -> u64 {
    (bytes + (DATA_ALIGN as u64 - 1)) & !(DATA_ALIGN as u64 - 1)
}
