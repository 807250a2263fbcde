//! Wakes a process that sleeps; if it is awake, this costs no system call.
//!
//! A doorbell is one word in a segment of the process that sleeps. The sleeper *arms* it, checks
//! its rings once more, and sleeps on its [`Event`]. After a push, the pusher calls
//! [`Bell::ring_needed`], and [`Bell::ring`] if that is true. Either the sleeper sees the message,
//! or the pusher sees the armed bell (modelled with loom below).
//!
//! A pusher signals first and disarms the bell afterwards. If it is killed in between, other
//! pushers send a needless signal, but no wake-up is lost. Each arming has a new number, so that a
//! late pusher cannot disarm a later arming.

use crate::fence::{self, Strength};
use crate::sync::{AtomicU64, LINE, Ordering, word};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

const ARMED_AT: usize = 0;
const HEAVY_AT: usize = LINE;

/// Bytes that a doorbell occupies in its owner's segment.
pub const DOORBELL_BYTES: usize = 2 * LINE;

/// The sleeper's end. One thread at a time may be between `arm` and `disarm`.
#[derive(Debug)]
pub struct Doorbell {
    base: *mut u8,
    /// The number of the latest arming.
    arming: AtomicU64,
}

// SAFETY: the pointer is to shared words that are touched atomically only.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

impl Doorbell {
    /// Sets up the doorbell of this process, and records in it whether this process can execute the
    /// heavy fence. Do this before a peer gets the segment.
    ///
    /// # Safety
    /// `base` must be aligned to 8 bytes and point to [`DOORBELL_BYTES`] zeroed bytes that stay
    /// mapped and writable as long as the doorbell lives, and are touched by this module only.
    pub unsafe fn create(base: *mut u8) -> Doorbell {
        let bell = Doorbell { base, arming: AtomicU64::new(0) };
        // SAFETY: within DOORBELL_BYTES, aligned, mapped.
        unsafe { word(base, HEAVY_AT) }.store(fence::heavy_available().into(), Ordering::Release);
        bell
    }

    #[inline(always)]
    fn armed(&self) -> &AtomicU64 {
        // SAFETY: the first of DOORBELL_BYTES, which `create` was promised.
        unsafe { word(self.base, ARMED_AT) }
    }

    /// Announces that this process is about to sleep. Check every ring after it, and sleep only if
    /// all are empty. Clear the event ([`Event::drain`]) *before* arming, so that a signal for this
    /// arming is not lost.
    ///
    /// False when the heavy fence has failed although it was promised to the peers (a seccomp
    /// filter that came later): then a wake-up may be missed, and the sleep must have a bound.
    #[must_use = "if false, the sleep must have a bound"]
    pub fn arm(&self) -> bool {
        let number = self.arming.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.armed().store(number, Ordering::Relaxed);
        // SAFETY: within DOORBELL_BYTES, as `create` was promised.
        let promised = unsafe { word(self.base, HEAVY_AT) }.load(Ordering::Relaxed) != 0;
        // Without the promise the pushers execute full fences, which pair with that in `heavy`.
        fence::heavy() || !promised
    }

    /// Announces that this process is awake and polls its rings.
    #[inline(always)]
    pub fn disarm(&self) {
        self.armed().store(0, Ordering::Relaxed);
    }

    /// Whether the bell is armed: false after a pusher rang it.
    #[inline(always)]
    pub fn is_armed(&self) -> bool {
        self.armed().load(Ordering::Relaxed) != 0
    }
}

/// A pusher's view of another process's doorbell.
#[derive(Debug)]
pub struct Bell {
    base: *mut u8,
    strength: Strength,
}

// SAFETY: the pointer is to shared words that are touched atomically only.
unsafe impl Send for Bell {}
// SAFETY: as above.
unsafe impl Sync for Bell {}

impl Bell {
    /// Attaches to the doorbell that its owner has created at `base`, and chooses the fence.
    ///
    /// # Safety
    /// `base` must be aligned to 8 bytes and point to [`DOORBELL_BYTES`] bytes that stay mapped and
    /// writable as long as the bell lives.
    pub unsafe fn attach(base: *mut u8) -> Bell {
        // SAFETY: within DOORBELL_BYTES, aligned, mapped.
        let heavy = unsafe { word(base, HEAVY_AT) }.load(Ordering::Acquire) != 0;
        Bell { base, strength: Strength::towards(heavy) }
    }

