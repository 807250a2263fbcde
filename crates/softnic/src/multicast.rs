//! Multicast datagrams.
//!
//! A QP that joins a group first exchanges hellos with every process of the host, and a sender
//! first completes the handshakes with all processes. So after that a sender knows every member,
//! also those that join later, and never waits again.

use rdmalab_engine::train::Train;
use rdmalab_ring::spsc::Consumer;

use crate::codec::{self, Body, SlotPayload};
use crate::groups::gid_of;
use crate::process::Process;
use crate::qp::Arrived;

/// Delivers a datagram to every member of its group in this process.
pub(crate) fn deliver_multicast(process: &Process, consumer: &Consumer, head: u32, body: &Body) {
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
    for qpn in process.groups.members(&gid_of(&train)) {
        let Some(object) = process.qps.at(crate::layout::index_of(qpn)) else { continue };
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
