//! How fast the message ring is, beside the bare hand-off of a cache line between the same two
//! cores: two processes, each pinned to a core, over one memfd.
//!
//! `cargo run --release -p rdmalab-ring --example ring_bench [CPU CPU]`
//!
//! Two ways to wait are shown: a bare load loop, and one with `std::hint::spin_loop` in it, whose
//! own cost is printed. The two cores' distance can change from run to run when a hypervisor places
//! them, so compare figures of one run only.
//!
//! One-way time is half a round trip, the median of blocks of round trips. Rates are messages of
//! one slot, as many as fit in the time, measured by the consumer.

use rdmalab_ring::seg::Segment;
use rdmalab_ring::spsc::{self, BODY_WORDS, Consumer, Geometry, Producer};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const BLOCKS: usize = 201;
const TRIPS: u64 = 5_000;
const RATE_MESSAGES: u64 = 40_000_000;
/// Bytes before the first ring: two lines for the bare hand-off, one for the start signal.
const LINES_BYTES: usize = 4096;

/// The memory of both processes.
struct Arena {
    segment: Segment,
    geometry: Geometry,
}

impl Arena {
    fn new() -> std::io::Result<Arena> {
        let geometry = Geometry::DEFAULT;
        let bytes = LINES_BYTES + 2 * geometry.region_bytes();
        let segment = Segment::create(c"ring_bench", bytes, bytes)?;
        let arena = Arena { segment, geometry };
        for index in 0..2 {
            // SAFETY: fresh, zeroed memory of the right size, not yet shared.
            unsafe { spsc::format(arena.ring(index), geometry.region_bytes(), geometry) }
                .map_err(std::io::Error::other)?;
        }
        Ok(arena)
    }

    fn ring(&self, index: usize) -> *mut u8 {
        // SAFETY: the segment holds two rings after the lines.
        unsafe { self.segment.ptr().add(LINES_BYTES + index * self.geometry.region_bytes()) }
    }

    fn line(&self, index: usize) -> &AtomicU64 {
        assert!(index < 8);
        // SAFETY: within the first page of a mapped segment, aligned, used as an atomic only.
        unsafe { &*self.segment.ptr().add(index * 256).cast::<AtomicU64>() }
    }

    fn producer(&self, index: usize) -> Producer {
        // SAFETY: one producer for each ring, and the arena outlives it.
        unsafe { Producer::attach(self.ring(index), self.geometry.region_bytes()) }
            .expect("formatted in new")
    }

    fn consumer(&self, index: usize) -> Consumer {
        // SAFETY: one consumer for each ring, and the arena outlives it.
        unsafe { Consumer::attach(self.ring(index), self.geometry.region_bytes()) }
            .expect("formatted in new")
    }
}

fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid, and the calls only read it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Runs `child` in a forked process on `cpus.1` and `parent` here on `cpus.0`.
fn pair<T>(cpus: (usize, usize), child: impl FnOnce(), parent: impl FnOnce() -> T) -> T {
    // SAFETY: this program has one thread, so the child may do what it likes.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        pin(cpus.1);
        child();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    pin(cpus.0);
    let result = parent();
    let mut status = 0;
    // SAFETY: waits for our own child; the pointer is to a live integer.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the child failed");
    result
}

/// Median and 10th percentile of the one-way time in ns, of `trip` run in blocks.
fn one_way_ns(mut trip: impl FnMut(u64)) -> (f64, f64) {
    let mut times = Vec::with_capacity(BLOCKS);
    let mut number = 0;
    for _ in 0..BLOCKS {
        let start = Instant::now();
        for _ in 0..TRIPS {
            number += 1;
            trip(number);
        }
        times.push(start.elapsed().as_nanos() as f64 / (2 * TRIPS) as f64);
    }
    times.sort_by(f64::total_cmp);
    (times[BLOCKS / 2], times[BLOCKS / 10])
}

fn bare_hand_off<const HINT: bool>(cpus: (usize, usize)) -> (f64, f64) {
    let arena = Arena::new().expect("memory for the lines");
    let wait = |index: usize, value: u64| {
        while arena.line(index).load(Ordering::Acquire) != value {
            hint::<HINT>();
        }
    };
    pair(
        cpus,
        || {
            for number in 1..=BLOCKS as u64 * TRIPS {
                wait(0, number);
                arena.line(1).store(number, Ordering::Release);
            }
        },
        || {
            one_way_ns(|number| {
                arena.line(0).store(number, Ordering::Release);
                wait(1, number);
            })
        },
    )
}

