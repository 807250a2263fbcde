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
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::buddy::{Buddy, Page};
use crate::count;
use crate::system::{
    self, ADDRESSES, ALIGN, PAGE, READ_WRITE, advise, identity, map, place, place_private, unmap,
};

/// States of a page. Its memory is the file's.
pub(crate) const SHARED: u8 = 1;
/// The program has mapped something else over the page.
pub(crate) const FOREIGN: u8 = 2;

/// Start and length of the arena in bytes, to be read without the lock. 0 until it exists.
static START: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// What the lock protects.
pub(crate) struct Arena {
    buddy: Buddy,
    start: usize,
    fd: c_int,
    /// Device and inode of the file. The program may close descriptors that it did not open, and
    /// then the number is another file's.
    file: (u64, u64),
    /// No page from here on was ever in use.
    unused_from: usize,
    /// In a child by `fork`: the pages are a private copy.
    is_private: bool,
}

enum ArenaState {
    /// Nothing was asked for yet.
    Unmade,
    Made(Arena),
    /// The kernel refused it.
    Refused,
}

struct Cell(UnsafeCell<ArenaState>);

// SAFETY: accessed with `LOCK` held only.
unsafe impl Sync for Cell {}

static STATE: Cell = Cell(UnsafeCell::new(ArenaState::Unmade));

/// A mutex, and the signal mask that its holder had before.
struct Mutex(UnsafeCell<libc::pthread_mutex_t>, UnsafeCell<libc::sigset_t>);

// SAFETY: a mutex is made to be shared; the mask belongs to its holder.
unsafe impl Sync for Mutex {}

// SAFETY: a signal set is an array of words.
static LOCK: Mutex = Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), unsafe {
    UnsafeCell::new(mem::zeroed())
});

/// Locks the arena, with all signals blocked: a handler may map and unmap memory as well. `fork`
/// holds the lock over its three handlers.
pub(crate) fn lock() {
    // SAFETY: signal sets are plain data that these calls fill; an initialised mutex.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        let mut former: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut former);
        libc::pthread_mutex_lock(LOCK.0.get());
        LOCK.1.get().write(former);
    }
}

/// Unlocks it, and lets signals in again.
pub(crate) fn unlock() {
    // SAFETY: this thread locked it, or its parent did before `fork`; the mask is of that time.
    unsafe {
        let former = LOCK.1.get().read();
        libc::pthread_mutex_unlock(LOCK.0.get());
        libc::pthread_sigmask(libc::SIG_SETMASK, &former, ptr::null_mut());
    }
}

/// Whether an address is in the arena.
#[inline(always)]
pub(crate) fn contains(at: *const c_void) -> bool {
    // The length first: it is stored last.
    let bytes = BYTES.load(Ordering::Acquire);
    at.addr().wrapping_sub(START.load(Ordering::Relaxed)) < bytes
}

/// Whether a block of the heap begins at an address. Another allocator may have put its own blocks
/// into memory that it has from `mmap`, so that an address in the arena says nothing.
pub(crate) fn owns(at: *const c_void) -> bool {
    contains(at) && with(|arena| arena.heap_block(at.addr()).is_some()) == Some(true)
}

/// Whether an address of the arena is in memory that `mmap` has given out.
pub(crate) fn is_mapping(at: *const c_void) -> bool {
    with(|arena| {
        let block = arena.buddy.block_of(arena.page(at.addr()));
        block.is_some_and(|block| !arena.buddy.is_heap(block))
    }) == Some(true)
}

/// Whether a range touches the arena.
pub(crate) fn overlaps(at: *const c_void, bytes: usize) -> bool {
    let length = BYTES.load(Ordering::Acquire);
    let start = START.load(Ordering::Relaxed);
    at.addr() < start + length && at.addr().saturating_add(bytes) > start
}

/// Runs `f` with the arena locked; `None` if there is none. `f` must not allocate.
pub(crate) fn with<T>(f: impl FnOnce(&mut Arena) -> T) -> Option<T> {
    lock();
    // SAFETY: the lock is held.
    let state = unsafe { &mut *STATE.0.get() };
    let result = match state {
        ArenaState::Made(arena) => Some(f(arena)),
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
        ArenaState::Made(arena) => Some(f(arena)),
        _ => None,
    }
}

