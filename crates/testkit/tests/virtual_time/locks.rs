//! Threads of a rank wait for each other in virtual time.

use std::sync::atomic::{AtomicU64, Ordering};

use rdmalab_rank::{Locks, Monitor, Rank, Stopped};
use rdmalab_sim::find;

use crate::lab::lab;

type Bodies<'a, T> = Vec<Box<dyn FnOnce() -> T + Send + 'a>>;

/// Each thread works for 100 ns with the lock, and asks for it again at once.
#[test]
fn a_lock_that_is_held_over_work_passes_from_thread_to_thread() {
    const THREADS: usize = 3;
    let (simulation, _) = lab(&find("ideal").unwrap(), 1);
    let (results, report) = simulation.run(|rank| {
        let order = Monitor::new(Vec::new());
        let inside = AtomicU64::new(0);
        let (order_ref, inside) = (&order, &inside);
        let body = |mine: usize| {
            move || {
                for _ in 0..4 {
                    let work = |order: &mut Vec<usize>| {
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two at once");
                        order.push(mine);
                        rank.think(100).unwrap();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    };
                    rank.locked(order_ref, work).unwrap();
                }
            }
        };
        let bodies: Bodies<'_, ()> = (0..THREADS).map(|i| Box::new(body(i)) as _).collect();
        rank.spawn(bodies)?;
        let cpu_ns = rank.cpu_time().total_ns();
        Ok((rank.locked(&order, |order| order.clone())?, cpu_ns))
    });
    let (order, cpu_ns) = results[0].clone().unwrap();
    assert_eq!(order, [0, 1, 2].repeat(4));
    assert_eq!(report.time.whole_ns(), 1200);
    // Who waits keeps its processor busy: the threads end after 1000, 1100 and 1200 ns.
    assert_eq!(cpu_ns, 3300);
}

#[test]
fn a_lock_that_is_taken_is_not_waited_for_by_who_only_tries() {
    let (simulation, _) = lab(&find("ideal").unwrap(), 1);
    let (results, _) = simulation.run(|rank| {
        let monitor = Monitor::new(());
        let tries = || rank.try_locked(&monitor, |()| ()).is_some();
        let bodies: Bodies<'_, [bool; 2]> = vec![
            Box::new(|| rank.locked(&monitor, |()| rank.think(100)).map(|_| [true; 2]).unwrap()),
            Box::new(|| {
                rank.think(50).unwrap();
                let first = tries();
                rank.think(100).unwrap();
                [first, tries()]
            }),
        ];
        rank.spawn(bodies)
    });
    assert_eq!(results[0].as_ref().unwrap()[1], [false, true]);
}

/// A sleeper uses no processor, and needs the time of an event to wake up.
#[test]
fn a_thread_sleeps_until_another_one_wakes_it() {
    let mut profile = find("ideal").unwrap();
    profile.set("wake_ns", 700.0).unwrap();
    let (simulation, _) = lab(&profile, 1);
    let (results, report) = simulation.run(|rank| {
        let (monitor, other) = (Monitor::new(false), Monitor::new(()));
        let bodies: Bodies<'_, Result<u64, Stopped>> = vec![
            Box::new(|| {
                let mut sleeps = 0;
                while rank.locked_or_sleep(&monitor, |is_set| is_set.then_some(()))?.is_none() {
                    sleeps += 1;
                }
                Ok(sleeps)
            }),
            Box::new(|| {
                rank.think(1000)?;
                rank.wake_all(&other);
                rank.think(1000)?;
                rank.locked(&monitor, |is_set| *is_set = true)?;
                rank.wake_all(&monitor);
                Ok(0)
            }),
        ];
        let sleeps = rank.spawn(bodies)?;
        Ok((sleeps, rank.cpu_time().total_ns()))
    });
    assert_eq!(results, [Ok((vec![Ok(1), Ok(0)], 2700))]);
    assert_eq!(report.time.whole_ns(), 2700);
}

/// Nobody wakes the sleeper, and a thread asks for a lock that it holds: all ranks end, and the
/// error says who waits for what.
#[test]
fn threads_that_wait_for_ever_are_a_deadlock() {
    let (simulation, _) = lab(&find("ideal").unwrap(), 1);
    let (results, _) = simulation.run(|rank| {
        let (monitor, own) = (Monitor::new(()), Monitor::new(()));
        let bodies: Bodies<'_, Result<(), Stopped>> = vec![
            Box::new(|| rank.locked_or_sleep(&monitor, |()| None::<()>).map(drop)),
            Box::new(|| rank.locked(&own, |()| rank.locked(&own, |()| ()))?),
        ];
        rank.spawn(bodies)
    });
    for ended in results[0].as_ref().unwrap() {
        let Err(Stopped::Other(why)) = ended else { panic!("{ended:?}") };
        assert!(why.contains("waits for another thread of the rank to wake it"), "{why}");
        assert!(why.contains("waits for a lock that another thread of the rank holds"), "{why}");
    }
}
