//! Peers that die, execute another program, or are stopped, at random points of the traffic. The
//! survivor gets errors within the time that its attributes set, never hangs or crashes, and can
//! communicate with other peers. No resources are left behind.

mod support;

use std::time::Duration;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_softnic::SoftNic;
use rdmalab_testing::seeds_times;
use support::node::*;
use support::storm::*;
use support::*;

/// Victims per survivor.
const VICTIMS: usize = 6;

#[test]
fn child_process_entry() {
    play(&[
        ("survivor", survivor),
        ("victim", victim),
        ("sleeper", sleeper),
        ("waiter", waiter),
        ("steady", steady),
        ("target", target),
        ("writer", writer),
        ("keeper", keeper),
        ("only_writes", only_writes),
    ]);
}

/// Gives up after about 40 ms without an answer.
fn impatient() -> Setup {
    Setup { timeout: 11, retry_cnt: 4, ..Setup::new(QpType::Rc) }
}

fn meet(node: &Node, link: &Link, setup: &Setup, mem: &Mem, seed: u64) -> Storm {
    let endpoint = node.endpoint(setup);
    endpoint.connect_over(link);
    link.put(&[mem.addr(), mem.rkey as u64]);
    let words = link.get();
    Storm::new(endpoint, mem.clone(), (words[0], words[1] as u32), seed)
}

/// Communicates with one victim after the other, each until it is dead.
fn survivor(mut topology: Topology) {
    let (seed, kind) = (topology.args[0], Kind::from_arg(topology.args[1]));
    let node = Node::open(0);
    for victim in 1..=VICTIMS {
        let mem = node.mem(ROOM, kind);
        let link = topology.link(victim);
        let mut storm = meet(&node, &link, &impatient(), &mem, seed + victim as u64);
        topology.parent.put(&[]);
        until("the victim's death is noticed", || !storm.step());
        storm.drain();
        storm.check_lonely_end();
        // Whatever the victim was doing to this memory, it does not keep it busy any more.
        SoftNic::dereg_mr(&mem.mr).expect("the dead do not hold memory");
        SoftNic::destroy_qp(&storm.endpoint.qp).expect("a QP in ERR can be destroyed");
        topology.parent.put(&[storm.done]);
    }
}