/// Who asks for memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// `malloc` or a relative.
    Heap,
    /// `mmap`.
    Mapping,
}

/// Memory of `bytes` zero bytes, aligned to `align` bytes (a power of two). Null if the arena has
/// none; the caller falls back to private memory.
pub(crate) fn allocate(bytes: usize, align: usize, user: For) -> *mut c_void {
    make();
    let pages = bytes.max(1).div_ceil(PAGE);
    let found = match align <= ALIGN {
        true => with(|arena| arena.allocate(pages, align.div_ceil(PAGE), user)).flatten(),
        false => None,
    };
    match found {
        Some(_) => count::note_shared(),
        // Nobody can have so much, so that the caller gets no private memory either.
        None if bytes >= ADDRESSES => {}
        None => count::note_private(),
    }
    found.unwrap_or(ptr::null_mut())
}

/// Makes the arena at the first call.
fn make() {
    if BYTES.load(Ordering::Acquire) != 0 {
        return;
    }
    lock();
    // SAFETY: the lock is held.
    let state = unsafe { &mut *STATE.0.get() };
    if matches!(state, ArenaState::Unmade) {
        *state = Arena::make().map_or(ArenaState::Refused, ArenaState::Made);
        if let ArenaState::Made(arena) = state {
            START.store(arena.start, Ordering::Relaxed);
            BYTES.store(arena.bytes(), Ordering::Release);
        }
    }
    unlock();
}

impl Arena {
    fn make() -> Option<Arena> {
        let bytes = system::size()?;
        let fd = system::make_file(bytes)?;
        let made = Arena::map(fd, bytes);
        if made.is_none() {
            system::close(fd);
        }
        made
    }