fn receive<const HINT: bool>(consumer: &mut Consumer) -> u64 {
    loop {
        if let Some(slot) = consumer.peek() {
            consumer.advance();
            return slot.body.iter().fold(0, |sum, word| sum ^ word);
        }
        hint::<HINT>();
    }
}

fn body(number: u64) -> [u64; BODY_WORDS] {
    [number, 1, 1, 2, 2, 3, 3]
}

fn ring_ping_pong<const HINT: bool>(cpus: (usize, usize)) -> (f64, f64) {
    let arena = Arena::new().expect("memory for the rings");
    pair(
        cpus,
        || {
            let (mut there, mut back) = (arena.consumer(0), arena.producer(1));
            for _ in 0..BLOCKS as u64 * TRIPS {
                let number = receive::<HINT>(&mut there);
                back.push(2, &body(number)).expect("one message in flight");
            }
        },
        || {
            let (mut there, mut back) = (arena.producer(0), arena.consumer(1));
            one_way_ns(|number| {
                there.push(1, &body(number)).expect("one message in flight");
                assert_eq!(receive::<HINT>(&mut back), number);
            })
        },
    )
}

/// Millions of messages a second, one slot each, and of data of `bytes` bytes each if not zero.
fn ring_rate(cpus: (usize, usize), bytes: usize, messages: u64) -> f64 {
    let arena = Arena::new().expect("memory for the rings");
    pair(
        cpus,
        || {
            let mut producer = arena.producer(0);
            let source = vec![7_u8; bytes];
            for number in 0..messages {
                let mut words = body(number);
                if bytes > 0 {
                    let data = loop {
                        if let Some(data) = producer.reserve_data(bytes) {
                            break data;
                        }
                    };
                    // SAFETY: `bytes` bytes are reserved at `ptr`; the ranges do not overlap.
                    unsafe { data.ptr.copy_from_nonoverlapping(source.as_ptr(), bytes) };
                    words[1] = data.pos;
                }
                while producer.push(1, &words).is_err() {}
            }
        },
        || {
            let mut consumer = arena.consumer(0);
            let mut sink = vec![0_u8; bytes];
            let start = Instant::now();
            let mut taken = 0;
            while taken < messages {
                let Some(slot) = consumer.peek() else {
                    continue;
                };
                assert_eq!(slot.body[0], taken);
                if bytes > 0 {
                    let data = consumer.data(slot.body[1], bytes).expect("an honest producer");
                    // SAFETY: `bytes` bytes are mapped there, and the producer has written them.
                    unsafe { sink.as_mut_ptr().copy_from_nonoverlapping(data, bytes) };
                    consumer.release_data(slot.body[1] + bytes as u64);
                }
                consumer.advance();
                taken += 1;
            }
            std::hint::black_box(&sink);
            messages as f64 / start.elapsed().as_secs_f64() / 1e6
        },
    )
}

fn report(how: &str, (bare, bare_low): (f64, f64), (ring, ring_low): (f64, f64)) {
    println!(
        "one-way ns, median (10th percentile): hand-off {bare:6.1} ({bare_low:6.1}), \
         ring message {ring:6.1} ({ring_low:6.1}): {:.2} x{how}",
        ring / bare
    );
}

#[inline(always)]
fn hint<const HINT: bool>() {
    if HINT {
        std::hint::spin_loop();
    }
}

/// What one spin-loop hint costs, in ns.
fn hint_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..100_000 {
        std::hint::spin_loop();
    }
    start.elapsed().as_nanos() as f64 / 1e5
}

fn main() -> ExitCode {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let cpus = match arguments[..] {
        [] => (0, 1),
        [first, second] => (first, second),
        _ => {
            eprintln!("usage: ring_bench [CPU CPU]");
            return ExitCode::from(2);
        }
    };
    println!("std::hint::spin_loop() costs {:.1} ns here", hint_ns());
    for _ in 0..3 {
        report("", bare_hand_off::<false>(cpus), ring_ping_pong::<false>(cpus));
        report(", with hint", bare_hand_off::<true>(cpus), ring_ping_pong::<true>(cpus));
    }
    for (bytes, messages) in [(0, RATE_MESSAGES), (256, 10_000_000), (4096, 2_000_000)] {
        println!("ring rate, {bytes:4} B of data: {:6.1} Mmsg/s", ring_rate(cpus, bytes, messages));
    }
    ExitCode::SUCCESS
}
