//! Restricted environments: no right to access other processes, another pid namespace, a full
//! /dev/shm, only one processor, and an initiator that is stopped during a copy.

mod support;

use std::io::{Read, Seek};
use std::os::fd::FromRawFd;
use std::time::Duration;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use support::node::*;
use support::*;

#[test]
fn child_process_entry() {
    play(&[
        ("asker", asker),
        ("target", target),
        ("owner", owner),
        ("writer", writer),
        ("prober", prober),
        ("loser", loser),
    ]);
}

/// The restrictions of a process.
const NOTHING: u64 = 0;
const NO_PTRACE_CALLS: u64 = 1;
const NOT_DUMPABLE: u64 = 2;
const NO_CAPABILITIES: u64 = 3;
const PID_NAMESPACE: u64 = 4;
const FULL_SHM: u64 = 5;
const ONE_CPU: u64 = 6;
/// The message for a process whose copies the kernel refuses.
const SENTENCE: &str = "the kernel does not let us into our peer's memory";

/// Checks that a system call succeeded.
fn done(what: &str, result: libc::c_long) {
    assert!(result >= 0, "{what}: {}", std::io::Error::last_os_error());
}

/// Makes the system calls that access other processes fail with `EPERM`, as container runtimes do.
fn deny_ptrace_calls() {
    let deny = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let denied = [
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        438, /* getfd */
    ];
    let (load, equal, answer) = (0x20, 0x15, 0x06);
    let op = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut filter = vec![op(load, 0, 0)];
    for (at, call) in denied.iter().enumerate() {
        filter.push(op(equal, (denied.len() - at) as u8, *call as u32));
    }
    filter.push(op(answer, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(op(answer, 0, deny));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers, and a program that lives during the call.
    unsafe {
        done("no_new_privs", libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into());
        let mode = libc::SECCOMP_MODE_FILTER;
        done("seccomp", libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program).into());
    }
}

/// Drops every capability, like an ordinary user.
fn drop_capabilities() {
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    // SAFETY: version 3 of the header, this process, and six words.
    done("capset", unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) });
}

/// Gives this process a /dev/shm of 64 KiB of its own, and fills it.
fn fill_shm() {
    let (fs, at) = (c"tmpfs".as_ptr(), c"/dev/shm".as_ptr());
    // SAFETY: C strings; the process gets its own mount namespace before anything is mounted.
    unsafe {
        done("unshare", libc::unshare(libc::CLONE_NEWNS).into());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let null = std::ptr::null();
        done("private", libc::mount(null, c"/".as_ptr(), null, private, null.cast()).into());
        done("mount", libc::mount(fs, at, fs, 0, c"size=64k".as_ptr().cast()).into());
    }
    let full = std::fs::write("/dev/shm/full", [1; 1 << 17]);
    assert!(full.is_err(), "/dev/shm holds more than 64 KiB");
}

fn stay_on_one_cpu() {
    // SAFETY: all-zero is an empty set of processors; this process.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        done("ours", libc::sched_getaffinity(0, size_of_val(&set), &raw mut set).into());
        let first = (0..1024).find(|cpu| libc::CPU_ISSET(*cpu, &set)).expect("a processor");
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first, &mut set);
        done("one", libc::sched_setaffinity(0, size_of_val(&set), &raw const set).into());
    }
}

/// Runs `work` as the first process of a pid namespace of its own.
fn in_pid_namespace(work: impl FnOnce()) {
    // SAFETY: plain numbers; the forked process uses threads of its own only, and ends itself.
    let pid = unsafe {
        done("unshare", libc::unshare(libc::CLONE_NEWPID).into());
        libc::fork()
    };
    if pid == 0 {
        // SAFETY: plain numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        end_if_hung("the process in the namespace".to_owned());
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if result.is_ok() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our own child; the pointer is to a live integer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the process in the namespace");
}

fn surrounded(by: u64, work: impl FnOnce()) {
    match by {
        NO_PTRACE_CALLS => deny_ptrace_calls(),
        // SAFETY: plain numbers.
        NOT_DUMPABLE => done("dumpable", unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }.into()),
        NO_CAPABILITIES => drop_capabilities(),
        PID_NAMESPACE => return in_pid_namespace(work),
        FULL_SHM => fill_shm(),
        ONE_CPU => stay_on_one_cpu(),
        _ => {}
    }
    work();
}

