//! The capture: packets go into a bounded queue, and a thread writes them to the file.
//!
//! A thread that sends or receives only copies the packet into the queue; of most packets, only
//! what differs from an earlier one ([`Template`]). The writer thread sleeps until there is a
//! packet, lets packets gather for some milliseconds, completes them, computes the checksums and
//! writes. When the queue is a quarter full, only the headers of packets are kept; when it is full,
//! packets are left out. Both are counted and reported. Capturing slows a program down, but never
//! blocks it. The queue is written out when the process exits or closes its device. A process that
//! is killed loses what waits in the queue.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_link::frame_headers::FrameHeaders;
use rdmalab_link::hook::Direction;
use rdmalab_link::pcapng::{
    self, Assembler, CUT_BYTES, Capture, Template, TemplatePair, Templates,
};
use rdmalab_ring::biased::{self, BiasedGuard, BiasedLock};

use super::capture_clock::{CaptureClock, wall_ns};
use super::capture_file::{create, lock};
use super::chosen::CHOSEN;
use crate::cancel::NoCancel;
use crate::device::DEVICES;
use crate::signals::{block_signals, restore_signals};

/// Bytes of the queue. A second buffer of the same size is being written. Pages that were never
/// used take no memory.
const QUEUE_BYTES: usize = 64 << 20;
/// Alignment for `madvise`: a page or a multiple.
const PAGE_BYTES: usize = 64 << 10;
/// When this many bytes wait, only the headers of further packets are kept: room for 260 000
/// packets and more. With a limit of half the queue, packets of 1 KiB between near cores went at
/// less than half their rate.
const CUT_AT_BYTES: usize = QUEUE_BYTES / 4;
/// When this many bytes wait, the writer thread stops waiting for more.
const HURRY_AT_BYTES: usize = 2 << 20;
/// How long packets gather before they are written, unless many wait already.
const GATHER: Duration = Duration::from_millis(4);
/// If processors are scarce, the program has priority. With two spinning programs on two
/// processors, a writer at nice 5 cost them three quarters of their message rate at 1 KiB.
const WRITER_NICE: i32 = 19;
/// Bytes of a frame that are kept by default: no packet is longer.
const SNAP_BYTES: usize = 65_535;
/// The least snap length: every packet's headers fit. A cut packet keeps this many bytes.
const SNAP_BYTES_MIN: usize = CUT_BYTES;

/// A packet to capture.
pub(crate) struct Record<'a> {
    pub(crate) direction: Direction,
    pub(crate) headers: &'a FrameHeaders,
    /// Bytes from the BTH to the end of the payload; for a complete packet to the end of the ICRC.
    pub(crate) bytes: usize,
    pub(crate) complete: bool,
    pub(crate) spoilt: bool,
    pub(crate) comment: &'a str,
}

/// The capture of this process.
pub(crate) struct Tap {
    /// One thread takes this lock nearly always, the writer a few hundred times a second.
    queue: BiasedLock<Queue>,
    writer: OnceLock<Thread>,
    output: Mutex<Output>,
    snap: usize,
    path: PathBuf,
    /// This is the copy of a tap in a forked child.
    defunct: AtomicBool,
    /// The process exits: the writer thread no longer empties the queue.
    closed: AtomicBool,
}

/// Room for one packet in the queue. The queue is locked as long as this exists.
pub(crate) struct Entry<'a> {
    tap: &'a Tap,
    queue: BiasedGuard<'a, Queue>,
    device: usize,
    snap: usize,
    /// Less is kept than the user's snap length.
    cuts: bool,
}

/// A packet in short form whose tail is to be written. The queue is locked as long as this exists.
pub(crate) struct ShortEntry<'a> {
    tap: &'a Tap,
    queue: BiasedGuard<'a, Queue>,
    /// Where the tail goes, in the queue.
    place: *mut [u8],
    bytes: usize,
    /// Bytes of the tail that are kept.
    pub(crate) tail_bytes: usize,
}

impl ShortEntry<'_> {
    /// The tail's place, of [`pcapng::TAIL_ROOM`] bytes at least.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> &mut [u8] {
        // SAFETY: a part of the queue's buffer, which this value alone may use: it has the lock.
        unsafe { &mut *self.place }
    }

    /// Queues the packet.
    #[inline(always)]
    pub(crate) fn queue(self) {
        self.tap.account(self.queue, self.bytes);
    }
}