    #[inline(always)]
    fn armed(&self) -> &AtomicU64 {
        // SAFETY: the first of DOORBELL_BYTES, which `attach` was promised.
        unsafe { word(self.base, ARMED_AT) }
    }

    /// Call it after a push: whether the owner sleeps, or is about to, so that the caller must call
    /// [`Bell::ring`]. While the owner is awake, this is one load of a line that rarely changes.
    #[inline(always)]
    pub fn ring_needed(&self) -> bool {
        self.strength.fence();
        self.armed().load(Ordering::Relaxed) != 0
    }

    /// Calls `signal`, which signals the owner's [`Event`], unless the bell was disarmed meanwhile.
    /// Returns whether it called `signal`.
    #[cold]
    pub fn ring(&self, signal: impl FnOnce()) -> bool {
        let arming = self.armed().load(Ordering::Relaxed);
        if arming == 0 {
            return false;
        }
        signal();
        // If this fails, another pusher has disarmed the bell, or the owner is awake already.
        let _ = self.armed().compare_exchange(arming, 0, Ordering::AcqRel, Ordering::Relaxed);
        true
    }
}

/// An event descriptor: a counter to sleep on, which can be passed to peers.
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
}

impl Event {
    /// A new event, not signalled; its descriptor is non-blocking and close-on-exec. Errors: the
    /// kernel's (EMFILE, ENFILE, ENOMEM).
    pub fn create() -> io::Result<Event> {
        // SAFETY: takes integers only.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Event { fd })
    }

