//! The bare limits of this machine, for the lines below the tour's table.

use rdmalab_measure::Clock;
use rdmalab_measure::limits::{
    Handoff, Limit, Lines, Memcpy, NullSyscall, Peers, Slots, SpinHint, Spread, Spsc, Unsupported,
    VmWrite, interleave,
};

/// Runs of each limit.
const ROUNDS: usize = 9;
/// The seed of their order.
const SEED: u64 = 1;

/// The result of one limit: its spread, or why it cannot be measured here.
pub type Bare = Result<Spread, Unsupported>;

type Made = Result<Box<dyn Limit>, Unsupported>;

fn boxed<L: Limit + 'static>(limit: Result<L, Unsupported>) -> Made {
    limit.map(|l| Box::new(l) as Box<dyn Limit>)
}

/// Measures the limits alternately.
pub fn measure(clock: Clock, cores: (usize, usize)) -> Vec<Bare> {
    let hand_off = |hint| Handoff::new(clock, cores, Peers::Processes, Lines::Two, hint);
    let made: Vec<Made> = vec![
        boxed(hand_off(SpinHint::Bare)),
        boxed(hand_off(SpinHint::Paused)),
        boxed(Spsc::new(clock, cores, Peers::Processes, Slots::Lines)),
        boxed(Ok(Memcpy::new(clock, 4096, 1))),
        boxed(Ok(Memcpy::new(clock, 65536, 1))),
        boxed(VmWrite::call_cost(clock, cores, 32)),
        boxed(Ok(NullSyscall::new(clock))),
    ];
    let mut limits = Vec::new();
    let mut refused = Vec::new();
    for limit in made {
        match limit {
            Ok(limit) => limits.push(limit),
            Err(reason) => refused.push(Err(reason)),
        }
    }
    let mut borrowed: Vec<&mut dyn Limit> = limits.iter_mut().map(|l| &mut **l as _).collect();
    let mut results = interleave(&mut borrowed, ROUNDS, SEED);
    results.extend(refused);
    results
}