    fn map(fd: c_int, bytes: usize) -> Option<Arena> {
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let reserved = map(bytes + ALIGN, anonymous, libc::PROT_NONE)?;
        let start = reserved.next_multiple_of(ALIGN);
        unmap(reserved, start - reserved);
        unmap(start + bytes, reserved + ALIGN - start);
        let file = identity(fd)?;
        let (pages, rw) = (bytes / PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let table = map(pages * size_of::<Page>(), anonymous, rw);
        let Some(table) = table.filter(|_| place(start, bytes, fd, 0)) else {
            unmap(start, bytes);
            return None;
        };
        advise(table, pages * size_of::<Page>(), libc::MADV_DONTDUMP);
        // SAFETY: a fresh mapping of this length, of zeroes, which are valid, and which stays.
        let table = unsafe { slice::from_raw_parts_mut(table as *mut Page, pages) };
        Some(Arena { buddy: Buddy::new(table), start, fd, file, unused_from: 0, is_private: false })
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

    /// Advice that frees the memory of a range which stays in use. Returns 0 or -1.
    pub(crate) fn forget(&self, at: usize, bytes: usize, advice: c_int) -> c_int {
        let range = self.pages(at, bytes);
        let (mut page, mut status) = (range.start, 0);
        while page < range.end {
            let state = self.buddy.pages[page].state;
            let next = self.end_of_run(page, range.end);
            let (at, bytes) = (self.address(page), (next - page) * PAGE);
            status |= match state {
                SHARED if !self.is_private => advise(at, bytes, libc::MADV_REMOVE),
                0 => 0,
                // The kernel's own mapping: the program's, or private memory.
                _ => advise(at, bytes, advice),
            };
            page = next;
        }
        status
    }

    /// Advice on what a child by `fork` gets of a range: `MADV_DONTFORK` or `MADV_DOFORK`. Returns
    /// 0 or -1. The arena's own mapping is kept from all children, so the pages are marked.
    pub(crate) fn advise_for_child(&mut self, at: usize, bytes: usize, advice: c_int) -> c_int {
        let range = self.pages(at, bytes);
        let (mut page, mut status) = (range.start, 0);
        while page < range.end {
            let state = self.buddy.pages[page].state;
            let next = self.end_of_run(page, range.end);
            match state {
                0 => {}
                SHARED if !self.is_private => {
                    let is_withheld = advice == libc::MADV_DONTFORK;
                    let run = &mut self.buddy.pages[page..next];
                    run.iter_mut().for_each(|page| page.is_withheld = is_withheld);
                }
                // The kernel's own mapping: the program's, or private memory.
                _ => status |= advise(self.address(page), (next - page) * PAGE, advice),
            }
            page = next;
        }
        status
    }

    /// The first page after `page`, before `end`, in another state.
    fn end_of_run(&self, page: usize, end: usize) -> usize {
        let kind = |page: usize| {
            let page = &self.buddy.pages[page];
            (page.state, page.is_withheld)
        };
        (page..end).find(|other| kind(*other) != kind(page)).unwrap_or(end)
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

    fn allocate(&mut self, pages: usize, align: usize, user: For) -> Option<*mut c_void> {
        let block = self.buddy.take(pages, align)?;
        if user == For::Heap {
            self.buddy.mark_heap(block);
        }
        if !self.open(block, pages) {
            self.buddy.give_back(block);
            return None;
        }
        Some(self.address(block) as *mut c_void)
    }

    /// Gives access to pages that have none. They are zero.
    fn open(&mut self, page: usize, pages: usize) -> bool {
        if !self.protect(page, pages, READ_WRITE) {
            return false;
        }
        let (at, bytes) = (self.address(page), pages * PAGE);
        if !self.is_private {
            // A peer may have written after the former owner freed them.
            advise(at, bytes, libc::MADV_REMOVE);
        }
        advise(at, bytes, libc::MADV_DODUMP);
        for page in &mut self.buddy.pages[page..page + pages] {
            (page.state, page.is_withheld) = (SHARED, false);
        }
        self.unused_from = self.unused_from.max(page + pages);
        true
    }

    fn protect(&self, page: usize, pages: usize, protection: c_int) -> bool {
        let at = self.address(page) as *mut c_void;
        // SAFETY: pages of the arena.
        unsafe { libc::mprotect(at, pages * PAGE, protection) == 0 }
    }

    /// Takes access from pages, and frees their memory. The system calls are on the mapping, not on
    /// the descriptor, whose number may be another file's by now.
    fn clear(&self, page: usize, pages: usize) {
        let (at, bytes) = (self.address(page), pages * PAGE);
        if self.is_private && place_private(at, bytes) {
            return;
        }
        // MADV_REMOVE needs write access, and no lock.
        if self.protect(page, pages, READ_WRITE) {
            // SAFETY: pages of the arena that nobody uses any more.
            unsafe {
                libc::munlock(at as *const c_void, bytes);
                if self.is_private || advise(at, bytes, libc::MADV_REMOVE) != 0 {
                    ptr::write_bytes(at as *mut u8, 0, bytes);
                }
            }
        }
        self.protect(page, pages, libc::PROT_NONE);
        advise(at, bytes, libc::MADV_DONTDUMP);
    }

    /// Takes pages of one block out of use. Gives the block back with its last live page.
    pub(crate) fn close(&mut self, page: usize, pages: usize) {
        let Some(block) = self.buddy.block_of(page) else { return };
        let mut at = page;
        while at < page + pages {
            let next = self.end_of_run(at, page + pages);
            self.close_run(block, at, next - at);
            at = next;
        }
        if *self.buddy.live(block) == 0 {
            self.buddy.give_back(block);
        }
    }

    /// Takes pages in the same state out of use.
    fn close_run(&mut self, block: usize, page: usize, pages: usize) {
        let state = self.buddy.pages[page].state;
        if state == 0 {
            return;
        }
        // If the arena cannot be mapped again (too many mappings), the pages stay the program's.
        if state == FOREIGN && !self.place(page, pages) {
            return;
        }
        self.buddy.pages[page..page + pages].iter_mut().for_each(|page| page.state = 0);
        *self.buddy.live(block) -= pages as u32;
        self.clear(page, pages);
    }

    /// Maps the arena's own memory at pages again, without access.
    fn place(&self, page: usize, pages: usize) -> bool {
        let (at, bytes) = (self.address(page), pages * PAGE);
        match (self.is_private, self.file()) {
            (true, _) => place_private(at, bytes),
            (false, Some(fd)) => place(at, bytes, fd, (page * PAGE) as i64),
            (false, None) => false,
        }
    }

    /// The block of the heap that begins at an address.
    fn heap_block(&self, at: usize) -> Option<usize> {
        let block = self.page(at);
        (at.is_multiple_of(PAGE) && self.buddy.is_heap(block)).then_some(block)
    }

    /// Frees the block of the heap at an address. `false` if none begins there.
    pub(crate) fn free(&mut self, at: usize) -> bool {
        let Some(block) = self.heap_block(at) else { return false };
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

    /// Usable bytes of the block of the heap at an address; `None` if none begins there.
    pub(crate) fn usable(&mut self, at: usize) -> Option<usize> {
        let block = self.heap_block(at)?;
        Some(*self.buddy.live(block) as usize * PAGE)
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

    /// Maps something over pages of the arena, by `map`, and marks them if that succeeds.
    pub(crate) fn map_over(
        &mut self,
        at: usize,
        bytes: usize,
        map: impl FnOnce() -> *mut c_void,
    ) -> *mut c_void {
        let mapped = map();
        if mapped == libc::MAP_FAILED {
            return mapped;
        }
        for page in self.pages(at, bytes) {
            // The program may map where it has unmapped.
            self.buddy.claim(page);
            let Some(block) = self.buddy.block_of(page) else { continue };
            let before = mem::replace(&mut self.buddy.pages[page].state, FOREIGN);
            self.buddy.pages[page].is_withheld = false;
            *self.buddy.live(block) += u32::from(before == 0);
            self.unused_from = self.unused_from.max(page + 1);
        }
        mapped
    }

    /// Whether all of a range is memory of the file, in use.
    pub(crate) fn is_shared(&self, at: usize, bytes: usize) -> bool {
        let range = self.pages(at, bytes);
        !self.is_private && self.buddy.pages[range].iter().all(|page| page.state == SHARED)
    }

    /// The file's descriptor; `None` if the program has closed it.
    pub(crate) fn file(&self) -> Option<c_int> {
        (!self.is_private && identity(self.fd) == Some(self.file)).then_some(self.fd)
    }

    /// In a child by `fork`: gives it a private copy of all pages in use. The parent waits. `false`
    /// if the child cannot have its memory.
    pub(crate) fn become_private(&mut self) -> bool {
        if self.is_private {
            return true;
        }
        let file = self.file();
        self.is_private = true;
        let end = self.unused_from;
        let unused = self.buddy.pages.len() - end;
        if (end > 0 && file.is_none())
            || (unused > 0 && !place_private(self.address(end), unused * PAGE))
        {
            return false;
        }
        let mut page = 0;
        while page < end {
            let Page { state, is_withheld, .. } = self.buddy.pages[page];
            let next = self.end_of_run(page, end);
            // What the program has mapped over its pages was inherited.
            if state != FOREIGN && !place_private(self.address(page), (next - page) * PAGE) {
                return false;
            }
            // What the program keeps from its children has no access here.
            if state == SHARED && !is_withheld && !self.copy_data(page, next) {
                return false;
            }
            page = next;
        }
        if let Some(fd) = file {
            // Else the parent's memory would stay as long as this process.
            system::close(fd);
        }
        true
    }

    /// Copies what the file has of these pages.
    fn copy_data(&self, mut page: usize, end: usize) -> bool {
        if !self.protect(page, end - page, READ_WRITE) {
            return false;
        }
        while page < end {
            let from = match self.next_data(page) {
                Ok(Some(from)) if from < end => from,
                Ok(_) => return true,
                Err(()) => return false,
            };
            page = self.end_of_data(from).min(end);
            if !self.copy(from, page) {
                return false;
            }
        }
        true
    }

    /// The first page from `page` on that the file has; `Ok(None)` without one.
    fn next_data(&self, page: usize) -> Result<Option<usize>, ()> {
        // SAFETY: a system call on our descriptor, whose position nobody else uses; the thread's
        // own variable.
        let (at, errno) = unsafe {
            let at = libc::lseek(self.fd, (page * PAGE) as i64, libc::SEEK_DATA);
            (at, *libc::__errno_location())
        };
        match usize::try_from(at) {
            Ok(at) => Ok(Some(at / PAGE)),
            Err(_) if errno == libc::ENXIO => Ok(None),
            Err(_) => Err(()),
        }
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
            let (bytes, position) = (end - at, at as i64);
            // SAFETY: private pages of this process, which were just mapped.
            let done = unsafe { libc::syscall(libc::SYS_pread64, self.fd, to, bytes, position) };
            if done <= 0 {
                return false;
            }
            at += done as usize;
        }
        true
    }
}
