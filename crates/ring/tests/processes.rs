//! The crate between two real processes: kills at random points, owner death, wake-ups.
//!
//! A forked child of a test harness with threads may only do what a signal handler may: no
//! allocation, no locks, no panics. Children here end by `_exit` with a code that says what failed.

use rdmalab_random::Random;
use rdmalab_ring::control_socket::{ControlSocket, SendError, list_live_slots};
use rdmalab_ring::doorbell::{Bell, DOORBELL_BYTES, Doorbell, Event};
use rdmalab_ring::epoch::{LANE_BYTES, LanePass, LaneSlots};
use rdmalab_ring::fence;
use rdmalab_ring::seg::Segment;
use rdmalab_ring::spsc::{self, BODY_WORDS, Consumer, Geometry, Producer};
use rdmalab_testing::skipped;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A forked child, killed and reaped when dropped.
struct Child(libc::pid_t);

impl Child {
    /// Runs `work` in a child, which exits with the returned code.
    fn fork(work: impl FnOnce() -> i32) -> Child {
        // SAFETY: the child keeps to what is safe after a fork of a threaded process (see above).
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(work()) };
        }
        Child(pid)
    }

    /// Kills it and reaps it, by dropping it.
    fn kill(self) {}

    /// Waits for its end; returns its exit code, or the negative signal number.
    fn wait(self) -> i32 {
        let mut status = 0;
        // SAFETY: our own child; the pointer is to a live integer.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!(pid, self.0);
        std::mem::forget(self);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }

    fn runs(&self) -> bool {
        // SAFETY: a query about our own child, without reaping.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), libc::WNOHANG) == 0 }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, not yet reaped.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Every test that forks holds this, because a child inherits copies of what other tests have open.
fn alone() -> MutexGuard<'static, ()> {
    static FORKS: Mutex<()> = Mutex::new(());
    FORKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn geometry() -> Geometry {
    Geometry::new(64, 1 << 14).unwrap()
}

fn new_ring() -> Segment {
    let bytes = geometry().region_bytes();
    let segment = Segment::create(c"ring-test", bytes, bytes).unwrap();
    // SAFETY: fresh zeroed memory of that size, not yet shared.
    unsafe { spsc::format(segment.ptr(), bytes, geometry()) }.unwrap();
    segment
}

fn body_of(number: u64, pos: u64) -> [u64; BODY_WORDS] {
    [number, pos, !number, number << 7, number ^ 0x55, number.rotate_left(9), number]
}

fn len_of(number: u64) -> usize {
    (number % 700) as usize
}

/// Pushes numbered messages with data until it is killed. No allocation, no panic.
fn push_forever(segment: &Segment) -> i32 {
    if segment.lock_owner().is_err() {
        return 1;
    }
    // SAFETY: formatted, mapped while the segment lives, and the only producer.
    let Ok(mut producer) = (unsafe { Producer::attach(segment.ptr(), segment.len()) }) else {
        return 2;
    };
    let mut number = 0;
    loop {
        if !producer.can_push(1) {
            continue;
        }
        let Some(data) = producer.reserve_data(len_of(number)) else {
            continue;
        };
        // SAFETY: as many bytes are reserved there.
        unsafe { data.ptr.write_bytes(number as u8, len_of(number)) };
        if producer.push(number as u32, &body_of(number, data.pos)).is_err() {
            return 3;
        }
        number += 1;
    }
}

/// Takes one message, which must be number `number` and complete. False if there is none.
fn take(consumer: &mut Consumer, number: u64) -> bool {
    let Some(slot) = consumer.peek() else {
        return false;
    };
    let pos = slot.body[1];
    assert_eq!((slot.head, slot.body), (number as u32, body_of(number, pos)));
    let len = len_of(number);
    let data = consumer.data(pos, len).expect("an honest producer");
    for index in 0..len {
        // SAFETY: `len` bytes are mapped there.
        assert_eq!(unsafe { data.add(index).read_volatile() }, number as u8, "of {number}");
    }
    assert!(consumer.release_data(pos + len as u64));
    consumer.advance();
    true
}

#[test]
fn a_producer_killed_anywhere_leaves_an_intact_prefix() {
    let _alone = alone();
    let seed = u64::from(std::process::id()) << 16 | 1;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut total = 0;
    for _ in 0..150 {
        let segment = new_ring();
        // SAFETY: formatted, mapped while the segment lives, and the only consumer.
        let mut consumer = unsafe { Consumer::attach(segment.ptr(), segment.len()) }.unwrap();
        let child = Child::fork(|| push_forever(&segment));
        let mut number = 0;
        let wanted = random.below(5000);
        while number < wanted {
            number += u64::from(take(&mut consumer, number));
            assert!(child.runs() || !consumer.is_empty(), "the child ended by itself");
        }
        // Sometimes this fills the ring before the kill, sometimes the kill interrupts a push.
        std::thread::sleep(Duration::from_micros(random.below(300)));
        if number > 0 {
            assert!(segment.owner_alive());
        }
        child.kill();
        assert!(!segment.owner_alive(), "the kernel has dropped the lock");
        while take(&mut consumer, number) {
            number += 1;
        }
        assert!(consumer.is_empty());
        total += number;
    }
    assert!(total > 0);
}

#[test]
fn the_lock_is_not_inherited_and_does_not_survive_exec() {
    let _alone = alone();
    let segment = Segment::create(c"lock-test", 4096, 0).unwrap();
    let told = Event::create().unwrap();
    let owner = Child::fork(|| {
        if segment.lock_owner().is_err() {
            return 1;
        }
        // The owner's child sees the owner alive, and its end does not release the owner's lock.
        let grandchild = Child::fork(|| i32::from(!segment.owner_alive()));
        if grandchild.wait() != 0 || !segment.owner_alive() {
            return 2;
        }
        told.signal();
        loop {
            // SAFETY: sleeps until a signal.
            unsafe { libc::pause() };
        }
    });
    while !told.wait(Some(Duration::from_millis(100))) {
        assert!(owner.runs(), "ended with {}", owner.wait());
    }
    assert!(segment.owner_alive());
    assert!(segment.lock_owner().is_err(), "it has an owner");
    owner.kill();
    assert!(!segment.owner_alive());

    let program = c"/bin/sleep";
    let arguments = [program.as_ptr(), c"600".as_ptr(), std::ptr::null()];
    told.drain();
    let heir = Child::fork(|| {
        if segment.lock_owner().is_err() {
            return 1;
        }
        told.signal();
        // SAFETY: the strings and the array outlive the call.
        unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
        2
    });
    while !told.wait(Some(Duration::from_millis(100))) {
        assert!(heir.runs(), "ended with {}", heir.wait());
    }
    while segment.owner_alive() {
        std::thread::yield_now();
    }
    assert!(heir.runs(), "it lives on as another program; ended with {}", heir.wait());
}

#[test]
fn a_killed_initiator_does_not_hold_up_the_target() {
    let _alone = alone();
    let lane = Segment::create(c"lane-test", LANE_BYTES, LANE_BYTES).unwrap();
    let life = Segment::create(c"life-test", 4096, 0).unwrap();
    let told = Event::create().unwrap();
    // SAFETY: zeroed memory of that size, mapped while the segment lives.
    let slots = unsafe { LaneSlots::create(lane.ptr()) };
    let child = Child::fork(|| {
        if life.lock_owner().is_err() {
            return 1;
        }
        // SAFETY: set up above; the only holder of this slot.
        let Some(pass) = (unsafe { LanePass::attach(lane.ptr(), 77) }) else {
            return 2;
        };
        let Some(_inside) = pass.enter(4) else {
            return 3;
        };
        told.signal();
        loop {
            // SAFETY: sleeps until a signal.
            unsafe { libc::pause() };
        }
    });
    while !told.wait(Some(Duration::from_millis(100))) {
        assert!(child.runs(), "ended with {}", child.wait());
    }
    let mut looks = 0;
    let busy = slots.wait_quiescent(
        |slot| slot == 77 && life.owner_alive(),
        || {
            looks += 1;
            looks > 1000
        },
    );
    assert_eq!(busy.map_err(|busy| busy.initiator), Err(77));
    child.kill();
    slots.wait_quiescent(|slot| slot == 77 && life.owner_alive(), || false).unwrap();
}

/// Each side sleeps until the other has pushed. A lost wake-up shows as a sleep that ends without a
/// signal although a message is there.
#[test]
fn no_wake_up_is_lost_between_processes() {
    let _alone = alone();
    const ROUNDS: u32 = 10_000;
    let rings = [new_ring(), new_ring()];
    let bells = Segment::create(c"bell-test", 2 * DOORBELL_BYTES, 4096).unwrap();
    // SAFETY: the second half of the segment.
    let bases = [bells.ptr(), unsafe { bells.ptr().add(DOORBELL_BYTES) }];
    let events = [Event::create().unwrap(), Event::create().unwrap()];
    fence::register();
    // SAFETY: zeroed memory, mapped while the segment lives. Both are created before either side
    // attaches; the child inherits the second.
    let [here, there] = unsafe { [Doorbell::create(bases[0]), Doorbell::create(bases[1])] };
    let turn = |me: usize, doorbell: &Doorbell, starts: bool| -> Result<(), i32> {
        // SAFETY: formatted, mapped while the segments live, one end of each kind.
        let (producer, consumer, bell) = unsafe {
            (
                Producer::attach(rings[me].ptr(), rings[me].len()),
                Consumer::attach(rings[1 - me].ptr(), rings[1 - me].len()),
                Bell::attach(bases[1 - me]),
            )
        };
        let (Ok(mut producer), Ok(mut consumer)) = (producer, consumer) else {
            return Err(1);
        };
        for round in 0..ROUNDS {
            if round > 0 || !starts {
                sleep_for(&mut consumer, doorbell, &events[me])?;
            }
            producer.push(round, &[0; BODY_WORDS]).map_err(|_| 4)?;
            if bell.ring_needed() {
                bell.ring(|| events[1 - me].signal());
            }
        }
        Ok(())
    };
    let child = Child::fork(|| {
        fence::register_now();
        turn(1, &there, false).err().unwrap_or(0)
    });
    assert_eq!(turn(0, &here, true), Ok(()));
    assert_eq!(child.wait(), 0);
}

fn sleep_for(consumer: &mut Consumer, doorbell: &Doorbell, event: &Event) -> Result<(), i32> {
    loop {
        if consumer.peek().is_some() {
            consumer.advance();
            return Ok(());
        }
        event.drain();
        let sound = doorbell.arm();
        if consumer.is_empty() {
            let woken = event.wait(Some(Duration::from_secs(30)));
            if !woken && sound && !consumer.is_empty() {
                return Err(2);
            }
            if !woken && consumer.is_empty() {
                return Err(3);
            }
        }
        doorbell.disarm();
    }
}

#[test]
fn a_forked_child_keeps_a_slot_alive_until_it_closes() {
    let _alone = alone();
    let version = std::process::id() * 16 + 15;
    let control_socket = ControlSocket::claim(version).unwrap();
    let (close, closed) = (Event::create().unwrap(), Event::create().unwrap());
    let held = || list_live_slots().unwrap().iter().any(|slot| slot.version == version);
    let child = Child::fork(|| {
        while !close.wait(None) {}
        control_socket.close_in_child();
        closed.signal();
        loop {
            // SAFETY: sleeps until a signal.
            unsafe { libc::pause() };
        }
    });
    control_socket.close_in_child();
    assert!(held(), "the child has a copy");
    close.signal();
    while !closed.wait(Some(Duration::from_millis(100))) {
        assert!(child.runs());
    }
    assert!(!held());
}

/// The abstract socket address of a slot, and its length.
fn slot_address(version: u32, uid: u32, slot: u16) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = format!("rdmalab/{version}/{uid}/{slot}");
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let path_at = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    (address, (path_at + 1 + name.len()) as libc::socklen_t)
}

