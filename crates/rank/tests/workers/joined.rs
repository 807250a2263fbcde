//! Ranks that connect to the launcher by themselves, as mpirun's do, and ranks that a program such
//! as ssh starts.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdmalab_rank::process::{
    Cause, Claim, LaunchMethod, RankSpec, RendezvousAddress, RendezvousListener, SshCommand,
    TeamEvent, VERSION, WorkerGroup, join, new_token, serve_as,
};
use rdmalab_testing::{Process, WaitLimit};
use rustix::process::Signal;

use crate::{LONG, MARK, command, is_alive, run, send_signal, wait_until, work};

/// Marks workers that connect by themselves: `RANK WHERE TOKEN`, `-` for a token on standard input.
const JOIN: &str = "RDMALAB_TEST_JOIN";

/// The worker process, if it is one of these.
pub fn worker() {
    let Ok(text) = std::env::var(JOIN) else { return };
    let words: Vec<&str> = text.split(' ').collect();
    let (rank, place) = (words[0].parse().unwrap(), words[1].to_owned());
    let mut token = words[2].to_owned();
    if token == "-" {
        token.clear();
        std::io::stdin().read_line(&mut token).unwrap();
    }
    eprintln!("rank {rank} was started\x1b[2J");
    let rendezvous = match place.contains(':') {
        true => RendezvousAddress::Tcp(vec![place]),
        false => RendezvousAddress::Here(place),
    };
    let stream = join(&rendezvous, LONG).unwrap();
    let claim = Claim { rank, token: token.trim().to_owned() };
    if let Err(error) = serve_as(Some(claim), stream, work::run) {
        eprintln!("{error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// The command of a rank, run by the words in `through`, that joins the launcher at `place`.
pub fn comer(through: &[&str], rank: usize, place: &str, token: &str) -> Command {
    let ours = command();
    let words = through.iter().map(OsString::from).chain([ours.program.into()]);
    let mut words = words.chain(ours.args);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).envs(ours.envs).env(JOIN, format!("{rank} {place} {token}"));
    command
}

/// Starts ranks 1 and up, which connect to the launcher at `place`.
fn ranks(count: usize, place: &str, token: &str) -> Vec<Process> {
    (1..count).map(|rank| Process::start(&mut comer(&[], rank, place, token))).collect()
}

pub fn joining(count: usize) -> Vec<RankSpec> {
    let mut specs = vec![RankSpec::local(command())];
    let spec = RankSpec { place: LaunchMethod::Joining, cores: Vec::new(), yielding: None };
    specs.resize(count, spec);
    specs
}

fn gather(
    specs: &[RankSpec],
    listener: &RendezvousListener,
) -> Result<WorkerGroup, rdmalab_rank::process::WorkerGroupError> {
    WorkerGroup::gather(specs, Some(listener), &AtomicBool::new(false))
}

#[test]
fn ranks_that_come_by_themselves_are_like_any_other() {
    let token = new_token().unwrap();
    let name = format!("rdmalab-test-{}", std::process::id());
    for listener in
        [RendezvousListener::here(&name).unwrap(), RendezvousListener::tcp(0, &token).unwrap()]
    {
        let place = listener.port().map_or(name.clone(), |port| format!("127.0.0.1:{port}"));
        let token = if listener.port().is_some() { token.as_str() } else { "" };
        let started = ranks(4, &place, token);
        let mut workers = gather(&joining(4), &listener).unwrap();
        let who = ["0 of 4", "1 of 4", "2 of 4", "3 of 4"];
        assert_eq!(run(&mut workers, "who", LONG).unwrap(), who);
        assert_eq!(run(&mut workers, "exchange 50", LONG).unwrap(), ["all as expected"; 4]);
        drop(workers);
        // The ranks end with the group, and succeed.
        for process in started {
            let ended = process.end();
            assert!(ended.succeeded(), "{}", ended.report());
        }
    }
}

#[test]
fn one_that_dies_is_named_and_the_others_end() {
    let name = format!("rdmalab-test-death-{}", std::process::id());
    let listener = RendezvousListener::here(&name).unwrap();
    let started = ranks(3, &name, "");
    let mut workers = gather(&joining(3), &listener).unwrap();
    let victim = workers.infos().nth(2).unwrap().pid;
    assert_eq!(victim, started[1].id());
    let jobs = [b"partial".to_vec(), b"partial".to_vec(), b"spin".to_vec()];
    let mut is_sent = false;
    let error = workers.run(&jobs, LONG, &AtomicBool::new(false), |event| {
        if event == TeamEvent::Tick && !is_sent {
            is_sent = true;
            send_signal(victim, Signal::KILL);
        }
    });
    let error = error.unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Died, Some(2)), "{error}");
    assert!(error.what.starts_with("rank 2 on "), "{error}");
    assert!(error.partial[0].is_some() && error.partial[1].is_some());
}

