//! Offices in one process.

use std::sync::{Mutex, PoisonError};

use rdmalab_wire::cm::Dreq;

use super::*;
use crate::os::now_ns;

/// A thread with a copy of all descriptors keeps listened what another test closes.
static COPIES: Mutex<()> = Mutex::new(());

/// What this process listens for here, and no other test.
fn own_service(number: u64) -> u64 {
    u64::from(std::process::id()) << 24 | number
}

fn transport(start: u16) -> MadTransport {
    MadTransport::take_slot(std::process::id() as u16 ^ start, None).expect("a free slot")
}

/// A datagram for a process, and one for who holds a service.
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

/// What reaches nobody now is neither answered for its addressee nor ends its connections.
fn keeps_quiet(transport: &mut MadTransport, slot: u16, service: u64) {
    let [to_slot, to_service] = mads(slot, service);
    assert!(matches!(transport.owner_of(&to_slot), Owner::OtherProcess));
    assert!(matches!(transport.owner_of(&to_service), Owner::OtherProcess));
    transport.send(Peer::Process(slot), to_slot);
    assert_eq!(transport.next_gone(), None, "a process that lives was taken for dead");
    let frame = transport.frame(&to_service);
    transport.send_to_service(service, frame.clone(), now_ns() - LISTEN_GRACE_NS);
    assert_eq!(transport.retries.len(), 1, "nobody needs_retry again");
    transport.retries.clear();
    transport.send_to_service(service, frame, now_ns() - RETRY_LIMIT_NS);
    assert!(transport.retries.is_empty(), "who does not look is knocked at for ever");
    assert!(transport.next_loopback().is_none(), "answered for a service that somebody holds");
}

#[test]
fn who_does_not_look_is_not_gone() {
    let _no_copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let (slot, here) = mad_socket::claim_slot(std::process::id() as u16 ^ 0x111).unwrap();
    let service = own_service(1);
    let listening = mad_socket::claim_service(service).unwrap();
    let mut transport = transport(0x222);
    // Until as many wait as may: nobody accepts.
    while mad_socket::connect_slot(slot).is_ok() {}
    while mad_socket::connect_service(service).is_ok() {}
    keeps_quiet(&mut transport, slot, service);
    drop((here, listening));
    let [to_slot, to_service] = mads(slot, service);
    assert!(matches!(transport.owner_of(&to_slot), Owner::ThisProcess));
    assert!(matches!(transport.owner_of(&to_service), Owner::Nobody));
    transport.send(Peer::Process(slot), to_slot);
    assert_eq!(transport.next_gone(), Some(Peer::Process(slot)));
    let frame = transport.frame(&to_service);
    transport.send_to_service(service, frame, now_ns() - LISTEN_GRACE_NS);
    assert!(transport.retries.is_empty() && transport.next_loopback().is_some());
}

/// Runs `checks` in a thread that has no descriptor left, which are closed with it; the last
/// one that there was goes to it.
fn starved(checks: impl FnOnce(RawFd) + Send + 'static) {
    let _alone = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let starved = std::thread::spawn(move || {
        // SAFETY: takes integers only. From here on this thread has a table of descriptors of
        // its own, a copy, so that the other tests are not short of them.
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
    if !starved.join().expect("the checks hold") {
        use std::io::Write as _;
        let _ = io::stderr()
            .write_all(b"SKIPPED without_descriptors: no table of descriptors of one's own\n");
    }
}

#[test]
fn without_descriptors_nobody_is_gone() {
    let (slot, _here) = mad_socket::claim_slot(std::process::id() as u16 ^ 0x333).unwrap();
    let service = own_service(2);
    let _listening = mad_socket::claim_service(service).unwrap();
    let mut transport = transport(0x444);
    starved(move |_| keeps_quiet(&mut transport, slot, service));
}

/// Whether the thread waits at the sockets of the process and of a service, and lookups soon.
fn waits_for(transport: &MadTransport, service: u64) -> ([bool; 2], bool) {
    let (poll_set, looks_soon) = transport.poll_set();
    let doors = [&transport.listening, &transport.services[&service]];
    (doors.map(|gsi| poll_set.iter().any(|poll| poll.fd == gsi.as_raw_fd())), looks_soon)
}

/// Who needs_retry keeps the sockets readable: without a descriptor for it the thread would spin.
#[test]
fn without_descriptors_nobody_spins() {
    let mut transport = transport(0x555);
    let service = own_service(3);
    transport.claim(service).unwrap();
    assert_eq!(waits_for(&transport, service), ([true, true], false));
    let needs_retry = [
        mad_socket::connect_slot(transport.slot()).unwrap(),
        mad_socket::connect_service(service).unwrap(),
    ];
    starved(move |last| {
        transport.receive_all();
        assert_eq!(
            waits_for(&transport, service),
            ([false, false], true),
            "it spins, or hears nothing"
        );
        for fd in [last, last - 1] {
            // SAFETY: a descriptor of this thread's table that nobody uses.
            unsafe { libc::close(fd) };
        }
        transport.receive_all();
        assert_eq!(
            (transport.accepted.len(), waits_for(&transport, service)),
            (2, ([true, true], false))
        );
        std::mem::drop(needs_retry);
    });
}

/// A frame for which there was no memory waits, without the thread at its socket.
#[test]
fn without_memory_nobody_spins() {
    let mut transport = transport(0x666);
    let (slot, _here) = mad_socket::claim_slot(std::process::id() as u16 ^ 0x777).unwrap();
    assert!(transport.connect(slot));
    let frame = transport.frame(&mads(slot, 1)[0]);
    let mut events = |is_short| {
        let connection = transport.connections.get_mut(&slot).unwrap();
        connection.is_short = is_short;
        connection.queue = [frame.clone()].into();
        let fd = connection.fd.as_raw_fd();
        let (poll_set, looks_soon) = transport.poll_set();
        (poll_set.iter().find(|poll| poll.fd == fd).unwrap().events, looks_soon)
    };
    assert_eq!((events(true), events(false)), ((0, true), (libc::POLLOUT, false)));
    transport.send_queued(slot);
    assert!(
        transport.connections[&slot].queue.is_empty() && !transport.connections[&slot].is_short
    );
}

#[test]
fn requests_for_nobody_are_kept_within_a_bound() {
    let mut transport = transport(0x888);
    let service = own_service(4);
    transport.claim(service).unwrap();
    for _ in 0..=QUEUE_MAX {
        let [_, ask] = mads(1, service);
        transport.send(Peer::Service(service), ask);
    }
    assert_eq!(transport.without_listener.len(), QUEUE_MAX);
}
