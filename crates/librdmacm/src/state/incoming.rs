//! Turns messages of peers into events for the program.

use std::net::SocketAddr;

use rdmalab_abi::*;
use rdmalab_engine::cm::{CommId, Event};
use rdmalab_wire::cm::{IpHeader, Rej, Rep, Req, SidrRep, SidrReq, reason};
use rdmalab_wire::ids::Psn;

use super::{CmState, IdState};
use crate::conn_params::ConnParams;
use crate::errno::failed;
use crate::event_queue::{EventParam, QueuedEvent};
use crate::mad_transport::Peer;
use crate::os::{now_ns, random};

impl CmState {
    /// Queues the event for the program, and stores what the message says about the connection.
    pub(super) fn handle_cm_event(&mut self, event: Event<Peer>) {
        match event {
            Event::Request { id, peer, req } => self.on_request(id, peer, &req),
            Event::Reply { id, rep } => self.on_reply(id, &rep),
            Event::Rejected { id, rej } => {
                let param = conn_with(rej.private_data.to_vec());
                self.queue_comm_event(id, RDMA_CM_EVENT_REJECTED, i32::from(rej.reason), param);
            }
            Event::Established { id } => {
                self.queue_comm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, EventParam::None);
            }
            Event::Unreachable { id } => {
                self.queue_comm_event(
                    id,
                    RDMA_CM_EVENT_UNREACHABLE,
                    -libc::ETIMEDOUT,
                    EventParam::None,
                );
            }
            Event::Disconnected { id, is_unconfirmed } => {
                let status = if is_unconfirmed { -libc::ETIMEDOUT } else { 0 };
                self.queue_comm_event(id, RDMA_CM_EVENT_DISCONNECTED, status, EventParam::None);
            }
            Event::TimewaitExit { id } => {
                self.queue_comm_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, EventParam::None);
            }
            Event::SidrRequest { id, peer, req } => self.on_sidr_request(id, peer, &req),
            Event::SidrReply { id, rep } => self.on_sidr_reply(id, &rep),
        }
    }

    /// The listener for a request: one that is bound to the address, or to the wildcard address. Of
    /// two wildcard addresses, that of the same family.
    fn listener_for(&self, service: u64, header: &IpHeader) -> Option<u64> {
        let ids = self.listeners.get(&service)?;
        let asked = crate::address::plain(header.destination);
        let fits = |number: &&u64| {
            let Some(id) = self.ids.get(number) else { return false };
            let Some(source) = id.source else { return true };
            let at = crate::address::plain(source.ip());
            let is_any = at.is_unspecified() && id.is_family_only != Some(true);
            is_any || at == asked || at.is_unspecified() && at.is_ipv4() == asked.is_ipv4()
        };
        let is_same_family = |number: &&u64| {
            let source = self.ids.get(number).and_then(|id| id.source);
            source.is_some_and(|source| source.is_ipv4() == asked.is_ipv4())
        };
        ids.iter().filter(fits).max_by_key(is_same_family).copied()
    }

    /// Adds the id of a request; returns it and its listener. Rejects a request without a listener.
    fn add_requested_id(
        &mut self,
        comm: CommId,
        peer: Peer,
        service: u64,
        private_data: &[u8],
    ) -> Option<(u64, u64)> {
        let listener = IpHeader::parse(private_data).and_then(|header| {
            let listener = self.listener_for(service, &header)?;
            Some((listener, self.ids.get(&listener)?, header))
        });
        let Some((listener, on, header)) = listener else {
            let _reported = failed(libc::ECONNREFUSED, "rdma_cm", || {
                let asked = IpHeader::parse(private_data).map(|header| header.destination);
                format!("refused: nobody listens for service {service:#x} at {asked:?}")
            });
            let nothing = [0; Rej::PRIVATE_BYTES];
            // `reject` is not for a SIDR_REQ. `destroy` answers it with a SIDR_REP.
            let _answered = self.manager.reject(comm, reason::INVALID_SERVICE_ID, nothing);
            self.manager.destroy(now_ns(), comm);
            return None;
        };
        let mut state = IdState::new(on.queue.clone(), on.ps, on.qp_type);
        state.source = Some(SocketAddr::new(header.destination, service as u16));
        state.destination = Some(SocketAddr::new(header.source, header.source_port));
        state.peer = Some(peer);
        state.ack_timeout = on.ack_timeout;
        state.tos = on.tos;
        let id = self.add(state);
        self.attach(id, comm);
        Some((id, listener))
    }

    fn on_request(&mut self, comm: CommId, peer: Peer, req: &Req) {
        let Some((id, listener)) =
            self.add_requested_id(comm, peer, req.service_id, &req.private_data)
        else {
            return;
        };
        if let Some(state) = self.ids.get_mut(&id) {
            state.params = ConnParams {
                sgid_index: 0,
                local_gid: req.path.remote_gid,
                remote_gid: req.path.local_gid,
                remote_lid: req.path.local_lid,
                remote_qpn: req.qpn,
                rq_psn: Psn::new(random()),
                sq_psn: req.starting_psn,
                mtu: req.path_mtu,
                initiator_depth: req.responder_resources,
                responder_resources: req.initiator_depth,
                retry_count: req.retry_count,
                rnr_retry_count: req.rnr_retry_count,
                ack_timeout: req.path.ack_timeout,
                traffic_class: req.path.traffic_class,
                qkey: 0,
            };
        }
        let param = EventParam::Conn {
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            srq: req.srq,
            qp_num: req.qpn.get(),
            private_data: req.private_data[IpHeader::BYTES..].to_vec(),
        };
        let event = RDMA_CM_EVENT_CONNECT_REQUEST;
        self.queue_event(QueuedEvent { event, status: 0, id, listener: Some(listener), param });
    }

    fn on_sidr_request(&mut self, comm: CommId, peer: Peer, req: &SidrReq) {
        let Some((id, listener)) =
            self.add_requested_id(comm, peer, req.service_id, &req.private_data)
        else {
            return;
        };
        let private_data = req.private_data[IpHeader::BYTES..].to_vec();
        let param = EventParam::Ud { qp_num: 0, qkey: 0, private_data };
        let event = RDMA_CM_EVENT_CONNECT_REQUEST;
        self.queue_event(QueuedEvent { event, status: 0, id, listener: Some(listener), param });
    }

    fn on_reply(&mut self, comm: CommId, rep: &Rep) {
        let Some(&id) = self.by_comm.get(&comm) else { return };
        if let Some(state) = self.ids.get_mut(&id) {
            let params = &mut state.params;
            params.remote_qpn = rep.qpn;
            params.sq_psn = rep.starting_psn;
            params.initiator_depth = rep.responder_resources;
            params.responder_resources = rep.initiator_depth;
            params.rnr_retry_count = rep.rnr_retry_count;
            state.peer = self.manager.peer(comm).copied();
        }
        let param = EventParam::Conn {
            responder_resources: rep.initiator_depth,
            initiator_depth: rep.responder_resources,
            flow_control: rep.flow_control,
            retry_count: 0,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            qp_num: rep.qpn.get(),
            private_data: rep.private_data.to_vec(),
        };
        self.queue_comm_event(comm, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, param);
    }

    fn on_sidr_reply(&mut self, comm: CommId, rep: &SidrRep) {
        if rep.status != 0 {
            let status = i32::from(rep.status);
            self.queue_comm_event(comm, RDMA_CM_EVENT_UNREACHABLE, status, EventParam::None);
            return;
        }
        let private_data = rep.private_data.to_vec();
        let (qp_num, qkey) = (rep.qpn.get(), rep.qkey);
        if let Some(state) = self.by_comm.get(&comm).and_then(|id| self.ids.get_mut(id)) {
            state.params.remote_qpn = rep.qpn;
            state.params.qkey = rep.qkey;
        }
        let param = EventParam::Ud { qp_num, qkey, private_data };
        self.queue_comm_event(comm, RDMA_CM_EVENT_ESTABLISHED, 0, param);
    }
}

/// Parameters with private data only.
fn conn_with(private_data: Vec<u8>) -> EventParam {
    EventParam::Conn {
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: false,
        retry_count: 0,
        rnr_retry_count: 0,
        srq: false,
        qp_num: 0,
        private_data,
    }
}
