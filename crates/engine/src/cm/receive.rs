//! Messages from the peers.

use rdmalab_wire::cm::{
    Drep, Dreq, Mad, Message, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq, reason,
};
use rdmalab_wire::ids::Qpn;

use super::command::{ABOUT_OTHER, ABOUT_REP, ABOUT_REQ};
use super::connection::{Connection, ConnectionState};
use super::{CommId, Event, Manager, code_ns};

impl<P: Clone + Eq> Manager<P> {
    /// Handles a datagram. Answers go to `from`.
    pub fn receive(&mut self, now_ns: u64, from: P, mad: Mad) {
        let transaction = mad.transaction;
        match mad.message {
            Message::Req(m) => self.on_req(now_ns, from, transaction, m),
            Message::Mra(m) => self.on_mra(now_ns, &m),
            Message::Rej(m) => self.on_rej(now_ns, m),
            Message::Rep(m) => self.on_rep(now_ns, from, transaction, m),
            Message::Rtu(m) => self.on_rtu(&m),
            Message::Dreq(m) => self.on_dreq(now_ns, from, transaction, &m),
            Message::Drep(m) => self.on_drep(now_ns, &m),
            Message::SidrReq(m) => self.on_sidr_req(from, transaction, m),
            Message::SidrRep(m) => self.on_sidr_rep(m),
        }
    }

    /// The connection with our identifier `ours`, if the peer's identifier is `theirs`.
    fn find(&mut self, ours: u32, theirs: u32) -> Option<&mut Connection<P>> {
        self.connections.get_mut(&ours).filter(|found| found.remote_id == theirs)
    }

    fn repeat(&mut self, id: u32) {
        let Some(connection) = self.connections.get(&id) else { return };
        if let Some(mad) = connection.resend.clone() {
            let to = connection.peer.clone();
            self.send(to, mad);
        }
    }

    fn on_req(&mut self, now_ns: u64, from: P, transaction: u64, req: Req) {
        let remote = (req.ca_guid, req.local_id);
        if let Some(&known) = self.by_remote.get(&remote) {
            debug_assert!(
                self.connections.contains_key(&known),
                "a peer's identifier leads nowhere"
            );
            // A repeated REQ gets the same answer again (IBA vol. 1, 12.9.8.3).
            match self.connections.get(&known).map(|known| known.state) {
                Some(ConnectionState::MraReqSent | ConnectionState::RepSent) => self.repeat(known),
                Some(ConnectionState::Timewait) => {
                    self.refuse(from, transaction, req.local_id, ABOUT_REQ, STALE);
                }
                _ => {}
            }
            return;
        }
        if let Some(&stale) = self.by_qpn.get(&(req.ca_guid, req.qpn)) {
            debug_assert!(
                self.connections.contains_key(&stale),
                "a peer's queue pair leads nowhere"
            );
            self.refuse(from, transaction, req.local_id, ABOUT_REQ, STALE);
            self.end_stale(now_ns, stale);
            return;
        }
        let refusal = match self.listeners.get(&req.service_id) {
            None => Some(reason::INVALID_SERVICE_ID),
            Some(listener) if listener.waiting >= listener.backlog => Some(reason::CONSUMER),
            Some(_) => None,
        };
        if let Some(reason) = refusal {
            self.refuse(from, transaction, req.local_id, ABOUT_REQ, reason);
            return;
        }
        match self.allocate(requested(from.clone(), transaction, &req)) {
            Err(_) => {
                let why = reason::NO_RESOURCES;
                self.refuse(from, transaction, req.local_id, ABOUT_REQ, why);
            }
            Ok(id) => {
                self.wait_in_backlog(req.service_id);
                self.by_remote.insert(remote, id);
                if req.qpn != Qpn::default() {
                    self.by_qpn.insert((req.ca_guid, req.qpn), id);
                }
                self.tell(Event::Request { id: CommId(id), peer: from, req: Box::new(req) });
            }
        }
    }

