//! Commands of the owner of a connection.

use rdmalab_wire::cm::{
    Drep, Dreq, Mad, Message, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq, reason,
};
use rdmalab_wire::ids::Qpn;

use super::connection::{Connection, ConnectionState};
use super::{CmError, CommId, Listener, MAX_BACKLOG, Manager, code_ns};

/// Which message a REJ or an MRA is about.
pub(super) const ABOUT_REQ: u8 = 0;
/// See [`ABOUT_REQ`].
pub(super) const ABOUT_REP: u8 = 1;
/// See [`ABOUT_REQ`].
pub(super) const ABOUT_OTHER: u8 = 2;

impl<P: Clone + Eq> Manager<P> {
    /// Listens for a service. Several listeners may share one; their backlogs add up. A backlog of
    /// 0 stands for `MAX_BACKLOG`.
    pub fn listen(&mut self, service_id: u64, backlog: usize) {
        let backlog = if backlog == 0 { MAX_BACKLOG } else { backlog.min(MAX_BACKLOG) };
        let fresh = Listener { count: 0, backlog: 0, waiting: 0 };
        let listener = self.listeners.entry(service_id).or_insert(fresh);
        listener.count += 1;
        listener.backlog = (listener.backlog + backlog).min(MAX_BACKLOG);
    }

    /// Removes a listener; the service ends with its last one. Connections stay.
    pub fn unlisten(&mut self, service_id: u64) {
        if let Some(listener) = self.listeners.get_mut(&service_id) {
            listener.count -= 1;
            if listener.count == 0 {
                self.listeners.remove(&service_id);
            }
        }
    }

    /// Requests for a service that their owner has neither looked at nor answered.
    pub fn waiting(&self, service_id: u64) -> usize {
        self.listeners.get(&service_id).map_or(0, |listener| listener.waiting)
    }

    /// Removes a request from the backlog because its owner has looked at it. An answer to the
    /// request has the same effect.
    pub fn take_request(&mut self, id: CommId) {
        let Some(connection) = self.connections.get_mut(&id.0) else { return };
        let copy = connection.clone();
        connection.is_waiting = false;
        self.leave_backlog(&copy);
    }

