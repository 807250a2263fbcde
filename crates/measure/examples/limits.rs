//! Prints the bare limits of this machine:
//! `cargo run --release -p rdmalab-measure --example limits`.

use rdmalab_measure::Clock;
use rdmalab_measure::limits::{
    Handoff, Limit, Lines, Memcpy, NullSyscall, Peers, Slots, SpinHint, Spsc, UdpPingPong,
    Unsupported, VmWrite, Waiting, core_skew, interleave, one_cpu, two_cores,
};

const ROUNDS: usize = 15;
const SEED: u64 = 1;

fn main() {
    let clock = Clock::new();
    println!("clock: {clock}");
    println!("       {}", clock.cost(100_000));
    let cores = two_cores();
    println!("cores: {} and {}", cores.0, cores.1);
    if one_cpu() {
        println!("       one CPU: spinning ends yield, and these are no limits of two cores");
    }
    match core_skew(clock, cores) {
        Ok(s) => println!("       counters apart by {:.0} .. {:.0} ns", s.low_ns, s.high_ns),
        Err(reason) => println!("       counters: {reason}"),
    }
    let mut limits: Vec<Box<dyn Limit>> = Vec::new();
    for made in all(clock, cores) {
        match made {
            Ok(limit) => limits.push(limit),
            Err(reason) => println!("left out: {reason}"),
        }
    }
    let mut borrowed: Vec<&mut dyn Limit> = limits.iter_mut().map(|l| &mut **l as _).collect();
    println!("\nmedian of {ROUNDS} interleaved runs (smallest .. largest)");
    for result in interleave(&mut borrowed, ROUNDS, SEED) {
        match result {
            Ok(s) => {
                let [median, min, max] = [s.median, s.min, s.max].map(|v| s.quantity.format(v));
                println!("{:56} {:10} {median:>10}  ({min} .. {max})", s.name, s.quantity);
            }
            Err(reason) => println!("left out: {reason}"),
        }
    }
}

type Made = Result<Box<dyn Limit>, Unsupported>;

fn all(clock: Clock, cores: (usize, usize)) -> Vec<Made> {
    fn boxed<L: Limit + 'static>(limit: Result<L, Unsupported>) -> Made {
        limit.map(|l| Box::new(l) as Box<dyn Limit>)
    }
    let mut made = Vec::new();
    for ends in [Peers::Processes, Peers::Threads] {
        for lines in [Lines::One, Lines::Two] {
            for hint in [SpinHint::Bare, SpinHint::Paused] {
                made.push(boxed(Handoff::new(clock, cores, ends, lines, hint)));
            }
        }
        for layout in [Slots::Packed, Slots::Lines] {
            made.push(boxed(Spsc::new(clock, cores, ends, layout)));
        }
    }
    for size_bytes in [32, 4096, 1 << 20] {
        made.push(boxed(Ok(Memcpy::new(clock, size_bytes, 1))));
    }
    made.push(boxed(Ok(Memcpy::new(clock, 1 << 20, 64))));
    made.push(boxed(VmWrite::call_cost(clock, cores, 32)));
    made.push(boxed(VmWrite::bandwidth(clock, cores, 1 << 20)));
    for waiting in [Waiting::Spin, Waiting::Block] {
        made.push(boxed(UdpPingPong::new(clock, cores, Peers::Processes, waiting, 32)));
    }
    made.push(boxed(Ok(NullSyscall::new(clock))));
    made
}