struct Queue {
    /// Holds pcapng blocks and packets in short form in its first `used` bytes.
    buffer: Box<[u8]>,
    used: usize,
    /// The writer thread is woken when more bytes wait: 0 while it sleeps.
    wake_above: usize,
    seen: [u64; DEVICES as usize],
    dropped: [u64; DEVICES as usize],
    /// Packets left out since the last one that was kept.
    dropped_since: u64,
    /// Packets cut to their headers for lack of room.
    cut: u64,
    stamps: CaptureClock,
    templates: Templates,
}

struct Output {
    file: File,
    /// The queue's other buffer.
    spare: Box<[u8]>,
    assembler: Assembler,
    /// Writing failed; nothing more is written.
    failed: bool,
}

/// Allocates a buffer whose pages take no memory until they are used. Asks for huge pages, because
/// the first packet in each new page has to wait for that page.
fn buffer() -> Box<[u8]> {
    let mut buffer = vec![0; QUEUE_BYTES].into_boxed_slice();
    let inside = buffer.as_mut_ptr().align_offset(PAGE_BYTES);
    // SAFETY: whole pages of the buffer, which is longer than one. Advice changes no content, and
    // may fail.
    unsafe {
        let start = buffer.as_mut_ptr().add(inside);
        libc::madvise(start.cast(), QUEUE_BYTES - PAGE_BYTES, libc::MADV_HUGEPAGE);
    }
    buffer
}

/// The tap of this process, for the exit handler.
static TAP: AtomicPtr<Tap> = AtomicPtr::new(std::ptr::null_mut());

/// The file that the program chose, or that `RDMALAB_CAPTURE` names.
fn asked() -> Option<OsString> {
    let chosen = CHOSEN.get().and_then(|(capture, _)| capture.clone());
    let asked = chosen.map(OsString::from).or_else(|| std::env::var_os("RDMALAB_CAPTURE"));
    asked.filter(|path| !path.is_empty())
}

/// Whether a capture is to be made.
pub(crate) fn is_asked_for() -> bool {
    asked().is_some()
}

/// The tap that `RDMALAB_CAPTURE` asks for.
pub(super) fn from_environment() -> VerbsResult<Option<&'static Tap>> {
    let Some(path) = asked() else { return Ok(None) };
    let refused = |error: VerbsError| {
        // The verb's error may not reach the user, so print it as well.
        crate::warn(&error.to_string());
        error
    };
    let tap = snap().and_then(|snap| Tap::open(FilePath::new(&path), snap)).map_err(refused)?;
    let tap: &'static Tap = Box::leak(Box::new(tap));
    tap.start().map_err(refused)?;
    Ok(Some(tap))
}

fn snap() -> VerbsResult<usize> {
    let text = std::env::var("RDMALAB_CAPTURE_SNAP").unwrap_or_default();
    if text.is_empty() {
        return Ok(SNAP_BYTES);
    }
    let snap = text.parse().ok().filter(|snap| (SNAP_BYTES_MIN..=SNAP_BYTES).contains(snap));
    snap.ok_or_else(|| {
        VerbsError::invalid(format!(
            "RDMALAB_CAPTURE_SNAP is {text:?}: it must be a number of bytes, {SNAP_BYTES_MIN} to \
             {SNAP_BYTES}"
        ))
    })
}

