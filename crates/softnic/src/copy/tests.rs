use std::ptr;

use super::guard::{self, Mode, Policy};
use super::{Fault, Side, fallback, pipe, x86_64};

type Copy = unsafe fn(*mut u8, *const u8, usize) -> Result<(), Fault>;

/// The copies by system calls.
const BY_KERNEL: [(&str, Copy); 2] =
    [("process_vm_writev", fallback::copy), ("pipe", pipe::copy_by_pipe)];

pub(super) const PAGE: usize = 4096;

/// Anonymous pages, unmapped when dropped.
pub(super) struct Pages {
    start: *mut u8,
    len: usize,
}

impl Pages {
    pub(super) fn new(pages: usize) -> Self {
        Self::with_flags(pages, libc::MAP_PRIVATE)
    }

    pub(super) fn with_flags(pages: usize, flags: i32) -> Self {
        let len = pages * PAGE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start.cast(), len }
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        self.start.wrapping_add(offset)
    }

    /// Sets the access of page number `page`.
    pub(super) fn protect(&self, page: usize, access: i32) {
        // SAFETY: pages of this mapping, which no reference covers.
        assert_eq!(unsafe { libc::mprotect(self.at(page * PAGE).cast(), PAGE, access) }, 0);
    }

    fn fill(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        // SAFETY: within this mapping, which is writable when tests fill it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: within this mapping, readable when tests read it.
        (0..len).map(|i| unsafe { self.at(offset + i).read_volatile() }).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with this length; nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Bytes other than zero, of which no two neighbours are equal.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 + 1).collect()
}

/// Runs `check` with each way of copying.
fn with_each_way(check: impl Fn(&str, Copy)) {
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    x86_64::with_each_choice(|name| check(name, super::copy));
    for (name, copy) in BY_KERNEL {
        check(name, copy);
    }
}

#[test]
fn every_length_and_alignment_arrives_and_nothing_else_changes() {
    with_each_way(|way, copy| {
        let (from, to) = (Pages::new(2), Pages::new(2));
        let by_kernel = BY_KERNEL.iter().any(|(name, _)| *name == way);
        for len in 0..=300 {
            let alignments: &[usize] = if by_kernel { &[0, 5] } else { &[0, 1, 2, 3, 4, 6, 7, 13] };
            for (&s, &d) in alignments.iter().flat_map(|s| alignments.iter().map(move |d| (s, d))) {
                check_whole(way, copy, (&from, 64 + s), (&to, 64 + d), len);
            }
        }
    });
}

#[test]
fn long_copies_arrive() {
    with_each_way(|way, copy| {
        let (from, to) = (Pages::new(80), Pages::new(80));
        for len in [301, 511, 1000, 1024, 1031, 4096, 10_000, 65_536, 65_537, 200_003, 300_000] {
            for (s, d) in [(0, 0), (1, 0), (0, 1), (3, 7), (40, 64), (0, 60)] {
                check_whole(way, copy, (&from, 64 + s), (&to, 64 + d), len);
            }
        }
    });
}

fn check_whole(way: &str, copy: Copy, from: (&Pages, usize), to: (&Pages, usize), len: usize) {
    let what = pattern(len);
    from.0.fill(from.1, &what);
    to.0.fill(to.1 - 16, &vec![0; len + 32]);
    // SAFETY: both within mappings of the test.
    unsafe { copy(to.0.at(to.1), from.0.at(from.1), len) }.expect("all is mapped");
    let got = to.0.bytes(to.1 - 16, len + 32);
    assert_eq!(got[..16], [0; 16], "{way}, {len} B: before");
    let wrong = (0..len).find(|i| got[16 + i] != what[*i]);
    assert_eq!(wrong, None, "{way}, {len} B, at {} from {}: first wrong byte", to.1, from.1);
    assert_eq!(got[16 + len..], [0; 16], "{way}, {len} B: after");
}

/// Lengths around each length at which the instructions change, and how many of the bytes lie
/// before the bad page.
fn cuts() -> impl Iterator<Item = (usize, usize)> {
    let lengths =
        [1_usize, 2, 3, 4, 7, 8, 9, 11, 12, 16, 24, 31, 41, 72, 73, 136, 137, 200, 300, 520];
    let lengths = lengths.into_iter().chain([1031, 3000, 4096]);
    lengths.flat_map(|len| {
        let near = [0, 1, 3, 4, 7, 8, 9, 16, 17, 64, len / 2];
        let far = [1, 2, 4, 7, 8, 9, 15, 16, 24, 40].map(|back| len.saturating_sub(back));
        near.into_iter().chain(far).filter(move |cut| *cut < len).map(move |cut| (len, cut))
    })
}

#[test]
fn a_bad_destination_is_an_error_and_leaves_a_prefix() {
    with_each_way(|way, copy| {
        let (from, to) = (Pages::new(2), Pages::new(3));
        for access in [libc::PROT_NONE, libc::PROT_READ] {
            for (len, cut) in cuts() {
                let what = pattern(len);
                from.fill(5, &what);
                to.fill(PAGE - cut, &vec![0; len]);
                to.protect(1, access);
                // SAFETY: `from` is mapped; `to` is ours and may fault.
                let done = unsafe { copy(to.at(PAGE - cut), from.at(5), len) };
                to.protect(1, libc::PROT_READ | libc::PROT_WRITE);
                let fault = Fault { side: Side::Destination };
                assert_eq!(done, Err(fault), "{way}, {len} B, {cut} B before the page");
                check_prefix(way, &to.bytes(PAGE - cut, len), &what, cut);
            }
        }
    });
}

