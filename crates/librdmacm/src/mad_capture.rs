//! What captures are shown of the talk among this host's processes, which goes through sockets of
//! theirs and not through the device.

use std::collections::{BTreeMap, VecDeque};

use core::ffi::c_int;

use rdmalab_wire::cm::{Mad, Message};
use rdmalab_wire::ids::Gid;

use crate::gsi::{self, CaptureFn};

/// Connections whose addresses are remembered; the frames of others bear the port's.
const PATHS_MAX: usize = 4096;

/// See the module's text.
pub struct MadCapture {
    /// `None` where nothing is captured.
    capture: Option<CaptureFn>,
    /// By the communication id of who asked: from where, and to where. Only requests for
    /// connections say it.
    paths: BTreeMap<u32, (Gid, Gid)>,
    /// Their keys, in the order in which they came.
    order: VecDeque<u32>,
}

/// Whose words a message is, by communication ids: the sender's, and the receiver's. 0 where it has
/// none.
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
    /// For what this process captures.
    pub fn new() -> Self {
        let capture = gsi::port().map(|port| port.note);
        Self { capture, paths: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Shows a message that leaves for a process of this host.
    pub fn sent(&mut self, mad: &Mad) {
        self.record(mad, 0);
    }

    /// Shows one that came from such.
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