impl Tap {
    pub(super) fn open(path: &FilePath, snap: usize) -> VerbsResult<Tap> {
        let failed = |error: std::io::Error| {
            let errno = error.raw_os_error().unwrap_or(VerbsError::EINVAL);
            let shown = path.display();
            VerbsError::new(errno, format!("cannot write the capture {shown}: {error}"))
        };
        let (mut file, path) = create(path).map_err(failed)?;
        lock(&file);
        let mut start = Vec::new();
        let application = concat!("rdmalab ", env!("CARGO_PKG_VERSION"));
        let process = std::env::args_os().next().unwrap_or_default();
        let comment = format!(
            "Device KIND: soft. Captured by process {} ({}). Packets of shared memory are shown as \
             the RoCEv2 frames that they would be on Ethernet.",
            std::process::id(),
            process.to_string_lossy(),
        );
        pcapng::section(&mut start, application, &comment);
        for device in 0..DEVICES {
            let name = format!("soft{device}");
            pcapng::interface(&mut start, &name, "soft RDMA device of rdmalab", snap as u32);
        }
        file.write_all(&start).map_err(failed)?;
        let queue = Queue {
            buffer: buffer(),
            used: 0,
            wake_above: 0,
            seen: [0; DEVICES as usize],
            dropped: [0; DEVICES as usize],
            dropped_since: 0,
            cut: 0,
            stamps: CaptureClock::new(),
            templates: Templates::default(),
        };
        let (spare, assembler) = (buffer(), Assembler::default());
        Ok(Tap {
            queue: BiasedLock::new(queue),
            writer: OnceLock::new(),
            output: Mutex::new(Output { file, spare, assembler, failed: false }),
            snap,
            path,
            defunct: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        })
    }

