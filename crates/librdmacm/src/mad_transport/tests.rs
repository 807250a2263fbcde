//! Several transports in one process.

use std::sync::{Mutex, PoisonError};

use rdmalab_wire::cm::Dreq;

use super::*;
use crate::os::now_ns;

/// Held while a thread has a copy of all descriptors, which keeps other tests' sockets open.
static COPIES: Mutex<()> = Mutex::new(());

/// A service that no other test and no other process uses.
fn own_service(number: u64) -> u64 {
    u64::from(std::process::id()) << 24 | number
}

fn transport(start: u16) -> MadTransport {
    MadTransport::take_slot(std::process::id() as u16 ^ start, None).expect("a free slot")
}

/// A MAD for a process, and one for a service.
fn mads(slot: u16, service_id: u64) -> [Mad; 2] {
    let dreq = Dreq {
        local_id: 1,
        remote_id: u32::from(slot) << mad_socket::ID_BITS | 7,
        remote_qpn: Qpn::new(2),
        private_data: [0; Dreq::PRIVATE_BYTES],
    };
    let private_data = [0; rdmalab_wire::cm::SidrReq::PRIVATE_BYTES];
    let ask = rdmalab_wire::cm::SidrReq { request_id: 9, pkey: 0xffff, service_id, private_data };
    [Message::Dreq(dreq), Message::SidrReq(ask)].map(|message| Mad { transaction: 3, message })
}

/// Checks that a peer that cannot be reached now is not taken for dead, and that no rejection is
/// sent in its name.
fn expect_no_rejection(transport: &mut MadTransport, slot: u16, service: u64) {
    let [to_slot, to_service] = mads(slot, service);
    assert!(matches!(transport.owner_of(&to_slot), Owner::OtherProcess));
    assert!(matches!(transport.owner_of(&to_service), Owner::OtherProcess));
    transport.send(Peer::Process(slot), to_slot);
    assert_eq!(transport.next_gone(), None, "a live process was taken for dead");
    let frame = transport.frame(&to_service);
    let sent_ns = now_ns() - LISTEN_GRACE_NS;
    transport.send_to_service(service, MadFrame { sent_ns, ..frame.clone() });
    assert_eq!(transport.retries.len(), 1, "the request is not retried");
    transport.retries.clear();
    let sent_ns = now_ns() - RETRY_LIMIT_NS;
    transport.send_to_service(service, MadFrame { sent_ns, ..frame });
    assert!(transport.retries.is_empty(), "the request is retried for ever");
    assert!(transport.next_loopback().is_none(), "rejected in the name of a bound service");
}

#[test]
fn a_peer_that_does_not_accept_is_not_gone() {
    let _no_copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let (slot, here) = mad_socket::claim_slot(std::process::id() as u16 ^ 0x111).unwrap();
    let service = own_service(1);
    let listening = mad_socket::claim_service(service).unwrap();
    let mut transport = transport(0x222);
    // Fill the backlogs: no thread accepts.
    while mad_socket::connect_slot(slot).is_ok() {}
    while mad_socket::connect_service(service).is_ok() {}
    expect_no_rejection(&mut transport, slot, service);
    drop((here, listening));
    let [to_slot, to_service] = mads(slot, service);
    assert!(matches!(transport.owner_of(&to_slot), Owner::ThisProcess));
    assert!(matches!(transport.owner_of(&to_service), Owner::Nobody));
    transport.send(Peer::Process(slot), to_slot);
    assert_eq!(transport.next_gone(), Some(Peer::Process(slot)));
    let frame = transport.frame(&to_service);
    let sent_ns = now_ns() - LISTEN_GRACE_NS;
    transport.send_to_service(service, MadFrame { sent_ns, ..frame });
    assert!(transport.retries.is_empty() && transport.next_loopback().is_some());
}

/// Runs `checks` in a thread without a free descriptor, and passes the thread's last descriptor to
/// it. The descriptors are closed with the thread.
fn without_descriptors(checks: impl FnOnce(RawFd) + Send + 'static) {
    let _alone = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let without_descriptors = std::thread::spawn(move || {
        // SAFETY: takes integers only. From here on this thread has its own copy of the descriptor
        // table, so that the other tests do not run out of descriptors.
        if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
            return false;
        }
        let mut last = 2;
        loop {
            // SAFETY: takes integers only.
            match unsafe { libc::dup(last) } {
                -1 => break,
                fd => last = fd,
            }
        }
        checks(last);
        true
    });
    if !without_descriptors.join().expect("the checks hold") {
        let reason = "no table of descriptors of one's own";
        rdmalab_testing::skipped("without_descriptors", reason);
    }
}

#[test]
fn no_peer_is_gone_without_descriptors() {
    let (slot, _here) = mad_socket::claim_slot(std::process::id() as u16 ^ 0x333).unwrap();
    let service = own_service(2);
    let _listening = mad_socket::claim_service(service).unwrap();
    let mut transport = transport(0x444);
    without_descriptors(move |_| expect_no_rejection(&mut transport, slot, service));
}

