//! Sending: responses first, then requests, over the path to the peer.

use std::sync::Arc;

use rdmalab_driver::{self as driver, Path, Step};

use super::{QpInner, QpLinks, lane};
use crate::peer::Peer;
use crate::ring_path::{Nowhere, RingPath};

impl QpInner {
    /// Sends what can be sent now; `Blocked` if something is left.
    #[inline]
    pub(crate) fn transmit(&mut self) -> Step {
        let (has_response, may_send) = (self.qp.has_response(), self.qp.may_send());
        if !has_response && !may_send {
            self.settle();
            return Step::Idle;
        }
        if !may_send && self.send_plain_ack() {
            self.settle();
            return Step::Idle;
        }
        self.transmit_all(has_response, may_send)
    }

    /// Not inlined, to keep the way of a mere acknowledgement short.
    #[inline(never)]
    fn transmit_all(&mut self, has_response: bool, may_send: bool) -> Step {
        let mut sent = Step::Idle;
        if let Some(route) = self.links.route {
            sent = self.transmit_network(&route);
        } else {
            // Taken out, so that it can be borrowed together with the rest of `self`.
            let mut peer = self.links.peer.take().or_else(|| self.late_peer());
            if has_response {
                sent = self.respond(peer.as_ref());
            }
            if may_send && sent == Step::Idle {
                sent = self.request(&mut peer);
            }
            if self.links.peer.is_none() {
                self.links.peer = peer;
            }
        }
        if sent == Step::Blocked {
            self.links.process.block(self.links.object);
        }
        self.settle();
        sent
    }

    /// The peer of a connection, if it answered the hello too late for the connection's setup.
    #[cold]
    fn late_peer(&self) -> Option<Arc<Peer>> {
        let connected = !self.links.is_datagram() && crate::device::is_here(&self.qp.attr.ah_attr);
        connected.then(|| self.links.process.host.peer(self.remote_process()))?
    }

    fn respond(&mut self, peer: Option<&Arc<Peer>>) -> Step {
        let Some(peer) = peer else { return self.respond_on(&mut Nowhere { lost: 0 }) };
        let mut ring = RingPath::new(peer, &self.links);
        let sent = match self.links.hooks {
            None => self.respond_on(&mut ring),
            Some(hooks) => self.through(hooks, &mut ring, |inner, path| inner.respond_on(path)),
        };
        self.links.pushed = ring.out.position();
        ring.ring_bell();
        sent
    }

    /// Sends responses until none is left, or the path is full.
    #[inline(always)]
    pub(crate) fn respond_on(&mut self, path: &mut impl Path<QpLinks>) -> Step {
        loop {
            match driver::send_response(&mut self.qp, path, &mut self.links) {
                Step::Done if self.qp.has_response() => {}
                Step::Done => return Step::Idle,
                sent => return sent,
            }
        }
    }

    fn request(&mut self, peer: &mut Option<Arc<Peer>>) -> Step {
        loop {
            if !self.qp.may_send() {
                return Step::Idle;
            }
            if let Some(position) = self.qp.lane_candidate()
                && let Some(peer) = peer.as_deref()
                && lane::execute(self, peer, position)
            {
                continue;
            }
            if self.links.is_datagram() {
                if self.is_multicast_next() {
                    match self.send_multicast() {
                        Step::Done => continue,
                        sent => return sent,
                    }
                }
                if !self.choose_datagram_peer(peer) {
                    return Step::Blocked;
                }
            }
            let sent = match peer {
                Some(peer) => self.request_ring(peer),
                None => self.send_nowhere(),
            };
            if sent != Step::Done {
                return sent;
            }
        }
    }

    /// Sends requests into a peer's ring until another step must come first.
    #[inline(always)]
    fn request_ring(&mut self, peer: &Arc<Peer>) -> Step {
        let mut ring = RingPath::new(peer, &self.links);
        let before = ring.out.position();
        let sent = match self.links.hooks {
            None => self.request_on(&mut ring),
            Some(hooks) => self.through(hooks, &mut ring, |inner, path| inner.request_on(path)),
        };
        let after = ring.out.position();
        if after != before {
            self.links.pushed = after;
            self.links.stream.note_push(&ring.out);
            ring.ring_bell();
        } else {
            drop(ring);
        }
        match sent {
            Step::Blocked if self.is_stuck(peer) => match self.send_nowhere() {
                Step::Done => Step::Done,
                _ => Step::Blocked,
            },
            sent => sent,
        }
    }

    /// Sends requests until none is left, the path is full, or the next one may take another path.
    #[inline(always)]
    fn request_on(&mut self, path: &mut impl Path<QpLinks>) -> Step {
        loop {
            let sent = driver::send_request(&mut self.qp, path, &mut self.links);
            let goes_on = !self.links.is_datagram() && self.qp.lane_candidate().is_none();
            if sent != Step::Done || !goes_on {
                return sent;
            }
        }
    }

    /// Sends datagrams over the network if they go there; otherwise drops one request.
    fn send_nowhere(&mut self) -> Step {
        if self.links.is_datagram() && self.send_datagrams_network() {
            return Step::Done;
        }
        let mut nowhere = Nowhere { lost: 0 };
        let sent = driver::send_request(&mut self.qp, &mut nowhere, &mut self.links);
        self.links.lost += nowhere.lost;
        sent
    }
}