/// The inodes of this process's sockets.
fn own_sockets() -> Vec<u64> {
    let fds = std::fs::read_dir("/proc/self/fd").expect("own descriptors");
    fds.filter_map(|fd| {
        let path = std::fs::read_link(fd.ok()?.path()).ok()?;
        path.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
    .collect()
}

fn victim(mut topology: Topology) {
    let (seed, kind) = (topology.args[0], Kind::from_arg(topology.args[1]));
    let node = Node::open(0);
    let mem = node.mem(ROOM, kind);
    topology.parent.put(&own_sockets());
    let link = topology.link(0);
    let mut storm = meet(&node, &link, &impatient(), &mem, seed);
    if topology.args.get(2) == Some(&1) {
        let end = std::time::Instant::now() + Duration::from_millis(seed % 20);
        while std::time::Instant::now() < end {
            assert!(storm.step(), "{:?}", storm.failed);
        }
        let argv = [c"sleep".as_ptr(), c"1000".as_ptr(), std::ptr::null()];
        // SAFETY: a list of C strings that ends with null.
        unsafe { libc::execv(c"/bin/sleep".as_ptr(), argv.as_ptr()) };
        panic!("no /bin/sleep");
    }
    while storm.step() {}
    panic!("the victim should have been dead: {:?}", storm.failed);
}

/// A process that uses the library has nothing in the file system, so nothing can be left there.
fn check_no_files(pid: i32) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    assert!(!maps.contains(" /dev/shm/"), "{maps}");
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    for fd in fds.map(|fd| fd.expect("a descriptor")) {
        // The first three are inherited, and may be files of the user.
        let number: u32 = fd.file_name().to_string_lossy().parse().expect("a number");
        let Ok(path) = std::fs::read_link(fd.path()) else { continue };
        let path = path.to_string_lossy();
        let temporary = path.starts_with("/dev/shm/") || path.starts_with("/tmp/");
        assert!(number < 3 || !temporary, "{number}: {path}");
    }
}

fn unix_sockets() -> Vec<u64> {
    let table = std::fs::read_to_string("/proc/net/unix").expect("the socket table");
    table.lines().filter_map(|line| line.split_whitespace().nth(6)?.parse().ok()).collect()
}

fn kill_at_random(seed: u64, kind: u64, by_exec: u64) {
    let survivor: &[u64] = &[seed, kind];
    let args: Vec<[u64; 3]> =
        (1..=VICTIMS as u64).map(|at| [seed * 100 + at, kind, by_exec]).collect();
    let mut roles = vec![("survivor", survivor)];
    roles.extend(args.iter().map(|args| ("victim", &args[..])));
    let mut processes = Processes::start(&roles);
    let mut random = Random::new(seed);
    for victim in 1..=VICTIMS {
        processes.link(0).get();
        let sockets = processes.link(victim).get();
        assert!(!sockets.is_empty());
        if by_exec == 0 {
            check_no_files(processes.pid(victim));
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            processes.kill(victim);
            let left: Vec<u64> = unix_sockets();
            assert!(sockets.iter().all(|inode| !left.contains(inode)), "a name is left");
        }
        processes.link(0).get();
    }
    processes.expect_end(0);
}

#[test]
fn the_survivor_of_a_kill_goes_on() {
    for seed in seeds_times(1, 6) {
        eprintln!("seed {seed}");
        kill_at_random(seed, seed % 2, 0);
    }
}

#[test]
fn a_peer_that_executes_another_program_is_gone() {
    for seed in seeds_times(11, 2) {
        eprintln!("seed {seed}");
        kill_at_random(seed, seed % 2, 1);
    }
}

/// Waits for a completion in a verb, without polling, while its peer dies.
fn waiter(mut topology: Topology) {
    let node = Node::open(0);
    let channel = SoftNic::create_channel(&node.ctx).expect("a channel");
    let cq = node.cq(16, Some(&channel), 5);
    let endpoint = node.endpoint_on(&impatient(), &cq, &cq, None);
    endpoint.connect_over(&topology.link(1));
    let mem = node.mem(64, Kind::Heap);
    SoftNic::req_notify_cq(&cq, false).expect("an armed CQ");
    // The other side has no receive posted, so this request is still waiting when it dies.
    endpoint.send(wr(WrOpcode::Send, &[mem.sge(0, 8)]));
    topology.parent.put(&[]);
    assert_eq!(SoftNic::wait_channel(&channel, Deadline::Never).expect("an event"), 5);
    assert_eq!(wait(&cq).status, WcStatus::RetryExcErr);
}

fn sleeper(mut topology: Topology) {
    let node = Node::open(0);
    let endpoint = node.endpoint(&impatient());
    endpoint.connect_over(&topology.link(0));
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

#[test]
fn a_blocked_caller_hears_of_a_death() {
    let mut processes = Processes::start(&[("waiter", &[]), ("sleeper", &[])]);
    processes.link(0).get();
    std::thread::sleep(Duration::from_millis(20));
    processes.kill(1);
    processes.expect_end(0);
}

/// Communicates all the time with few retries. Nothing may fail, although its peer is stopped now
/// and then for longer than all retries last.
fn steady(mut topology: Topology) {
    let node = Node::open(0);
    let mem = node.mem(ROOM, Kind::from_arg(topology.args[0]));
    let setup = Setup { timeout: 8, retry_cnt: 1, ..impatient() };
    let link = topology.link(1 - topology.index);
    let mut storm = meet(&node, &link, &setup, &mem, 3 + topology.index as u64);
    topology.parent.put(&[]);
    while !topology.parent.ready(0) {
        // Between two looks at the link to the test.
        for _ in 0..200 {
            assert!(storm.step(), "{:?}", storm.failed);
        }
    }
    let done = storm.done;
    assert_eq!(topology.parent.get(), [1]);
    // Outstanding sends complete while the other side still answers.
    until("the sends end", || {
        assert!(storm.answer(), "{:?}", storm.failed);
        storm.sends == 0
    });
    topology.parent.put(&[done]);
    until("the other side is ready to go", || {
        storm.answer();
        topology.parent.ready(0)
    });
}

#[test]
fn a_stopped_peer_makes_nothing_fail() {
    for (kind, lane) in [(0, "on"), (1, "on"), (0, "off")] {
        let roles: &[(&str, &[u64])] = &[("steady", &[kind]), ("steady", &[kind])];
        let env = [("RDMALAB_LANE", lane)];
        let mut processes = Processes::start_plan(&Plan { roles, links: 1, env: &env });
        (0..2).for_each(|index| drop(processes.link(index).get()));
        let mut random = Random::new(9);
        for _ in 0..12 {
            let index = random.below(2) as usize;
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            processes.signal(index, libc::SIGSTOP);
            std::thread::sleep(Duration::from_micros(random.below(50_000)));
            processes.signal(index, libc::SIGCONT);
        }
        // The two stop posting at different times; each goes on answering until both have finished.
        (0..2).for_each(|index| processes.link(index).put(&[1]));
        (0..2).for_each(|index| assert!(processes.link(index).get()[0] > 0));
        (0..2).for_each(|index| processes.link(index).put(&[0]));
        processes.expect_end(0);
        processes.expect_end(1);
    }
}

/// Keeps memory for a peer, and does nothing else.
fn keeper(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(1));
    let endpoint = node.endpoint(&impatient());
    endpoint.connect_over(&link);
    let mem = node.mem(4096, Kind::Shared);
    link.put(&[mem.addr(), mem.rkey as u64]);
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

/// Writes to mapped memory, one WRITE after the other. Its CQ is never empty when it polls.
fn only_writes(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(0));
    let mem = node.mem(64, Kind::Heap);
    let endpoint = node.endpoint(&impatient());
    endpoint.connect_over(&link);
    let theirs = link.get();
    let (mut done, sges) = (0, [mem.sge(0, 8)]);
    until("the death of the peer is noticed", || {
        endpoint.send(rdma(WrOpcode::Write, &sges, theirs[0], theirs[1] as u32));
        let status = wait(&endpoint.send_cq).status;
        done += 1;
        if done == 10_000 {
            topology.parent.put(&[]);
        }
        assert!(matches!(status, WcStatus::Success | WcStatus::RetryExcErr), "{status:?}");
        status == WcStatus::RetryExcErr
    });
}

#[test]
fn a_process_that_only_writes_notices_a_death() {
    let mut processes = Processes::start(&[("keeper", &[]), ("only_writes", &[])]);
    processes.link(1).get();
    processes.kill(0);
    processes.expect_end(1);
}

/// A writer writes to memory in a tight loop while its owner removes it in several ways.
fn target(mut topology: Topology) {
    let (kind, way) = (Kind::from_arg(topology.args[0]), topology.args[1]);
    let (node, link) = (Node::open(0), topology.link(1));
    let mut random = Random::new(topology.args[2]);
    for _ in 0..12 {
        let endpoint = node.endpoint(&impatient());
        endpoint.connect_over(&link);
        let mem = node.mem(1 << 16, kind);
        link.put(&[mem.addr(), mem.rkey as u64]);
        until("the writer writes", || {
            poll(&endpoint.recv_cq, 1);
            mem.word(0) > 3
        });
        std::thread::sleep(Duration::from_micros(random.below(2000)));
        match way {
            0 => SoftNic::dereg_mr(&mem.mr).expect("deregistration"),
            1 => SoftNic::destroy_qp(&endpoint.qp).expect("destruction"),
            _ => endpoint.to_state(QpState::Reset),
        }
        let then = mem.read(0, mem.len);
        for _ in 0..50 {
            poll(&endpoint.recv_cq, 1);
            assert!(mem.read(0, mem.len) == then, "memory changed after it was taken back");
        }
        std::thread::sleep(Duration::from_millis(2));
        assert!(mem.read(0, mem.len) == then, "memory changed late");
        link.sync();
        let status = WcStatus::from_ibv(link.get()[0] as u32).expect("a status");
        let expected = if way == 0 { WcStatus::RemAccessErr } else { WcStatus::RetryExcErr };
        assert_eq!(status, expected);
        assert!(mem.read(0, mem.len) == then, "memory changed very late");
    }
}

fn writer(mut topology: Topology) {
    let (node, link) = (Node::open(0), topology.link(0));
    let mem = node.mem(1 << 16, Kind::Heap);
    let mut random = Random::new(topology.args[2]);
    for _ in 0..12 {
        let endpoint = node.endpoint(&impatient());
        endpoint.connect_over(&link);
        let theirs = link.get();
        let (mut outstanding, mut counter) = (0, 0u64);
        let status = loop {
            while outstanding < 16 {
                counter += 1;
                mem.fill(0, 1 << 16, counter as u8);
                mem.write(0, &counter.to_le_bytes());
                let length = [8, 64, 4096, 1 << 16][random.below(4) as usize];
                let sges = [mem.sge(0, length)];
                endpoint.send(rdma(WrOpcode::Write, &sges, theirs[0], theirs[1] as u32));
                outstanding += 1;
            }
            let done = wait_some(&endpoint.send_cq, 16);
            outstanding -= done.len();
            if let Some(wc) = done.iter().find(|wc| wc.status != WcStatus::Success) {
                break wc.status;
            }
        };
        link.sync();
        link.put(&[status as u64]);
    }
}

#[test]
fn memory_that_was_taken_back_does_not_change() {
    for (way, lane) in [(0, "on"), (0, "off"), (1, "on"), (2, "on")] {
        for kind in [0, 1] {
            let args = [kind, way, 77 + kind];
            let roles: &[(&str, &[u64])] = &[("target", &args), ("writer", &args)];
            Processes::start_plan(&Plan { roles, links: 1, env: &[("RDMALAB_LANE", lane)] })
                .finish();
        }
    }
}
