//! The arena: one sealed memfd, mapped once, whose pages are handed out in blocks. Peers of the
//! soft device map the whole file, so an address is one offset for good.
//!
//! The file is longer than the machine's memory, and has no pages until they are touched. Pages
//! that are not in use have no access, as if they were not mapped, and are freed.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::buddy::{Buddy, Page};

/// Bytes of a page. Machines with larger pages get no arena.
pub(crate) const PAGE: usize = 4096;
/// The arena's size in times of the machine's memory: address space is cheap, and blocks are powers
/// of two.
const TIMES_OF_MEMORY: usize = 4;
/// Limits of the arena's size.
const BYTES_MIN: usize = 1 << 26;
const BYTES_MAX: usize = 1 << 40;
/// The arena's alignment, so that blocks of this size are aligned to it.
const ALIGN: usize = 1 << 30;

/// States of a page. Its memory is the file's.
pub(crate) const SHARED: u8 = 1;
/// The program has mapped something else over the page.
pub(crate) const FOREIGN: u8 = 2;

/// Start and length of the arena in bytes, to be read without the lock. 0 until it exists.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// How often memory was left private that should be shared.
static FALLBACKS: AtomicUsize = AtomicUsize::new(0);

/// What the lock protects.
pub(crate) struct Arena {
    buddy: Buddy,
    start: usize,
    fd: c_int,
    /// No page from here on was ever in use.
    unused_from: usize,
    /// In a child by `fork`: the pages are a private copy.
    is_private: bool,
}

enum State {
    /// Nothing was asked for yet.
    Unmade,
    Made(Arena),
    /// The kernel refused it.
    Refused,
}

struct Cell(UnsafeCell<State>);

// SAFETY: accessed with `LOCK` held only.
unsafe impl Sync for Cell {}

static STATE: Cell = Cell(UnsafeCell::new(State::Unmade));

struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made to be shared.
unsafe impl Sync for Mutex {}

static LOCK: Mutex = Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

/// Locks the arena. `fork` holds the lock over its three handlers.
pub(crate) fn lock() {
    // SAFETY: an initialised mutex.
    unsafe { libc::pthread_mutex_lock(LOCK.0.get()) };
}

/// Unlocks it.
pub(crate) fn unlock() {
    // SAFETY: this thread locked it, or its parent did before `fork`.
    unsafe { libc::pthread_mutex_unlock(LOCK.0.get()) };
}

/// Whether an address is in the arena.
#[inline(always)]
pub(crate) fn contains(at: *const c_void) -> bool {
    at.addr().wrapping_sub(START.load(Ordering::Relaxed)) < BYTES.load(Ordering::Acquire)
}

/// Whether a range touches the arena.
pub(crate) fn overlaps(at: *const c_void, bytes: usize) -> bool {
    let (start, length) = (START.load(Ordering::Relaxed), BYTES.load(Ordering::Acquire));
    at.addr() < start + length && at.addr().saturating_add(bytes) > start
}

/// Runs `f` with the arena locked; `None` if there is none. `f` must not allocate.
pub(crate) fn with<T>(f: impl FnOnce(&mut Arena) -> T) -> Option<T> {
    lock();
    // SAFETY: the lock is held.
    let state = unsafe { &mut *STATE.0.get() };
    let result = match state {
        State::Made(arena) => Some(f(arena)),
        _ => None,
    };
    unlock();
    result
}

/// As [`with`], by a thread that holds the lock.
///
/// # Safety
/// This thread has locked the arena.
pub(crate) unsafe fn with_locked<T>(f: impl FnOnce(&mut Arena) -> T) -> Option<T> {
    // SAFETY: the contract.
    match unsafe { &mut *STATE.0.get() } {
        State::Made(arena) => Some(f(arena)),
        _ => None,
    }
}