#[test]
fn strangers_at_the_gate_are_sent_away_and_told_why() {
    let listener = RendezvousListener::tcp(0, "right").unwrap();
    let address = format!("127.0.0.1:{}", listener.port().unwrap());
    let interrupt = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let gathering =
            scope.spawn(|| WorkerGroup::gather(&joining(2), Some(&listener), &interrupt));
        let mut wrong = ranks(2, &address, "wrong");
        assert_eq!(wrong.remove(0).end().code, Some(1));
        // A rank of another version is told our version.
        let mut tcp = TcpStream::connect(&address).unwrap();
        tcp.write_all(&crate::remote::hello_of(9, "0.0.7")).unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains(VERSION));
        // The right rank can still join.
        let _right = ranks(2, &address, "right");
        let mut workers = gathering.join().unwrap().unwrap();
        assert_eq!(run(&mut workers, "who", LONG).unwrap(), ["0 of 2", "1 of 2"]);
    });
}

#[test]
fn waiting_for_ranks_ends_when_the_user_wants() {
    let listener = RendezvousListener::tcp(0, "x").unwrap();
    let interrupt = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let gathering =
            scope.spawn(|| WorkerGroup::gather(&joining(3), Some(&listener), &interrupt));
        std::thread::sleep(Duration::from_millis(100));
        interrupt.store(true, Ordering::Relaxed);
        assert_eq!(gathering.join().unwrap().unwrap_err().cause, Cause::Interrupted);
    });
}

/// Starts a rank with a stand-in for ssh: `sh -c SCRIPT HOST LINE`.
fn by(script: &str, rank: usize, listener: &RendezvousListener, token: &str) -> RankSpec {
    let ours = command();
    let port = listener.port().unwrap();
    let command = SshCommand {
        ssh: ["sh", "-c", script].map(Into::into).to_vec(),
        host: "far".to_owned(),
        variables: vec![format!("{MARK}=1"), format!("{JOIN}={rank} 127.0.0.1:{port} -")],
        program: ours.program.display().to_string(),
        args: ours.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        token: token.to_owned(),
    };
    RankSpec { place: LaunchMethod::Ssh(command), cores: Vec::new(), yielding: None }
}

const RUN: &str = "exec sh -c \"$1\"";

#[test]
fn ranks_of_another_shell_are_like_any_other_and_do_not_outlive() {
    let listener = RendezvousListener::tcp(0, "s3cret").unwrap();
    let specs = [
        RankSpec::local(command()),
        by(RUN, 1, &listener, "s3cret"),
        by(RUN, 2, &listener, "s3cret"),
    ];
    let mut workers = gather(&specs, &listener).unwrap();
    let mut said = Vec::new();
    let jobs = vec![b"exchange 20".to_vec(); 3];
    // Each line with its rank, and without terminal control characters.
    let expected = [1, 2].map(|rank| (rank, format!("rank {rank} was started?[2J")));
    // The thread that reads the ranks' output may be slower than a job.
    let mut wait_limit = WaitLimit::of(LONG);
    while !expected.iter().all(|line| said.contains(line)) {
        assert!(wait_limit.is_left(), "{said:?}");
        workers
            .run(&jobs, LONG, &AtomicBool::new(false), |event| {
                if let TeamEvent::Log { rank, text } = event {
                    said.push((rank, text));
                }
            })
            .unwrap();
    }
    let pids: Vec<u32> = workers.infos().map(|info| info.pid).collect();
    drop(workers);
    wait_until("the end of the workers", || !pids.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_rank_that_cannot_be_started_ends_the_waiting_for_all() {
    for (script, expected) in [
        ("echo far: not found >&2; exit 127", "there is no "),
        ("echo ssh: Could not resolve hostname far >&2; exit 255", "does not know the host far"),
        ("echo \"error: unexpected argument '--join' found\" >&2; exit 2", "another version"),
        ("exit 3", "exit status 3"),
    ] {
        let listener = RendezvousListener::tcp(0, "x").unwrap();
        // The first rank would connect only after a long time.
        let specs = [by("sleep 50", 0, &listener, "x"), by(script, 1, &listener, "x")];
        let began = Instant::now();
        let error = gather(&specs, &listener).unwrap_err();
        assert!(error.what.starts_with("rank 1 on far: "), "{error}");
        assert!(error.what.contains(expected), "{error}");
        assert!(began.elapsed() < Duration::from_secs(40), "waited for the other one");
    }
}
