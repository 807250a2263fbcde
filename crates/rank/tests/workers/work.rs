//! The jobs of these tests' workers; a job is a verb and its arguments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rdmalab_rank::process::ProcessRank;
use rdmalab_rank::{Rank, Stopped};

/// The jobs that a rank does without the others.
pub fn alone(job: &[u8], asked: &Arc<AtomicBool>) -> Result<Vec<u8>, String> {
    match job {
        b"until asked" => {
            while !asked.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(b"asked".to_vec())
        }
        b"fail" => Err("of purpose".to_owned()),
        b"panic" => panic!("alone"),
        b"abort" => std::process::abort(),
        other => Ok(other.to_vec()),
    }
}

pub fn run(rank: &ProcessRank, job: &[u8]) -> Result<Vec<u8>, String> {
    let job = String::from_utf8_lossy(job).into_owned();
    let words: Vec<&str> = job.split_whitespace().collect();
    let text = match words.as_slice() {
        ["echo", rest @ ..] => Ok(rest.join(" ")),
        ["who"] => Ok(format!("{} of {}", rank.index(), rank.count())),
        ["exchange", rounds] => exchange(rank, rounds.parse().unwrap()),
        ["barriers", file] => barriers(rank, file),
        ["big", bytes] => Ok("x".repeat(bytes.parse().unwrap())),
        ["cost", count] => cost(rank, count.parse().unwrap()),
        ["spin"] => rank.spin(|| None::<()>).map(|()| String::new()),
        ["limited"] => limited(rank),
        ["bring", "home"] => bring_home(rank),
        ["partial"] => Ok(partial(rank)),
        ["meet", "at", "the", "end"] => meet_at_the_end(rank),
        ["wait", "in", "vain"] => {
            rank.sleep(500_000_000).and_then(|()| rank.spin(|| None::<()>)).map(|()| String::new())
        }
        ["meet", "after", ms] => rank
            .sleep(ms.parse::<u64>().unwrap() * 1_000_000)
            .and_then(|()| rank.exchange_to_end(b""))
            .map(|_| "met".to_owned()),
        ["meet", "at", "leisure"] => rank.exchange_at_leisure(b"").map(|_| "met".to_owned()),
        ["barrier"] => rank.barrier().map(|()| "together".to_owned()),
        ["fail", rest @ ..] => Err(Stopped::Failed(rest.join(" "))),
        ["panic"] => panic!("of\npurpose"),
        ["lost", "panic"] => {
            let _ = std::thread::spawn(|| panic!("unnoticed")).join();
            Ok("went on".to_owned())
        }
        ["abort", "when", "told"] => {
            let _ = rank.spin(|| None::<()>);
            std::process::abort()
        }
        ["abort"] => std::process::abort(),
        ["exit", status] => std::process::exit(status.parse().unwrap()),
        // Does not use the rank's methods, so it is not told to stop.
        ["deaf", file] => {
            std::fs::write(file, "spinning").unwrap();
            loop {
                std::hint::spin_loop();
            }
        }
        ["think"] => think(rank),
        ["sleep"] => rank.sleep(60_000_000_000).map(|()| String::new()),
        ["restamp"] => restamp(rank),
        ["cpu"] => cpu(rank),
        ["threads"] => threads(rank),
        ["thread", "panic"] => thread_panic(rank),
        ["clock"] => Ok((0..rank.count())
            .map(|i| rank.clock_error_ns(i).map_or("none".to_owned(), |e| e.to_string()))
            .collect::<Vec<_>>()
            .join(" ")),
        ["align"] => crate::clocks::align(rank),
        ["log", rest @ ..] => {
            rank.tell(&rest.join(" "));
            Ok(String::new())
        }
        _ => Err(Stopped::Failed(format!("no such job: {job}"))),
    };
    text.map(String::into_bytes).map_err(|e| e.to_string())
}

/// Exchanges data whose bytes and length depend on round and rank.
fn exchange(rank: &ProcessRank, rounds: usize) -> Result<String, Stopped> {
    for round in 0..rounds {
        let of = |index: usize| vec![(round * 7 + index) as u8; round % 5 * 100 + index];
        let all = rank.exchange(&of(rank.index()))?;
        let expected: Vec<Vec<u8>> = (0..rank.count()).map(of).collect();
        if all != expected {
            return Err(Stopped::Failed(format!("round {round} brought something else")));
        }
    }
    Ok("all as expected".to_owned())
}

/// Spins until it is told to stop, then still collects the data of all ranks.
fn bring_home(rank: &ProcessRank) -> Result<String, Stopped> {
    let stopped = rank.spin(|| None::<()>);
    if stopped != Err(Stopped::Asked) || rank.exchange(b"").is_ok() {
        return Err(Stopped::Failed(format!("stopped by {stopped:?}")));
    }
    let all = rank.exchange_to_end(format!("of {}", rank.index()).as_bytes())?;
    let all: Vec<_> = all.iter().map(|b| String::from_utf8_lossy(b).into_owned()).collect();
    Ok(all.join(", "))
}

