//! Messages from one process to another one of this host, which meet by a name. They may start, end
//! and return in any order, and nothing is left behind: the name is an abstract socket, which the
//! kernel frees with its holder, and the memory is a sealed memfd, which vanishes with its last
//! holder.
//!
//! The reader holds the name. A writer connects to it; the reader then makes a new segment with a
//! doorbell and a [ring](crate::spsc), and passes it over that connection, with the event to wake
//! it. So a ring has one writer and one reader in its life, and a process that dies can leave only
//! its own ring behind, which the other one drops. The end of the connection shows that a process
//! is gone. Further writers wait until the reader has dropped the ring of the one before.
//!
//! A message is a list of 64-bit words. Up to [`BODY_WORDS`] travel in a slot of the ring, more in
//! its data area. Neither end makes a system call for a message, unless the reader sleeps.

use core::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::doorbell::{Bell, DOORBELL_BYTES, Doorbell, Event};
use crate::mad_socket::{accept, connect, listen, listener_pid, own_uid};
use crate::seg::Segment;
use crate::spsc::{self, BODY_WORDS, Consumer, Geometry, Producer};
use crate::sync::{Ordering, word};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest message, in words.
pub const MESSAGE_WORDS_MAX: usize = 1024;
/// The length of a message that a broken writer has sent, of which nothing can be read.
pub const BROKEN: usize = usize::MAX;

/// Where the ring begins in a segment, behind the reader's doorbell.
const RING_AT: usize = 4096;
/// What the reader says with the descriptors, which is different in another version.
const HELLO: [u8; 8] = *b"rdmashm1";
/// In the head of a slot: the message is in the data area.
const IN_DATA: u32 = 1 << 31;

const _: () = assert!(DOORBELL_BYTES <= RING_AT);

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// There is no reader.
    Absent,
    /// The reader has not taken enough of the messages before.
    Full,
    /// More than [`MESSAGE_WORDS_MAX`] words, or than the reader has room for.
    TooLong,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotSent::Absent => "no process reads there",
            NotSent::Full => "the ring is full",
            NotSent::TooLong => "the message is too long",
        })
    }
}

impl std::error::Error for NotSent {}

/// What an end has found about its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing new.
    None,
    /// A peer is there, with this process id; 0 in another PID namespace.
    Came(i32),
    /// The peer is gone. Of the writer's messages, at most so many were not read.
    Gone(u64),
}

fn address(name: &str) -> io::Result<String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let why = format!("a name has 1 to {NAME_BYTES_MAX} bytes, and no NUL byte");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(format!("rdmalab-shm/1/{}/{name}", own_uid()))
}

