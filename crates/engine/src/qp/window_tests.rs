//! A READ and the window of outstanding packets.

use super::single_tests::{Recorder, qp};
use super::*;
use crate::backend::SendWr;

/// Posts a WRITE of one packet, and a READ whose answer has more packets than the window. Returns
/// what is planned after the WRITE was sent.
fn plan_behind_a_write(flags: SendFlags) -> Plan {
    let (mut qp, mut recorder) = (qp(false), Recorder::default());
    (qp.window_packets, qp.ack_packets) = (16, 32);
    let post = |qp: &mut Qp, opcode, flags, length| {
        let sges = [Sge { addr: 1, length, lkey: 2 }];
        let wr = SendWr {
            wr_id: 0,
            opcode,
            flags,
            imm_or_rkey: 0,
            sges: &sges,
            remote_addr: 64,
            rkey: 9,
            compare_add: 0,
            swap: 0,
            ud: None,
            bind: None,
        };
        qp.post_send(&wr, 0).expect("there is room");
    };
    post(&mut qp, WrOpcode::Write, flags, 1);
    post(&mut qp, WrOpcode::Read, SendFlags::SIGNALED, 20 * 256);
    qp.fetch_sends();
    assert!(matches!(qp.plan(256), Plan::Send { position: 0, .. }));
    qp.retire_sent(0, true, Ok(()), &mut recorder);
    qp.plan(256)
}

#[test]
fn a_read_waits_for_an_acknowledgement_only_if_one_was_requested() {
    let planned = plan_behind_a_write(SendFlags::NONE);
    assert!(matches!(planned, Plan::Send { position: 1, .. }), "{planned:?}");
    let planned = plan_behind_a_write(SendFlags::SIGNALED);
    assert!(matches!(planned, Plan::Idle), "{planned:?}");
}