/// Memory of `bytes` zero bytes, aligned to `align` bytes (a power of two). Null if the arena has
/// none; the caller falls back to private memory.
pub(crate) fn allocate(bytes: usize, align: usize) -> *mut c_void {
    make();
    let pages = bytes.max(1).div_ceil(PAGE);
    let found = match align <= ALIGN {
        true => with(|arena| arena.allocate(pages, align.div_ceil(PAGE))).flatten(),
        false => None,
    };
    found.unwrap_or_else(|| {
        note_fallback();
        ptr::null_mut()
    })
}

/// Makes the arena at the first call.
fn make() {
    if BYTES.load(Ordering::Acquire) != 0 {
        return;
    }
    lock();
    // SAFETY: the lock is held.
    let state = unsafe { &mut *STATE.0.get() };
    if matches!(state, State::Unmade) {
        *state = Arena::make().map_or(State::Refused, State::Made);
        if let State::Made(arena) = state {
            START.store(arena.start, Ordering::Relaxed);
            BYTES.store(arena.bytes(), Ordering::Release);
        }
    }
    unlock();
}

/// Counts memory that is left private, and says so once if `RDMALAB_DEBUG` asks for it.
fn note_fallback() {
    static WAS_SAID: AtomicBool = AtomicBool::new(false);
    FALLBACKS.fetch_add(1, Ordering::Relaxed);
    if WAS_SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the name is a C string; a running program does not change its environment.
    if unsafe { libc::getenv(c"RDMALAB_DEBUG".as_ptr()) }.is_null() {
        return;
    }
    let said =
        b"rdmalab: memory that was asked for stays private, so that peers cannot map it: no \
                 room, or a limit (RLIMIT_AS, RLIMIT_FSIZE, vm.max_map_count)\n";
    // SAFETY: writes from a live buffer.
    unsafe { libc::write(2, said.as_ptr().cast(), said.len()) };
}

/// Number of times that memory was left private.
pub(crate) fn fallbacks() -> usize {
    FALLBACKS.load(Ordering::Relaxed)
}

/// The size that this machine and the limits of this process allow: a power of two.
fn size() -> Option<usize> {
    // SAFETY: plain structures that the calls fill.
    let (info, of_file, of_space) = unsafe {
        if libc::sysconf(libc::_SC_PAGESIZE) != PAGE as libc::c_long {
            return None;
        }
        let mut info: libc::sysinfo = mem::zeroed();
        let mut limits: [libc::rlimit; 2] = mem::zeroed();
        libc::sysinfo(&mut info);
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut limits[0]);
        libc::getrlimit(libc::RLIMIT_AS, &mut limits[1]);
        (info, limits[0].rlim_cur, limits[1].rlim_cur)
    };
    let memory = (info.totalram as usize).saturating_mul(info.mem_unit as usize);
    let wanted = memory.saturating_mul(TIMES_OF_MEMORY).clamp(ALIGN, BYTES_MAX).next_power_of_two();
    let mut most = wanted;
    if of_file != libc::RLIM_INFINITY {
        most = most.min(of_file as usize);
    }
    if of_space != libc::RLIM_INFINITY {
        most = most.min(of_space as usize / 4);
    }
    let bytes = if most < wanted { 1 << most.checked_ilog2()? } else { wanted };
    (bytes >= BYTES_MIN).then_some(bytes)
}

/// A new mapping at an address of the kernel's choice; `None` if it is refused.
fn map(bytes: usize, flags: c_int, protection: c_int) -> Option<usize> {
    let at = unmapped_map(ptr::null_mut(), bytes, protection, flags, -1, 0);
    (at != libc::MAP_FAILED).then(|| at.addr())
}

/// `mmap` by the system call, since this library replaces the function.
pub(crate) fn unmapped_map(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: replaces no mapping, or only what the program or this module owns there.
    unsafe {
        let at = libc::syscall(libc::SYS_mmap, at, bytes, protection, flags, fd, offset);
        at as *mut c_void
    }
}