/// Whether the other end of a connection is gone.
fn has_hung_up(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok()
        && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Zero slots and bytes are raised to the least that a ring can have.
fn geometry(messages: usize, words: usize) -> io::Result<Geometry> {
    let too_large = || io::Error::from(io::ErrorKind::InvalidInput);
    let slots = messages.max(2).checked_next_power_of_two().ok_or_else(too_large)?;
    let bytes = words.max(1).checked_mul(8).ok_or_else(too_large)?;
    let bytes = bytes.checked_next_multiple_of(spsc::DATA_ALIGN);
    // Twice: a message that would wrap skips the end of the area.
    let data = bytes.and_then(|bytes| bytes.checked_mul(slots)?.checked_mul(2));
    let data = data.and_then(|data| data.max(128).checked_next_power_of_two());
    let data = data.ok_or_else(too_large)?;
    let slots = u32::try_from(slots).map_err(|_| too_large())?;
    Geometry::new(slots, data as u64).map_err(|_| too_large())
}

/// The reading end, which holds the name.
#[derive(Debug)]
pub struct Reader {
    listening: OwnedFd,
    geometry: Geometry,
    link: Option<ReaderLink>,
}

#[derive(Debug)]
struct ReaderLink {
    // The parts that point into the segment come before it, and so are dropped before it.
    consumer: Consumer,
    doorbell: Doorbell,
    event: Event,
    peer: OwnedFd,
    _segment: Segment,
}

impl Reader {
    /// Claims a name. Each writer gets a ring for at least `messages` messages of up to `words`
    /// words.
    ///
    /// # Errors
    /// `AddrInUse` when a process of this user holds it, `InvalidInput` for an impossible name or
    /// size, else the kernel's error.
    pub fn claim(name: &str, messages: usize, words: usize) -> io::Result<Reader> {
        let geometry = geometry(messages, words)?;
        Ok(Reader { listening: listen(&address(name)?)?, geometry, link: None })
    }

    /// Takes the next message into `into` and returns its length in words. A longer message is cut
    /// to the room in `into`, but its own length is returned; [`BROKEN`] for one that cannot be
    /// read. Makes no system call.
    #[inline]
    pub fn receive(&mut self, into: &mut [u64]) -> Option<usize> {
        let link = self.link.as_mut()?;
        let slot = link.consumer.peek()?;
        let mut words = ((slot.head & !IN_DATA) as usize).min(MESSAGE_WORDS_MAX);
        let room = words.min(into.len());
        if slot.head & IN_DATA == 0 {
            let words = words.min(BODY_WORDS);
            let room = words.min(room);
            into[..room].copy_from_slice(&slot.body[..room]);
            link.consumer.advance();
            return Some(words);
        }
        let at = link.consumer.data(slot.body[0], words * 8);
        match at.filter(|at| at.addr().is_multiple_of(8)) {
            Some(at) => {
                for (index, value) in into[..room].iter_mut().enumerate() {
                    // SAFETY: `data` has checked that so many bytes are mapped from there on, which
                    // is a multiple of eight; the segment lives as long as the link.
                    let shared = unsafe { word(at.cast_mut(), index * 8) };
                    *value = shared.load(Ordering::Relaxed);
                }
                link.consumer.release_data(slot.body[0].wrapping_add(words as u64 * 8));
            }
            // Only a broken writer names such a place.
            None => words = BROKEN,
        }
        link.consumer.advance();
        Some(words)
    }

    /// Accepts a writer if there is none, or finds out that it is gone and nothing is left to read.
    /// Makes system calls: call it now and then while nothing arrives.
    ///
    /// # Errors
    /// The kernel's, when a segment cannot be made.
    pub fn look(&mut self) -> io::Result<Change> {
        if let Some(link) = &self.link {
            if !has_hung_up(&link.peer) || !link.consumer.is_empty() {
                return Ok(Change::None);
            }
            self.link = None;
            return Ok(Change::Gone(0));
        }
        let Some(peer) = accept(self.listening.as_fd())? else { return Ok(Change::None) };
        let pid = listener_pid(peer.as_fd()).unwrap_or(0);
        let link = ReaderLink::make(peer, self.geometry)?;
        let fds = [link.segment_fd(), link.event.as_fd()];
        // A writer that is gone again is found at the next look.
        if send_descriptors(link.peer.as_fd(), &fds).is_ok() {
            self.link = Some(link);
            return Ok(Change::Came(pid));
        }
        Ok(Change::None)
    }

    /// Sleeps until a message is there, a writer comes or goes, or the time is over; then it
    /// returns false. It may return sooner.
    pub fn sleep(&mut self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap_or_default();
        let is_over = |found: rustix::io::Result<usize>| found == Ok(0);
        let Some(link) = &self.link else {
            let mut fds = [PollFd::new(&self.listening, PollFlags::IN)];
            return !is_over(poll(&mut fds, Some(&limit)));
        };
        link.event.drain();
        let is_sure = link.doorbell.arm();
        let mut is_awake = true;
        if link.consumer.is_empty() {
            let event = link.event.as_fd();
            let mut fds =
                [PollFd::new(&event, PollFlags::IN), PollFd::new(&link.peer, PollFlags::empty())];
            // Without the heavy fence a wake-up may be missed.
            let short = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let found = poll(&mut fds, Some(if is_sure { &limit } else { &short }));
            is_awake = !is_sure || !is_over(found);
        }
        link.doorbell.disarm();
        is_awake
    }
}

impl ReaderLink {
    fn make(peer: OwnedFd, geometry: Geometry) -> io::Result<Self> {
        let bytes = RING_AT + geometry.region_bytes();
        let segment = Segment::create(c"rdmalab-shm", bytes, RING_AT + geometry.data_at())?;
        let event = Event::create()?;
        // SAFETY: the first page of a fresh segment, which nobody else has yet, and which the link
        // drops after the doorbell.
        let doorbell = unsafe { Doorbell::create(segment.ptr()) };
        // SAFETY: within the segment, whose length was computed from the geometry; fresh memory is
        // zeroed.
        let (ring, length) = unsafe { (segment.ptr().add(RING_AT), segment.len() - RING_AT) };
        // SAFETY: as above.
        unsafe { spsc::format(ring, length, geometry) }.map_err(io::Error::other)?;
        // SAFETY: mapped as long as the link, and this is its only consumer.
        let consumer = unsafe { Consumer::attach(ring, length) }.map_err(io::Error::other)?;
        Ok(Self { consumer, doorbell, event, peer, _segment: segment })
    }

    fn segment_fd(&self) -> BorrowedFd<'_> {
        self._segment.as_fd()
    }
}

