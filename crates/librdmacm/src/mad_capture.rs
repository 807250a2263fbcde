//! Adds the datagrams between processes of this host to captures. They go through sockets and not
//! through the device, so the device does not see them.

use std::collections::{BTreeMap, VecDeque};

use core::ffi::c_int;

use rdmalab_wire::cm::{Mad, Message};
use rdmalab_wire::ids::Gid;

use crate::gsi::{self, CaptureFn};

/// How many connections' addresses are remembered. Frames of others carry the port's first GID.
const PATHS_MAX: usize = 4096;

/// Records datagrams while the device captures.
pub struct MadCapture {
    /// `None` if nothing is captured.
    capture: Option<CaptureFn>,
    /// Source and destination of a connection, by the communication id of its active side. Only a
    /// REQ carries them.
    paths: BTreeMap<u32, (Gid, Gid)>,
    /// The keys of `paths`, oldest first.
    order: VecDeque<u32>,
}

/// The communication ids of a message: the sender's and the receiver's, 0 without one.
fn ids_of(message: &Message) -> (u32, u32) {
    match message {
        Message::Req(m) => (m.local_id, 0),
        Message::Mra(m) => (m.local_id, m.remote_id),
        Message::Rej(m) => (m.local_id, m.remote_id),
        Message::Rep(m) => (m.local_id, m.remote_id),
        Message::Rtu(m) => (m.local_id, m.remote_id),
        Message::Dreq(m) => (m.local_id, m.remote_id),
        Message::Drep(m) => (m.local_id, m.remote_id),
        Message::SidrReq(m) => (m.request_id, 0),
        Message::SidrRep(m) => (0, m.request_id),
    }
}

impl MadCapture {
    /// Uses the captures of the device.
    pub fn new() -> Self {
        let capture = gsi::port().map(|port| port.note);
        Self { capture, paths: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Records a message that is sent to a process of this host.
    pub fn sent(&mut self, mad: &Mad) {
        self.record(mad, 0);
    }

    /// Records a message that came from a process of this host.
    pub fn received(&mut self, mad: &Mad) {
        self.record(mad, 1);
    }

    fn record(&mut self, mad: &Mad, is_received: c_int) {
        let Some(capture) = self.capture else { return };
        let (from, to) = self.path_of(&mad.message);
        let bytes = mad.to_bytes();
        // SAFETY: three live arrays.
        if unsafe { capture(from.0.as_ptr(), to.0.as_ptr(), bytes.as_ptr(), is_received) } != 0 {
            *self = Self { capture: None, paths: BTreeMap::new(), order: VecDeque::new() };
        }
    }

    fn remember(&mut self, id: u32, path: (Gid, Gid)) {
        if self.paths.insert(id, path).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > PATHS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.paths.remove(&oldest);
        }
    }

    fn path_of(&mut self, message: &Message) -> (Gid, Gid) {
        if let Message::Req(req) = message {
            self.remember(req.local_id, (req.path.local_gid, req.path.remote_gid));
        }
        let (sender, receiver) = ids_of(message);
        let back = || self.paths.get(&receiver).map(|(from, to)| (*to, *from));
        self.paths.get(&sender).copied().or_else(back).unwrap_or_default()
    }
}
