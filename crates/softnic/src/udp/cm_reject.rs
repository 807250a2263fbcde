//! Rejects of connection requests that no program of this host handles.
//!
//! In the kernel one connection manager answers for all programs. Here each program has its own. If
//! no program of the host has one, the owner of the socket answers like a manager that knows no
//! service and no connection. So peers get a REJ and need not time out.

use rdmalab_engine::cm::{Config, Manager, Output};
use rdmalab_engine::vocab::AhAttr;
use rdmalab_link::address::gid_of;
use rdmalab_wire::cm::Mad;
use rdmalab_wire::ids::Gid;
use rdmalab_wire::packet::Packet;

use super::mad_queue::MAD_BYTES;
use super::management::send_management;
use super::receiver::Arrival;
use crate::process::Process;

/// The answer of a manager that knows nothing: it rejects a REQ (reason 8) and confirms a DREQ.
fn answer(from: Gid, mad: Mad) -> Option<Mad> {
    let config = Config { ca_guid: 0, id_base: 0, id_mask: 0, first_id: 0, max_connections: 0 };
    let mut manager = Manager::new(config);
    manager.receive(0, from, mad);
    match manager.output()? {
        Output::Send { mad, .. } => Some(*mad),
        Output::Tell(_) => None,
    }
}

/// Answers a MAD from the network that no process of this host takes.
#[cold]
pub(super) fn reject_unclaimed(process: &Process, arrival: &Arrival<'_>, packet: &Packet<'_>) {
    if process.management.is_open() || process.management.manager_presence.has_managers() {
        return;
    }
    let mad = packet.payload.try_into().ok().and_then(|mad: &[u8; MAD_BYTES]| Mad::parse(mad).ok());
    let Some(mad) = mad else { return };
    let (from, to) = (gid_of(arrival.tuple.source), gid_of(arrival.tuple.destination));
    let own =
        (0..crate::device::gid_count()).find(|index| crate::device::gid_of(0, *index) == Some(to));
    let (Some(index), Some(answer)) = (own, answer(from, mad)) else { return };
    let sgid_index = index as u8;
    let ah = AhAttr { dgid: from, sgid_index, is_global: true, port_num: 1, ..AhAttr::default() };
    // If the answer is lost, the peer sends its message again.
    let _ = send_management(process, &ah, &answer.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmalab_wire::cm::{Dreq, Message, SidrReq};
    use rdmalab_wire::ids::Qpn;

    fn answer_to(message: Message) -> Option<Message> {
        let answer = answer(Gid([9; 16]), Mad { transaction: 7, message })?;
        assert_eq!(answer.transaction, 7);
        Some(answer.message)
    }

    #[test]
    fn a_host_without_managers_refuses_and_confirms() {
        let private_data = [0; SidrReq::PRIVATE_BYTES];
        let question = SidrReq { request_id: 3, pkey: 0xffff, service_id: 5, private_data };
        match answer_to(Message::SidrReq(question)) {
            Some(Message::SidrRep(rep)) => {
                assert_eq!((rep.request_id, rep.service_id, rep.status), (3, 5, 1));
            }
            other => panic!("{other:?}"),
        }
        let private_data = [0; Dreq::PRIVATE_BYTES];
        let farewell = Dreq { local_id: 1, remote_id: 2, remote_qpn: Qpn::new(4), private_data };
        match answer_to(Message::Dreq(farewell)) {
            Some(Message::Drep(drep)) => assert_eq!((drep.local_id, drep.remote_id), (2, 1)),
            other => panic!("{other:?}"),
        }
    }
}
