//! How fast two processors copy through shared memory without any protocol: one copies chunks into
//! an area, the other copies them out. This is the limit for a large WRITE into another process's
//! memory by that method. Prints the GB/s of one message of 1 MiB for several area and chunk sizes,
//! and that of `memcpy` by one thread: median and best of many turns, which alternate.
//!
//! `cargo run --release -p rdmalab-softnic --example copy_pipeline [TURNS]`

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const MESSAGE: usize = 1 << 20;
const AREAS: [usize; 4] = [256 << 10, 1 << 20, 2 << 20, 4 << 20];
const CHUNKS: [usize; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// Default for the argument.
const TURNS: usize = 300;

/// A counter that shares its cache lines with nothing else.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn wait_for(&self, at_least: u64) {
        while self.0.load(Ordering::Acquire) < at_least {
            spin_loop();
        }
    }
}

/// The buffers of both threads, as addresses, so that this can be sent to a thread.
#[derive(Clone, Copy)]
struct Way {
    from: usize,
    area: usize,
    to: usize,
}

fn pin(core: usize) {
    // SAFETY: a processor set on our stack, filled before it is used; 0 is this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn copy(from: usize, to: usize, bytes: usize) {
    // SAFETY: `main` keeps the buffers, and the offsets lie within them. The counters keep each
    // thread out of the other's chunks.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
}

/// Copies one message into the area, starting at position `first`; `done` counts chunks copied out.
fn feed(way: Way, area: usize, chunk: usize, first: u64, [put, done]: [&Count; 2]) {
    let room = (area / chunk) as u64;
    for i in 0..(MESSAGE / chunk) as u64 {
        let position = first + i;
        done.wait_for((position + 1).saturating_sub(room));
        let at = way.area + (position % room) as usize * chunk;
        copy(way.from + i as usize * chunk, at, chunk);
        put.0.store(position + 1, Ordering::Release);
    }
    done.wait_for(first + (MESSAGE / chunk) as u64);
}

fn drain(way: Way, area: usize, chunk: usize, first: u64, [put, done]: [&Count; 2]) {
    let room = (area / chunk) as u64;
    for i in 0..(MESSAGE / chunk) as u64 {
        let position = first + i;
        put.wait_for(position + 1);
        let at = way.area + (position % room) as usize * chunk;
        copy(at, way.to + i as usize * chunk, chunk);
        done.0.store(position + 1, Ordering::Release);
    }
}

fn gb_per_s(since: Instant) -> f64 {
    MESSAGE as f64 / since.elapsed().as_nanos() as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let turns = std::env::args().nth(1).map_or(Ok(TURNS), |count| count.parse())?;
    // The plain copy has its own target; otherwise it would evict the cache lines of the other one.
    let buffers = [MESSAGE, 4 << 20, MESSAGE, MESSAGE].map(|bytes| vec![1u8; bytes]);
    let [from, area, to, own] = buffers.each_ref().map(|buffer| buffer.as_ptr() as usize);
    let way = Way { from, area, to };
    let mut plain = Vec::new();
    let mut found = Vec::new();
    pin(0);
    for area in AREAS {
        for chunk in CHUNKS {
            let (put, done) = (Count::default(), Count::default());
            let per_message = (MESSAGE / chunk) as u64;
            let mut speeds = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    pin(1);
                    for turn in 0..turns as u64 {
                        drain(way, area, chunk, turn * per_message, [&put, &done]);
                    }
                });
                for turn in 0..turns as u64 {
                    let start = Instant::now();
                    copy(black_box(way.from), own, MESSAGE);
                    black_box(&buffers[3]);
                    plain.push(gb_per_s(start));
                    let start = Instant::now();
                    feed(way, area, chunk, turn * per_message, [&put, &done]);
                    speeds.push(gb_per_s(start));
                }
            });
            speeds.sort_by(f64::total_cmp);
            found.push((area, chunk, speeds));
        }
    }
    plain.sort_by(f64::total_cmp);
    let half = |speeds: &[f64]| speeds[speeds.len() / 2];
    let best = |speeds: &[f64]| speeds[speeds.len() * 19 / 20];
    println!("memcpy by one thread: median {:.1}, best 5 % {:.1} GB/s", half(&plain), best(&plain));
    println!("area KiB  chunk KiB  median GB/s  best 5 %  of memcpy's best");
    for (area, chunk, speeds) in &found {
        println!(
            "{:8}  {:9}  {:11.1}  {:8.1}  {:.2}",
            area >> 10,
            chunk >> 10,
            half(speeds),
            best(speeds),
            best(speeds) / best(&plain)
        );
    }
    drop(buffers);
    Ok(())
}
