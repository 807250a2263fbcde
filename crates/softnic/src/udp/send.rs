//! What a queue pair sends to other hosts.

use rdmalab_engine::qp::{CopyError, MAX_OUTSTANDING_PACKETS, Plan, Response};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_engine::vocab::QpType;
use rdmalab_link::expand;
use rdmalab_wire::opcode::Transport;

use super::send_batch::{Egress, SendBatch};
use super::{Network, Route, WINDOW_PACKETS};
use crate::armed::Armed;
use crate::copy;
use crate::qp::QpInner;
use crate::transmit::{Sent, gather};

/// Packets that are planned at once: as many as ask for one acknowledgement, so that the window
/// moves on while the next are made.
const PACKETS_PER_PLAN: u32 = WINDOW_PACKETS / 4;

impl QpInner {
    /// After the address of a connection was set: the way to its peer, where that is on another
    /// host.
    pub(crate) fn route_to_peer(&mut self) {
        let network = self.links.process.network();
        let route = network.and_then(|network| network.route(&self.qp.attr.ah_attr));
        self.links.route = if self.links.datagram { None } else { route };
        let loses = self.links.route.is_some() || self.links.armed.is_some_and(Armed::cuts_trains);
        self.qp.window_packets = if loses { WINDOW_PACKETS } else { MAX_OUTSTANDING_PACKETS };
    }

    /// Sends what a connection to another host has to send: answers first, then requests; but an
    /// acknowledgement alone after the first of them.
    pub(crate) fn transmit_network(&mut self, route: &Route) -> Sent {
        let Some(network) = self.links.process.network() else { return Sent::Everything };
        let egress = network.egress();
        let mut out = network.send_batch.lock();
        let mut sent = Sent::Everything;
        if self.qp.may_send() {
            self.note_requests_sent(network);
        }
        // A lone acknowledgement comes behind the answer to what it acknowledges.
        if !self.qp.has_only_ack() {
            self.respond_network(route, &egress, &mut out);
        }
        while self.qp.may_send() {
            match self.qp.plan(self.qp.mtu.bytes() * PACKETS_PER_PLAN) {
                Plan::Idle => break,
                Plan::Local { position } if self.execute_local(position) => {}
                Plan::Local { .. } => {
                    // Somebody may still copy by what it takes back: everybody's progress looks.
                    sent = Sent::RingFull;
                    break;
                }
                Plan::Send { train, position, offset } => {
                    let result =
                        self.send_train(route, &egress, &mut out, &train, position, offset);
                    let last = train.flags.has(TrainFlags::LAST);
                    self.qp.retire_sent(position, last, result, &mut self.links);
                    self.respond_network(route, &egress, &mut out);
                }
            }
        }
        self.respond_network(route, &egress, &mut out);
        out.flush(&egress);
        drop(out);
        if sent == Sent::RingFull {
            self.links.process.block(self.links.object);
        }
        self.settle();
        sent
    }

    fn transport(&self) -> Transport {
        match self.qp.qp_type {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud => Transport::Ud,
        }
    }

    /// Puts the packets of a request train into the send batch.
    fn send_train(
        &mut self,
        route: &Route,
        egress: &Egress<'_>,
        out: &mut SendBatch,
        train: &Train,
        position: u32,
        offset: u32,
    ) -> Result<(), CopyError> {
        let (sq, pd, keys) = (&self.qp.sq, self.qp.pd, &self.links.process.keys.view);
        let (transport, is_inline) = (self.transport(), self.is_inline(train, position));
        for index in 0..expand::packets_of(train) {
            let (packet, at) = train.packet(index, self.qp.mtu);
            let from = offset + at;
            out.push(egress, route, transport, &packet, is_inline, |to| {
                if to.is_empty() {
                    return Ok(());
                }
                let range = from..from + to.len() as u32;
                gather(sq, pd, keys, position, range, to.as_mut_ptr())
            })?;
        }
        Ok(())
    }

    fn respond_network(&mut self, route: &Route, egress: &Egress<'_>, out: &mut SendBatch) {
        let room = self.qp.mtu.bytes() * PACKETS_PER_PLAN;
        while let Some(response) = self.qp.next_response(room, &mut self.links) {
            let (train, host_addr) = match response {
                Response::Train(train) => (train, 0),
                Response::Data { train, host_addr, .. } => (train, host_addr),
            };
            for index in 0..expand::packets_of(&train) {
                let (packet, at) = train.packet(index, self.qp.mtu);
                let from = host_addr.wrapping_add(at as u64) as *const u8;
                let pushed = out.push(egress, route, Transport::Rc, &packet, false, |to| {
                    if to.is_empty() {
                        return Ok(());
                    }
                    // SAFETY: the engine checked the source against its region just now, and the
                    // copy survives memory that is not there; `to` has that length.
                    unsafe { copy::copy(to.as_mut_ptr(), from, to.len()) }
                        .map_err(|_| CopyError::Fault)
                });
                if let Err(error) = pushed {
                    self.qp.fail_read(packet.first_psn, error, &mut self.links);
                    break;
                }
            }
            if !self.qp.has_response() {
                break;
            }
        }
    }

    /// Sends datagrams as long as the next one goes to another host. Returns whether there was
    /// one.
    pub(crate) fn send_datagrams_network(&mut self) -> bool {
        let Some(network) = self.links.process.network() else { return false };
        let egress = network.egress();
        let mut out = network.send_batch.lock();
        let mut any = false;
        while self.qp.may_send() && !self.is_multicast_next() {
            let position = self.qp.sq.begun;
            if position == self.qp.sq.fetched() {
                break;
            }
            let Some(route) = network.route(&self.qp.sq.ud(position).ah) else { break };
            let Plan::Send { train, position, offset } = self.qp.plan(self.qp.mtu.bytes()) else {
                break;
            };
            let sent = self.send_train(&route, &egress, &mut out, &train, position, offset);
            self.qp.retire_sent(position, true, sent, &mut self.links);
            any = true;
        }
        out.flush(&egress);
        any
    }

    /// Sends a datagram to a group on the network; those of this host were served before.
    pub(crate) fn send_group_network(&self, network: &Network, train: &Train, position: u32) {
        let Some(route) = network.route(&self.qp.sq.ud(position).ah) else { return };
        let (sq, pd, keys) = (&self.qp.sq, self.qp.pd, &self.links.process.keys.view);
        let (egress, is_inline) = (network.egress(), self.is_inline(train, position));
        let mut out = network.send_batch.lock();
        // What cannot be read was told by the copies for this host.
        let _ = out.push(&egress, &route, Transport::Ud, train, is_inline, |to| {
            gather(sq, pd, keys, position, 0..to.len() as u32, to.as_mut_ptr())
        });
        out.flush(&egress);
    }
}
