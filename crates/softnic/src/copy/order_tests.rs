//! A reader that races with the copy must find the last byte only after all others.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::guard::{self, Mode, Policy};
use super::tests::{PAGE, Pages};
use super::{Fault, fallback, pipe, vm, x86_64};

/// Sizes around each size at which the instructions change, up to bodies of many pages.
const SIZES: [usize; 15] = [2, 4, 8, 9, 16, 32, 48, 64, 100, 136, 256, 1000, 4096, 40_000, 262_144];

/// Offsets of the destination's end from an 8-byte boundary.
const SKEWS: [usize; 3] = [0, 4, 3];

/// Rounds for each size in the tests that always run, and in those that run on request.
const SHORT: u64 = 4000;
const LONG: u64 = 8_000_000;

/// Shared by reader and writer, in memory that both map.
#[repr(C)]
struct Control {
    /// The last round that the reader has looked at.
    seen: AtomicU64,
    /// Rounds in which a byte was older than the last byte.
    violations: AtomicU64,
}

/// The value of each byte in round `round`. It differs from the round before.
fn value(round: u64) -> u8 {
    (round % 255) as u8 + 1
}

/// Spins, and yields now and then, because there may be only one processor.
fn wait_until(ready: impl Fn() -> bool) {
    let mut spins = 0_u32;
    while !ready() {
        spins += 1;
        if spins.is_multiple_of(2000) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Reads `len` bytes at `at` for `rounds` rounds: waits for the last byte, then checks the others,
/// the nearest first, because they are the likeliest to be late. Allocates no memory, so that a
/// forked child may call it.
fn read_rounds(control: &Control, at: *mut u8, len: usize, rounds: u64) {
    // SAFETY: mapped through the whole test, and only touched as atomics on this side.
    let byte = |i: usize| unsafe { AtomicU8::from_ptr(at.wrapping_add(i)) };
    for round in 1..=rounds {
        let want = value(round);
        wait_until(|| byte(len - 1).load(Ordering::Acquire) == want);
        let near = len.saturating_sub(300)..len - 1;
        let far = (0..near.start).rev().step_by(61);
        if near.rev().chain(far).any(|i| byte(i).load(Ordering::Relaxed) != want) {
            control.violations.fetch_add(1, Ordering::Relaxed);
        }
        control.seen.store(round, Ordering::Release);
    }
}

/// The writer: copies the bytes of each round by `copy` as soon as the reader is ready.
fn write_rounds(control: &Control, from: &Pages, len: usize, rounds: u64, copy: impl Fn()) {
    for round in 1..=rounds {
        // SAFETY: `from` holds `len` bytes and is this thread's.
        unsafe { std::ptr::write_bytes(from.at(0), value(round), len) };
        copy();
        wait_until(|| control.seen.load(Ordering::Acquire) == round);
    }
}

/// Number of rounds, so that large sizes take about as much time as small ones.
fn rounds_for(len: usize, rounds: u64) -> u64 {
    (rounds * 64 / (len as u64 + 63).max(64)).max(100)
}

/// Start offset of a message of `len` bytes whose end is `skew` beyond a multiple of 8. For `skew`
/// 0 it ends at the end of a cache line.
fn start_of(len: usize, skew: usize) -> usize {
    (len.next_multiple_of(64) - len) + 64 + skew
}

fn race(name: &str, copy: impl Fn(*mut u8, *const u8, usize), rounds: u64) {
    for len in SIZES {
        for skew in SKEWS {
            let (from, to) = (Pages::new(len / PAGE + 1), Pages::new(len / PAGE + 2));
            let control = Control { seen: AtomicU64::new(0), violations: AtomicU64::new(0) };
            let at = to.at(start_of(len, skew));
            let (shared, rounds) = (at.expose_provenance(), rounds_for(len, rounds));
            std::thread::scope(|threads| {
                let control = &control;
                threads.spawn(move || {
                    let at = std::ptr::with_exposed_provenance_mut(shared);
                    read_rounds(control, at, len, rounds);
                });
                write_rounds(control, &from, len, rounds, || copy(at, from.at(0), len));
            });
            let seen = control.violations.into_inner();
            assert_eq!(seen, 0, "{name}: {len} B, end at {skew} mod 8, {rounds} rounds");
        }
    }
}

fn race_threads(rounds: u64) {
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    // SAFETY: both ranges are mapped, and no reference covers them.
    let direct = |to, from, len| unsafe { super::copy(to, from, len) }.expect("both are mapped");
    x86_64::with_each_choice(|name| race(name, direct, rounds));
}

fn race_kernel(rounds: u64) {
    type Way = unsafe fn(*mut u8, *const u8, usize) -> Result<(), Fault>;
    let ways: [(&str, Way); 2] =
        [("process_vm_writev", fallback::copy), ("pipe", pipe::copy_by_pipe)];
    for (name, way) in ways {
        // SAFETY: both ranges are mapped, and no reference covers them.
        race(name, |to, from, len| unsafe { way(to, from, len) }.expect("mapped"), rounds);
    }
}

/// As [`race`], with a child that reads memory which the parent writes by `vm_write`. With Yama a
/// child must not write to its parent, but the parent may always write to its child.
fn race_processes(rounds: u64) {
    for len in SIZES {
        for skew in SKEWS {
            let rounds = rounds_for(len, rounds);
            let page = Pages::with_flags(1, libc::MAP_SHARED);
            // SAFETY: zeroes are a valid `Control`, aligned at a page, mapped through the test.
            let control = unsafe { &*page.at(0).cast::<Control>() };
            let (from, to) = (Pages::new(len / PAGE + 1), Pages::new(len / PAGE + 2));
            let at = to.at(start_of(len, skew));
            // SAFETY: the child calls nothing that takes a lock or memory, and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "fork");
            if child == 0 {
                read_rounds(control, at, len, rounds);
                // SAFETY: ends the child without the parent's clean-up.
                unsafe { libc::_exit(0) };
            }
            let local = [libc::iovec { iov_base: from.at(0).cast(), iov_len: len }];
            write_rounds(control, &from, len, rounds, || {
                // SAFETY: the child's copy of the mapping, which only it reads.
                unsafe { vm::vm_write(child, &local, at.addr() as u64, len) }.expect("child lives");
            });
            // SAFETY: our child.
            assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
            let seen = control.violations.load(Ordering::Relaxed);
            assert_eq!(seen, 0, "{len} B, end at {skew} mod 8, {rounds} rounds");
        }
    }
}

#[test]
fn threads_see_the_last_byte_last() {
    race_threads(SHORT);
}

#[test]
fn threads_see_the_last_byte_last_when_the_kernel_copies() {
    race_kernel(SHORT / 4);
}

#[test]
fn another_process_sees_the_last_byte_last() {
    race_processes(SHORT / 4);
}

#[test]
#[ignore = "minutes: cargo test --release -p rdmalab-softnic --lib -- --ignored the_last_byte"]
fn the_last_byte_is_last_in_millions_of_rounds() {
    race_threads(LONG);
    race_kernel(LONG / 4);
    race_processes(LONG / 4);
}