    fn start(&'static self) -> VerbsResult<()> {
        TAP.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler touches the leaked tap only.
            unsafe { libc::atexit(at_exit) };
        });
        let before = block_signals();
        let spawned = std::thread::Builder::new()
            .name("rdmalab-capture".into())
            .stack_size(256 * 1024)
            .spawn(move || self.write_for_ever());
        restore_signals(&before);
        let spawned = spawned.map_err(|error| {
            crate::error::os_error("cannot start the thread that writes the capture", &error)
        })?;
        let _ = self.writer.set(spawned.thread().clone());
        Ok(())
    }

    /// The file.
    pub(crate) fn path(&self) -> &FilePath {
        &self.path
    }

    /// Counts a packet of `packet_bytes` (BTH to ICRC), and reserves room for it. `None` if there
    /// is no room, so that the caller spends no time on a packet that is left out.
    #[inline]
    pub(crate) fn entry(&self, device: u32, packet_bytes: usize) -> Option<Entry<'_>> {
        let device = device as usize % DEVICES as usize;
        let mut queue = self.queue.lock();
        queue.seen[device] += 1;
        let cuts = queue.used > CUT_AT_BYTES && self.snap > SNAP_BYTES_MIN;
        let snap = if cuts { SNAP_BYTES_MIN } else { self.snap };
        if QUEUE_BYTES - queue.used < packet_bytes.min(snap) + pcapng::BLOCK_OVERHEAD {
            queue.dropped[device] += 1;
            queue.dropped_since += 1;
            return None;
        }
        Some(Entry { tap: self, queue, device, snap, cuts })
    }

    /// Counts a packet that has a template, and writes all but its tail. `psn` is that of
    /// [`pcapng::Form::write`]. `None`, and nothing happened, if there is no room, or its block
    /// needs an option, or the queue does not know the template any more.
    #[inline(always)]
    pub(crate) fn short_entry(
        &self,
        device: u32,
        template: &Template,
        psn: [u8; 4],
    ) -> Option<ShortEntry<'_>> {
        let mut guard = self.queue.lock();
        let queue = &mut *guard;
        if queue.dropped_since > 0 {
            return None;
        }
        let forms = queue.templates.forms(template)?;
        let cut = forms.cut.as_ref().filter(|_| queue.used > CUT_AT_BYTES);
        let form = cut.unwrap_or(&forms.whole);
        let at_ns = queue.stamps.now_ns();
        let place = form.write(queue.buffer.get_mut(queue.used..)?, (at_ns, psn));
        let place = std::ptr::from_mut(place?);
        let (bytes, tail_bytes) = (form.bytes(), form.tail_bytes());
        queue.seen[device as usize % DEVICES as usize] += 1;
        queue.cut += u64::from(cut.is_some());
        Some(ShortEntry { tap: self, queue: guard, place, bytes, tail_bytes })
    }

    /// Accounts for a packet that was written behind the others, and wakes the writer thread if it
    /// is time.
    #[inline(always)]
    fn account(&self, mut queue: BiasedGuard<'_, Queue>, length: usize) {
        queue.used += length;
        if queue.used > queue.wake_above {
            self.wake_writer(queue);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_writer(&self, mut queue: BiasedGuard<'_, Queue>) {
        queue.wake_above = if queue.wake_above == 0 { HURRY_AT_BYTES } else { usize::MAX };
        drop(queue);
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    fn write_for_ever(&self) {
        biased::be_guest();
        let ordinary = libc::sched_param { sched_priority: 0 };
        // SAFETY: numbers and a live structure. Both calls affect this thread only, which zero
        // means. It may have inherited the real-time priority of the program.
        unsafe {
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary);
            libc::setpriority(libc::PRIO_PROCESS, 0, WRITER_NICE);
        }
        loop {
            let mut queue = self.queue.lock();
            let used = queue.used;
            queue.wake_above = if used == 0 { 0 } else { HURRY_AT_BYTES };
            drop(queue);
            if used == 0 {
                std::thread::park();
                continue;
            }
            if used < HURRY_AT_BYTES {
                std::thread::park_timeout(GATHER);
            }
            self.flush();
        }
    }

    /// Writes the queued packets.
    pub(crate) fn flush(&self) {
        if !self.defunct.load(Ordering::Relaxed) {
            self.write_queued(&mut self.output.lock());
        }
    }

    fn write_queued(&self, output: &mut Output) {
        let _no_cancel = NoCancel::new();
        let (used, fresh) = {
            let mut queue = self.queue.lock();
            std::mem::swap(&mut queue.buffer, &mut output.spare);
            if output.failed {
                queue.dropped_since = 0;
            }
            (std::mem::take(&mut queue.used), queue.templates.take_fresh())
        };
        if used == 0 || output.failed {
            return;
        }
        let Output { file, spare, assembler, failed } = output;
        let written =
            assembler.assemble(&mut spare[..used], fresh, |blocks| file.write_all(blocks));
        if let Err(error) = written {
            *failed = true;
            let path = self.path.display();
            crate::warn(&format!("the capture {path} ends early: {error}"));
        }
    }

    /// Writes the queued packets and the statistics, and reports which packets are missing.
    fn close(&self) {
        if self.defunct.load(Ordering::Relaxed) {
            return;
        }
        self.closed.store(true, Ordering::SeqCst);
        let mut output = self.output.lock();
        self.write_queued(&mut output);
        let (seen, dropped, cut) = {
            let queue = self.queue.lock();
            (queue.seen, queue.dropped, queue.cut)
        };
        let mut sums = Vec::new();
        for device in 0..DEVICES as usize {
            let at_ns = wall_ns();
            pcapng::statistics(&mut sums, device as u32, at_ns, seen[device], dropped[device]);
        }
        let _ = output.file.write_all(&sums);
        let (seen, dropped): (u64, u64) = (seen.iter().sum(), dropped.iter().sum());
        if dropped + cut > 0 {
            // In one write, because two processes often print this at the same moment.
            let line = format!(
                "rdmalab: of {seen} packets, {dropped} are missing in the capture {} and {cut} \
                 have only their headers: it could not be written as fast as they came \
                 (RDMALAB_CAPTURE_SNAP keeps less of each)\n",
                self.path.display()
            );
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Writes packets that were queued after [`Tap::close`], unless another thread does.
    pub(crate) fn write_if_late(&self) {
        if self.closed.load(Ordering::SeqCst)
            && !self.defunct.load(Ordering::Relaxed)
            && let Some(mut output) = self.output.try_lock()
        {
            self.write_queued(&mut output);
        }
    }

    /// In the child of a fork: neither its file nor its thread is ours.
    pub(crate) fn close_in_child(&self) {
        self.defunct.store(true, Ordering::Relaxed);
    }
}

impl Entry<'_> {
    /// Whether this packet is to become the template of packets with this key.
    pub(crate) fn wants(&self, pair: &TemplatePair, key: u64) -> bool {
        pair.wants(key, &self.queue.templates)
    }

    /// Queues the packet; `fill` writes the part of its bytes that is kept. If there is a pair,
    /// the packet becomes its template of packets with the key; the number is that of the bytes
    /// between its BTH and its pad.
    #[inline]
    pub(crate) fn record(
        mut self,
        record: &Record<'_>,
        fill: impl FnOnce(&mut [u8]),
        learn: Option<(&TemplatePair, u64, usize)>,
    ) {
        let queue = &mut *self.queue;
        let capture = Capture {
            interface: self.device as u32,
            at_ns: queue.stamps.now_ns(),
            direction: record.direction,
            headers: record.headers,
            bytes: record.bytes,
            complete: record.complete,
            spoilt: record.spoilt,
            comment: record.comment,
            dropped: queue.dropped_since,
            snap: self.snap,
        };
        let free = &mut queue.buffer[queue.used..];
        let Some(length) = pcapng::packet(free, &capture, fill) else {
            return debug_assert!(false, "there was room");
        };
        if let Some((pair, key, tail_bytes)) = learn {
            let lengths = (record.headers.frame_bytes(0), tail_bytes);
            pair.learn(key, &free[..length], lengths, &mut queue.templates);
        }
        queue.dropped_since = 0;
        queue.cut += u64::from(self.cuts && capture.frame_bytes() > self.snap);
        self.tap.account(self.queue, length);
    }
}

/// The blocks of what waits in a queue, with timestamps of 0, and the counts of the first device.
#[cfg(test)]
pub(super) struct Queued {
    pub(super) blocks: Vec<u8>,
    pub(super) seen: u64,
    pub(super) dropped: u64,
    pub(super) cut: u64,
}

#[cfg(test)]
impl Tap {
    pub(super) fn waiting_bytes(&self) -> usize {
        self.queue.lock().used
    }

    pub(super) fn empty(&self) {
        self.write_queued(&mut self.output.lock());
    }

    pub(super) fn queued(&self) -> Queued {
        let mut queue = self.queue.lock();
        let mut waiting = queue.buffer[..queue.used].to_vec();
        let (fresh, mut blocks) = (queue.templates.take_fresh(), Vec::new());
        let append = |some: &[u8]| {
            blocks.extend_from_slice(some);
            Ok(())
        };
        self.output.lock().assembler.assemble(&mut waiting, fresh, append).unwrap();
        let mut at = 0;
        while at < blocks.len() {
            let length = u32::from_ne_bytes(blocks[at + 4..at + 8].try_into().unwrap());
            blocks[at + 12..at + 20].fill(0);
            at += length as usize;
        }
        Queued { blocks, seen: queue.seen[0], dropped: queue.dropped[0], cut: queue.cut }
    }
}

extern "C" fn at_exit() {
    // SAFETY: null, or leaked.
    if let Some(tap) = unsafe { TAP.load(Ordering::Acquire).as_ref() } {
        tap.close();
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_link::address::{FourTuple, IpFields};

    use super::*;

    #[test]
    fn packets_are_cut_before_they_are_left_out() {
        let name = format!("rdmalab-tap-{}.pcapng", std::process::id());
        let file = std::env::temp_dir().join(name);
        let tap = Tap::open(&file, SNAP_BYTES).unwrap();
        let address = |last| std::net::Ipv4Addr::new(10, 0, 0, last).into();
        let tuple = FourTuple {
            source: address(1),
            destination: address(2),
            source_port: 0xc000,
            destination_port: 4791,
        };
        let record = Record {
            direction: Direction::Out,
            headers: &FrameHeaders::of(tuple, &IpFields::default()),
            bytes: 12 + 1024,
            complete: false,
            spoilt: false,
            comment: "",
        };
        // There is no writer thread.
        for _ in 0..400_000 {
            if let Some(entry) = tap.entry(0, 12 + 1024 + 4) {
                entry.record(&record, |place| place.fill(7), None);
            }
        }
        let (seen, dropped, cut, used) = {
            let queue = tap.queue.lock();
            (queue.seen[0], queue.dropped[0], queue.cut, queue.used)
        };
        assert_eq!(seen, 400_000);
        assert!(used <= QUEUE_BYTES && dropped > 0, "{used} bytes, {dropped} left out");
        let whole = (seen - dropped - cut) as usize;
        assert!((CUT_AT_BYTES / 1200..CUT_AT_BYTES / 1024).contains(&whole), "{whole} whole");
        assert!(cut > 150_000, "{cut} cut");
        tap.close();
        let written = std::fs::metadata(&file).unwrap().len() as usize;
        std::fs::remove_file(&file).unwrap();
        assert!((used..used + 4096).contains(&written), "{written} bytes of {used}");
    }
}
