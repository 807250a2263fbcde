//! What went wrong in a capture: for each pair of queue pairs its kind, when, what it cost in time,
//! the frames that prove it, the cause and the remedy.
//!
//! Two passes: [`FirstPass`] finds which directions belong together and whether packets were
//! captured twice; [`Diagnosis`] follows each requester ([`side`]), whose events the [`rule`]s
//! judge. Both need bounded memory, whatever the length of a capture. Comments in a capture are no
//! evidence, and nothing here reads them.
//!
//! A rule is a file in `rules/` and a line in the list there.
#![forbid(unsafe_code)]

pub mod copies;
pub mod event;
pub mod finding;
pub mod kind;
pub mod rule;
mod rules;
pub mod side;
pub mod text;

use std::collections::HashMap;

use rdmalab_trace::conversation::{Direction, Endpoint};
use rdmalab_trace::packet::Icrc;
use rdmalab_trace::{Directory, Seen, Survey, Tally};
use rdmalab_wire::opcode::Transport;

use copies::Copies;
use event::{Event, SideId, Stamp, Step};
pub use finding::{Finding, Findings, Occurrence, Proof, Report};
pub use kind::Kind;
use rule::Rule;
use side::Side;

/// Requests that are remembered of all requesters together.
pub const REMEMBERED_MAX: usize = 1 << 20;
/// Requests that a requester keeps when there is no room for more.
const KEPT: usize = 16;

/// The first of two passes over the packets of all captures, in order of time.
#[derive(Default)]
pub struct FirstPass {
    survey: Survey,
    copies: Copies,
}

impl FirstPass {
    /// Adds a packet of the file with that number, from 1.
    pub fn take(&mut self, file: usize, packet: &Seen) {
        self.copies.is_copy(file, packet);
        self.survey.take(packet);
    }

    /// Begins the second pass.
    #[must_use]
    pub fn finish(self) -> Diagnosis {
        Diagnosis {
            directory: self.survey.finish(),
            copies: self.copies.again(),
            sides: HashMap::new(),
            judges: Judges { rules: rules::all(), found: Findings::default() },
            remembered: 0,
            remembered_max: REMEMBERED_MAX,
            report: Report { start_ns: u64::MAX, ..Report::default() },
            last: Stamp::default(),
            is_forgetful: false,
            damaged: 0,
        }
    }
}

/// The rules and what they found.
struct Judges {
    rules: Vec<Box<dyn Rule>>,
    found: Findings,
}

impl Judges {
    fn see(&mut self, mut step: Step<'_>) {
        for rule in &mut self.rules {
            step.is_explained |= rule.see(&step, &mut self.found);
        }
    }
}

/// The second pass.
pub struct Diagnosis {
    directory: Directory,
    copies: Copies,
    sides: HashMap<SideId, Side>,
    judges: Judges,
    remembered: usize,
    remembered_max: usize,
    report: Report,
    last: Stamp,
    is_forgetful: bool,
    /// Packets whose invariant CRC is wrong.
    damaged: u64,
}

impl Diagnosis {
    /// Keeps all occurrences of a finding, not only those that cost most. Needs memory for each, so
    /// only for captures of bounded length.
    #[must_use]
    pub fn with_all_occurrences(mut self) -> Self {
        self.judges.found.occurrences_max = usize::MAX;
        self
    }

    /// Adds a packet of the file with that number, from 1: the same packets in the same order as in
    /// the first pass.
    pub fn take(&mut self, file: usize, packet: &Seen) {
        if self.copies.is_copy(file, packet) {
            self.report.copies += 1;
            return;
        }
        self.report.packets += 1;
        self.report.start_ns = self.report.start_ns.min(packet.at_ns);
        self.last = Stamp { file, frame: packet.frame, at_ns: packet.at_ns };
        // A receiver drops a packet whose CRC is wrong.
        let Some((number, direction)) = self.directory.place(packet) else { return };
        if packet.icrc == Icrc::Bad {
            self.damaged += 1;
            return;
        }
        let pair = &self.directory.pairs[number];
        let is_response = packet.headers.bth.opcode.is_response();
        let is_forward = direction == Direction::Forward;
        let is_first = is_forward != is_response || (pair.has_both && pair.a == pair.b);
        let id = SideId { pair: number, is_first };
        let step = Step {
            side: id,
            transport: pair.transport,
            has_both: pair.has_both,
            now: self.last,
            event: Event::Packet(packet),
            is_explained: false,
        };
        let judges = &mut self.judges;
        judges.see(step);
        if !matches!(pair.transport, Transport::Rc | Transport::Uc) {
            return;
        }
        let side = self.sides.entry(id).or_insert_with(|| Side::new(pair.mtu_bytes));
        let before = side.remembered();
        let sink = &mut |event: Event<'_>| judges.see(Step { event, ..step });
        match is_response {
            true => side.answer(packet, step.now, sink),
            false => side.request(packet, step.now, sink),
        }
        let most = self.remembered_max + before;
        if self.remembered + side.remembered() > most {
            side.trim_answered(KEPT);
        }
        if self.remembered + side.remembered() > most {
            side.trim(KEPT);
        }
        // UC has no answers.
        self.is_forgetful |= pair.transport == Transport::Rc && side.is_forgetful();
        self.remembered = self.remembered + side.remembered() - before;
    }

