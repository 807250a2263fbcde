//! Servers and their clients, over TCP on this machine.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rdmalab_rank::process::{
    Cause, RankSpec, Server, ServerEvent, TeamEvent, VERSION, WorkerGroup,
};
use rustix::process::Signal;

use crate::{LONG, command, is_alive, run, run_each, send_signal, wait_until};

/// A server in a thread of this process; it stops when dropped.
pub struct Serving {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    events: Arc<Mutex<Vec<ServerEvent>>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub fn start(sessions_max: usize) -> Self {
        let server = Server::bind(Some("127.0.0.1:0"), command(), sessions_max).unwrap();
        let address = server.address().unwrap();
        let (stop, events) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, noted): (_, Arc<Mutex<Vec<_>>>) = (stop.clone(), Arc::clone(&events));
        let thread = std::thread::spawn(move || {
            server.run(&stopped, |event| noted.lock().unwrap().push(event)).unwrap();
        });
        Self { address, stop, events, thread: Some(thread) }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn spec(&self) -> RankSpec {
        RankSpec::remote(&self.address())
    }

    /// A group of one.
    fn workers(&self) -> WorkerGroup {
        WorkerGroup::start(&[self.spec()]).unwrap()
    }

    fn has(&self, is_it: impl Fn(&ServerEvent) -> bool) -> bool {
        self.events.lock().unwrap().iter().any(is_it)
    }

    /// Checks that the server still works.
    pub fn check(&self) {
        let mut workers = WorkerGroup::start(&[RankSpec::local(command()), self.spec()]).unwrap();
        assert_eq!(run(&mut workers, "exchange 20", LONG).unwrap(), ["all as expected"; 2]);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(result, Some(Ok(()))));
    }
}

#[test]
fn a_rank_of_a_server_is_like_any_other() {
    let serving = Serving::start(16);
    let mut workers = WorkerGroup::start(&[RankSpec::local(command()), serving.spec()]).unwrap();
    assert_eq!(run(&mut workers, "who", LONG).unwrap(), ["0 of 2", "1 of 2"]);
    assert_eq!(run(&mut workers, "exchange 100", LONG).unwrap(), ["all as expected"; 2]);
    let sizes = run_each(&mut workers, &["big 10", "big 20000000"], LONG).unwrap();
    assert_eq!(sizes[1].len(), 20_000_000);
    // The server is on this machine, so the clock is known.
    assert!(!run(&mut workers, "clock", LONG).unwrap()[0].contains("none"));
}

#[test]
fn clients_are_served_at_the_same_time_up_to_a_bound() {
    let serving = Serving::start(2);
    let (_one, mut two) = (serving.workers(), serving.workers());
    let error = WorkerGroup::start(&[serving.spec()]).unwrap_err();
    assert_eq!(error.cause, Cause::Start);
    assert!(error.what.contains("limit of 2 simultaneous sessions"), "{error}");
    assert_eq!(run(&mut two, "echo still", LONG).unwrap(), ["still"]);
    drop(two);
    wait_until("a free session", || WorkerGroup::start(&[serving.spec()]).is_ok());
}

#[test]
fn a_killed_worker_of_a_server_is_told_to_its_client_with_the_signal() {
    let serving = Serving::start(16);
    let mut workers = WorkerGroup::start(&[RankSpec::local(command()), serving.spec()]).unwrap();
    let victim = workers.infos().nth(1).unwrap().pid;
    let mut ticks = 0;
    let jobs = [b"partial".to_vec(), b"spin".to_vec()];
    let error = workers.run(&jobs, LONG, &AtomicBool::new(false), |event| {
        ticks += u64::from(event == TeamEvent::Tick);
        if ticks == 2 {
            ticks += 1;
            send_signal(victim, Signal::KILL);
        }
    });
    let error = error.unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Died, Some(1)), "{error}");
    assert!(error.what.contains("signal 9"), "{error}");
    assert!(error.partial[0].is_some());
    let is_told = |e: &ServerEvent| matches!(e, ServerEvent::Ended { failure: Some(_), .. });
    wait_until("the server's word", || serving.has(is_told));
    serving.check();
}

#[test]
fn strangers_are_refused_and_the_server_stays() {
    let serving = Serving::start(16);
    let endless = [b"rdmalab\0".as_slice(), &[0xFF; 64]].concat();
    let wrong = [b"rdmalab\0".as_slice(), &[4, 0, 0, 0], &[0xFF; 4]].concat();
    let garbage: Vec<u8> = (0..100_000_u32).map(|i| (i * 97 % 251) as u8).collect();
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let cut = b"rdma".to_vec();
    for bytes in [endless, wrong, garbage, http, cut, Vec::new()] {
        let mut tcp = TcpStream::connect(serving.address).unwrap();
        // The server may have closed the connection before all was written.
        let _ = tcp.write_all(&bytes);
        let _ = tcp.shutdown(Shutdown::Write);
        tcp.set_read_timeout(Some(LONG)).unwrap();
        let mut answer = Vec::new();
        // A reset counts as an answer, a time-out does not.
        if let Err(error) = tcp.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        assert!(answer.is_empty(), "{answer:?}");
    }
    serving.check();
}