/// `munmap` by the system call.
pub(crate) fn unmap(at: usize, bytes: usize) -> c_int {
    // SAFETY: what the program or this module owns there.
    unsafe { libc::syscall(libc::SYS_munmap, at, bytes) as c_int }
}

/// `madvise` by the system call.
pub(crate) fn advise(at: usize, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: the program's or this module's own memory.
    unsafe { libc::syscall(libc::SYS_madvise, at, bytes, advice) as c_int }
}

impl Arena {
    fn make() -> Option<Arena> {
        let bytes = size()?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a C string; the descriptor is ours.
        let fd = unsafe { libc::memfd_create(c"rdmalab-memory".as_ptr(), flags) };
        if fd < 0 {
            return None;
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: system calls on this descriptor.
        let is_sealed = unsafe {
            libc::ftruncate(fd, bytes as libc::off_t) == 0
                && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
        };
        let made = is_sealed.then(|| Arena::map(fd, bytes)).flatten();
        if made.is_none() {
            // SAFETY: nobody else knows the descriptor.
            unsafe { libc::close(fd) };
        }
        made
    }

    fn map(fd: c_int, bytes: usize) -> Option<Arena> {
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let reserved = map(bytes + ALIGN, anonymous, libc::PROT_NONE)?;
        let start = reserved.next_multiple_of(ALIGN);
        unmap(reserved, start - reserved);
        unmap(start + bytes, reserved + ALIGN - start);
        let (pages, rw) = (bytes / PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let table = map(pages * size_of::<Page>(), anonymous, rw);
        let Some(table) = table.filter(|_| place(start, bytes, fd, 0)) else {
            unmap(start, bytes);
            return None;
        };
        // SAFETY: a fresh mapping of this length, of zeroes, which are valid, and which stays.
        let table = unsafe { slice::from_raw_parts_mut(table as *mut Page, pages) };
        Some(Arena { buddy: Buddy::new(table), start, fd, unused_from: 0, is_private: false })
    }

    fn bytes(&self) -> usize {
        self.buddy.pages.len() * PAGE
    }

    /// The first address and the one after the last.
    pub(crate) fn bounds(&self) -> (usize, usize) {
        (self.start, self.start + self.bytes())
    }

    /// Whether a child by `fork` has to copy: the kernel copies private pages.
    pub(crate) fn needs_copy(&self) -> bool {
        self.unused_from != 0 && !self.is_private
    }

    /// Frees the memory of a range that stays in use: `MADV_DONTNEED`.
    pub(crate) fn forget(&self, at: usize, bytes: usize) {
        let range = self.pages(at, bytes);
        if !range.is_empty() {
            self.clear(range.start, range.len());
        }
    }

    pub(crate) fn address(&self, page: usize) -> usize {
        self.start + page * PAGE
    }

    /// The page at an address of the arena.
    pub(crate) fn page(&self, at: usize) -> usize {
        (at - self.start) / PAGE
    }

    /// The pages of the arena in a range of addresses, which may reach beyond it.
    pub(crate) fn pages(&self, at: usize, bytes: usize) -> core::ops::Range<usize> {
        let (end, last) = (at.saturating_add(bytes), self.start + self.bytes());
        let from = at.clamp(self.start, last) - self.start;
        let to = end.clamp(self.start, last) - self.start;
        from / PAGE..to.div_ceil(PAGE)
    }

    fn allocate(&mut self, pages: usize, align: usize) -> Option<*mut c_void> {
        let block = self.buddy.take(pages, align)?;
        if !self.open(block, pages) {
            self.buddy.give_back(block);
            return None;
        }
        Some(self.address(block) as *mut c_void)
    }

    /// Gives access to pages that have none.
    fn open(&mut self, page: usize, pages: usize) -> bool {
        if !self.protect(page, pages, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        self.buddy.pages[page..page + pages].iter_mut().for_each(|page| page.state = SHARED);
        self.unused_from = self.unused_from.max(page + pages);
        true
    }

    fn protect(&self, page: usize, pages: usize, protection: c_int) -> bool {
        let at = self.address(page) as *mut c_void;
        // SAFETY: pages of the arena.
        unsafe { libc::mprotect(at, pages * PAGE, protection) == 0 }
    }

    /// Frees the memory of pages; they read as zero afterwards.
    pub(crate) fn clear(&self, page: usize, pages: usize) {
        if self.is_private {
            advise(self.address(page), pages * PAGE, libc::MADV_DONTNEED);
            return;
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (offset, bytes) = ((page * PAGE) as libc::off_t, (pages * PAGE) as libc::off_t);
        // SAFETY: a system call on our descriptor.
        unsafe { libc::fallocate(self.fd, mode, offset, bytes) };
    }

    /// Takes pages of one block out of use. Gives the block back with its last live page.
    pub(crate) fn close(&mut self, page: usize, pages: usize) {
        let Some(block) = self.buddy.block_of(page) else { return };
        let states = &mut self.buddy.pages[page..page + pages];
        let live = states.iter().filter(|page| page.state != 0).count() as u32;
        let has_foreign = states.iter().any(|page| page.state == FOREIGN);
        states.iter_mut().for_each(|page| page.state = 0);
        if has_foreign {
            self.place(page, pages);
        }
        // An error (too many mappings) leaves access to pages of zeroes.
        self.protect(page, pages, libc::PROT_NONE);
        self.clear(page, pages);
        let left = self.buddy.live(block);
        *left -= live;
        if *left == 0 {
            self.buddy.give_back(block);
        }
    }

    /// Maps the arena's own memory at pages again, without access.
    fn place(&self, page: usize, pages: usize) {
        let (at, bytes) = (self.address(page), pages * PAGE);
        match self.is_private {
            true => drop(place_private(at, bytes)),
            false => drop(place(at, bytes, self.fd, (page * PAGE) as i64)),
        }
    }

    /// Frees the block at an address. `false` if no block begins there.
    pub(crate) fn free(&mut self, at: usize) -> bool {
        let block = self.page(at);
        if !at.is_multiple_of(PAGE) || !self.buddy.is_used(block) {
            return false;
        }
        let pages = self.buddy.capacity(block);
        self.close(block, pages);
        true
    }

    /// Takes a range out of use, block by block: `munmap`.
    pub(crate) fn close_range(&mut self, at: usize, bytes: usize) {
        let range = self.pages(at, bytes);
        let mut page = range.start;
        while page < range.end {
            let Some(block) = self.buddy.block_of(page) else {
                page += 1;
                continue;
            };
            let end = range.end.min(block + self.buddy.capacity(block));
            self.close(page, end - page);
            page = end;
        }
    }

    /// Usable bytes of the block at an address; 0 if no block begins there.
    pub(crate) fn usable(&mut self, at: usize) -> usize {
        let block = self.page(at);
        match self.buddy.is_used(block) {
            true => *self.buddy.live(block) as usize * PAGE,
            false => 0,
        }
    }

    /// Changes the length of the block at an address where it is. `old_pages` of it are live.
    pub(crate) fn resize(&mut self, at: usize, old_pages: usize, new_pages: usize) -> bool {
        let block = self.page(at);
        if !self.buddy.is_used(block) || new_pages > self.buddy.capacity(block) || new_pages == 0 {
            return false;
        }
        if new_pages < old_pages {
            self.close(block + new_pages, old_pages - new_pages);
        } else if new_pages > old_pages {
            let more = &self.buddy.pages[block + old_pages..block + new_pages];
            if more.iter().any(|page| page.state != 0) {
                return false;
            }
            if !self.open(block + old_pages, new_pages - old_pages) {
                return false;
            }
            *self.buddy.live(block) += (new_pages - old_pages) as u32;
        }
        true
    }

    /// Marks pages over which the program maps something. `false`, and no change, if some of them
    /// belong to no block.
    pub(crate) fn mark_foreign(&mut self, at: usize, bytes: usize) -> bool {
        let range = self.pages(at, bytes);
        if range.clone().any(|page| self.buddy.block_of(page).is_none()) {
            return false;
        }
        for page in range {
            let Some(block) = self.buddy.block_of(page) else { continue };
            let before = core::mem::replace(&mut self.buddy.pages[page].state, FOREIGN);
            *self.buddy.live(block) += u32::from(before == 0);
        }
        true
    }

    /// Whether all of a range is memory of the file, in use.
    pub(crate) fn is_shared(&self, at: usize, bytes: usize) -> bool {
        let range = self.pages(at, bytes);
        !self.is_private && self.buddy.pages[range].iter().all(|page| page.state == SHARED)
    }

    /// The file's descriptor.
    pub(crate) fn fd(&self) -> c_int {
        self.fd
    }

    /// In a child by `fork`: gives it a private copy of all pages in use. The parent waits.
    pub(crate) fn become_private(&mut self) -> bool {
        if self.is_private {
            return true;
        }
        self.is_private = true;
        let end = self.unused_from;
        let unused = self.buddy.pages.len() - end;
        if unused > 0 && !place_private(self.address(end), unused * PAGE) {
            return false;
        }
        let mut page = 0;
        while page < end {
            let state = self.buddy.pages[page].state;
            let same = (page..end).find(|other| self.buddy.pages[*other].state != state);
            let next = same.unwrap_or(end);
            // What the program has mapped over its pages was inherited.
            if state != FOREIGN && !place_private(self.address(page), (next - page) * PAGE) {
                return false;
            }
            if state == SHARED && !self.copy_data(page, next) {
                return false;
            }
            page = next;
        }
        true
    }

    /// Copies what the file has of these pages.
    fn copy_data(&self, mut page: usize, end: usize) -> bool {
        if !self.protect(page, end - page, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        while let Some(from) = self.next_data(page).filter(|from| *from < end) {
            page = self.end_of_data(from).min(end);
            if !self.copy(from, page) {
                return false;
            }
        }
        true
    }

    /// The first page from `page` on that the file has.
    fn next_data(&self, page: usize) -> Option<usize> {
        // SAFETY: a system call on our descriptor, whose position nobody else uses.
        let at = unsafe { libc::lseek(self.fd, (page * PAGE) as i64, libc::SEEK_DATA) };
        usize::try_from(at).ok().map(|at| at / PAGE)
    }

    fn end_of_data(&self, page: usize) -> usize {
        // SAFETY: as above.
        let at = unsafe { libc::lseek(self.fd, (page * PAGE) as i64, libc::SEEK_HOLE) };
        usize::try_from(at).map_or(self.buddy.pages.len(), |at| at.div_ceil(PAGE))
    }

    fn copy(&self, from: usize, end: usize) -> bool {
        let (mut at, end) = (from * PAGE, end * PAGE);
        while at < end {
            let to = (self.start + at) as *mut c_void;
            // SAFETY: private pages of this process, which were just mapped.
            let done = unsafe { libc::pread(self.fd, to, end - at, at as i64) };
            if done <= 0 {
                return false;
            }
            at += done as usize;
        }
        true
    }
}

/// Maps the file at a place of the arena, without access.
fn place(at: usize, bytes: usize, fd: c_int, offset: i64) -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let placed = unmapped_map(at as *mut c_void, bytes, libc::PROT_NONE, flags, fd, offset);
    // A child by `fork` gets a copy instead.
    placed != libc::MAP_FAILED && advise(at, bytes, libc::MADV_DONTFORK) == 0
}

/// Maps private memory at a place of the arena, without access.
fn place_private(at: usize, bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    unmapped_map(at as *mut c_void, bytes, libc::PROT_NONE, flags, -1, 0) != libc::MAP_FAILED
}
