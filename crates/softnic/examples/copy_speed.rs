//! The speed of the guarded copy, compared with the C library's `memcpy` and the kernel's copies.
//!
//! `cargo run --release -p rdmalab-softnic --example copy_speed`. Each number is the best of 15
//! rounds on one buffer pair, so caches are as warm as the size allows.

// The copy is private to the crate, so the example includes its sources.
#[allow(dead_code, missing_docs)]
#[path = "../src"]
mod softnic {
    pub(crate) mod copy;
}

use std::hint::black_box;
use std::time::Instant;

use softnic::copy::guard::{self, Policy};
use softnic::copy::{self, vm};

const SIZES: [usize; 17] = [
    8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144,
    524_288, 1_048_576,
];

/// Two buffers, with room for the end of each unaligned copy.
struct Buffers {
    to: Vec<u8>,
    from: Vec<u8>,
}

impl Buffers {
    /// Pointers to the page-aligned start of each buffer; the source is `skew` bytes further.
    fn pointers(&mut self, skew: usize) -> (*mut u8, *const u8) {
        let to = self.to.as_mut_ptr();
        let from = self.from.as_ptr();
        let (a, b) = (to.align_offset(4096), from.align_offset(4096));
        (to.wrapping_add(a), from.wrapping_add(b + skew))
    }
}

/// Time that each of `ways` takes for `len` bytes, ns. The ways alternate, so that a disturbance
/// affects all alike.
fn measure_ns<const N: usize>(len: usize, ways: [&dyn Fn(usize); N]) -> [f64; N] {
    let mut best = [f64::MAX; N];
    let repeats = (8_000_000 / len.max(64)).clamp(8, 40_000);
    for _ in 0..15 {
        for (way, best) in ways.iter().zip(&mut best) {
            let start = Instant::now();
            for _ in 0..repeats {
                way(black_box(len));
            }
            *best = best.min(start.elapsed().as_nanos() as f64 / repeats as f64);
        }
    }
    best
}

fn row(len: usize, skew: usize, buffers: &mut Buffers) {
    let (to, from) = buffers.pointers(skew);
    let memcpy = |len| {
        // SAFETY: both buffers hold the largest size and a page more; nothing else uses them.
        unsafe { libc::memcpy(to.cast(), from.cast(), len) };
    };
    let guarded = |len| {
        // SAFETY: as for `memcpy`.
        unsafe { copy::copy(to, from, len) }.expect("both are mapped");
    };
    let by_kernel = |len| {
        let local = [libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len }];
        let own = std::process::id().cast_signed();
        // SAFETY: as for `memcpy`.
        unsafe { vm::vm_write(own, &local, to.addr() as u64, len) }.expect("both are mapped");
    };
    let bare = |len| {
        let here = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len };
        let there = libc::iovec { iov_base: to.cast(), iov_len: len };
        // SAFETY: as for `memcpy`.
        unsafe { libc::process_vm_writev(libc::getpid(), &here, 1, &there, 1, 0) };
    };
    let [plain, ours] = measure_ns(len, [&memcpy, &guarded]);
    let [kernel, bare] = measure_ns(len, [&by_kernel, &bare]);
    let rate = len as f64 / ours;
    println!(
        "{len:>8} {skew:>5} {plain:>10.2} {ours:>10.2} {rate:>8.1} {:>7.2}x {kernel:>11.0} \
         {bare:>11.0}",
        plain / ours
    );
}

fn main() {
    let mode = guard::install(Policy::Auto);
    let room = SIZES[SIZES.len() - 1] + 3 * 4096;
    let mut buffers = Buffers { to: vec![1; room], from: vec![2; room] };
    println!("guard: {mode:?}");
    println!(
        "{:>8} {:>5} {:>10} {:>10} {:>8} {:>8} {:>11} {:>11}",
        "bytes", "skew", "memcpy ns", "copy ns", "GB/s", "ratio", "vm_write ns", "bare pvm ns"
    );
    for skew in [0, 8, 13] {
        for len in SIZES {
            row(len, skew, &mut buffers);
        }
    }
}
