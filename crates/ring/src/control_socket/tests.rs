//! Tests of the registry within one process.

use super::*;
use crate::doorbell::Event;
use std::os::fd::AsFd;

/// A version that only this test in this process uses.
fn version(test: u32) -> u32 {
    std::process::id() * 16 + test
}

#[test]
fn mail_and_descriptors_arrive_with_their_sender() {
    let version = version(1);
    let (a, b) = (ControlSocket::claim(version).unwrap(), ControlSocket::claim(version).unwrap());
    assert_ne!(a.slot(), b.slot());
    assert!(b.recv().is_none());
    a.send(b.slot(), b"hello", &[]).unwrap();
    let mail = b.recv().unwrap();
    assert_eq!(mail.bytes, b"hello");
    assert_eq!(mail.from, Some(a.slot()));
    assert_eq!((mail.pid, mail.uid), (std::process::id() as i32, own_uid().unwrap()));
    assert!(mail.fds.is_empty());

    let event = Event::create().unwrap();
    b.send(a.slot(), &[], &[event.as_fd(), event.as_fd()]).unwrap();
    let mut mail = a.recv().unwrap();
    assert_eq!(mail.fds.len(), 2);
    // SAFETY: a query on a live descriptor.
    let flags = unsafe { libc::fcntl(mail.fds[0].as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    let copy = Event::from_fd(mail.fds.remove(1)).unwrap();
    copy.signal();
    assert!(event.drain());
}

#[test]
fn descriptors_go_to_a_stranger_only_if_the_kernel_says_whose_it_is() {
    let version = version(2);
    let (a, b) = (ControlSocket::claim(version).unwrap(), ControlSocket::claim(version).unwrap());
    let event = Event::create().unwrap();
    let name = name_of(version, own_uid().unwrap(), b.slot());
    match sock_diag::holder_uid(&name) {
        Ok(holder) => {
            assert_eq!(holder, Some(own_uid().unwrap()));
            a.send(b.slot(), b"fd", &[event.as_fd()]).unwrap();
            assert_eq!(b.recv().unwrap().fds.len(), 1);
        }
        Err(why) => {
            eprintln!("no socket table here ({why}): only the refusal is tested");
            let refused = a.send(b.slot(), b"fd", &[event.as_fd()]);
            assert!(matches!(refused, Err(SendError::Unverified)));
            b.send(a.slot(), b"it is me", &[]).unwrap();
            assert!(a.recv().is_some());
            a.send(b.slot(), b"fd", &[event.as_fd()]).unwrap();
        }
    }
}

#[test]
fn absence_fullness_and_nonsense_are_told_apart() {
    let version = version(3);
    let a = ControlSocket::claim(version).unwrap();
    let b = ControlSocket::claim(version).unwrap();
    let gone = b.slot();
    let full = loop {
        if let Err(error) = a.send(gone, b"x", &[]) {
            break error;
        }
    };
    assert!(matches!(full, SendError::Full), "{full}");
    drop(b);
    let event = Event::create().unwrap();
    assert!(matches!(a.send(gone, b"x", &[]), Err(SendError::NoSuchPeer)));
    assert!(matches!(
        a.send(gone, b"x", &[event.as_fd()]),
        Err(SendError::NoSuchPeer | SendError::Unverified)
    ));
    assert!(matches!(a.send(0, b"x", &[]), Err(SendError::Io(_))));
    assert!(matches!(a.send(1024, b"x", &[]), Err(SendError::Io(_))));
    let long = vec![0; MAIL_BYTES_MAX + 1];
    assert!(matches!(a.send(a.slot(), &long, &[]), Err(SendError::Io(_))));
}

#[test]
fn slots_run_out_with_a_clear_error_and_are_listed() {
    let version = version(4);
    let mut held = Vec::new();
    let error = loop {
        match ControlSocket::claim(version) {
            Ok(control_socket) => held.push(control_socket),
            Err(error) => break error,
        }
    };
    if error.kind() != io::ErrorKind::AddrInUse {
        let why = format!("this process may not hold {SLOT_MAX} sockets ({error})");
        return rdmalab_testing::skipped("slots_run_out_with_a_clear_error", why);
    }
    assert_eq!(held.len(), usize::from(SLOT_MAX));
    assert!(error.to_string().contains("1023 process slots"), "{error}");
    let ours = |slots: Vec<LiveSlot>| slots.iter().filter(|s| s.version == version).count();
    assert_eq!(ours(list_live_slots().unwrap()), held.len());
    held.truncate(3);
    assert_eq!(ours(list_live_slots().unwrap()), 3);
}

#[test]
fn a_closed_control_socket_frees_its_slot_and_fails_quietly() {
    let version = version(5);
    let control_socket = ControlSocket::claim(version).unwrap();
    control_socket.close_in_child();
    control_socket.close_in_child();
    assert_eq!(control_socket.raw_fd(), -1);
    assert!(control_socket.recv().is_none());
    assert!(matches!(control_socket.send(control_socket.slot(), b"x", &[]), Err(SendError::Io(_))));
    assert!(!list_live_slots().unwrap().iter().any(|s| s.version == version));
}

#[test]
fn only_our_own_names_are_parsed() {
    assert_eq!(parse_name("rdmalab/1/1000/7"), Some((1, 1000, 7)));
    for other in [
        "rdmalab/1/1000/0",
        "rdmalab/1/1000/1024",
        "rdmalab/1/1000/07",
        "rdmalab/1/1000/7/",
        "rdmalab/1/7",
        "rdmalab/+1/1000/7",
        "other/1/1000/7",
    ] {
        assert_eq!(parse_name(other), None, "{other}");
    }
    let list = b"Num RefCount Protocol Flags Type St Inode Path\n\
        0000000000000000: 00000002 00000000 00000000 0002 01 12345 @rdmalab/2/0/9\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 99 /run/rdmalab/2/0/9\n\
        0000000000000000: 00000002 00000000 00000000 0002 01 98\n\xff\xfe\n";
    let found = LiveSlot { slot: 9, uid: 0, version: 2, inode: 12345 };
    assert_eq!(parse_socket_list(list), [found]);
}
