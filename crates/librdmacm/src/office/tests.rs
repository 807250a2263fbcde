//! Offices in one process.

use std::sync::{Mutex, PoisonError};

use rdmalab_wire::cm::Dreq;

use super::*;
use crate::world::now_ns;

/// A thread with a copy of all descriptors keeps open what another test closes.
static COPIES: Mutex<()> = Mutex::new(());

/// What this process listens for here, and no other test.
fn own_service(number: u64) -> u64 {
    u64::from(std::process::id()) << 24 | number
}

fn office(start: u16) -> Office {
    Office::take_slot(std::process::id() as u16 ^ start, None).expect("a free slot")
}

/// A datagram for a process, and one for who holds a service.
fn mads(slot: u16, service_id: u64) -> [Mad; 2] {
    let dreq = Dreq {
        local_id: 1,
        remote_id: u32::from(slot) << madbox::ID_BITS | 7,
        remote_qpn: Qpn::new(2),
        private_data: [0; Dreq::PRIVATE_BYTES],
    };
    let private_data = [0; rdmalab_wire::cm::SidrReq::PRIVATE_BYTES];
    let ask = rdmalab_wire::cm::SidrReq { request_id: 9, pkey: 0xffff, service_id, private_data };
    [Message::Dreq(dreq), Message::SidrReq(ask)].map(|message| Mad { transaction: 3, message })
}

/// What reaches nobody now is neither answered for its addressee nor ends its connections.
fn keeps_quiet(office: &mut Office, slot: u16, service: u64) {
    let [to_slot, to_service] = mads(slot, service);
    assert!(matches!(office.whose(&to_slot), Whose::Others));
    assert!(matches!(office.whose(&to_service), Whose::Others));
    office.post(Peer::Process(slot), to_slot);
    assert_eq!(office.next_lost(), None, "a process that lives was taken for dead");
    let letter = office.letter(&to_service);
    office.knock(service, letter.clone(), now_ns() - GRACE_NS);
    assert_eq!(office.knocking.len(), 1, "nobody knocks again");
    office.knocking.clear();
    office.knock(service, letter, now_ns() - PATIENCE_NS);
    assert!(office.knocking.is_empty(), "who does not look is knocked at for ever");
    assert!(office.next_inside().is_none(), "answered for a service that somebody holds");
}

#[test]
fn who_does_not_look_is_not_gone() {
    let _no_copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    let (slot, here) = madbox::claim_slot(std::process::id() as u16 ^ 0x111).unwrap();
    let service = own_service(1);
    let listening = madbox::claim_service(service).unwrap();
    let mut office = office(0x222);
    // Until as many wait as may: nobody accepts.
    while madbox::connect_slot(slot).is_ok() {}
    while madbox::connect_service(service).is_ok() {}
    keeps_quiet(&mut office, slot, service);
    drop((here, listening));
    let [to_slot, to_service] = mads(slot, service);
    assert!(matches!(office.whose(&to_slot), Whose::Ours));
    assert!(matches!(office.whose(&to_service), Whose::Nobodys));
    office.post(Peer::Process(slot), to_slot);
    assert_eq!(office.next_lost(), Some(Peer::Process(slot)));
    let letter = office.letter(&to_service);
    office.knock(service, letter, now_ns() - GRACE_NS);
    assert!(office.knocking.is_empty() && office.next_inside().is_some());
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
    let (slot, _here) = madbox::claim_slot(std::process::id() as u16 ^ 0x333).unwrap();
    let service = own_service(2);
    let _listening = madbox::claim_service(service).unwrap();
    let mut office = office(0x444);
    starved(move |_| keeps_quiet(&mut office, slot, service));
}

/// Whether the thread waits at the sockets of the process and of a service, and looks soon.
fn waits_for(office: &Office, service: u64) -> ([bool; 2], bool) {
    let (polls, looks_soon) = office.polls();
    let doors = [&office.listening, &office.services[&service]];
    (doors.map(|door| polls.iter().any(|poll| poll.fd == door.as_raw_fd())), looks_soon)
}

/// Who knocks keeps the sockets readable: without a descriptor for it the thread would spin.
#[test]
fn without_descriptors_nobody_spins() {
    let mut office = office(0x555);
    let service = own_service(3);
    office.claim(service).unwrap();
    assert_eq!(waits_for(&office, service), ([true, true], false));
    let knocks =
        [madbox::connect_slot(office.slot()).unwrap(), madbox::connect_service(service).unwrap()];
    starved(move |last| {
        office.collect();
        assert_eq!(
            waits_for(&office, service),
            ([false, false], true),
            "it spins, or hears nothing"
        );
        for fd in [last, last - 1] {
            // SAFETY: a descriptor of this thread's table that nobody uses.
            unsafe { libc::close(fd) };
        }
        office.collect();
        assert_eq!(
            (office.incoming.len(), waits_for(&office, service)),
            (2, ([true, true], false))
        );
        std::mem::drop(knocks);
    });
}

/// A letter for which there was no memory waits, without the thread at its socket.
#[test]
fn without_memory_nobody_spins() {
    let mut office = office(0x666);
    let (slot, _here) = madbox::claim_slot(std::process::id() as u16 ^ 0x777).unwrap();
    assert!(office.open_link(slot));
    let letter = office.letter(&mads(slot, 1)[0]);
    let mut events = |is_short| {
        let link = office.links.get_mut(&slot).unwrap();
        link.is_short = is_short;
        link.queue = [letter.clone()].into();
        let fd = link.fd.as_raw_fd();
        let (polls, looks_soon) = office.polls();
        (polls.iter().find(|poll| poll.fd == fd).unwrap().events, looks_soon)
    };
    assert_eq!((events(true), events(false)), ((0, true), (libc::POLLOUT, false)));
    office.push(slot);
    assert!(office.links[&slot].queue.is_empty() && !office.links[&slot].is_short);
}

#[test]
fn requests_for_nobody_are_kept_within_a_bound() {
    let mut office = office(0x888);
    let service = own_service(4);
    office.claim(service).unwrap();
    for _ in 0..=QUEUE_MAX {
        let [_, ask] = mads(1, service);
        office.post(Peer::Service(service), ask);
    }
    assert_eq!(office.unanswered.len(), QUEUE_MAX);
}
