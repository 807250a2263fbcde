//! Packets to be sent: collected, then sent in as few system calls as the kernel allows.

use std::net::IpAddr;
use std::os::fd::RawFd;

use parking_lot::Mutex;
use rdmalab_engine::train::Train;
use rdmalab_link::drops::{Counters, Drop};
use rdmalab_link::expand::{self, MAX_OVERHEAD_BYTES, Parts};
use rdmalab_link::hook::Verdict;
use rdmalab_wire::ids::PathMtu;
use rdmalab_wire::opcode::Transport;

use super::packet_path::BuiltPacket;
use super::socket::{self, Route, SEGMENTS_MAX};
use crate::cancel::NoCancel;

/// Bytes that are collected before they are sent.
const ROOM: usize = 256 * 1024;
/// Bytes of the longest run of segments: the payload of a UDP datagram, less the IPv6 header.
pub(super) const RUN_BYTES: usize = 65_000;
/// How long to wait, once, while the device queue is full, ms. After that packets are lost.
const FULL_WAIT_MS: i32 = 1;

/// Datagrams to one destination that one system call can send.
struct Run {
    route: Route,
    start: usize,
    bytes: usize,
    /// Length of its first datagram, which all but the last share.
    segment_bytes: usize,
    datagrams: u32,
    /// The last datagram is shorter: no other may follow it.
    closed: bool,
}

/// See the module's text.
pub(crate) struct SendBatch {
    data: Vec<u8>,
    used: usize,
    runs: Vec<Run>,
    /// The kernel segments runs; `false` after it has refused to.
    segments: bool,
}

/// The socket that sends a packet, and the counters on the way.
pub(crate) struct Egress<'a> {
    pub(crate) fd: RawFd,
    pub(crate) counters: &'a Counters,
}

impl SendBatch {
    pub(crate) fn new() -> SendBatch {
        SendBatch { data: vec![0; ROOM], used: 0, runs: Vec::new(), segments: true }
    }

    /// Adds a packet, given as a train of one packet. `fill` writes its payload, and `inspect`
    /// decides whether the packet is sent. Returns the error of `fill`: then it is not sent.
    pub(crate) fn push<E>(
        &mut self,
        egress: &Egress<'_>,
        route: &Route,
        transport: Transport,
        train: &Train,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
        inspect: impl FnOnce(BuiltPacket<'_>) -> Verdict,
    ) -> Result<(), E> {
        let most = train.payload_bytes as usize + MAX_OVERHEAD_BYTES;
        if self.data.len() - self.used < most {
            self.flush(egress);
        }
        let room = &mut self.data[self.used..];
        let Some(parts) = expand::write_headers(train, transport, room) else {
            egress.counters.count(Drop::Send);
            return Ok(());
        };
        let Parts { payload_at, payload_bytes, packet_bytes } = parts;
        fill(&mut room[payload_at..payload_at + payload_bytes])?;
        let index = self.place_in_run(route, packet_bytes);
        let end = self.used + packet_bytes;
        expand::seal(&route.tuple, index, &mut self.data[self.used..end]);
        let bytes = &mut self.data[self.used..end];
        if inspect(BuiltPacket { route, train, identification: index, bytes }) == Verdict::Drop {
            egress.counters.count(Drop::Hook);
            return Ok(());
        }
        self.commit(route, packet_bytes, index);
        Ok(())
    }

    /// The position of a datagram of `bytes` in the run that it will join; 0 if it begins a new
    /// run. Over IPv4 this is its identification.
    fn place_in_run(&self, route: &Route, bytes: usize) -> u16 {
        let Some(run) = self.runs.last() else { return 0 };
        let joins = self.segments
            && !run.closed
            && run.datagrams < SEGMENTS_MAX
            && bytes <= run.segment_bytes
            && run.bytes + bytes <= RUN_BYTES
            && run.route == *route;
        if joins { run.datagrams as u16 } else { 0 }
    }

    fn commit(&mut self, route: &Route, bytes: usize, index: u16) {
        match self.runs.last_mut() {
            Some(run) if index > 0 => {
                run.bytes += bytes;
                run.datagrams += 1;
                run.closed = bytes < run.segment_bytes;
            }
            _ => self.runs.push(Run {
                route: *route,
                start: self.used,
                bytes,
                segment_bytes: bytes,
                datagrams: 1,
                closed: false,
            }),
        }
        self.used += bytes;
    }

    /// Sends everything.
    pub(crate) fn flush(&mut self, egress: &Egress<'_>) {
        let runs = std::mem::take(&mut self.runs);
        for run in &runs {
            self.send_run(egress, run);
        }
        // The vector keeps its memory.
        self.runs = runs;
        self.runs.clear();
        self.used = 0;
    }

    fn send_run(&mut self, egress: &Egress<'_>, run: &Run) {
        let bytes = &self.data[run.start..run.start + run.bytes];
        if run.datagrams == 1 || self.segments {
            let segment = if run.datagrams == 1 { 0 } else { run.segment_bytes as u16 };
            let sent = send_when_writable(egress.fd, &run.route, bytes, segment);
            let Err(error) = sent else { return };
            // EIO and EINVAL: this interface or kernel cannot segment, or the address is wrong.
            let perhaps = matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL));
            if !perhaps || segment == 0 {
                warn_of_mtu(&run.route, run.segment_bytes, &error);
                return egress.counters.add(Drop::Send, u64::from(run.datagrams));
            }
        }
        let mut any_sent = false;
        let bytes = &mut self.data[run.start..run.start + run.bytes];
        for packet in bytes.chunks_mut(run.segment_bytes) {
            if matches!(run.route.tuple.destination, IpAddr::V4(_)) {
                expand::seal(&run.route.tuple, 0, packet);
            }
            match send_when_writable(egress.fd, &run.route, packet, 0) {
                Ok(()) => any_sent = true,
                Err(error) => {
                    warn_of_mtu(&run.route, packet.len(), &error);
                    egress.counters.count(Drop::Send);
                }
            }
        }
        // The packets could be sent one by one: the kernel refused the segmentation only.
        self.segments &= !any_sent;
    }
}