    /// Asks for a connection. `local_id` of the request is filled in here.
    ///
    /// # Errors
    /// [`CmError::TooMany`].
    pub fn connect(&mut self, now_ns: u64, to: P, mut req: Req) -> Result<CommId, CmError> {
        let response_ns = code_ns(req.remote_response_timeout) + code_ns(req.path.ack_timeout);
        let id = self.allocate(Connection {
            state: ConnectionState::ReqSent,
            peer: to.clone(),
            service_id: req.service_id,
            remote_id: 0,
            remote_guid: 0,
            remote_qpn: Qpn::default(),
            transaction: 0,
            resend: None,
            retries_left: req.max_cm_retries,
            max_retries: req.max_cm_retries,
            response_ns,
            timewait_ns: code_ns(req.path.ack_timeout),
            deadline_ns: None,
            is_owned: true,
            is_waiting: false,
            is_active: true,
        })?;
        req.local_id = id;
        let transaction = self.transaction(id);
        let mad = Mad { transaction, message: Message::Req(req) };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.transaction = transaction;
        }
        self.send_and_wait(now_ns, id, mad);
        Ok(CommId(id))
    }

    /// Requests a datagram service (SIDR_REQ). Waits `response_ns` for the answer, and sends the
    /// request again up to 15 times. `request_id` is filled in here.
    ///
    /// # Errors
    /// [`CmError::TooMany`].
    pub fn ask_service(
        &mut self,
        now_ns: u64,
        to: P,
        mut req: SidrReq,
        response_ns: u64,
    ) -> Result<CommId, CmError> {
        let id = self.allocate(Connection {
            state: ConnectionState::SidrReqSent,
            peer: to,
            service_id: req.service_id,
            remote_id: 0,
            remote_guid: 0,
            remote_qpn: Qpn::default(),
            transaction: 0,
            resend: None,
            retries_left: 15,
            max_retries: 15,
            response_ns,
            timewait_ns: 0,
            deadline_ns: None,
            is_owned: true,
            is_waiting: false,
            is_active: true,
        })?;
        req.request_id = id;
        let transaction = self.transaction(id);
        self.send_and_wait(now_ns, id, Mad { transaction, message: Message::SidrReq(req) });
        Ok(CommId(id))
    }

    /// Sends a message that expects an answer, and starts the timer for it.
    pub(super) fn send_and_wait(&mut self, now_ns: u64, id: u32, mad: Mad) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        debug_assert!(
            connection.state.awaits_answer(),
            "no answer is awaited in {:?}",
            connection.state
        );
        connection.resend = Some(mad.clone());
        connection.retries_left = connection.max_retries;
        let (to, at) = (connection.peer.clone(), now_ns + connection.response_ns);
        self.arm(id, Some(at));
        self.send(to, mad);
    }

    fn connection(&mut self, id: CommId) -> Result<&mut Connection<P>, CmError> {
        self.connections.get_mut(&id.0).ok_or(CmError::UnknownId)
    }

    /// Accepts a request. Identifiers are filled in here.
    ///
    /// # Errors
    /// [`CmError::WrongState`] unless there is a REQ without an answer.
    pub fn accept(&mut self, now_ns: u64, id: CommId, mut rep: Rep) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        if !matches!(connection.state, ConnectionState::ReqReceived | ConnectionState::MraReqSent) {
            return Err(CmError::WrongState(connection.state));
        }
        debug_assert!(!connection.is_active, "the end that sent the REQ accepts it");
        self.take_request(id);
        let connection = self.connection(id)?;
        debug_assert!(!connection.is_waiting, "an answered request waits in the backlog");
        connection.enter(ConnectionState::RepSent);
        rep.local_id = id.0;
        rep.remote_id = connection.remote_id;
        let mad = Mad { transaction: connection.transaction, message: Message::Rep(rep) };
        self.send_and_wait(now_ns, id.0, mad);
        Ok(())
    }

    /// Answers a REP with an RTU: data may flow.
    ///
    /// # Errors
    /// [`CmError::WrongState`] unless the peer accepted.
    pub fn establish(&mut self, id: CommId) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        if !matches!(connection.state, ConnectionState::RepReceived | ConnectionState::MraRepSent) {
            return Err(CmError::WrongState(connection.state));
        }
        debug_assert!(connection.is_active, "an RTU from the end that sent the REP");
        connection.enter(ConnectionState::Established);
        let rtu = Rtu {
            local_id: id.0,
            remote_id: connection.remote_id,
            private_data: [0; Rtu::PRIVATE_BYTES],
        };
        let mad = Mad { transaction: connection.transaction, message: Message::Rtu(rtu) };
        // Sent again when the peer repeats its REP.
        connection.resend = Some(mad.clone());
        let to = connection.peer.clone();
        self.send(to, mad);
        Ok(())
    }

    /// The peer's data arrived before its RTU: the connection is established.
    ///
    /// # Errors
    /// [`CmError::WrongState`] unless we sent a REP.
    pub fn notify_established(&mut self, id: CommId) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        match connection.state {
            ConnectionState::RepSent | ConnectionState::MraRepReceived => {
                connection.enter(ConnectionState::Established)
            }
            ConnectionState::Established => return Ok(()),
            other => return Err(CmError::WrongState(other)),
        }
        self.arm(id.0, None);
        self.tell(super::Event::Established { id });
        Ok(())
    }

    /// Refuses a request, or a reply.
    ///
    /// # Errors
    /// [`CmError::WrongState`] if the peer does not wait for an answer.
    pub fn reject(
        &mut self,
        id: CommId,
        reason: u16,
        private_data: [u8; Rej::PRIVATE_BYTES],
    ) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        let about = match connection.state {
            ConnectionState::ReqReceived | ConnectionState::MraReqSent => ABOUT_REQ,
            ConnectionState::RepReceived | ConnectionState::MraRepSent => ABOUT_REP,
            ConnectionState::RepSent | ConnectionState::MraRepReceived => ABOUT_OTHER,
            other => return Err(CmError::WrongState(other)),
        };
        let rej = Rej {
            local_id: id.0,
            remote_id: connection.remote_id,
            about,
            reason,
            info_length: 0,
            info: [0; Rej::INFO_BYTES],
            private_data,
        };
        let mad = Mad { transaction: connection.transaction, message: Message::Rej(rej) };
        let to = connection.peer.clone();
        self.send(to, mad);
        self.take_request(id);
        self.reset(id.0);
        Ok(())
    }

    /// Asks the peer to wait longer for our answer: 4.096 us x 2^`service_timeout` (MRA).
    ///
    /// # Errors
    /// [`CmError::WrongState`] if the peer does not wait for an answer.
    pub fn delay(&mut self, id: CommId, service_timeout: u8) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        let about = match connection.state {
            ConnectionState::ReqReceived => {
                connection.enter(ConnectionState::MraReqSent);
                ABOUT_REQ
            }
            ConnectionState::RepReceived => {
                connection.enter(ConnectionState::MraRepSent);
                ABOUT_REP
            }
            other => return Err(CmError::WrongState(other)),
        };
        let mra = Mra {
            local_id: id.0,
            remote_id: connection.remote_id,
            about,
            service_timeout: service_timeout & 0x1f,
            private_data: [0; Mra::PRIVATE_BYTES],
        };
        let mad = Mad { transaction: connection.transaction, message: Message::Mra(mra) };
        connection.resend = Some(mad.clone());
        let to = connection.peer.clone();
        self.send(to, mad);
        Ok(())
    }

    /// Ends a connection, or confirms that the peer ended it.
    ///
    /// # Errors
    /// [`CmError::WrongState`] unless the connection is established or the peer sent a DREQ.
    pub fn disconnect(&mut self, now_ns: u64, id: CommId) -> Result<(), CmError> {
        let state = self.connection(id)?.state;
        match state {
            ConnectionState::Established => self.send_dreq(now_ns, id.0),
            ConnectionState::DreqReceived => self.send_drep(now_ns, id.0),
            other => return Err(CmError::WrongState(other)),
        }
        Ok(())
    }

    pub(super) fn send_dreq(&mut self, now_ns: u64, id: u32) {
        let transaction = self.transaction(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.enter(ConnectionState::DreqSent);
        let dreq = Dreq {
            local_id: id,
            remote_id: connection.remote_id,
            remote_qpn: connection.remote_qpn,
            private_data: [0; Dreq::PRIVATE_BYTES],
        };
        connection.transaction = transaction;
        self.send_and_wait(now_ns, id, Mad { transaction, message: Message::Dreq(dreq) });
    }

    pub(super) fn send_drep(&mut self, now_ns: u64, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let drep = Drep {
            local_id: id,
            remote_id: connection.remote_id,
            private_data: [0; Drep::PRIVATE_BYTES],
        };
        let mad = Mad { transaction: connection.transaction, message: Message::Drep(drep) };
        // Sent again when the peer repeats its DREQ.
        connection.resend = Some(mad.clone());
        let to = connection.peer.clone();
        self.send(to, mad);
        self.enter_timewait(now_ns, id);
    }

    /// Answers a SIDR_REQ and removes the request.
    ///
    /// # Errors
    /// [`CmError::WrongState`] unless there is a SIDR_REQ without an answer.
    pub fn answer_service(&mut self, id: CommId, mut rep: SidrRep) -> Result<(), CmError> {
        let connection = self.connection(id)?;
        if connection.state != ConnectionState::SidrReqReceived {
            return Err(CmError::WrongState(connection.state));
        }
        rep.request_id = connection.remote_id;
        rep.service_id = connection.service_id;
        let mad = Mad { transaction: connection.transaction, message: Message::SidrRep(rep) };
        let to = connection.peer.clone();
        self.send(to, mad);
        self.take_request(id);
        self.reset(id.0);
        Ok(())
    }

    /// The owner gives up a connection: the peer is informed, and no further event follows.
    pub fn destroy(&mut self, now_ns: u64, id: CommId) {
        let Some(connection) = self.connections.get_mut(&id.0) else { return };
        connection.is_owned = false;
        match connection.state {
            ConnectionState::Idle | ConnectionState::SidrReqSent => self.forget(id.0),
            ConnectionState::ReqSent | ConnectionState::MraReqReceived => self.withdraw(id.0),
            ConnectionState::ReqReceived
            | ConnectionState::MraReqSent
            | ConnectionState::RepSent
            | ConnectionState::MraRepReceived
            | ConnectionState::RepReceived
            | ConnectionState::MraRepSent => {
                let _was_possible = self.reject(id, reason::CONSUMER, [0; Rej::PRIVATE_BYTES]);
            }
            ConnectionState::Established => self.send_dreq(now_ns, id.0),
            ConnectionState::DreqReceived => self.send_drep(now_ns, id.0),
            ConnectionState::DreqSent | ConnectionState::Timewait => {}
            ConnectionState::SidrReqReceived => {
                let _was_possible = self.answer_service(id, refused());
            }
        }
    }

    /// Cancels a REQ that has no answer yet. The REJ names it by this node's GUID and our
    /// identifier, because we do not know the peer's identifier (IBA vol. 1, 12.9.8.3.1).
    fn withdraw(&mut self, id: u32) {
        let guid = self.config.ca_guid.to_be_bytes();
        let Some(connection) = self.connections.get(&id) else { return };
        let mut info = [0; Rej::INFO_BYTES];
        info[..8].copy_from_slice(&guid);
        let rej = Rej {
            local_id: id,
            remote_id: 0,
            about: ABOUT_OTHER,
            reason: reason::TIMEOUT,
            info_length: 8,
            info,
            private_data: [0; Rej::PRIVATE_BYTES],
        };
        let mad = Mad { transaction: connection.transaction, message: Message::Rej(rej) };
        let to = connection.peer.clone();
        self.send(to, mad);
        self.forget(id);
    }
}

/// The answer to a SIDR_REQ that is refused.
fn refused() -> SidrRep {
    SidrRep {
        request_id: 0,
        status: 2,
        info_length: 0,
        qpn: Qpn::default(),
        service_id: 0,
        qkey: 0,
        info: [0; SidrRep::INFO_BYTES],
        private_data: [0; SidrRep::PRIVATE_BYTES],
    }
}
