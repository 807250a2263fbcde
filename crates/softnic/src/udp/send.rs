//! What a queue pair sends to other hosts.

use rdmalab_driver::{self as driver, Step};
use rdmalab_engine::qp::MAX_OUTSTANDING_PACKETS;

use super::{Route, WINDOW_PACKETS, NetworkPath};
use crate::armed::Armed;
use crate::qp::{QpInner, transport_of};

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
    pub(crate) fn transmit_network(&mut self, route: &Route) -> Step {
        let Some(network) = self.links.process.network() else { return Step::Idle };
        if self.qp.may_send() {
            self.note_requests_sent(network);
        }
        let mut path = NetworkPath::new(network, route, transport_of(self.qp.qp_type), self.qp.mtu);
        // A lone acknowledgement comes behind the answer to what it acknowledges.
        if !self.qp.has_only_ack() {
            self.respond_on(&mut path);
        }
        let mut sent = Step::Idle;
        while self.qp.may_send() {
            sent = driver::send_request(&mut self.qp, &mut path, &mut self.links);
            if sent != Step::Done {
                break;
            }
            self.respond_on(&mut path);
        }
        self.respond_on(&mut path);
        path.flush();
        if sent == Step::Blocked { Step::Blocked } else { Step::Idle }
    }

    /// Sends datagrams as long as the next one goes to another host. Returns whether there was
    /// one.
    pub(crate) fn send_datagrams_network(&mut self) -> bool {
        let Some(network) = self.links.process.network() else { return false };
        let (mut path, mut any) = (None, false);
        while self.qp.may_send() && !self.is_multicast_next() {
            let position = self.qp.sq.begun;
            if position == self.qp.sq.posted {
                break;
            }
            let Some(route) = network.route(&self.qp.sq.ud(position).ah) else { break };
            let path = path.get_or_insert_with(|| {
                NetworkPath::new(network, &route, transport_of(self.qp.qp_type), self.qp.mtu)
            });
            path.route = route;
            if driver::send_request(&mut self.qp, path, &mut self.links) != Step::Done {
                break;
            }
            any = true;
        }
        if let Some(path) = path {
            path.flush();
        }
        any
    }
}
