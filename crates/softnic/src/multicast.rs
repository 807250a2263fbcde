//! Multicast datagrams.
//!
//! A QP that joins a group first exchanges hellos with every process of the host, and a sender
//! first completes the handshakes with all processes. So after that a sender knows every member,
//! also those that join later, and never waits again.

use rdmalab_engine::backend::VerbsResult;
use rdmalab_engine::train::Train;
use rdmalab_ring::spsc::Consumer;
use rdmalab_wire::ids::{Gid, Qpn};

use crate::codec::{self, Body, SlotPayload};
use crate::groups::gid_of;
use crate::process::Process;
use crate::qp::Arrived;

impl Process {
    /// Adds a QP to a group, and joins it on the network.
    pub(crate) fn join_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        self.groups.join(gid, qpn, || match self.network() {
            Some(network) => network.join(gid),
            None => Ok(()),
        })
    }

    /// Removes a QP from a group.
    pub(crate) fn leave_group(&self, gid: Gid, qpn: Qpn) -> VerbsResult<()> {
        self.groups.leave(gid, qpn, |gid| self.leave_on_network(gid))
    }

    /// Removes a QP from every group.
    pub(crate) fn leave_all_groups(&self, qpn: Qpn) {
        self.groups.leave_all(qpn, |gid| self.leave_on_network(gid));
    }

    fn leave_on_network(&self, gid: &Gid) {
        if let Some(network) = self.network() {
            network.leave(gid);
        }
    }

    /// Delivers a datagram to every member of its group in this process.
    pub(crate) fn deliver_multicast(&self, consumer: &Consumer, head: u32, body: &Body) {
        let Some((train, payload)) = codec::decode(head, body) else { return };
        let bytes = match payload {
            SlotPayload::Short => std::ptr::null(),
            SlotPayload::Data(position) => {
                match consumer.data(position, train.payload_bytes as usize) {
                    Some(bytes) => bytes,
                    None => return,
                }
            }
        };
        let mut seen = false;
        for qpn in self.groups.members(&gid_of(&train)) {
            let Some(object) = self.qps.at(crate::layout::index_of(qpn)) else { continue };
            if let Some(inner) = object.inner.lock().as_mut()
                && inner.qp.qpn == qpn
            {
                let copy = Train { dst_qpn: qpn, ..train };
                if inner.links.hooks.is_some() {
                    if !std::mem::replace(&mut seen, true) {
                        inner.tap_in(&train, bytes);
                    }
                    if !inner.ring_accepted(&copy) {
                        continue;
                    }
                }
                // SAFETY: `data` checked that the bytes are there; null means no bytes.
                inner.take(&copy, unsafe { Arrived::new(bytes) });
            }
        }
    }
}