    /// Ends the diagnosis of these files, with what was counted in each.
    #[must_use]
    pub fn finish(mut self, files: Vec<String>, tallies: &[Tally]) -> Report {
        let mut sides: Vec<(SideId, Side)> = self.sides.drain().collect();
        sides.sort_unstable_by_key(|(id, _)| *id);
        let mut unseen = 0;
        for (id, side) in &mut sides {
            unseen += side.unseen();
            let pair = &self.directory.pairs[id.pair];
            if pair.transport != Transport::Rc {
                continue;
            }
            let step = Step {
                side: *id,
                transport: pair.transport,
                has_both: pair.has_both,
                now: self.last,
                event: Event::Gap,
                is_explained: false,
            };
            side.end(&mut |event| self.judges.see(Step { event, ..step }));
        }
        let Judges { mut rules, mut found } = self.judges;
        for rule in &mut rules {
            rule.end(&mut found);
        }
        let mut report = self.report;
        report.files = files;
        report.pairs = self.directory.pairs.len();
        report.end_ns = self.last.at_ns;
        report.start_ns = report.start_ns.min(report.end_ns);
        report.other_frames = tallies.iter().map(other_frames).sum();
        report.findings = named(&self.directory, found);
        report.doubts = tallies.iter().flat_map(doubts_of_file).collect();
        report.doubts.extend(doubts(&self.directory, unseen));
        if self.copies.is_doubled() {
            let doubt = "each packet was captured twice, as on two interfaces: of two equal \
                         packets within 0.1 ms one was left out";
            report.doubts.push(doubt.to_owned());
        }
        if self.copies.is_forgetful() {
            // What was captured at two places would look as if it had been sent twice.
            report.findings.retain(|finding| finding.kind != Kind::Duplicates);
            let doubt = "there were more packets within a second than are remembered to find those \
                         that were captured at two places: a duplicate storm cannot be told";
            report.doubts.push(doubt.to_owned());
        }
        if self.damaged > 0 {
            report.doubts.push(format!(
                "{} packets have a wrong CRC and are left out, since a receiver drops them; if \
                 nearly all have one, the capture was changed, or was taken before the adapter \
                 added it",
                self.damaged
            ));
        }
        if self.is_forgetful {
            let doubt = "there were more unanswered requests than are remembered: some findings \
                         may be missing";
            report.doubts.push(doubt.to_owned());
        }
        report
    }
}

fn other_frames(tally: &Tally) -> u64 {
    let malformed: u64 = tally.malformed.iter().map(|(_, count)| count).sum();
    tally.foreign + malformed
}

/// The findings with the names of their queue pairs, the greatest cost first.
fn named(directory: &Directory, found: Findings) -> Vec<Finding> {
    let name = |end: &Endpoint| end.to_string();
    let mut all: Vec<Finding> = Vec::new();
    for (side, mut finding) in found.into_parts() {
        if let Some(SideId { pair, is_first }) = side {
            let pair = &directory.pairs[pair];
            let ends = [name(&pair.a), name(&pair.b)];
            let [a, b] = ends;
            (finding.requester, finding.responder) = if is_first { (a, b) } else { (b, a) };
        }
        for pair in &mut finding.queue_pairs {
            let ends = pair.parse().ok().and_then(|number: usize| directory.pairs.get(number));
            if let Some(ends) = ends {
                *pair = format!("{} - {}", ends.a, ends.b);
            }
        }
        all.push(finding);
    }
    all.sort_by_key(|finding| (std::cmp::Reverse(finding.cost_ns), finding.kind));
    all
}

fn doubts_of_file(tally: &Tally) -> Vec<String> {
    let mut doubts = Vec::new();
    if tally.dropped > 0 {
        let n = tally.dropped;
        doubts.push(format!("{n} packets were lost while capturing: what is missing was not seen"));
    }
    if let Some(why) = &tally.cut_short {
        doubts.push(format!("the capture is cut or damaged: {why}"));
    }
    for (reason, count) in &tally.malformed {
        doubts.push(format!("{count} RDMA frames cannot be read, the first: {reason}"));
    }
    doubts
}

fn doubts(directory: &Directory, unseen: u64) -> Vec<String> {
    let mut doubts = Vec::new();
    let halves = directory.halves();
    if halves > 0 && directory.crowded_psns > 0 {
        doubts.push(format!(
            "{halves} directions use the same PSNs as many others, as queue pairs do that all \
             begin with PSN 0: which belong together cannot be told, and each is judged alone"
        ));
    } else if halves > 0 {
        doubts.push(format!("of {halves} connections the capture has only one direction"));
    }
    if unseen > 0 {
        doubts.push(format!(
            "{unseen} answers belong to requests that are not in the capture: it has gaps"
        ));
    }
    if directory.is_full {
        doubts.push("there are more connections than are told apart: some were left out".into());
    }
    doubts
}

