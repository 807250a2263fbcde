//! Each limit ends and gives a sane number. How fast it is belongs to the machine, not to a test.

use super::*;
use crate::clock::Clock;
use crate::quantity::Quantity;
use rdmalab_testing::skipped;

/// Runs twice and checks what holds on every machine.
fn check(limit: &mut dyn Limit) {
    let spread = measure(limit, 2).unwrap_or_else(|e| panic!("{}: {e}", limit.name()));
    assert_eq!(spread.runs.len(), 2);
    assert!(spread.runs.iter().all(|v| v.is_finite() && *v > 0.0), "{spread}");
    assert!(spread.min <= spread.median && spread.median <= spread.max, "{spread}");
}

/// Two cores, and one core twice, where spinning ends must yield.
fn pairs_of_cores() -> [(usize, usize); 2] {
    let (a, b) = two_cores();
    [(a, b), (a, a)]
}

#[test]
fn a_line_is_handed_over() {
    let clock = Clock::new();
    for cores in pairs_of_cores() {
        for ends in [Peers::Threads, Peers::Processes] {
            for lines in [Lines::One, Lines::Two] {
                for hint in [SpinHint::Bare, SpinHint::Paused] {
                    check(&mut Handoff::new(clock, cores, ends, lines, hint).unwrap());
                }
            }
        }
    }
}

#[test]
fn a_ring_carries_items_in_order() {
    for cores in pairs_of_cores() {
        for ends in [Peers::Threads, Peers::Processes] {
            for layout in [Slots::Packed, Slots::Lines] {
                check(&mut Spsc::new(Clock::new(), cores, ends, layout).unwrap());
            }
        }
    }
}

#[test]
fn memory_is_copied() {
    for (size_bytes, pairs) in [(0, 0), (1, 1), (32, 1), (4097, 3), (1 << 20, 2)] {
        check(&mut Memcpy::new(Clock::new(), size_bytes, pairs));
    }
}

#[test]
fn the_kernel_is_entered() {
    check(&mut NullSyscall::new(Clock::new()));
}

#[test]
fn datagrams_go_round() {
    for cores in pairs_of_cores() {
        for ends in [Peers::Threads, Peers::Processes] {
            for waiting in [Waiting::Spin, Waiting::Block] {
                check(&mut UdpPingPong::new(Clock::new(), cores, ends, waiting, 32).unwrap());
            }
        }
    }
}

#[test]
fn a_child_is_written_to_or_the_kernel_says_why_not() {
    let clock = Clock::new();
    for size_bytes in [0, 32, 1 << 20] {
        for make in [VmWrite::call_cost, VmWrite::bandwidth] {
            match make(clock, two_cores(), size_bytes) {
                Ok(mut limit) => check(&mut limit),
                Err(reason) => {
                    // Containers refuse; what matters is that they are not mistaken for slow.
                    skipped("a_child_is_written_to", reason.to_string());
                    assert!(reason.0.contains("process_vm_writev"), "{reason}");
                }
            }
        }
    }
}

#[test]
fn a_core_that_does_not_exist_is_an_error() {
    if available_cores().unwrap().contains(&1023) {
        return;
    }
    let mine = two_cores().0;
    for cores in [(1023, mine), (mine, 1023)] {
        for ends in [Peers::Threads, Peers::Processes] {
            let mut limit = Spsc::new(Clock::new(), cores, ends, Slots::Packed).unwrap();
            assert!(limit.run().unwrap_err().0.contains("core 1023"));
        }
    }
    assert!(pin_to(usize::MAX).is_err());
}

#[test]
fn a_pin_is_undone_when_dropped() {
    let before = available_cores().unwrap();
    let last = *before.last().unwrap();
    let pin = pin_to(last).unwrap();
    assert_eq!(available_cores().unwrap(), [last]);
    assert!(one_cpu());
    drop(pin);
    assert_eq!(available_cores().unwrap(), before);
    let (a, b) = two_cores();
    assert_eq!(a == b, one_cpu());
}

#[test]
fn skew_between_two_cores_is_bounded() {
    let clock = Clock::new();
    for cores in pairs_of_cores() {
        let skew = core_skew(clock, cores).unwrap();
        assert!(skew.low_ns <= skew.high_ns, "{skew:?}");
        assert!(skew.error_ns() >= 0.0 && skew.error_ns().is_finite());
    }
    // A core does not lead itself.
    let core = two_cores().0;
    let skew = core_skew(clock, (core, core)).unwrap();
    assert!(skew.low_ns <= 0.0 && 0.0 <= skew.high_ns, "{skew:?}");
}

/// Counts its runs, and fails at a given one.
struct Scripted {
    runs: usize,
    fails_at: usize,
}

impl Limit for Scripted {
    fn name(&self) -> String {
        "scripted".to_owned()
    }

    fn quantity(&self) -> Quantity {
        Quantity::OneWay
    }

    fn run(&mut self) -> Result<f64, Unsupported> {
        self.runs += 1;
        if self.runs == self.fails_at {
            return Err(Unsupported("as scripted".to_owned()));
        }
        Ok(self.runs as f64)
    }
}

#[test]
fn rounds_are_interleaved_and_a_failure_stays_alone() {
    let mut good = Scripted { runs: 0, fails_at: 0 };
    let mut bad = Scripted { runs: 0, fails_at: 2 };
    let results = interleave(&mut [&mut good, &mut bad], 5, 7);
    let spread = results[0].as_ref().unwrap();
    assert_eq!(spread.runs, [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!((spread.min, spread.median, spread.max), (1.0, 3.0, 5.0));
    assert_eq!(spread.to_string(), "scripted, one-way: 3.00 ns (1.00 ns .. 5.00 ns, 5 runs)");
    assert_eq!(spread.estimate(0.9).interval.map(|i| (i.low, i.high)), Some((1.0, 5.0)));
    assert_eq!(spread.estimate(0.95).interval, None);
    assert_eq!(results[1], Err(Unsupported("as scripted".to_owned())));
    assert_eq!((good.runs, bad.runs), (5, 2));
}