impl Drop for ReaderLink {
    fn drop(&mut self) {
        self.consumer.publish();
        self.consumer.set_closed();
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Writer {
    address: String,
    /// A connection over which the reader has not sent the segment yet.
    asked: Option<OwnedFd>,
    link: Option<WriterLink>,
}

#[derive(Debug)]
struct WriterLink {
    // As in `ReaderLink`, the segment comes last.
    producer: Producer,
    bell: Bell,
    event: Event,
    peer: OwnedFd,
    _segment: Segment,
}

impl Writer {
    /// The writing end for a name. Whether a process reads there shows at [`Writer::look`].
    ///
    /// # Errors
    /// `InvalidInput` for an impossible name.
    pub fn to(name: &str) -> io::Result<Writer> {
        Ok(Writer { address: address(name)?, asked: None, link: None })
    }

    /// Whether a reader is connected, as far as is known.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Sends a message. A system call only if the reader sleeps.
    ///
    /// # Errors
    /// Why not; then nothing was sent.
    #[inline]
    pub fn send(&mut self, words: &[u64]) -> Result<(), NotSent> {
        if words.len() > MESSAGE_WORDS_MAX {
            return Err(NotSent::TooLong);
        }
        let link = self.link.as_mut().ok_or(NotSent::Absent)?;
        let mut body = [0; BODY_WORDS];
        let mut head = words.len() as u32;
        if words.len() <= BODY_WORDS {
            body[..words.len()].copy_from_slice(words);
        } else {
            if words.len() * 8 > link.producer.geometry().max_reservation() {
                return Err(NotSent::TooLong);
            }
            if !link.producer.can_push(1) {
                return Err(NotSent::Full);
            }
            let place = link.producer.reserve_data(words.len() * 8).ok_or(NotSent::Full)?;
            for (index, value) in words.iter().enumerate() {
                // SAFETY: so many bytes were reserved from there on, aligned to 64; the segment
                // lives as long as the link.
                unsafe { word(place.ptr, index * 8) }.store(*value, Ordering::Relaxed);
            }
            (head, body[0]) = (head | IN_DATA, place.pos);
        }
        link.producer.push(head, &body).map_err(|_| NotSent::Full)?;
        if link.bell.ring_needed() {
            link.bell.ring(|| link.event.signal());
        }
        Ok(())
    }

    /// Connects to a reader if there is one, or finds out that it is gone. Makes system calls: call
    /// it now and then.
    ///
    /// # Errors
    /// The kernel's, and `InvalidData` for a reader of another version.
    pub fn look(&mut self) -> io::Result<Change> {
        if let Some(link) = &self.link {
            if !has_hung_up(&link.peer) {
                return Ok(Change::None);
            }
            let unread = link.producer.position() - link.producer.consumed();
            self.link = None;
            return Ok(Change::Gone(unread));
        }
        if self.asked.is_none() {
            self.asked = match connect(&self.address) {
                Ok(peer) => Some(peer),
                // No reader, or too many writers wait for it.
                Err(error) => match error.kind() {
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => None,
                    _ => return Err(error),
                },
            };
        }
        let Some(asked) = &self.asked else { return Ok(Change::None) };
        match receive_descriptors(asked.as_fd()) {
            Ok(None) => Ok(Change::None),
            Ok(Some(fds)) => {
                let Some(peer) = self.asked.take() else { return Ok(Change::None) };
                let pid = listener_pid(peer.as_fd()).unwrap_or(0);
                self.link = Some(WriterLink::of(peer, fds)?);
                Ok(Change::Came(pid))
            }
            Err(error) => {
                self.asked = None;
                match error.kind() {
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                        Ok(Change::None)
                    }
                    _ => Err(error),
                }
            }
        }
    }

    /// Messages that the reader has not taken yet, as far as it has published.
    #[must_use]
    pub fn unread(&self) -> u64 {
        let unread = |link: &WriterLink| link.producer.position() - link.producer.consumed();
        self.link.as_ref().map_or(0, unread)
    }
}

impl WriterLink {
    fn of(peer: OwnedFd, [segment, event]: [OwnedFd; 2]) -> io::Result<Self> {
        let segment = Segment::from_fd(segment, RING_AT + SLOT_BYTES_MIN)?;
        let event = Event::from_fd(event)?;
        // SAFETY: the first page of the segment, which the link drops after the bell.
        let bell = unsafe { Bell::attach(segment.ptr()) };
        // SAFETY: the segment is longer, as was just checked.
        let (ring, length) = unsafe { (segment.ptr().add(RING_AT), segment.len() - RING_AT) };
        // SAFETY: mapped as long as the link. The reader makes a segment for each writer, so this
        // is its only producer.
        let producer = unsafe { Producer::attach(ring, length) };
        let producer =
            producer.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Self { producer, bell, event, peer, _segment: segment })
    }
}