#[test]
fn the_silent_are_refused_within_a_bound() {
    let serving = Serving::start(16);
    // As many connections as the limit, plus one that is refused at once.
    let silent: Vec<_> = (0..17).map(|_| TcpStream::connect(serving.address).unwrap()).collect();
    for mut tcp in silent {
        tcp.set_read_timeout(Some(LONG)).unwrap();
        assert!(matches!(tcp.read(&mut [0; 8]), Ok(0)));
    }
    let is_told = |e: &ServerEvent| match e {
        ServerEvent::Refused { why, .. } => why.contains("did not send an rdmalab greeting"),
        _ => false,
    };
    wait_until("the server's word", || serving.has(is_told));
    serving.check();
}

#[test]
fn versions_that_differ_are_named_at_both_ends() {
    let other = hello_of(9, "0.0.7");
    // An old client.
    let serving = Serving::start(16);
    let mut tcp = TcpStream::connect(serving.address).unwrap();
    tcp.write_all(&other).unwrap();
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains(VERSION));
    let names_both = |why: &str| why.contains("0.0.7") && why.contains(VERSION);
    wait_until("the server's word", || {
        serving.has(|e| matches!(e, ServerEvent::Refused { why, .. } if names_both(why)))
    });
    // An old server.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let old = std::thread::spawn(move || {
        let mut tcp = listener.accept().unwrap().0;
        tcp.write_all(&other).unwrap();
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    let error = WorkerGroup::start(&[RankSpec::remote(&address)]).unwrap_err();
    old.join().unwrap();
    assert!(names_both(&error.what), "{error}");
}

/// A hello of another version, followed by data that we do not know.
pub fn hello_of(protocol: u8, version: &str) -> Vec<u8> {
    let mut body = vec![protocol, version.len() as u8];
    body.extend(version.as_bytes());
    body.extend([0xEE; 40]);
    [b"rdmalab\0".as_slice(), &(body.len() as u32).to_le_bytes(), &body].concat()
}

#[test]
fn clients_learn_what_is_wrong_with_an_address() {
    // No server listens on port 1; a port that was free a moment ago may have one.
    let error = WorkerGroup::start(&[RankSpec::remote("127.0.0.1:1")]).unwrap_err();
    assert!(error.what.contains("rdmalab serve --bind"), "{error}");
    let error = WorkerGroup::start(&[RankSpec::remote("nowhere.invalid")]).unwrap_err();
    assert!(error.what.contains("cannot resolve"), "{error}");
    let error = WorkerGroup::start(&[RankSpec::remote("localhost:99999")]).unwrap_err();
    assert!(error.what.contains("not a port"), "{error}");
    // A server of another program.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ssh = std::thread::spawn(move || {
        listener.accept().unwrap().0.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n").unwrap();
    });
    let error = WorkerGroup::start(&[RankSpec::remote(&address)]).unwrap_err();
    ssh.join().unwrap();
    assert!(error.what.contains("not rdmalab"), "{error}");
    let taken = Serving::start(1);
    let error = Server::bind(Some(&taken.address()), command(), 1).unwrap_err();
    assert!(error.to_string().contains("another program listens there"), "{error}");
    // The default port, which the user did not name. This test alone uses the address.
    let _taken = TcpListener::bind(("127.0.0.99", rdmalab_rank::process::DEFAULT_PORT)).unwrap();
    let error = Server::bind(Some("127.0.0.99"), command(), 1).unwrap_err();
    assert!(error.to_string().contains("127.0.0.99:18515: Address already in use"), "{error}");
}

#[test]
fn a_frame_that_is_too_long_ends_the_session_and_not_the_server() {
    let serving = Serving::start(16);
    // A client's hello, sent from another connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client =
        std::thread::spawn(move || WorkerGroup::start(&[RankSpec::remote(&address)]).map(drop));
    let hello = read_hello(&mut listener.accept().unwrap().0);
    client.join().unwrap().unwrap_err();

    let mut tcp = TcpStream::connect(serving.address).unwrap();
    tcp.set_read_timeout(Some(LONG)).unwrap();
    tcp.write_all(&hello).unwrap();
    read_hello(&mut tcp);
    // Then the worker expects a hello; it gets one, and a frame of 4 GiB.
    read_hello(&mut tcp);
    tcp.write_all(&hello).unwrap();
    tcp.write_all(&[0xFF; 8]).unwrap();
    let is_told = |e: &ServerEvent| matches!(e, ServerEvent::Ended { .. });
    wait_until("the worker's end", || serving.has(is_told));
    serving.check();
}

fn read_hello(tcp: &mut TcpStream) -> Vec<u8> {
    let mut hello = vec![0; 12];
    tcp.read_exact(&mut hello).unwrap();
    let length = u32::from_le_bytes([hello[8], hello[9], hello[10], hello[11]]) as usize;
    hello.resize(12 + length, 0);
    tcp.read_exact(&mut hello[12..]).unwrap();
    hello
}

#[test]
fn a_server_that_stops_ends_its_workers() {
    let serving = Serving::start(16);
    let mut workers = WorkerGroup::start(&[RankSpec::local(command()), serving.spec()]).unwrap();
    let pid = workers.infos().nth(1).unwrap().pid;
    let mut serving = Some(serving);
    let jobs = [b"partial".to_vec(), b"spin".to_vec()];
    let error = workers.run(&jobs, LONG, &AtomicBool::new(false), |_| drop(serving.take()));
    let error = error.unwrap_err();
    assert_eq!(error.rank, Some(1), "{error}");
    assert!(error.partial[0].is_some() && !is_alive(pid));
}