    /// An event whose descriptor came from a peer.
    ///
    /// # Errors
    /// `InvalidData` when a signal on it could block the caller: the descriptor (whose flags all
    /// holders share) is blocking and cannot be made non-blocking.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Event> {
        // SAFETY: system calls on a descriptor that we own, with integers.
        let done = unsafe {
            let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
            flags >= 0
                && (flags & libc::O_NONBLOCK != 0
                    || libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) == 0)
        };
        if done {
            Ok(Event { fd })
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the event's descriptor may block"))
        }
    }

    /// Wakes the process that waits, now or at its next wait. Never blocks. One system call. An
    /// event whose counter is full is signalled already, so there is no error to report.
    pub fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: reads eight bytes of a live array.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Clears all signals so far. Returns whether there was one.
    pub fn drain(&self) -> bool {
        let mut count = [0_u8; 8];
        let fd = self.fd.as_raw_fd();
        // SAFETY: writes at most eight bytes to a live array.
        let got = unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        got == 8
    }

    /// Sleeps until the event is signalled (true; it stays so until drained), or until `timeout`
    /// has passed or a signal handler has run (false). `None` sleeps without a bound.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: t.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: one live pollfd; the time-out is null or a live timespec; no signal mask.
        let ready = unsafe { libc::ppoll(&raw mut poll, 1, limit, core::ptr::null()) };
        ready > 0 && poll.revents & libc::POLLIN != 0
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Words;
    use std::sync::Arc;

    #[test]
    fn only_an_armed_bell_needs_ringing_and_only_once() {
        let words = Words::new(DOORBELL_BYTES);
        // SAFETY: zeroed words of the right size that outlive both ends.
        let (owner, bell) = unsafe { (Doorbell::create(words.base()), Bell::attach(words.base())) };
        assert!(!bell.ring_needed());
        assert!(owner.arm());
        assert!(owner.is_armed());
        assert!(bell.ring_needed());
        let mut signals = 0;
        assert!(bell.ring(|| signals += 1));
        assert!(!bell.ring_needed());
        assert!(!bell.ring(|| signals += 1));
        assert_eq!(signals, 1);
        assert!(!owner.is_armed());
        assert!(owner.arm());
        owner.disarm();
        assert!(!bell.ring_needed());
    }

    /// A pusher that disarms late leaves the next arming alone. A pusher that was killed before it
    /// could disarm leaves an armed bell, which others ring.
    #[test]
    fn a_late_or_dead_pusher_does_not_silence_the_bell() {
        let words = Words::new(DOORBELL_BYTES);
        // SAFETY: zeroed words of the right size that outlive both ends.
        let (owner, bell) = unsafe { (Doorbell::create(words.base()), Bell::attach(words.base())) };
        assert!(owner.arm());
        assert!(bell.ring(|| {
            assert!(bell.ring_needed(), "unarmed before the signal");
            owner.disarm();
            assert!(owner.arm());
        }));
        assert!(bell.ring_needed(), "the second arming was silenced");
    }

    #[test]
    fn an_event_counts_signals_until_drained() {
        let event = Event::create().unwrap();
        assert!(!event.wait(Some(Duration::ZERO)));
        assert!(!event.drain());
        let peer = Event::from_fd(event.as_fd().try_clone_to_owned().unwrap()).unwrap();
        peer.signal();
        peer.signal();
        assert!(event.wait(None));
        assert!(event.drain());
        assert!(!event.wait(Some(Duration::from_millis(1))));
    }

    /// Real threads, real membarrier: each message is answered, so a lost wake-up hangs the test.
    #[test]
    fn no_wake_up_is_lost_between_threads() {
        const ROUNDS: u64 = 20_000;
        let words = Arc::new(Words::new(DOORBELL_BYTES + 2 * LINE));
        let event = Arc::new(Event::create().unwrap());
        // SAFETY: zeroed words of the right size, kept alive by the Arc.
        let owner = unsafe { Doorbell::create(words.base()) };
        let sleeper = {
            let (words, event) = (words.clone(), event.clone());
            std::thread::spawn(move || {
                // SAFETY: a word behind the doorbell.
                let inbox = unsafe { word(words.base(), DOORBELL_BYTES) };
                // SAFETY: as above.
                let reply = unsafe { word(words.base(), DOORBELL_BYTES + LINE) };
                for round in 1..=ROUNDS {
                    while inbox.load(Ordering::Acquire) < round {
                        event.drain();
                        assert!(owner.arm());
                        if inbox.load(Ordering::Acquire) < round {
                            event.wait(None);
                        }
                        owner.disarm();
                    }
                    reply.store(round, Ordering::Release);
                }
            })
        };
        // SAFETY: the doorbell is created, and the Arc keeps it alive.
        let bell = unsafe { Bell::attach(words.base()) };
        // SAFETY: words behind the doorbell.
        let (inbox, reply) = unsafe {
            (word(words.base(), DOORBELL_BYTES), word(words.base(), DOORBELL_BYTES + LINE))
        };
        for round in 1..=ROUNDS {
            inbox.store(round, Ordering::Release);
            if bell.ring_needed() {
                bell.ring(|| event.signal());
            }
            while reply.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
        }
        sleeper.join().unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_model {
    use super::*;
    use crate::sync::Words;
    use loom::sync::Arc;
    use loom::thread;

    /// Two pushers and a sleeper. If the sleeper, after arming, does not see both messages, then a
    /// pusher rings.
    #[test]
    fn loom_no_lost_wake_up() {
        loom::model(|| {
            let words = Arc::new(Words::new(DOORBELL_BYTES + 2 * LINE));
            // SAFETY: zeroed words of the right size, kept alive by the Arc.
            let owner = unsafe { Doorbell::create(words.base()) };
            let pushers: Vec<_> = (0..2)
                .map(|index| {
                    let words = words.clone();
                    thread::spawn(move || {
                        // SAFETY: the doorbell is created, and the Arc keeps it alive.
                        let bell = unsafe { Bell::attach(words.base()) };
                        // SAFETY: a word behind the doorbell.
                        unsafe { word(words.base(), DOORBELL_BYTES + index * LINE) }
                            .store(1, Ordering::Release);
                        bell.ring_needed() && bell.ring(|| {})
                    })
                })
                .collect();
            assert!(owner.arm());
            let seen = (0..2)
                // SAFETY: words behind the doorbell.
                .map(|i| unsafe { word(words.base(), DOORBELL_BYTES + i * LINE) })
                .filter(|inbox| inbox.load(Ordering::Acquire) != 0)
                .count();
            let rings = pushers.into_iter().map(|p| p.join().unwrap()).filter(|rang| *rang).count();
            assert!(seen == 2 || rings > 0, "seen {seen}, rings {rings}");
        });
    }
}