/// The least that is mapped behind the doorbell; the ring checks its own length.
const SLOT_BYTES_MIN: usize = 4096;

impl Drop for WriterLink {
    fn drop(&mut self) {
        self.producer.set_closed();
        self.bell.ring(|| self.event.signal());
    }
}

fn send_descriptors(to: BorrowedFd<'_>, fds: &[BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(to, &[io::IoSlice::new(&HELLO)], &mut control, flags)?;
    Ok(())
}

/// The descriptors that the reader has sent; `None` when it has not yet.
fn receive_descriptors(from: BorrowedFd<'_>) -> io::Result<Option<[OwnedFd; 2]>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut said = [0; HELLO.len()];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let came = recvmsg(from, &mut [io::IoSliceMut::new(&mut said)], &mut control, flags);
    let bytes = match came {
        Ok(came) => came.bytes,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut fds = Vec::with_capacity(2);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            fds.extend(some);
        }
    }
    match <[OwnedFd; 2]>::try_from(fds) {
        Ok(fds) if said == HELLO => Ok(Some(fds)),
        _ => {
            let why = "the process that reads there is of another version";
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn own_name(what: &str) -> String {
        format!("/test-{}-{what}", std::process::id())
    }

    /// Both ends of a name, connected.
    fn ends(what: &str, messages: usize, words: usize) -> (Writer, Reader) {
        let name = own_name(what);
        let mut reader = Reader::claim(&name, messages, words).unwrap();
        let mut writer = Writer::to(&name).unwrap();
        assert_eq!(writer.look().unwrap(), Change::None, "asked");
        assert!(matches!(reader.look().unwrap(), Change::Came(_)));
        assert!(matches!(writer.look().unwrap(), Change::Came(_)));
        (writer, reader)
    }

    #[test]
    fn short_and_long_messages_arrive_in_order() {
        let (mut writer, mut reader) = ends("order", 16, 32);
        let mut into = [0; 40];
        for round in 0..200_u64 {
            let sent: Vec<u64> = (0..round % 33).map(|i| round << 32 | i).collect();
            writer.send(&sent).unwrap();
            assert_eq!(reader.receive(&mut into), Some(sent.len()));
            assert_eq!(into[..sent.len()], sent);
        }
        assert_eq!(reader.receive(&mut into), None);
        writer.send(&[7; 20]).unwrap();
        let mut small = [0; 3];
        assert_eq!(reader.receive(&mut small), Some(20), "cut, and says so");
        assert_eq!(small, [7; 3]);
        assert_eq!(writer.send(&[0; MESSAGE_WORDS_MAX + 1]), Err(NotSent::TooLong));
        // Not `Full`: such a message never has room, so trying again is in vain.
        let (mut writer, _reader) = ends("long", 4, 8);
        assert_eq!(writer.send(&[0; MESSAGE_WORDS_MAX]), Err(NotSent::TooLong));
    }

    #[test]
    fn a_full_ring_refuses_and_has_room_again() {
        let (mut writer, mut reader) = ends("full", 4, 8);
        let mut sent = 0;
        while writer.send(&[sent; 8]).is_ok() {
            sent += 1;
        }
        assert!(sent >= 4, "{sent}");
        assert_eq!(writer.send(&[0; 8]), Err(NotSent::Full));
        let mut into = [0; 8];
        for expected in 0..sent {
            assert_eq!(reader.receive(&mut into), Some(8));
            assert_eq!(into, [expected; 8]);
        }
        assert_eq!(reader.receive(&mut into), None);
        writer.send(&[9; 8]).unwrap();
    }

    #[test]
    fn either_end_may_go_and_come_back() {
        let name = own_name("again");
        let (mut writer, mut reader) = ends("again", 8, 4);
        let mut into = [0; 4];
        writer.send(&[1]).unwrap();
        drop(writer);
        assert_eq!(reader.look().unwrap(), Change::None, "there is a message to read");
        assert_eq!(reader.receive(&mut into), Some(1));
        assert_eq!(reader.look().unwrap(), Change::Gone(0));
        let mut writer = Writer::to(&name).unwrap();
        assert_eq!(writer.send(&[1]), Err(NotSent::Absent));
        writer.look().unwrap();
        assert!(matches!(reader.look().unwrap(), Change::Came(_)));
        writer.look().unwrap();
        writer.send(&[2]).unwrap();
        drop(reader);
        assert_eq!(writer.look().unwrap(), Change::Gone(1));
        assert_eq!(writer.look().unwrap(), Change::None);
        let mut reader = Reader::claim(&name, 8, 4).unwrap();
        assert_eq!(Reader::claim(&name, 8, 4).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        writer.look().unwrap();
        reader.look().unwrap();
        writer.look().unwrap();
        writer.send(&[3]).unwrap();
        assert_eq!((reader.receive(&mut into), into[0]), (Some(1), 3));
    }

    #[test]
    fn a_sleeping_reader_wakes() {
        let (mut writer, mut reader) = ends("sleep", 8, 4);
        let (taken, next) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut into = [0; 4];
            for _ in 0..1000 {
                while reader.receive(&mut into).is_none() {
                    assert!(reader.sleep(Duration::from_secs(60)), "not woken");
                }
                taken.send(into[0]).unwrap();
            }
        });
        for number in 0..1000 {
            writer.send(&[number]).unwrap();
            assert_eq!(next.recv(), Ok(number));
        }
        thread.join().unwrap();
    }

    #[test]
    fn a_sleep_without_a_message_ends_with_its_time() {
        let (_writer, mut reader) = ends("silent", 8, 4);
        let is_sure = reader.link.as_ref().unwrap().doorbell.arm();
        assert_eq!(reader.sleep(Duration::ZERO), !is_sure);
    }

    #[test]
    fn a_message_at_an_impossible_place_is_broken() {
        let (mut writer, mut reader) = ends("broken", 8, 4);
        let mut into = [7; 8];
        for place in [u64::MAX, 4] {
            let producer = &mut writer.link.as_mut().unwrap().producer;
            producer.push(IN_DATA | 8, &[place; BODY_WORDS]).unwrap();
            assert_eq!(reader.receive(&mut into), Some(BROKEN));
        }
        writer.send(&[3]).unwrap();
        assert_eq!((reader.receive(&mut into), into[0]), (Some(1), 3));
    }

    #[test]
    fn impossible_names_and_sizes_are_refused() {
        for name in ["", "a\0b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(Writer::to(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        for (messages, words) in [(usize::MAX, 8), (8, usize::MAX), (1 << 40, 1 << 20)] {
            let error = Reader::claim("/x", messages, words).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{messages} {words}");
        }
    }
}