#[test]
fn a_bad_source_is_an_error_and_leaves_a_prefix() {
    with_each_way(|way, copy| {
        let (from, to) = (Pages::new(3), Pages::new(2));
        for (len, cut) in cuts() {
            let what = pattern(len);
            from.fill(PAGE - cut, &what);
            to.fill(3, &vec![0; len]);
            from.protect(1, libc::PROT_NONE);
            // SAFETY: `to` is mapped and ours; `from` may fault.
            let done = unsafe { copy(to.at(3), from.at(PAGE - cut), len) };
            from.protect(1, libc::PROT_READ | libc::PROT_WRITE);
            let fault = Fault { side: Side::Source };
            assert_eq!(done, Err(fault), "{way}, {len} B, {cut} B before the page");
            check_prefix(way, &to.bytes(3, len), &what, cut);
        }
    });
}

/// `got` must start with at most `most` bytes of `what`, and be zero after them.
fn check_prefix(way: &str, got: &[u8], what: &[u8], most: usize) {
    let done = got.iter().position(|b| *b == 0).unwrap_or(got.len());
    assert!(done <= most, "{way}: {done} of {most} possible bytes written");
    assert!(done < got.len(), "{way}: the last byte was written");
    assert_eq!(got[..done], what[..done], "{way}");
    assert!(got[done..].iter().all(|b| *b == 0), "{way}: a hole before byte {}", got.len());
}

#[test]
fn a_hole_in_front_or_in_the_middle_is_found() {
    with_each_way(|way, copy| {
        for hole in [0, 1, 5, 9, 19] {
            let (from, to) = (Pages::new(20), Pages::new(20));
            let len = 20 * PAGE;
            let what = pattern(len);
            from.fill(0, &what);
            to.protect(hole, libc::PROT_NONE);
            // SAFETY: mappings of the test, of which `to` may fault.
            let done = unsafe { copy(to.at(0), from.at(0), len) };
            to.protect(hole, libc::PROT_READ | libc::PROT_WRITE);
            assert_eq!(done, Err(Fault { side: Side::Destination }), "{way}, page {hole}");
            check_prefix(way, &to.bytes(0, len), &what, hole * PAGE);

            from.protect(hole, libc::PROT_NONE);
            // SAFETY: mappings of the test, of which `from` may fault.
            let done = unsafe { copy(to.at(0), from.at(0), len) };
            assert_eq!(done, Err(Fault { side: Side::Source }), "{way}, page {hole}");
        }
    });
}

#[test]
fn wild_addresses_are_an_error() {
    with_each_way(|way, copy| {
        let here = Pages::new(1);
        for wild in [0, 1, 4095, 1 << 47, 1 << 63, usize::MAX - 200, usize::MAX - 4096] {
            for len in [1, 8, 20, 100, 150] {
                let wild = ptr::without_provenance_mut(wild);
                // SAFETY: one side is ours, the other may fault.
                unsafe {
                    assert!(copy(wild, here.at(0), len).is_err(), "{way}, to {wild:p}");
                    assert!(copy(here.at(0), wild, len).is_err(), "{way}, from {wild:p}");
                }
            }
        }
    });
}

#[test]
fn atomics_work_and_fault() {
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    let cells = Pages::new(1);
    let cell: *mut u64 = cells.at(8).cast();
    // SAFETY: aligned, mapped and ours while it is accessible, and allowed to fault.
    unsafe {
        cell.write(5);
        assert_eq!(super::cmp_swap(cell, 4, 9), Ok(5));
        assert_eq!(super::cmp_swap(cell, 5, 9), Ok(5));
        assert_eq!(super::fetch_add(cell, u64::MAX), Ok(9));
        assert_eq!(cell.read(), 8);
        fallback::probe_atomic(cell).expect("it is mapped");
        assert_eq!(cell.read(), 8);
        let fault = Fault { side: Side::Destination };
        for access in [libc::PROT_READ, libc::PROT_NONE] {
            cells.protect(0, access);
            assert_eq!(super::cmp_swap(cell, 8, 1), Err(fault));
            assert_eq!(super::fetch_add(cell, 1), Err(fault));
            assert_eq!(fallback::probe_atomic(cell), Err(fault));
        }
        cells.protect(0, libc::PROT_READ);
        assert_eq!(cell.read(), 8);
    }
}

#[test]
fn atomics_of_threads_add_up() {
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    let cells = Pages::new(1);
    let at = cells.at(16).expose_provenance();
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..50_000 {
                    let cell = ptr::with_exposed_provenance_mut(at);
                    // SAFETY: aligned, mapped, and touched by atomics only.
                    unsafe { super::fetch_add(cell, 1) }.expect("it is mapped");
                }
            });
        }
    });
    // SAFETY: mapped, and the threads are done.
    assert_eq!(unsafe { cells.at(16).cast::<u64>().read() }, 100_000);
}
