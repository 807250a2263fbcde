//! Aligning the clocks of two machines. Both are this machine, so the true offset is known.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use rdmalab_rank::process::{ProcessRank, RankSpec, RendezvousListener, WorkerGroup};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_testing::Process;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::joined::{comer, joining};
use crate::{LONG, command, run};

/// The variable that makes a process claim to be on another machine.
const MACHINE: &str = "RDMALAB_TEST_MACHINE";

/// A worker that claims to be on another machine.
fn elsewhere(machine: &str) -> RankSpec {
    let mut command = command();
    command.envs.push((MACHINE.into(), machine.into()));
    RankSpec::local(command)
}

/// The job: takes a stamp between two alignments, and converts it to the own clock as if each other
/// rank had taken it. Returns the error of each conversion and its bound, in ns.
pub fn align(rank: &ProcessRank) -> Result<String, Stopped> {
    let all = 0..rank.count();
    let known = all.clone().filter(|other| rank.clock_error_ns(*other).is_some()).count();
    rank.align_clocks()?;
    rank.think(5_000_000)?;
    rank.align_clocks()?;
    let stamp = rank.now();
    rank.think(5_000_000)?;
    rank.align_clocks()?;
    let mut words = vec![known.to_string()];
    for other in all {
        // All ranks have the same counter, so the converted stamp should be equal.
        let ours = rank.to_own_clock(other, stamp);
        let off_ns = rank.clock().ns_between(stamp, ours).abs();
        let error_ns = rank.clock_error_ns(other).unwrap_or(f64::NAN);
        words.push(format!("{off_ns:.0}/{error_ns:.0}"));
    }
    Ok(words.join(" "))
}

#[test]
fn the_error_of_aligned_clocks_covers_the_truth() {
    let specs = [RankSpec::local(command()), elsewhere("b"), elsewhere("c"), elsewhere("b")];
    let mut workers = WorkerGroup::start(&specs).unwrap();
    // Twice, because each job measures the clocks in windows of its own.
    for _ in 0..2 {
        let said = run(&mut workers, "align", LONG).unwrap();
        for (rank, text) in said.iter().enumerate() {
            let words: Vec<&str> = text.split(' ').collect();
            // Before the alignment, only the clocks of its own machine are known.
            assert_eq!(words[0], if rank % 2 == 1 { "2" } else { "1" }, "rank {rank}: {text}");
            for (other, pair) in words[1..].iter().enumerate() {
                let (off, error) = pair.split_once('/').unwrap();
                let (off, error): (f64, f64) = (off.parse().unwrap(), error.parse().unwrap());
                let is_near = rank == other || [rank, other] == [1, 3] || [rank, other] == [3, 1];
                assert!(off <= error && error < 1e9 && (!is_near || off == 0.0), "{said:?}");
            }
        }
    }
}

#[test]
fn ranks_that_share_a_clock_have_nothing_to_align() {
    let mut workers = crate::local(2);
    for text in run(&mut workers, "align", LONG).unwrap() {
        assert!(text.starts_with("2 0/") || text.contains(" 0/0"), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
    // If only one rank aligns its clock, the job fails and does not hang.
    let mut workers = WorkerGroup::start(&[RankSpec::local(command()), elsewhere("b")]).unwrap();
    let jobs = ["align", "exchange 3"];
    let error = crate::run_each(&mut workers, &jobs, LONG).unwrap_err();
    assert!(error.what.contains("rank"), "{error}");
}

/// Two network namespaces connected by a veth pair; dropping this removes them.
struct Hosts([String; 2]);

impl Hosts {
    /// Hosts 10.93.0.1 and 10.93.0.2. `Err` if this machine does not allow namespaces.
    fn new() -> Result<Self, String> {
        let name = |host: usize| format!("rdmalab-clocks-{}-{host}", std::process::id());
        let hosts = Self([name(1), name(2)]);
        let [a, b] = &hosts.0;
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"),
            format!("-n {a} address add 10.93.0.1/24 dev eth0"),
            format!("-n {b} address add 10.93.0.2/24 dev eth0"),
            format!("-n {a} link set eth0 up"),
            format!("-n {b} link set eth0 up"),
        ] {
            let output = Command::new("ip").args(line.split(' ')).output();
            let output = output.map_err(|e| format!("no `ip` (Debian: iproute2): {e}"))?;
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(format!("no network namespaces here (root needed): {why}"));
            }
        }
        Ok(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[test]
fn the_error_of_clocks_across_a_network_covers_the_truth() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => {
            return rdmalab_testing::skipped("the_error_of_clocks_across_a_network", why);
        }
    };
    let [a, b] = &hosts.0;
    // From here on this thread is on host a, with the threads and processes that it starts.
    let namespace = File::open(format!("/run/netns/{a}")).unwrap();
    let network = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(namespace.as_fd(), network).unwrap();
    let listener = RendezvousListener::tcp(0, "token").unwrap();
    let place = format!("10.93.0.1:{}", listener.port().unwrap());
    let mut there = comer(&["ip", "netns", "exec", b], 1, &place, "token");
    let _there = Process::start(there.env(MACHINE, "b"));
    let mut workers =
        WorkerGroup::gather(&joining(2), Some(&listener), &AtomicBool::new(false)).unwrap();
    for text in run(&mut workers, "align", LONG).unwrap() {
        for pair in text.split(' ').skip(1) {
            let (off, error) = pair.split_once('/').unwrap();
            let (off, error): (f64, f64) = (off.parse().unwrap(), error.parse().unwrap());
            assert!(off <= error && error < 1e9, "{text}");
        }
    }
}