/// Returns what `work` prints to standard error.
fn overheard(work: impl FnOnce()) -> String {
    // SAFETY: a new descriptor that the file owns; descriptors of this process.
    let (mut file, before) = unsafe {
        let fd = libc::memfd_create(c"stderr".as_ptr(), 0);
        let before = libc::dup(2);
        done("stderr", libc::dup2(fd, 2).into());
        (std::fs::File::from_raw_fd(fd), before)
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // SAFETY: the descriptor that was standard error.
    unsafe { libc::dup2(before, 2) };
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("what was printed");
    if let Err(panic) = result {
        eprintln!("{text}");
        std::panic::resume_unwind(panic);
    }
    text
}

/// Owns memory, and polls until it is told to end.
fn target(mut topology: Topology) {
    let link = topology.link(0);
    surrounded(topology.args[1], || {
        let node = Node::open(0);
        let (mem, setup) = (node.mem(1 << 20, Kind::Heap), Setup::new(QpType::Rc));
        let endpoint = node.endpoint(&setup);
        endpoint.to_init();
        (0..16).for_each(|at| endpoint.recv(at, &[mem.sge(4096, 4096)]));
        endpoint.connect_from_init_over(&link);
        link.put(&[mem.addr(), mem.rkey.into()]);
        until("the other end is done", || {
            for wc in poll(&endpoint.recv_cq, 1) {
                endpoint.run(wr(WrOpcode::Send, &[mem.sge(4096, wc.byte_len as usize)]));
            }
            link.ready(0)
        });
    });
}

fn asker(mut topology: Topology) {
    let link = topology.link(1);
    let expected = topology.args[2] as usize;
    surrounded(topology.args[0], || {
        let text = overheard(|| ask(&link));
        assert_eq!(text.matches(SENTENCE).count(), expected, "{text}");
    });
}

fn ask(link: &Link) {
    let node = Node::open(0);
    let mem = node.mem(1 << 20, Kind::Heap);
    let endpoint = node.endpoint(&Setup::new(QpType::Rc));
    endpoint.to_init();
    (0..16).for_each(|at| endpoint.recv(at, &[mem.sge(1 << 19, 4096)]));
    endpoint.connect_from_init_over(link);
    let (addr, rkey) = match link.get()[..] {
        [addr, rkey] => (addr, rkey as u32),
        _ => panic!("an address and a key"),
    };
    for length in [8, 4096, 100_000, 500_000] {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        mem.write(0, &bytes);
        endpoint.run(rdma(WrOpcode::Write, &[mem.sge(0, length)], addr, rkey));
        mem.fill(0, length, 0);
        endpoint.run(rdma(WrOpcode::Read, &[mem.sge(0, length)], addr, rkey));
        assert!(mem.read(0, length) == bytes, "{length} bytes came back");
    }
    mem.write(0, &5u64.to_le_bytes());
    endpoint.run(rdma(WrOpcode::Write, &[mem.sge(0, 8)], addr, rkey));
    let sges = [mem.sge(0, 8)];
    let add = SendWr { compare_add: 2, ..rdma(WrOpcode::FetchAdd, &sges, addr, rkey) };
    assert_eq!((endpoint.run(add), mem.word(0)).1, 5);
    for round in 0..16u64 {
        mem.write(0, &round.to_le_bytes());
        endpoint.run(wr(WrOpcode::Send, &[mem.sge(0, 8)]));
        assert_eq!(endpoint.recv_done().byte_len, 8);
        assert_eq!(mem.word(1 << 19), round);
    }
    link.put(&[]);
}

/// Succeeds if this machine allows the restriction.
fn prober(topology: Topology) {
    surrounded(topology.args[0], || {});
}

/// Runs a pair; the asker must print the message about its peer's memory `said` times.
fn run_in(name: &str, asker: u64, target: u64, said: u64) {
    for by in [asker, target] {
        let mut processes = Processes::start(&[("prober", &[by])]);
        if !processes.wait(0).success() {
            return rdmalab_testing::skipped(name, "this user may not make these surroundings");
        }
    }
    let args = [asker, target, said];
    let roles: &[(&str, &[u64])] = &[("asker", &args), ("target", &args)];
    Processes::start_plan(&Plan { roles, links: 1, env: &[("RDMALAB_DEBUG", "1")] }).finish();
}

#[test]
fn nothing_is_said_where_nothing_is_missing() {
    run_in("nothing", NOTHING, NOTHING, 0);
}

#[test]
fn a_filter_on_system_calls_is_told_once() {
    run_in("a_filter_on_system_calls_is_told_once", NO_PTRACE_CALLS, NOTHING, 1);
    run_in("a_filter_on_system_calls_is_told_once", NOTHING, NO_PTRACE_CALLS, 0);
}

#[test]
fn a_target_that_may_not_be_traced_is_told_once() {
    run_in("a_target_that_may_not_be_traced", NO_CAPABILITIES, NOT_DUMPABLE, 1);
}

#[test]
fn another_pid_namespace_is_told_once() {
    run_in("another_pid_namespace", PID_NAMESPACE, NOTHING, 1);
    run_in("another_pid_namespace", NOTHING, PID_NAMESPACE, 0);
    run_in("another_pid_namespace", PID_NAMESPACE, PID_NAMESPACE, 1);
}

#[test]
fn a_full_dev_shm_is_not_needed() {
    run_in("a_full_dev_shm", FULL_SHM, FULL_SHM, 0);
}

#[test]
fn two_processes_on_one_processor_get_on() {
    run_in("two_processes_on_one_processor", ONE_CPU, ONE_CPU, 0);
}

/// Sends three datagrams to a QP without receives, and two to a process that does not exist.
fn loser(_stage: Topology) {
    let text = overheard(|| {
        let node = Node::open(0);
        let mem = node.mem(64, Kind::Heap);
        let (from, to) =
            (node.endpoint(&Setup::new(QpType::Ud)), node.endpoint(&Setup::new(QpType::Ud)));
        [&from, &to].into_iter().for_each(|end| end.connect(end.address()));
        let send = |to| {
            from.run(SendWr { ud: Some(ud(to)), ..wr(WrOpcode::Send, &[mem.sge(0, 8)]) });
            poll_for(&from.recv_cq, 2);
        };
        (0..3).for_each(|_| send(to.address()));
        // The last process slot, which a process gets only when all others are in use.
        (0..2).for_each(|_| send(Address { qpn: 1023 << 14 | 5, lid: 1 }));
        SoftNic::destroy_qp(&from.qp).expect("a QP");
        SoftNic::close(&node.ctx).expect("a device");
    });
    assert!(text.contains(": 2 of its packets had no receiver"), "{text}");
    assert!(text.contains("rdmalab: 3 arrived packets were dropped"), "{text}");
}

#[test]
fn what_was_lost_is_counted_and_told() {
    let roles: &[(&str, &[u64])] = &[("loser", &[])];
    Processes::start_plan(&Plan { roles, links: 0, env: &[("RDMALAB_DEBUG", "1")] }).finish();
}

/// Writes the whole buffer all the time.
fn writer(mut topology: Topology) {
    let (rounds, most) = (topology.args[0], topology.args[1] as usize);
    let (node, link) = (Node::open(0), topology.link(0));
    let mem = node.mem(most, Kind::Heap);
    let mut counter = 0u64;
    for _ in 0..rounds {
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        endpoint.connect_over(&link);
        let words = link.get();
        let status = loop {
            counter += 1;
            mem.write(0, &counter.to_le_bytes());
            mem.write(most - 8, &counter.to_le_bytes());
            endpoint.send(rdma(WrOpcode::Write, &[mem.sge(0, most)], words[0], words[1] as u32));
            let wc = endpoint.send_done();
            if wc.status != WcStatus::Success {
                break wc.status;
            }
        };
        link.put(&[status as u64]);
        SoftNic::destroy_qp(&endpoint.qp).expect("a QP in ERR");
    }
}

/// Deregisters memory while its initiator is stopped, with luck in the middle of a copy.
fn owner(mut topology: Topology) {
    let (rounds, most) = (topology.args[0], topology.args[1] as usize);
    let (node, link) = (Node::open(0), topology.link(1));
    let mut busy = 0;
    for _ in 0..rounds {
        let mem = node.mem(most, Kind::Shared);
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        endpoint.connect_over(&link);
        link.put(&[mem.addr(), mem.rkey.into()]);
        until("the writer uses the lane", || {
            poll(&endpoint.recv_cq, 1);
            mem.word(most - 8) > 0
        });
        std::thread::sleep(Duration::from_millis(30));
        topology.parent.put(&[]);
        topology.parent.get();
        let taken = SoftNic::dereg_mr(&mem.mr);
        let then = mem.read(0, mem.len);
        if let Err(error) = &taken {
            assert_eq!(error.errno, VerbsError::EBUSY, "{error}");
            assert!(error.message.contains("SIGCONT"), "{error}");
            busy += 1;
        }
        topology.parent.put(&[busy]);
        topology.parent.get();
        match taken {
            Ok(()) => assert!(mem.read(0, mem.len) == then, "written after it was taken back"),
            // The writer runs again and finishes its copy, so deregistration can succeed.
            Err(_) => SoftNic::dereg_mr(&mem.mr).expect("the writer is out"),
        }
        let then = mem.read(0, mem.len);
        let status = WcStatus::from_ibv(link.get()[0] as u32);
        assert_eq!(status, Some(WcStatus::RemAccessErr));
        assert!(mem.read(0, mem.len) == then, "written after it was taken back");
        SoftNic::destroy_qp(&endpoint.qp).expect("a QP in ERR");
        topology.parent.put(&[]);
    }
}

#[test]
fn memory_is_kept_from_its_owner_while_a_stopped_process_writes_it() {
    let args = [1, 64 << 20];
    for _ in 0..8 {
        let processes = Processes::start(&[("owner", &args), ("writer", &args)]);
        processes.link(0).get();
        processes.signal(1, libc::SIGSTOP);
        until_stopped(processes.pid(1));
        processes.link(0).put(&[]);
        let busy = processes.link(0).get()[0];
        processes.signal(1, libc::SIGCONT);
        processes.link(0).put(&[]);
        processes.link(0).get();
        processes.finish();
        // Once is enough, because each time takes as long as the owner waits.
        if busy > 0 {
            return;
        }
    }
    panic!("the writer was never stopped in the middle of a copy");
}
