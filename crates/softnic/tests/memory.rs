//! Registered memory that is unmapped or protected: each use ends in an error completion, at either
//! end, by lane and by ring, and even if the program has its own SIGSEGV handler.

mod support;

use rdmalab_engine::vocab::*;
use support::node::*;
use support::*;

/// How memory becomes inaccessible.
const UNMAPPED: u64 = 0;
const NO_ACCESS: u64 = 1;
const READ_ONLY: u64 = 2;
/// Size of the part that becomes inaccessible, at the end of the memory.
const GOES: usize = 64 << 10;

#[test]
fn child_process_entry() {
    play(&[("sender", sender), ("receiver", receiver), ("both", both)]);
}

/// Arguments: how the memory becomes inaccessible, and whether the program has its own handlers.
fn both(topology: Topology) {
    let (a, b) = Link::pair();
    let args = topology.args.clone();
    if args[1] == 1 {
        own_handlers::install();
    }
    let receiver = std::thread::spawn(move || receive(&b, &args));
    send(&a, &topology.args);
    receiver.join().expect("the receiver");
    own_handlers::check(topology.args[1] == 1);
}

fn sender(mut topology: Topology) {
    if topology.args[1] == 1 {
        own_handlers::install();
    }
    send(&topology.link(1), &topology.args);
    own_handlers::check(topology.args[1] == 1);
}

fn receiver(mut topology: Topology) {
    if topology.args[1] == 1 {
        own_handlers::install();
    }
    receive(&topology.link(0), &topology.args);
    own_handlers::check(topology.args[1] == 1);
}

/// Signal handlers like those of a JVM or a crash reporter. The test fails if one is called.
mod own_handlers {
    extern "C" fn ours(_signal: i32, _info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(77) };
    }

    const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

    pub fn install() {
        for signal in SIGNALS {
            // SAFETY: all-zero is a valid value of this plain C structure; the handler is one that
            // may run at any time.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = ours as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
            }
        }
    }

    pub fn check(installed: bool) {
        for signal in SIGNALS {
            // SAFETY: all-zero is a valid value of this plain C structure, which the call fills.
            let now = unsafe {
                let mut now: libc::sigaction = std::mem::zeroed();
                assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut now), 0);
                now
            };
            let is_ours = now.sa_sigaction == ours as *const () as usize;
            assert_eq!(is_ours, installed, "the handler of signal {signal}");
        }
    }
}

/// Makes the end of the memory inaccessible.
fn take_away(mem: &Mem, how: u64) {
    // SAFETY: whole pages of a mapping of this test, which holds no reference to them.
    let result = unsafe {
        let at = mem.at.add(mem.len - GOES).cast();
        match how {
            UNMAPPED => libc::munmap(at, GOES),
            NO_ACCESS => libc::mprotect(at, GOES, libc::PROT_NONE),
            _ => libc::mprotect(at, GOES, libc::PROT_READ),
        }
    };
    assert_eq!(result, 0);
}

/// The steps: the sender's operation, and whether the inaccessible memory is the sender's.
const STEPS: [(WrOpcode, bool); 10] = [
    (WrOpcode::Send, false),
    (WrOpcode::Write, false),
    (WrOpcode::WriteImm, false),
    (WrOpcode::Read, false),
    (WrOpcode::FetchAdd, false),
    (WrOpcode::Send, true),
    (WrOpcode::Write, true),
    (WrOpcode::Read, true),
    (WrOpcode::FetchAdd, true),
    (WrOpcode::CmpSwap, true),
];

/// Whether the step must fail. Memory that a step only reads may be read-only.
fn fails(opcode: WrOpcode, own: bool, how: u64) -> bool {
    let writes = if own { opcode.is_read_or_atomic() } else { opcode != WrOpcode::Read };
    how != READ_ONLY || writes
}

/// Offset of the messages of a round: within the inaccessible part, or across its edge.
fn place(across: bool, length: usize) -> usize {
    if across { GOES - 256 } else { GOES + 512 - length.min(256) * 2 }
}

fn rounds() -> impl Iterator<Item = (WrOpcode, bool, usize, bool)> {
    STEPS.into_iter().flat_map(|(opcode, own)| {
        let atomic = matches!(opcode, WrOpcode::FetchAdd | WrOpcode::CmpSwap);
        let lengths: &[usize] = if atomic { &[8] } else { &[8, 1000, 50_000] };
        lengths.iter().flat_map(move |length| {
            let across = [false, true].into_iter().filter(move |across| !across || *length > 256);
            across.map(move |across| (opcode, own, *length, across))
        })
    })
}

fn send(link: &Link, args: &[u64]) {
    let node = Node::open(0);
    for (opcode, own, length, across) in rounds() {
        let what = format!("{opcode:?} own {own} {length} across {across}");
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        let mem = node.mem(2 * GOES, Kind::Heap);
        mem.fill(0, mem.len, 1);
        endpoint.connect_over(link);
        let theirs = link.get();
        if own {
            take_away(&mem, args[0]);
        }
        let at = place(across, length);
        let sges = [mem.sge(at, length)];
        endpoint.send(rdma(opcode, &sges, theirs[0] + at as u64, theirs[1] as u32));
        let wc = endpoint.send_done();
        let failing = fails(opcode, own, args[0]);
        let expected: &[WcStatus] = match (failing, own) {
            (false, _) => &[WcStatus::Success],
            (true, true) => &[WcStatus::LocProtErr],
            (true, false) => &[WcStatus::RemAccessErr, WcStatus::RemOpErr],
        };
        assert!(expected.contains(&wc.status), "{what}: {wc:?}");
        let state = if failing { QpState::Err } else { QpState::Rts };
        assert_eq!(endpoint.state(), state, "{what}");
        link.sync();
    }
}

fn receive(link: &Link, args: &[u64]) {
    let node = Node::open(0);
    // The target for steps on the sender's own memory; the sender maps it after some rounds.
    let steady = node.mem(2 * GOES, Kind::Shared);
    for (opcode, own, length, across) in rounds() {
        let endpoint = node.endpoint(&Setup::new(QpType::Rc));
        let mem = if own { steady.clone() } else { node.mem(2 * GOES, Kind::Heap) };
        endpoint.to_init();
        endpoint.recv(1, &[mem.sge(place(across, length), length)]);
        if !own {
            take_away(&mem, args[0]);
        }
        endpoint.connect_from_init_over(link);
        link.put(&[mem.addr(), mem.rkey as u64]);
        if !own && opcode == WrOpcode::Send {
            let wc = endpoint.recv_done();
            assert_eq!(wc.status, WcStatus::LocProtErr, "{wc:?}");
        }
        link.sync();
        // The process still runs, and its other pages are accessible.
        mem.write(0, &[7; 100]);
    }
}

fn run(lane: &str, names: &[&str]) {
    for how in [UNMAPPED, NO_ACCESS, READ_ONLY] {
        for handlers in [0, 1] {
            let args = [how, handlers];
            let roles: Vec<(&str, &[u64])> = names.iter().map(|name| (*name, &args[..])).collect();
            let env = [("RDMALAB_LANE", lane)];
            Processes::start_plan(&Plan { roles: &roles, links: 1, env: &env }).finish();
        }
    }
}

#[test]
fn memory_goes_away_under_the_ring() {
    run("off", &["sender", "receiver"]);
}

#[test]
fn memory_goes_away_under_the_lane() {
    run("on", &["sender", "receiver"]);
}

#[test]
fn memory_goes_away_within_a_process() {
    run("off", &["both"]);
    run("on", &["both"]);
}
