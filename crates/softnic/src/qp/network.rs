//! Sends to other hosts, and receives from them.

use std::net::IpAddr;

use rdmalab_driver::{self as driver, Memory as _, Step};
use rdmalab_engine::qp::MAX_OUTSTANDING_PACKETS;
use rdmalab_engine::train::{Train, TrainFlags, TrainKind};
use rdmalab_engine::vocab::QpState;
use rdmalab_link::address::IpFields;
use rdmalab_link::drops::Drop;
use rdmalab_link::receive::{self as link, Expected, Verifier};
use rdmalab_wire::packet::Packet;

use super::{QpInner, QpLinks, transport_of};
use crate::hooks::Hooks;
use crate::udp::congestion::FIRST_WINDOW_PACKETS;
use crate::udp::nagle::Queue;
use crate::udp::socket::Route;
use crate::udp::{Arrival, Network, UdpIo};

impl QpInner {
    /// Sets the route of a connection, after its address was set, if the peer is on another host.
    pub(crate) fn route_to_peer(&mut self) {
        let network = self.links.process.network();
        let route = network.and_then(|network| network.route(&self.qp.attr.ah_attr));
        self.links.route = if self.links.is_datagram() { None } else { route };
        let loses = self.links.route.is_some() || self.links.hooks.is_some_and(Hooks::cuts_trains);
        self.qp.window_packets = if loses { FIRST_WINDOW_PACKETS } else { MAX_OUTSTANDING_PACKETS };
        self.qp.ack_packets = self.qp.window_packets / 4;
        self.links.congestion.restart(&self.qp, self.links.route.is_some());
    }