/// Another user binds a name that looks like ours, and sends datagrams from it.
#[test]
fn another_user_is_neither_heard_nor_trusted_with_descriptors() {
    let _alone = alone();
    const NOBODY: libc::uid_t = 65534;
    // SAFETY: always succeeds.
    let uid = unsafe { libc::getuid() };
    if uid != 0 {
        return skipped("another_user_is_neither_heard", "only root can play another user");
    }
    let version = std::process::id() * 16 + 14;
    let control_socket = ControlSocket::claim(version).unwrap();
    let squatted = if control_socket.slot() == 5 { 6 } else { 5 };
    let (from, from_len) = slot_address(version, uid, squatted);
    let (to, to_len) = slot_address(version, uid, control_socket.slot());
    let told = Event::create().unwrap();
    let child = Child::fork(|| {
        // SAFETY: system calls with integers and live structures of the lengths given.
        unsafe {
            if libc::setresuid(NOBODY, NOBODY, NOBODY) != 0 {
                return 1;
            }
            let socket = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0);
            if libc::bind(socket, (&raw const from).cast(), from_len) != 0 {
                return 2;
            }
            let to = (&raw const to).cast();
            if libc::sendto(socket, c"boo".as_ptr().cast(), 3, 0, to, to_len) != 3 {
                return 3;
            }
            told.signal();
            loop {
                libc::pause();
            }
        }
    });
    while !told.wait(Some(Duration::from_millis(100))) {
        assert!(child.runs(), "ended with {}", child.wait());
    }
    assert!(control_socket.recv().is_none(), "mail of another user");
    let refused = control_socket.send(squatted, b"secret", &[told.as_fd()]);
    assert!(matches!(refused, Err(SendError::Unverified)), "{refused:?}");
    control_socket.send(control_socket.slot(), b"to myself", &[]).unwrap();
    assert_eq!(control_socket.recv().unwrap().bytes, b"to myself", "the box still works");
}