/// Whether the thread polls the sockets of the slot and of a service, and whether it retries soon.
fn polls(transport: &MadTransport, service: u64) -> ([bool; 2], bool) {
    let (poll_set, retries_soon) = transport.poll_set();
    let sockets = [&transport.listening, &transport.services[&service]];
    let is_polled = |socket: &OwnedFd| poll_set.iter().any(|poll| poll.fd == socket.as_raw_fd());
    (sockets.map(is_polled), retries_soon)
}

/// A connection that cannot be accepted keeps the socket readable. The thread must not spin.
#[test]
fn the_thread_does_not_spin_without_descriptors() {
    let mut transport = transport(0x555);
    let service = own_service(3);
    transport.claim(service).unwrap();
    assert_eq!(polls(&transport, service), ([true, true], false));
    let connections = [
        mad_socket::connect_slot(transport.slot()).unwrap(),
        mad_socket::connect_service(service).unwrap(),
    ];
    without_descriptors(move |last| {
        transport.receive_all();
        assert_eq!(
            polls(&transport, service),
            ([false, false], true),
            "the thread spins, or sleeps for ever"
        );
        for fd in [last, last - 1] {
            // SAFETY: a descriptor of this thread's table that nobody uses.
            unsafe { libc::close(fd) };
        }
        transport.receive_all();
        assert_eq!(
            (transport.inbox.accepted.len(), polls(&transport, service)),
            (2, ([true, true], false))
        );
        std::mem::drop(connections);
    });
}

/// A frame that was not sent for want of memory waits, and the thread does not poll its socket.
#[test]
fn the_thread_does_not_spin_without_memory() {
    let mut transport = transport(0x666);
    let (slot, _here) = mad_socket::claim_slot(std::process::id() as u16 ^ 0x777).unwrap();
    assert!(transport.connect(slot));
    let frame = transport.frame(&mads(slot, 1)[0]);
    let mut events = |is_send_failing| {
        let connection = transport.connections.get_mut(&slot).unwrap();
        connection.is_send_failing = is_send_failing;
        connection.queue = [(frame.clone(), None)].into();
        let fd = connection.fd.as_raw_fd();
        let (poll_set, retries_soon) = transport.poll_set();
        (poll_set.iter().find(|poll| poll.fd == fd).unwrap().events, retries_soon)
    };
    assert_eq!((events(true), events(false)), ((0, true), (libc::POLLOUT, false)));
    transport.send_queued(slot);
    assert!(
        transport.connections[&slot].queue.is_empty()
            && !transport.connections[&slot].is_send_failing
    );
}

#[test]
fn requests_without_a_listener_are_bounded() {
    let mut transport = transport(0x888);
    let service = own_service(4);
    transport.claim(service).unwrap();
    for _ in 0..=QUEUE_MAX {
        let [_, ask] = mads(1, service);
        transport.send(Peer::Service(service), ask);
    }
    assert_eq!(transport.without_listener.len(), QUEUE_MAX);
}

/// All frames that a peer of `transport` gets at its slot and its service, the oldest first.
fn frames_of(transport: &mut MadTransport, listening: &[&OwnedFd], count: usize) -> Vec<MadFrame> {
    let (mut inbox, mut frames) = (MadInbox::default(), Vec::new());
    let until_ns = now_ns() + 20_000_000_000;
    while frames.len() < count && now_ns() < until_ns {
        frames.extend(inbox.receive(listening));
        transport.receive_all();
    }
    frames
}

/// A request waits behind earlier frames for the same process that its socket had no room for.
#[test]
fn a_request_does_not_overtake_frames_that_wait_for_room() {
    let (slot, here) = mad_socket::claim_slot(std::process::id() as u16 ^ 0x999).unwrap();
    let service = own_service(5);
    let listening = mad_socket::claim_service(service).unwrap();
    let mut transport = transport(0xaaa);
    let mut count = 0;
    while !transport.is_queued(slot) {
        transport.send(Peer::Process(slot), mads(slot, service)[0].clone());
        count += 1;
    }
    for _ in 0..2 {
        transport.send(Peer::Service(service), mads(slot, service)[1].clone());
        transport.send(Peer::Process(slot), mads(slot, service)[0].clone());
        count += 2;
    }
    let frames = frames_of(&mut transport, &[&here, &listening], count);
    assert_eq!(frames.len(), count, "frames are missing");
    assert!(frames.is_sorted_by_key(|frame| frame.sent_ns), "a frame overtook another");
    // The request goes to whoever has the service, if the process ends meanwhile.
    while !transport.is_queued(slot) {
        transport.send(Peer::Process(slot), mads(slot, service)[0].clone());
    }
    transport.send(Peer::Service(service), mads(slot, service)[1].clone());
    assert!(transport.retries.is_empty());
    drop((here, listening));
    transport.receive_all();
    assert!(transport.retries.contains_key(&service), "the request is lost");
}