#[cfg(test)]
mod tests {
    use rdmalab_trace::packet::Address;
    use rdmalab_wire::headers::{Aeth, Bth};
    use rdmalab_wire::ids::{Msn, Psn, Qpn};
    use rdmalab_wire::opcode::Opcode;
    use rdmalab_wire::packet::Headers;

    use super::*;

    /// A SEND of a connection, or its acknowledgement.
    fn packet(connection: u32, psn: u32, at_ns: u64, is_answer: bool) -> Seen {
        let ends = [1u128, 2].map(|last| Address::Ip(last.into()));
        let (opcode, base) = match is_answer {
            true => (Opcode::RcAcknowledge, 0x1000),
            false => (Opcode::RcSendOnly, 0x8000),
        };
        // Each connection has PSNs of its own, by which its directions are paired.
        let psn = Psn::new(connection << 12 | psn);
        let mut headers = Headers::new(Bth::new(opcode, Qpn::new(base + connection), psn));
        let aeth = Aeth { syndrome: rdmalab_wire::aeth::Syndrome::ACK, msn: Msn::new(0) };
        headers.aeth = is_answer.then_some(aeth);
        let (from, to) = if is_answer { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
        Seen {
            frame: 1,
            interface: 0,
            at_ns,
            from,
            to,
            headers,
            payload_bytes: if is_answer { 0 } else { 100 },
            start: Vec::new(),
            icrc: Icrc::Good,
            crc: 0,
            comment: String::new(),
        }
    }

    /// So many busy connections, which may remember so many requests; every tenth SEND gets no
    /// answer before it is repeated a second later.
    fn busy(connections: u32, remembered_max: usize) -> (Report, usize) {
        let mut packets = Vec::new();
        for psn in 0..300 {
            for connection in 0..connections {
                let at_ns = u64::from(psn * connections + connection) * 1000;
                packets.push(packet(connection, psn, at_ns, false));
                if psn % 10 != 9 {
                    packets.push(packet(connection, psn, at_ns + 500, true));
                }
            }
        }
        let mut first = FirstPass::default();
        packets.iter().for_each(|packet| first.take(1, packet));
        let mut second = Diagnosis { remembered_max, ..first.finish() };
        let mut most = 0;
        for packet in &packets {
            second.take(1, packet);
            most = second.remembered.max(most);
        }
        (second.finish(Vec::new(), &[Tally::default()]), most)
    }

    #[test]
    fn what_was_answered_is_forgotten_first() {
        let (report, most) = busy(40, 1000);
        assert!(most <= 1000 + 40, "{most}");
        assert!(report.findings.is_empty() && report.doubts.is_empty(), "{report:#?}");
    }

    #[test]
    fn what_was_forgotten_without_an_answer_is_no_duplicate() {
        let mut first = FirstPass::default();
        let repeated = |psn| packet(0, psn, 2_000_000_000, false);
        let sent = (0..300).map(|psn| packet(0, psn, u64::from(psn) * 1000, false));
        let packets: Vec<Seen> = sent.chain((0..200).map(repeated)).collect();
        packets.iter().for_each(|packet| first.take(1, packet));
        let mut second = Diagnosis { remembered_max: 50, ..first.finish() };
        packets.iter().for_each(|packet| second.take(1, packet));
        let report = second.finish(Vec::new(), &[Tally::default()]);
        let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert!(!kinds.contains(&Kind::Duplicates), "{report:#?}");
        assert!(report.doubts.iter().any(|doubt| doubt.contains("more unanswered")));
    }

    #[test]
    fn one_requester_with_more_unanswered_requests_than_are_remembered_is_a_doubt() {
        let has_doubt = |requests: usize| {
            let packets = (0..requests as u32).map(|psn| packet(0, psn, u64::from(psn), false));
            let packets: Vec<Seen> = packets.collect();
            let mut first = FirstPass::default();
            packets.iter().for_each(|packet| first.take(1, packet));
            let mut second = first.finish();
            packets.iter().for_each(|packet| second.take(1, packet));
            let report = second.finish(Vec::new(), &[Tally::default()]);
            report.doubts.iter().any(|doubt| doubt.contains("more unanswered"))
        };
        assert!(!has_doubt(side::WAITING_MAX));
        assert!(has_doubt(side::WAITING_MAX + 1));
    }

    #[test]
    fn only_what_was_forgotten_may_be_a_repetition_of_it() {
        let first = 1000;
        let last = first + side::WAITING_MAX as u32;
        let is_new = |psn| {
            let mut side = Side::default();
            let now = |at_ns| Stamp { at_ns, ..Stamp::default() };
            for psn in first..=last {
                side.request(&packet(0, psn, 0, false), now(0), &mut |_| {});
            }
            side.answer(&packet(0, last, 1, true), now(1), &mut |_| {});
            let mut is_new = false;
            let sink = &mut |event: Event<'_>| is_new |= matches!(event, Event::Sent(_));
            side.request(&packet(0, psn, 2, false), now(2), sink);
            is_new
        };
        assert!(!is_new(first));
        assert!(is_new(first - 1));
    }
}