/// Spins until it is told to stop, then returns why the last exchange failed.
fn meet_at_the_end(rank: &ProcessRank) -> Result<String, Stopped> {
    let stopped = rank.spin(|| None::<()>);
    match rank.exchange_to_end(b"") {
        Err(Stopped::Other(why)) => Ok(format!("{stopped:?}: {why}")),
        other => Err(Stopped::Failed(format!("{stopped:?}: {other:?}"))),
    }
}

/// Appends to a file before each barrier; after the barrier the data of all ranks must be there.
fn barriers(rank: &ProcessRank, file: &str) -> Result<String, Stopped> {
    use std::io::Write;
    let failed = |e: std::io::Error| Stopped::Failed(e.to_string());
    for round in 1..=20 {
        if rank.index() == round % rank.count() {
            rank.sleep(2_000_000)?;
        }
        let mut to = std::fs::OpenOptions::new().append(true).open(file).map_err(failed)?;
        to.write_all(b"x").map_err(failed)?;
        rank.barrier()?;
        let there = std::fs::metadata(file).map_err(failed)?.len();
        rank.barrier()?;
        if there != (round * rank.count()) as u64 {
            return Err(Stopped::Failed(format!("round {round}: {there} were there")));
        }
    }
    Ok("in step".to_owned())
}

/// Median time of a barrier, in ns.
fn cost(rank: &ProcessRank, count: usize) -> Result<String, Stopped> {
    let mut times = Vec::new();
    for _ in 0..count {
        let start = rank.now();
        rank.barrier()?;
        times.push(rank.clock().whole_ns_between(start, rank.now()));
    }
    times.sort_unstable();
    Ok(times[count / 2].to_string())
}

fn limited(rank: &ProcessRank) -> Result<String, Stopped> {
    let start = rank.now();
    let nothing = rank.spin_for(3_000_000, || None::<()>)?;
    let ns = rank.clock().whole_ns_between(start, rank.now());
    let mut looks = 0;
    let found = rank.spin_for(60_000_000_000, || {
        looks += 1;
        (looks == 1_000_000).then_some(looks)
    })?;
    Ok(format!("{nothing:?} {} {found:?}", ns >= 3_000_000))
}

/// Counts until it is asked to stop, and returns whether it counted, and why it stopped.
fn partial(rank: &ProcessRank) -> String {
    let mut count = 0_u64;
    let reason = rank.spin(|| {
        count += 1;
        None::<()>
    });
    format!("{} {:?}", count > 0, reason.unwrap_err())
}

fn think(rank: &ProcessRank) -> Result<String, Stopped> {
    let start = rank.now();
    rank.think(2_000_000)?;
    let thought = rank.clock().whole_ns_between(start, rank.now());
    rank.sleep(2_000_000)?;
    let all = rank.clock().whole_ns_between(start, rank.now());
    Ok(format!("{} {}", thought >= 2_000_000, all >= 4_000_000))
}

/// The word changes while the body runs, holds the clock's time, and stays the same afterwards.
fn restamp(rank: &ProcessRank) -> Result<String, Stopped> {
    let word = AtomicU64::new(0);
    let before = rank.now().0;
    let (mut last, mut moves, mut backwards) = (0, 0, 0);
    rank.restamping(&word, || {
        let at_first = word.load(Ordering::Acquire);
        last = at_first;
        rank.spin(|| {
            let now = word.load(Ordering::Acquire);
            backwards += u64::from(now < last);
            moves += u64::from(now != last);
            last = now;
            (moves >= 20).then_some(())
        })?;
        if at_first < before {
            return Err(Stopped::Failed(format!("{at_first} was there before {before}")));
        }
        Ok(())
    })??;
    let after = word.load(Ordering::Acquire);
    rank.think(3_000_000)?;
    let still = word.load(Ordering::Acquire) == after;
    let in_time = before <= last && after <= rank.now().0;
    Ok(format!("{} {backwards} {still} {in_time}", moves >= 20))
}

fn cpu(rank: &ProcessRank) -> Result<String, Stopped> {
    let start = rank.cpu_time();
    // Processor time, because others may use the CPU meanwhile.
    let until = |used: u64| move || (rank.cpu_time().since(start).total_ns() > used).then_some(());
    rank.spin(until(20_000_000))?;
    let busy = rank.cpu_time().since(start);
    Ok(format!("{} {}", busy.total_ns() > 20_000_000, busy.user_ns > 0))
}

fn threads(rank: &ProcessRank) -> Result<String, Stopped> {
    // Each waits for all the others, so this ends only if they run at the same time.
    let there = AtomicU64::new(0);
    let body = |i: u64| {
        let there = &there;
        move || {
            there.fetch_add(1, Ordering::AcqRel);
            let all = || (there.load(Ordering::Acquire) == 3).then(std::thread::yield_now);
            rank.spin(all).map(|()| i * 10)
        }
    };
    let bodies = (0..3).map(|i| Box::new(body(i)) as Box<dyn FnOnce() -> _ + Send>).collect();
    let results: Result<Vec<u64>, Stopped> = rank.spawn(bodies)?.into_iter().collect();
    Ok(format!("{:?}", results?))
}

fn thread_panic(rank: &ProcessRank) -> Result<String, Stopped> {
    let bodies: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(|| panic!("in a thread"))];
    rank.spawn(bodies).map(|_| String::new())
}
