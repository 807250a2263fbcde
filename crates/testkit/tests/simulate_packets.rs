//! The fuzz targets of packets without a fuzzer: frames that the kernel sent, with a few bytes
//! changed, cut, put together or made up, from seeds. `wire_parse.rs`, `link_receive.rs` and
//! `trace_read.rs` in `fuzz/fuzz_targets` run the same functions with a fuzzer's bytes.
//!
//! `RDMALAB_SEEDS=N` plays so many seeds, `RDMALAB_SEED=N` one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rdmalab_testkit::fuzz;
use rdmalab_testkit::rng::Rng;
use rdmalab_trace::file::Capture;
use rdmalab_wire::frame::EthernetFrame;

/// Seeds that are played when `RDMALAB_SEEDS` does not say.
const SEEDS: u64 = 100_000;

/// Seeds that once found a bug.
const REGRESSIONS: &[u64] = &[];

const CAPTURES: [&str; 5] = [
    "loss_atomic.pcap",
    "rc_pingpong_events.pcap",
    "read_lat.pcap",
    "rping.pcap",
    "send_lat_ud.pcap",
];

/// The frames of the kernel's captures.
fn frames() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    let mut frames = Vec::new();
    for name in CAPTURES {
        let mut capture = Capture::open(&directory.join(name)).expect("a capture");
        while let Ok(Some(frame)) = capture.next_frame() {
            frames.push(frame.bytes);
        }
    }
    assert!(frames.len() > 200, "{} frames", frames.len());
    frames
}

/// A frame that is wrong in some way, or in none.
fn spoilt(frames: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = frames[rng.below(frames.len() as u64) as usize].clone();
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u32() as u8),
            2 => {
                let length = rng.below(20) as usize;
                bytes.extend(rng.bytes(length));
            }
            3 => {
                let other = &frames[rng.below(frames.len() as u64) as usize];
                bytes.truncate(at);
                bytes.extend(other.iter().skip(at));
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
    bytes
}

/// The packet in a frame, for the receiver, with what that is to expect in front.
fn received(frame: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = rng.bytes(2);
    match EthernetFrame::parse(frame) {
        Ok(found) => bytes.extend(found.datagram.packet),
        // From where a packet stands over IPv4.
        Err(_) => bytes.extend(frame.iter().skip(42)),
    }
    bytes
}

/// A capture of up to eight frames, in the form of [`fuzz::trace_read`].
fn captured(frames: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=rng.below(8) {
        let frame = spoilt(frames, rng);
        // Most of them as what they are, Ethernet.
        let link = if rng.below(8) == 0 { rng.next_u32() as u8 } else { (rng.below(8) << 5) as u8 };
        bytes.push(link);
        bytes.extend((frame.len() as u16).to_le_bytes());
        bytes.extend(frame);
    }
    bytes
}

/// Whether the parsers took it, and the receiver, and how many packets a capture had.
fn play(frames: &[Vec<u8>], seed: u64) -> (bool, bool, usize) {
    let mut rng = Rng::new(seed);
    let bytes = match rng.below(8) {
        0 => {
            let length = rng.below(200) as usize;
            rng.bytes(length)
        }
        _ => spoilt(frames, &mut rng),
    };
    let packet = received(&bytes, &mut rng);
    let capture = captured(frames, &mut rng);
    let run =
        || (fuzz::wire_parse(&bytes), fuzz::link_receive(&packet), fuzz::trace_read(&capture));
    let Ok(taken) = catch_unwind(AssertUnwindSafe(run)) else {
        panic!(
            "seed {seed}: RDMALAB_SEED={seed} plays it alone; frame {bytes:02x?}, \
             capture {capture:02x?}"
        );
    };
    taken
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn no_bytes_are_too_strange() {
    let frames = frames();
    if let Some(seed) = number("RDMALAB_SEED") {
        play(&frames, seed);
        return;
    }
    let seeds = number("RDMALAB_SEEDS").unwrap_or(SEEDS);
    let (mut parsed, mut taken, mut traced) = (0u64, 0u64, 0usize);
    for seed in REGRESSIONS.iter().copied().chain(0..seeds) {
        let (by_parser, by_receiver, by_trace) = play(&frames, seed);
        traced += by_trace;
        parsed += u64::from(by_parser);
        taken += u64::from(by_receiver);
    }
    // Otherwise this tests nothing but refusals.
    assert!(parsed > seeds / 4, "{parsed} of {seeds} parsed");
    assert!(taken > seeds / 100, "{taken} of {seeds} taken by the receiver");
    assert!(traced as u64 > seeds, "{traced} packets in {seeds} captures");
}

/// Writes the frames of the kernel's captures where the fuzzers look for what to begin with.
#[test]
#[ignore = "for fuzzers: cargo test -p rdmalab-testkit --test simulate_packets -- --ignored"]
fn the_corpus_of_the_fuzzers() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut rng = Rng::new(1);
    let mut taken = 0;
    for (number, frame) in frames().into_iter().enumerate() {
        let packet = received(&frame, &mut rng);
        let mut capture = vec![0];
        capture.extend((frame.len() as u16).to_le_bytes());
        capture.extend(&frame);
        taken += usize::from(fuzz::link_receive(&packet));
        for (target, bytes) in
            [("wire_parse", &frame), ("link_receive", &packet), ("trace_read", &capture)]
        {
            let directory = corpus.join(target);
            std::fs::create_dir_all(&directory).expect("the repository is writable");
            let file = directory.join(format!("kernel-{number:04}"));
            std::fs::write(file, bytes).expect("the repository is writable");
        }
    }
    assert!(taken > 0, "no packet is one for a receiver");
}