    /// Ends a connection that is established here although the peer now connects its queue pair
    /// anew: the peer no longer has the old connection (IBA vol. 1, 12.9.8.3.1). As in the kernel,
    /// our DREQ ends it on both sides, and the queue pair can be connected after TIMEWAIT.
    fn end_stale(&mut self, now_ns: u64, id: u32) {
        if self
            .connections
            .get(&id)
            .is_some_and(|stale| stale.state == ConnectionState::Established)
        {
            self.send_dreq(now_ns, id);
        }
    }

    fn wait_in_backlog(&mut self, service_id: u64) {
        if let Some(listener) = self.listeners.get_mut(&service_id) {
            listener.waiting += 1;
            debug_assert!(
                listener.waiting <= listener.backlog,
                "more requests wait than the backlog has room for"
            );
        }
    }

    fn on_mra(&mut self, now_ns: u64, mra: &Mra) {
        // Not `find`: an MRA may be the peer's first message, before we know its identifier.
        let Some(connection) = self.connections.get_mut(&mra.remote_id) else { return };
        let patience = code_ns(mra.service_timeout);
        match (connection.state, mra.about) {
            (ConnectionState::ReqSent | ConnectionState::MraReqReceived, ABOUT_REQ) => {
                connection.enter(ConnectionState::MraReqReceived);
            }
            (ConnectionState::RepSent | ConnectionState::MraRepReceived, ABOUT_REP)
                if connection.remote_id == mra.local_id =>
            {
                connection.enter(ConnectionState::MraRepReceived);
            }
            _ => return,
        }
        let at = now_ns + patience + connection.response_ns;
        self.arm(mra.remote_id, Some(at));
    }

    fn on_rej(&mut self, now_ns: u64, rej: Rej) {
        let Some(id) = self.rejected(&rej) else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_owned = connection.is_owned;
        match connection.state {
            ConnectionState::ReqSent
            | ConnectionState::MraReqReceived
            | ConnectionState::RepSent
            | ConnectionState::MraRepReceived
            | ConnectionState::ReqReceived
            | ConnectionState::MraReqSent
            | ConnectionState::RepReceived
            | ConnectionState::MraRepSent => {
                if is_owned {
                    self.tell(Event::Rejected { id: CommId(id), rej: Box::new(rej) });
                }
                self.reset(id);
            }
            ConnectionState::DreqSent | ConnectionState::Established => {
                self.enter_timewait(now_ns, id);
                if is_owned {
                    self.tell(Event::Disconnected { id: CommId(id), is_unconfirmed: false });
                }
            }
            _ => {}
        }
    }