/// Sends; waits once if the device's queue is full.
fn send_when_writable(fd: RawFd, route: &Route, bytes: &[u8], segment: u16) -> std::io::Result<()> {
    match socket::send(fd, route, bytes, segment) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            let _no_cancel = NoCancel::new();
            let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one pollfd on our stack.
            unsafe { libc::poll(&raw mut poll, 1, FULL_WAIT_MS) };
            socket::send(fd, route, bytes, segment)
        }
        result => result,
    }
}

/// Hosts that are warned about, at most: a further warning would say nothing new.
const WARNED_MAX: usize = 16;

/// Whether a warning about this host is due. It is due once.
fn is_warning_due(to: IpAddr) -> bool {
    static WARNED: Mutex<Vec<IpAddr>> = Mutex::new(Vec::new());
    let mut warned = WARNED.lock();
    let due = warned.len() < WARNED_MAX && !warned.contains(&to);
    if due {
        warned.push(to);
    }
    due
}

fn headers_bytes(to: IpAddr) -> usize {
    if to.is_ipv4() { 28 } else { 48 }
}

/// Warns once for each host: packets that exceed the interface's MTU are never sent. Other errors
/// of the kernel may be temporary.
#[cold]
fn warn_of_mtu(route: &Route, datagram_bytes: usize, error: &std::io::Error) {
    let to = route.tuple.destination;
    if error.raw_os_error() != Some(libc::EMSGSIZE) || !is_warning_due(to) {
        return;
    }
    let bytes = datagram_bytes + headers_bytes(to);
    crate::warn(&format!(
        "packets of {bytes} bytes to {to} do not fit the interface's MTU and are dropped: give \
         both ends a smaller path MTU (-m of Debian's programs), or the interface a larger one"
    ));
}

/// Called when no answer came in time: warns once for each host if the network has reported that
/// full packets do not fit its path. They are sent all the same, because anybody can send such a
/// report.
#[cold]
pub(crate) fn warn_of_narrow_path(route: &Route, mtu: PathMtu) {
    let to = route.tuple.destination;
    // BTH and invariant CRC.
    let bytes = mtu.bytes() as usize + 16 + headers_bytes(to);
    // The calls below are cancellation points, and this thread holds locks.
    let _no_cancel = NoCancel::new();
    let Some(path_bytes) = socket::path_mtu_bytes(to).filter(|path| (*path as usize) < bytes)
    else {
        return;
    };
    if is_warning_due(to) {
        crate::warn(&format!(
            "no answer from {to} in time, and the network has reported a path MTU of {path_bytes}: \
             if that is true, packets of {bytes} bytes are dropped on the way, so give both ends a \
             smaller one (-m of Debian's programs), or mend the MTUs on the way"
        ));
    }
}
