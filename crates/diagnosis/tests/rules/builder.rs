//! A conversation of two queue pairs, written packet by packet.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use rdmalab_diagnosis::{Finding, FirstPass, Kind, Report};
use rdmalab_trace::packet::Icrc;
use rdmalab_trace::{Address, Seen, Tally};
use rdmalab_wire::aeth::{NakCode, RnrTimer, Syndrome};
use rdmalab_wire::cm::{GSI_QKEY, Mad};
use rdmalab_wire::headers::{Aeth, Bth, Deth, Reth};
use rdmalab_wire::ids::{Msn, Psn, QKey, Qpn, RKey};
use rdmalab_wire::opcode::Opcode;
use rdmalab_wire::packet::Headers;

/// One microsecond.
pub const US: u64 = 1000;
/// One millisecond.
pub const MS: u64 = 1_000_000;

/// The address of an end.
pub fn address(last: u8) -> Address {
    Address::Ip(Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped())
}

/// Packets in order, of connections from 10.0.0.1 to 10.0.0.2.
#[derive(Default)]
pub struct Script {
    pub packets: Vec<Seen>,
    /// The connection that the next packets belong to.
    pub connection: u32,
}

impl Script {
    /// The packets of connection 0.
    pub fn new() -> Self {
        Self::default()
    }

    fn push(
        &mut self,
        at_ns: u64,
        is_request: bool,
        headers: Headers,
        payload: usize,
    ) -> &mut Self {
        let (from, to) = if is_request { (1, 2) } else { (2, 1) };
        self.packets.push(Seen {
            frame: self.packets.len() as u64 + 1,
            interface: 0,
            at_ns,
            from: address(from),
            to: address(to),
            headers,
            payload_bytes: payload,
            start: Vec::new(),
            icrc: Icrc::Good,
            crc: 0,
            comment: "a comment is no evidence: fault: drop".to_owned(),
        });
        self
    }

    fn bth(&self, opcode: Opcode, is_request: bool, psn: u32) -> Headers {
        let base = if is_request { 0x200 } else { 0x100 };
        Headers::new(Bth::new(opcode, Qpn::new(base + self.connection), Psn::new(psn)))
    }

    /// A request with a payload.
    pub fn ask(&mut self, at_ns: u64, opcode: Opcode, psn: u32, payload: usize) -> &mut Self {
        let mut headers = self.bth(opcode, true, psn);
        if opcode.has_reth() {
            headers.reth = Some(Reth {
                virtual_address: 0,
                rkey: RKey(7),
                dma_length: payload.max(100) as u32,
            });
        }
        let payload = if opcode.has_payload() { payload } else { 0 };
        self.push(at_ns, true, headers, payload)
    }

    /// A READ of 100 bytes.
    pub fn read(&mut self, at_ns: u64, psn: u32) -> &mut Self {
        self.ask(at_ns, Opcode::RcReadRequest, psn, 0)
    }

    /// A SEND of 100 bytes.
    pub fn send(&mut self, at_ns: u64, psn: u32) -> &mut Self {
        self.ask(at_ns, Opcode::RcSendOnly, psn, 100)
    }

    /// The response to a READ.
    pub fn response(&mut self, at_ns: u64, psn: u32) -> &mut Self {
        self.data(at_ns, Opcode::RcReadResponseOnly, psn, 100)
    }

    /// A packet of a response.
    pub fn data(&mut self, at_ns: u64, opcode: Opcode, psn: u32, payload: usize) -> &mut Self {
        let mut headers = self.bth(opcode, false, psn);
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::new(0) };
        headers.aeth = opcode.has_aeth().then_some(aeth);
        self.push(at_ns, false, headers, payload)
    }

    fn acknowledge(&mut self, at_ns: u64, psn: u32, syndrome: Syndrome) -> &mut Self {
        let mut headers = self.bth(Opcode::RcAcknowledge, false, psn);
        headers.aeth = Some(Aeth { syndrome, msn: Msn::new(0) });
        self.push(at_ns, false, headers, 0)
    }

    /// An ACK.
    pub fn ack(&mut self, at_ns: u64, psn: u32) -> &mut Self {
        self.acknowledge(at_ns, psn, Syndrome::ACK)
    }

    /// An RNR NAK that asks for 1.28 ms.
    pub fn rnr(&mut self, at_ns: u64, psn: u32) -> &mut Self {
        self.rnr_of(at_ns, psn, 14)
    }

    /// An RNR NAK with that code of a timer.
    pub fn rnr_of(&mut self, at_ns: u64, psn: u32, code: u8) -> &mut Self {
        self.acknowledge(at_ns, psn, Syndrome::RnrNak(RnrTimer::new(code).expect("a code")))
    }

    /// A NAK.
    pub fn nak(&mut self, at_ns: u64, psn: u32, code: NakCode) -> &mut Self {
        self.acknowledge(at_ns, psn, Syndrome::Nak(code))
    }

    /// A message of the connection manager, from one end to the other.
    pub fn manager(&mut self, at_ns: u64, is_forward: bool, mad: &Mad) -> &mut Self {
        let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, Qpn::new(1), Psn::new(0)));
        headers.deth = Some(Deth { qkey: QKey(GSI_QKEY), source_qp: Qpn::new(1) });
        self.push(at_ns, is_forward, headers, 256);
        self.packets.last_mut().expect("a packet").start = mad.to_bytes().to_vec();
        self
    }

    /// What is diagnosed, with the packets in order of time.
    pub fn report(&self) -> Report {
        let mut packets = self.packets.clone();
        packets.sort_by_key(|packet| packet.at_ns);
        for (packet, frame) in packets.iter_mut().zip(1..) {
            packet.frame = frame;
        }
        diagnose(&packets)
    }

    /// The kinds that are found.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.report().findings.iter().map(|finding| finding.kind).collect()
    }
}

/// The diagnosis of packets of one file.
pub fn diagnose(packets: &[Seen]) -> Report {
    let mut first = FirstPass::default();
    packets.iter().for_each(|packet| first.take(1, packet));
    let mut second = first.finish();
    packets.iter().for_each(|packet| second.take(1, packet));
    second.finish(vec!["a.pcap".to_owned()], &[Tally::default()])
}

/// The only finding of a kind.
#[track_caller]
pub fn only(report: &Report, kind: Kind) -> Finding {
    let all: Vec<&Finding> = report.findings.iter().filter(|f| f.kind == kind).collect();
    assert_eq!(all.len(), 1, "{kind:?} in {:#?}", report.findings);
    all[0].clone()
}

/// The frames of the costliest occurrence.
pub fn frames(finding: &Finding) -> Vec<u64> {
    finding.occurrences[0].proof.iter().map(|proof| proof.stamp.frame).collect()
}