    /// The connection that a REJ refers to.
    fn rejected(&self, rej: &Rej) -> Option<u32> {
        if rej.reason == reason::TIMEOUT && rej.remote_id == 0 {
            let guid = rej.info.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))?;
            return self.by_remote.get(&(guid, rej.local_id)).copied();
        }
        let connection = self.connections.get(&rej.remote_id)?;
        let is_ours = rej.about == ABOUT_REQ
            || connection.remote_id == rej.local_id
            || rej.local_id == 0 && rej.about != ABOUT_OTHER;
        is_ours.then_some(rej.remote_id)
    }

    fn on_rep(&mut self, now_ns: u64, from: P, transaction: u64, rep: Rep) {
        let id = rep.remote_id;
        let Some(connection) = self.connections.get_mut(&id) else {
            let why = reason::INVALID_COMM_ID;
            self.refuse(from, transaction, rep.local_id, ABOUT_REP, why);
            return;
        };
        match connection.state {
            ConnectionState::ReqSent | ConnectionState::MraReqReceived => {
                let there = (rep.ca_guid, rep.qpn);
                if let Some(&stale) = self.by_qpn.get(&there) {
                    // Our REQ stays pending and is sent again: by then the peer's queue pair may be
                    // free.
                    self.refuse(from, transaction, rep.local_id, ABOUT_REP, STALE);
                    self.end_stale(now_ns, stale);
                    return;
                }
                connection.enter(ConnectionState::RepReceived);
                connection.remote_id = rep.local_id;
                connection.remote_guid = rep.ca_guid;
                connection.remote_qpn = rep.qpn;
                // The REQ named a service; from now on the peer is the process that answered.
                connection.peer = from;
                self.arm(id, None);
                self.by_remote.insert((rep.ca_guid, rep.local_id), id);
                if rep.qpn != Qpn::default() {
                    self.by_qpn.insert(there, id);
                }
                self.tell(Event::Reply { id: CommId(id), rep: Box::new(rep) });
            }
            ConnectionState::MraRepSent | ConnectionState::Established
                if connection.is_active && connection.remote_id == rep.local_id =>
            {
                self.repeat(id);
            }
            _ => {}
        }
    }

    fn on_rtu(&mut self, rtu: &Rtu) {
        let id = rtu.remote_id;
        let Some(connection) = self.find(id, rtu.local_id) else { return };
        if !matches!(connection.state, ConnectionState::RepSent | ConnectionState::MraRepReceived) {
            return;
        }
        debug_assert!(!connection.is_active, "an RTU to the end that sent the REQ");
        connection.enter(ConnectionState::Established);
        connection.resend = None;
        let is_owned = connection.is_owned;
        self.arm(id, None);
        if is_owned {
            self.tell(Event::Established { id: CommId(id) });
        }
    }

    fn on_dreq(&mut self, now_ns: u64, from: P, transaction: u64, dreq: &Dreq) {
        let id = dreq.remote_id;
        let Some(connection) = self.find(id, dreq.local_id) else {
            // No such connection: the DREP ends the peer's wait (IBA vol. 1, 12.9.8.3.1).
            let drep = Drep {
                local_id: dreq.remote_id,
                remote_id: dreq.local_id,
                private_data: [0; Drep::PRIVATE_BYTES],
            };
            self.send(from, Mad { transaction, message: Message::Drep(drep) });
            return;
        };
        let is_owned = connection.is_owned;
        match connection.state {
            ConnectionState::RepSent
            | ConnectionState::MraRepReceived
            | ConnectionState::Established
            | ConnectionState::RepReceived => {
                connection.enter(ConnectionState::DreqReceived);
                connection.transaction = transaction;
                self.arm(id, None);
                if is_owned {
                    self.tell(Event::Disconnected { id: CommId(id), is_unconfirmed: false });
                }
            }
            ConnectionState::DreqSent => {
                // Both sides sent a DREQ: each confirms the other's.
                connection.transaction = transaction;
                self.send_drep(now_ns, id);
                if is_owned {
                    self.tell(Event::Disconnected { id: CommId(id), is_unconfirmed: false });
                }
            }
            ConnectionState::Timewait => {
                connection.transaction = transaction;
                self.send_drep(now_ns, id);
            }
            _ => {}
        }
    }

    fn on_drep(&mut self, now_ns: u64, drep: &Drep) {
        let id = drep.remote_id;
        let Some(connection) = self.find(id, drep.local_id) else { return };
        let is_owned = connection.is_owned;
        match connection.state {
            ConnectionState::DreqSent => {
                self.enter_timewait(now_ns, id);
                if is_owned {
                    self.tell(Event::Disconnected { id: CommId(id), is_unconfirmed: false });
                }
            }
            ConnectionState::DreqReceived => self.enter_timewait(now_ns, id),
            _ => {}
        }
    }

    fn on_sidr_req(&mut self, from: P, transaction: u64, req: SidrReq) {
        // The owner already has the first of repeated requests. A SIDR_REQ carries no node GUID, so
        // requests are told apart by the peer's identifier and address.
        let is_known = |c: &Connection<P>| {
            c.state == ConnectionState::SidrReqReceived
                && c.remote_id == req.request_id
                && c.peer == from
        };
        if self.connections.values().any(is_known) {
            return;
        }
        let status = match self.listeners.get(&req.service_id) {
            None => Some(SIDR_UNSUPPORTED),
            Some(listener) if listener.waiting >= listener.backlog => Some(SIDR_REJECTED),
            Some(_) => None,
        };
        let asked = Connection {
            state: ConnectionState::SidrReqReceived,
            peer: from.clone(),
            service_id: req.service_id,
            remote_id: req.request_id,
            remote_guid: 0,
            remote_qpn: Qpn::default(),
            transaction,
            resend: None,
            retries_left: 0,
            max_retries: 0,
            response_ns: 0,
            timewait_ns: 0,
            deadline_ns: None,
            is_owned: true,
            is_waiting: true,
            is_active: false,
        };
        let status = match status {
            Some(status) => status,
            None => match self.allocate(asked) {
                Ok(id) => {
                    self.wait_in_backlog(req.service_id);
                    let req = Box::new(req);
                    self.tell(Event::SidrRequest { id: CommId(id), peer: from, req });
                    return;
                }
                Err(_) => SIDR_NO_QP,
            },
        };
        let rep = SidrRep {
            request_id: req.request_id,
            status,
            info_length: 0,
            qpn: Qpn::default(),
            service_id: req.service_id,
            qkey: 0,
            info: [0; SidrRep::INFO_BYTES],
            private_data: [0; SidrRep::PRIVATE_BYTES],
        };
        self.send(from, Mad { transaction, message: Message::SidrRep(rep) });
    }

    fn on_sidr_rep(&mut self, rep: SidrRep) {
        let id = rep.request_id;
        let is_asked = self
            .connections
            .get(&id)
            .is_some_and(|asked| asked.state == ConnectionState::SidrReqSent);
        if is_asked {
            self.tell(Event::SidrReply { id: CommId(id), rep: Box::new(rep) });
            self.reset(id);
        }
    }

    /// Ends all connections of a peer that is gone for good, as its host would have done.
    pub fn peer_gone(&mut self, now_ns: u64, peer: &P) {
        let theirs = self.connections.iter().filter(|(_, c)| c.peer == *peer);
        let ids: Vec<u32> = theirs.map(|(id, _)| *id).collect();
        for id in ids {
            self.lose(now_ns, id);
        }
    }

    fn lose(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (is_owned, remote_id) = (connection.is_owned, connection.remote_id);
        let qpn = (connection.remote_guid, connection.remote_qpn);
        let rejected = |reason: u16, about: u8| Rej {
            local_id: remote_id,
            remote_id: id,
            about,
            reason,
            info_length: 0,
            info: [0; Rej::INFO_BYTES],
            private_data: [0; Rej::PRIVATE_BYTES],
        };
        match connection.state {
            ConnectionState::Established => {
                connection.enter(ConnectionState::DreqReceived);
                if is_owned {
                    self.tell(Event::Disconnected { id: CommId(id), is_unconfirmed: false });
                }
            }
            ConnectionState::DreqSent => {
                self.enter_timewait(now_ns, id);
                if is_owned {
                    self.tell(Event::Disconnected { id: CommId(id), is_unconfirmed: true });
                }
            }
            ConnectionState::ReqReceived | ConnectionState::MraReqSent => {
                self.on_rej(now_ns, rejected(reason::TIMEOUT, ABOUT_OTHER));
            }
            ConnectionState::Idle | ConnectionState::Timewait | ConnectionState::DreqReceived => {}
            ConnectionState::SidrReqReceived => self.reset(id),
            ConnectionState::SidrReqSent => {
                if is_owned {
                    self.tell(Event::Unreachable { id: CommId(id) });
                }
                self.reset(id);
            }
            _ => self.on_rej(now_ns, rejected(reason::CONSUMER, ABOUT_REQ)),
        }
        // The queue pair ended with its process, and a new process may get the same number.
        self.free_qpn(id, qpn);
    }
}

const STALE: u16 = reason::STALE_CONNECTION;
/// Statuses of a SIDR_REP (IBA vol. 1, table 127).
const SIDR_UNSUPPORTED: u8 = 1;
const SIDR_REJECTED: u8 = 2;
const SIDR_NO_QP: u8 = 3;

/// The connection for a REQ of a peer.
fn requested<P>(peer: P, transaction: u64, req: &Req) -> Connection<P> {
    Connection {
        state: ConnectionState::ReqReceived,
        peer,
        service_id: req.service_id,
        remote_id: req.local_id,
        remote_guid: req.ca_guid,
        remote_qpn: req.qpn,
        transaction,
        resend: None,
        retries_left: req.max_cm_retries,
        max_retries: req.max_cm_retries,
        response_ns: code_ns(req.local_response_timeout) + code_ns(req.path.ack_timeout),
        timewait_ns: code_ns(req.path.ack_timeout),
        deadline_ns: None,
        is_owned: true,
        is_waiting: true,
        is_active: false,
    }
}
