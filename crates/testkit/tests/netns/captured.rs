//! What leaves a host, as another device will see it: packets one by one, cut by the kernel out of
//! the runs that we hand it, each with the identification that its invariant CRC covers.

use std::time::{Duration, Instant};

use rdmalab_wire::frame::{EthernetFrame, Network};
use rdmalab_wire::opcode::Operation;
use rdmalab_wire::packet::Packet;

use crate::lab::{INTERFACE, LIMIT, Lab};

/// The frames of a capture file in the classic format of this machine's byte order.
fn frames(capture: &[u8]) -> Vec<&[u8]> {
    const HEADER: usize = 24;
    let mut rest = capture.get(HEADER..).expect("a capture has a header");
    let mut found = Vec::new();
    // Seconds, fraction, bytes captured, bytes on the wire.
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let bytes = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some((frame, after)) = after.split_at_checked(bytes) else { break };
        found.push(frame);
        rest = after;
    }
    found
}

/// What programs send and receive, seen by host 1 as frames; each line runs on both hosts.
fn capture(lab: &Lab, name: &str, lines: &[&str]) -> Vec<u8> {
    for host in [1, 2] {
        // The interface takes no runs: the kernel cuts them before.
        lab.must(&format!("-n {} link set {INTERFACE} gso_max_segs 1", lab.namespace(host)));
    }
    let directory = std::env::temp_dir().join(format!("rdmalab-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the capture");
    let file = directory.join("wire.pcap");
    // Not as another user: the directory is ours.
    let line = format!("tcpdump -Z root -U -n -i {INTERFACE} -w {} udp port 4791", file.display());
    let mut tcpdump = lab.start(1, &line);
    let started = Instant::now() + LIMIT;
    while !file.exists() && Instant::now() < started && !tcpdump.has_ended() {
        std::thread::sleep(Duration::from_millis(20));
    }
    for line in lines {
        lab.pair(line, line).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    // What it has taken and not yet written is lost, and not missed.
    let _ = tcpdump.end_by(Instant::now() + Duration::from_millis(500));
    let capture = std::fs::read(&file).expect("a capture");
    let _ = std::fs::remove_dir_all(&directory);
    capture
}

#[test]
fn every_packet_on_the_wire_has_its_invariant_crc() {
    let test = "every_packet_on_the_wire_has_its_invariant_crc";
    let names = ["tcpdump", "ib_write_bw", "ib_read_bw"];
    let Some(lab) = Lab::of_programs(test, 1500, &names) else { return };
    let capture = capture(&lab, "crc", &["ib_write_bw -x 1 -n 5", "ib_read_bw -x 2 -n 5"]);
    let (mut packets, mut identified) = (0, 0);
    for frame in frames(&capture) {
        let frame = EthernetFrame::parse(frame).expect("a RoCEv2 frame");
        let packet = Packet::parse(frame.datagram.packet).expect("a packet");
        assert_eq!(frame.datagram.icrc(), packet.icrc, "{frame:?}");
        packets += 1;
        if let Network::V4(ip) = frame.datagram.network {
            assert!(ip.dont_fragment, "{ip:?}");
            identified += usize::from(ip.identification != 0);
        }
    }
    println!("{packets} packets, {identified} with an identification");
    assert!(packets > 300 && identified > 100, "{packets} packets, {identified} of them in runs");
}

/// An acknowledgement is a system call of its own, which would stand before the answer that the
/// peer waits for.
#[test]
fn an_answer_leaves_before_the_acknowledgement_of_what_it_answers() {
    let test = "an_answer_leaves_before_the_acknowledgement_of_what_it_answers";
    let Some(lab) = Lab::of_programs(test, 1500, &["tcpdump", "ibv_rc_pingpong"]) else { return };
    let capture = capture(&lab, "answers", &["ibv_rc_pingpong -g 1 -s 64 -n 2000"]);
    let mut last = None;
    let (mut before, mut behind) = (0, 0);
    for frame in frames(&capture) {
        let frame = EthernetFrame::parse(frame).expect("a RoCEv2 frame");
        let packet = Packet::parse(frame.datagram.packet).expect("a packet");
        let Network::V4(ip) = frame.datagram.network else { continue };
        let now = (ip.source, packet.headers.bth.opcode.operation());
        match (last.replace(now), now) {
            (Some((from, Operation::Send)), (source, Operation::Acknowledge)) => {
                before += u32::from(from == source);
            }
            (Some((from, Operation::Acknowledge)), (source, Operation::Send)) => {
                behind += u32::from(from == source);
            }
            _ => {}
        }
    }
    println!("{before} answers before the acknowledgement, {behind} behind it");
    // Who loses the processor in between does not answer at once, and earns credit anew: of 2000
    // trips it is most on a quiet machine, and some on any. Without credit it is none.
    assert!(before > 20, "{before} answers before the acknowledgement, {behind} behind it");
}