    /// Sends the responses and requests of a connection to another host. Responses go first, but a
    /// lone ACK goes after the first request.
    pub(super) fn transmit_network(&mut self, route: &Route) -> Step {
        let Some(network) = self.links.process.network() else { return Step::Idle };
        let sends_requests =
            self.qp.may_send() && !self.links.nagle.on_arrival(&Queue::of(&self.qp));
        if sends_requests {
            self.note_requests_sent(network);
        }
        let path = network.path(route, transport_of(self.qp.qp_type), self.qp.mtu);
        let Some(mut path) = path else { return Step::Blocked };
        // A lone ACK goes after the program's answer to the message that it acknowledges.
        if !self.qp.has_only_ack() {
            self.respond_on(&mut path);
        }
        let mut sent = Step::Idle;
        while sends_requests && self.qp.may_send() {
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

    /// Sends datagrams as long as the next one goes to another host. Returns whether it sent any.
    pub(super) fn send_datagrams_network(&mut self) -> bool {
        let Some(network) = self.links.process.network() else { return false };
        let (mut path, mut any) = (None, false);
        while self.qp.may_send() && !self.is_multicast_next() {
            let position = self.qp.sq.begun;
            if position == self.qp.sq.fetched() {
                break;
            }
            let Some(route) = network.route(&self.qp.sq.ud(position).ah) else { break };
            if path.is_none() {
                let transport = transport_of(self.qp.qp_type);
                path = network.path(&route, transport, self.qp.mtu);
            }
            let Some(path) = &mut path else { break };
            path.inner.route = route;
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

    /// Called after messages arrived for a caller: whether only an ACK is to be sent, and it can
    /// wait for the program's answer.
    pub(crate) fn may_delay_ack(&mut self, network: &Network) -> bool {
        if self.links.is_datagram() || self.qp.may_send() || !self.qp.has_only_ack() {
            return false;
        }
        self.links.delayed_ack.on_message(network.caller_polls(), crate::clock::now_ns())
    }

    /// Updates the delayed ACK, because requests are about to be sent.
    fn note_requests_sent(&mut self, network: &Network) {
        self.links.delayed_ack.on_send(network.caller_polls(), crate::clock::now_ns);
        network.forget_delayed(self.links.object);
    }

    /// Whether the requests that were just posted wait for more of them.
    pub(super) fn delays_requests(&mut self) -> bool {
        let Some(udp) = UdpIo::of(self.links.process) else { return false };
        let QpInner { qp, links } = self;
        let progress_thread = &links.process.progress_thread;
        // Whoever sleeps, or may soon, does not poll.
        let may_wait = !progress_thread.may_sleep_long()
            && !progress_thread.keeps_doorbell_armed()
            && qp.state == QpState::Rts
            && qp.has_only_small_requests(links.nagle.small_until())
            && links.nagle.on_post(&Queue::of(qp), progress_thread.calls());
        let waits = may_wait && udp.delay(links.object);
        if !waits {
            links.nagle.stop();
        }
        waits
    }

    /// A poll found the network empty: sends the delayed ACK, and the delayed requests if they have
    /// waited for long enough.
    pub(crate) fn send_delayed_at_poll(&mut self) {
        let waits = self.links.nagle.on_empty_poll();
        self.send_delayed_unless(waits);
    }

    /// The same in a round of the progress thread.
    pub(crate) fn send_delayed_in_round(&mut self) {
        let waits = self.links.nagle.on_round();
        if !waits {
            self.links.nagle.on_late();
        }
        self.send_delayed_unless(waits);
    }

    fn send_delayed_unless(&mut self, requests_wait: bool) {
        if !requests_wait {
            return self.send_delayed();
        }
        self.links.delayed_ack.on_sent_alone();
        if self.qp.has_response() {
            self.transmit();
        }
    }

    /// Sends the delayed ACK and the delayed requests, if there are any.
    pub(crate) fn send_delayed(&mut self) {
        self.links.delayed_ack.on_sent_alone();
        self.links.nagle.stop();
        if let Some(network) = self.links.process.network() {
            network.forget_delayed(self.links.object);
        }
        if self.links.route.is_some() && (self.qp.has_response() || self.qp.may_send()) {
            self.transmit();
        }
    }

    /// Called before the progress thread sleeps: no caller has sent it.
    pub(crate) fn send_delayed_late(&mut self) {
        self.links.nagle.on_late();
        self.send_delayed();
    }

    /// The values that packets from the network are checked against.
    fn expected(&self) -> Expected {
        let (qp, links) = (&self.qp, &self.links);
        let between: Option<(IpAddr, IpAddr)> =
            links.route.as_ref().map(|route| (route.tuple.destination, route.tuple.source));
        Expected {
            transport: transport_of(qp.qp_type),
            can_receive: qp.state.can_receive(),
            between,
            remote_qpn: qp.remote_qpn,
            qkey: qp.attr.qkey,
            mtu: qp.mtu,
        }
    }

    pub(crate) fn take_packet(
        &mut self,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        verifier: &mut Verifier,
    ) -> Result<(), Drop> {
        let expected = self.expected();
        link::check(packet, &expected, &arrival.tuple)?;
        let identification = verifier.verify(&arrival.tuple, packet, arrival.bytes)?;
        let train = train_of(packet, &expected)?;
        if self.links.hooks.is_some() && !self.network_arrival(&train, &arrival.tuple)? {
            return Ok(());
        }
        if self.links.is_datagram() {
            let ip = IpFields { identification, ..arrival.ip };
            self.take_datagram(arrival, &ip, &train, packet);
        } else {
            self.take(&train, QpLinks::bytes(packet.payload));
            self.links.congestion.on_arrival(&mut self.qp);
        }
        Ok(())
    }

    /// Takes a datagram for a multicast group of this queue pair.
    pub(crate) fn take_group_copy(
        &mut self,
        arrival: &Arrival<'_>,
        ip: &IpFields,
        packet: &Packet<'_>,
    ) -> Result<(), Drop> {
        let expected = self.expected();
        link::check(packet, &expected, &arrival.tuple)?;
        let train = Train { dst_qpn: self.qp.qpn, ..train_of(packet, &expected)? };
        self.take_datagram(arrival, ip, &train, packet);
        Ok(())
    }

    fn take_datagram(
        &mut self,
        arrival: &Arrival<'_>,
        ip: &IpFields,
        train: &Train,
        packet: &Packet<'_>,
    ) {
        debug_assert!(train.kind == TrainKind::Send && train.flags.has(TrainFlags::GRH));
        self.links.grh = Some(arrival.tuple.grh_area(ip, arrival.bytes.len()));
        self.take(train, QpLinks::bytes(packet.payload));
        self.links.grh = None;
    }
}

fn train_of(packet: &Packet<'_>, expected: &Expected) -> Result<Train, Drop> {
    link::train_of(&packet.headers, packet.payload.len(), expected)
}
