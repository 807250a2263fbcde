//! The packets that leave a host, as another device sees them. The kernel cuts runs of segments
//! into packets, each with the IPv4 identification that its invariant CRC covers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, WaitLimit};
use rdmalab_wire::frame::{EthernetFrame, Network};
use rdmalab_wire::opcode::Operation;
use rdmalab_wire::packet::Packet;

use crate::lab::{INTERFACE, LIMIT, Lab};

/// The frames of a capture file with their times. The file has the classic pcap format in the byte
/// order of this machine.
fn frames(capture: &[u8]) -> Vec<(Duration, &[u8])> {
    const HEADER: usize = 24;
    let mut rest = capture.get(HEADER..).expect("a capture has a header");
    let mut found = Vec::new();
    // Seconds, microseconds, bytes captured, bytes on the wire.
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| head[at + i]));
        let at = Duration::new(word(0).into(), word(4) * 1000);
        let Some((frame, after)) = after.split_at_checked(word(8) as usize) else { break };
        found.push((at, frame));
        rest = after;
    }
    found
}

/// Runs each line as a pair on both hosts; returns a capture of the frames at host 1.
fn capture(lab: &Lab, name: &str, lines: &[&str]) -> Vec<u8> {
    for host in [1, 2] {
        // The interface accepts no runs of segments: the kernel cuts them before the capture.
        lab.must(&format!("-n {} link set {INTERFACE} gso_max_segs 1", lab.namespace(host)));
    }
    let directory = std::env::temp_dir().join(format!("rdmalab-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the capture");
    let file = directory.join("wire.pcap");
    // With its own user, tcpdump could not write into our directory.
    let line = format!("tcpdump -Z root -U -n -i {INTERFACE} -w {} udp port 4791", file.display());
    let mut tcpdump = lab.start(1, &line);
    let mut wait_limit = WaitLimit::of(LIMIT);
    while !file.exists() && wait_limit.is_left() && !tcpdump.has_ended() {
        std::thread::sleep(Duration::from_millis(20));
    }
    for line in lines {
        lab.pair(line, line).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    // tcpdump may not have written its last packets yet; the test does not need them.
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
    for (_, frame) in frames(&capture) {
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

/// So many answers before their acknowledgement show that the host has credit.
const ENOUGH: u32 = 20;
/// With so many prompt answers, each after [`EARNING`] others in a row, a host must have credit:
/// 4 in a row earn it, and 64 more if the credit before was of no use.
const MANY: u32 = 200;
const EARNING: u32 = 68;

/// The order of messages and acknowledgements in a ping-pong.
#[derive(Debug, Default)]
struct Counts {
    /// Answers that left before the acknowledgement of the message they answer, and after it.
    before: u32,
    behind: u32,
    /// Answers within [`PROMPT`], after [`EARNING`] such answers of that host in a row.
    prompt: u32,
}

/// An answer within this time on the wire earns credit.
const PROMPT: Duration = Duration::from_micros(15);

fn count(capture: &[u8]) -> Counts {
    let mut counts = Counts::default();
    let (mut last, mut sent) = (None, None);
    let mut in_a_row = BTreeMap::new();
    for (at, frame) in frames(capture) {
        let frame = EthernetFrame::parse(frame).expect("a RoCEv2 frame");
        let packet = Packet::parse(frame.datagram.packet).expect("a packet");
        let Network::V4(ip) = frame.datagram.network else { continue };
        let now = (ip.source, packet.headers.bth.opcode.operation());
        match (last.replace(now), now) {
            (Some((from, Operation::Send)), (source, Operation::Acknowledge)) => {
                counts.before += u32::from(from == source);
            }
            (Some((from, Operation::Acknowledge)), (source, Operation::Send)) => {
                counts.behind += u32::from(from == source);
            }
            _ => {}
        }
        if now.1 == Operation::Send
            && let Some((from, since)) = sent.replace((ip.source, at))
        {
            let in_a_row = in_a_row.entry(ip.source).or_insert(0);
            let is_prompt = from != ip.source && at.saturating_sub(since) <= PROMPT;
            *in_a_row = if is_prompt { *in_a_row + 1 } else { 0 };
            counts.prompt += u32::from(*in_a_row > EARNING);
        }
    }
    counts
}

/// Sending an acknowledgement takes a system call. Before the answer, it would delay the peer,
/// which waits for that answer.
#[test]
fn an_answer_leaves_before_the_acknowledgement_of_what_it_answers() {
    let test = "an_answer_leaves_before_the_acknowledgement_of_what_it_answers";
    let Some(lab) = Lab::of_programs(test, 1500, &["tcpdump", "ibv_rc_pingpong"]) else { return };
    // A host that loses its processor does not answer promptly and must earn credit again. Of 2000
    // trips most have credit on a quiet machine, and some on any; a host without credit has none.
    // With too few prompt answers no credit can be earned, and the run proves nothing.
    let once = || {
        let capture = capture(&lab, "answers", &["ibv_rc_pingpong -g 1 -s 64 -n 2000"]);
        let counts = count(&capture);
        assert!(counts.before > ENOUGH || counts.prompt < MANY, "{counts:?}");
        counts
    };
    let why = "nobody came to answer at once";
    let counts = programs::again_while(why, once, |counts| counts.before <= ENOUGH);
    if counts.before <= ENOUGH {
        programs::skipped(test, format!("{why}: {counts:?}"));
    }
}
