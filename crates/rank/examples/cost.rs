//! What a rank's own means cost: a barrier, and a look of `spin` beside one of a bare loop.
//!
//! `cargo run --release -p rdmalab-rank --example cost`, on a quiet machine. The program starts
//! itself as the workers.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rdmalab_measure::stats::{median, sort};
use rdmalab_rank::process::{
    ProcessRank, RankSpec, Server, WorkerCommand, WorkerGroup, connection, serve,
};
use rdmalab_rank::{Rank, Stopped};

const PATIENCE: Duration = Duration::from_secs(30);
const BARRIERS: usize = 2000;
const LOOKS: u64 = 2_000_000;
const ROUNDS: usize = 41;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return Ok(serve(connection()?, work)?);
    }
    let worker = WorkerCommand::this_program(["worker"])?;
    for count in [2, 4] {
        let mut workers = WorkerGroup::start(&vec![RankSpec::local(worker.clone()); count])?;
        report(&format!("barrier of {count} processes"), &mut workers, "barrier", "us")?;
    }
    let server = Server::bind(Some("127.0.0.1:0"), worker.clone(), 4)?;
    let (address, stop) = (server.address()?.to_string(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(&stop, |_| {}));
        let specs = [RankSpec::local(worker.clone()), RankSpec::remote(&address)];
        let reported = WorkerGroup::start(&specs).map_err(Box::from).and_then(|mut workers| {
            report(
                "barrier of 2 processes, one over TCP on this host",
                &mut workers,
                "barrier",
                "us",
            )
        });
        stop.store(true, Ordering::Relaxed);
        serving.join().map_err(|_| "the server panicked")??;
        reported
    })?;
    let mut workers = WorkerGroup::start(&[RankSpec::local(worker)])?;
    report("look of a bare loop, of spin, of spin_for", &mut workers, "look", "ns")
}

/// Rank 0's numbers.
fn report(
    name: &str,
    workers: &mut WorkerGroup,
    job: &str,
    unit: &str,
) -> Result<(), Box<dyn Error>> {
    let jobs = vec![job.as_bytes().to_vec(); workers.infos().count()];
    let results = workers.run(&jobs, PATIENCE, &AtomicBool::new(false), |_| {})?;
    println!("{name}: {} {unit}", String::from_utf8_lossy(&results[0]));
    Ok(())
}

fn work(rank: &ProcessRank, job: &[u8]) -> Result<Vec<u8>, String> {
    let text = if job == b"barrier" { barriers(rank) } else { looks(rank) };
    text.map(String::into_bytes).map_err(|e| e.to_string())
}

fn barriers(rank: &ProcessRank) -> Result<String, Stopped> {
    let mut times = Vec::with_capacity(BARRIERS);
    for _ in 0..BARRIERS {
        let start = rank.now();
        rank.barrier()?;
        times.push(rank.clock().ns_between(start, rank.now()) / 1e3);
    }
    sort(&mut times);
    Ok(format!("median {:.1}, 99 % {:.1}", median(&times), times[BARRIERS * 99 / 100]))
}

/// In turns, so that what else the machine does hits all three; with the medians of the ratios.
fn looks(rank: &ProcessRank) -> Result<String, Stopped> {
    let word = AtomicU64::new(0);
    let look = |left: &mut u64| {
        *left -= 1;
        (black_box(&word).load(Ordering::Acquire) != 0 || *left == 0).then_some(())
    };
    let timed = |body: &dyn Fn(&mut u64) -> Result<(), Stopped>| {
        let (mut left, start) = (LOOKS, rank.now());
        body(&mut left)?;
        Ok(rank.clock().ns_between(start, rank.now()) / LOOKS as f64)
    };
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        let bare = timed(&|left| {
            while look(left).is_none() {}
            Ok(())
        })?;
        let spin = timed(&|left| rank.spin(|| look(left)))?;
        let limited = timed(&|left| rank.spin_for(60_000_000_000, || look(left)).map(drop))?;
        let all = [bare, spin, limited, spin / bare, limited / bare];
        times.iter_mut().zip(all).for_each(|(of, time)| of.push(time));
    }
    let [bare, spin, limited, spin_ratio, limited_ratio] = times.map(|mut of| {
        sort(&mut of);
        median(&of)
    });
    Ok(format!("{bare:.3}, {spin:.3} (x {spin_ratio:.3}), {limited:.3} (x {limited_ratio:.3})"))
}
