//! The packets of a run over time, from the capture in its record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rdmalab_diagnosis::{Diagnosis, FirstPass, Kind, Occurrence, Report};
use rdmalab_measure::text::count_of;
use rdmalab_record::Record;
use rdmalab_trace::conversation::{Conversation, Direction, Endpoint, Note, Row};
use rdmalab_trace::{Merged, ReadError, show};
use rdmalab_wire::ids::Psn;
use rdmalab_wire::opcode::Transport;

use crate::chart::Chart;
use crate::svg::{Arrow, Labels, Rung, ladder};

/// Most conversations that are drawn.
const MAX_LADDERS: usize = 4;
/// Most packets of a conversation that are drawn.
const MAX_PACKETS: usize = 40;
/// A time without a packet is a row of its own from this part of the whole on.
const PAUSE_PART: u64 = 10;

/// Judges captures.
///
/// # Errors
/// A file is no capture.
pub fn diagnose(files: &[PathBuf]) -> Result<Report, ReadError> {
    judge(files, |diagnosis| diagnosis)
}

/// The same by a diagnosis that `prepare` changes.
fn judge(
    files: &[PathBuf],
    prepare: impl FnOnce(Diagnosis) -> Diagnosis,
) -> Result<Report, ReadError> {
    let mut first = FirstPass::default();
    for (file, packet) in Merged::open(files)? {
        first.take(file, &packet);
    }
    let mut second = prepare(first.finish());
    let mut merged = Merged::open(files)?;
    for (file, packet) in merged.by_ref() {
        second.take(file, &packet);
    }
    let names = files.iter().map(|file| file.display().to_string()).collect();
    Ok(second.finish(names, &merged.tallies()))
}

/// The first conversations of the capture in a record; none without a capture. `id` makes names
/// unique in the page.
pub fn ladders(record: &Record, id: &str) -> Vec<Chart> {
    let Some(file) = record.capture() else { return Vec::new() };
    // The capture is not trusted, and the record is complete without it.
    let read = rdmalab_trace::read(&file)
        .and_then(|trace| Ok((trace, judge(&[file], Diagnosis::with_all_occurrences)?)));
    let Ok((trace, report)) = read else { return Vec::new() };
    let troubles = Troubles::of(&report);
    let shown = trace.conversations.iter().take(MAX_LADDERS).enumerate();
    shown.map(|(i, one)| chart(one, &troubles, &format!("{id}w{i}"))).collect()
}

/// What the diagnosis says.
struct Troubles<'a> {
    /// Of frames: the kind of trouble that each proves, and how.
    of: BTreeMap<u64, (Kind, &'a str)>,
    /// All page faults.
    faults: Vec<&'a Occurrence>,
}

impl<'a> Troubles<'a> {
    fn of(report: &'a Report) -> Self {
        let (mut all, mut faults) = (BTreeMap::new(), Vec::new());
        // Of several kinds, a page fault is the cause.
        for finding in report.findings.iter().rev() {
            let is_fault = matches!(finding.kind, Kind::ServerFault | Kind::ClientFault);
            faults.extend(finding.occurrences.iter().filter(|_| is_fault));
            for proof in finding.occurrences.iter().flat_map(|one| &one.proof) {
                let said = all.entry(proof.stamp.frame);
                let said = said.or_insert((finding.kind, proof.what.as_str()));
                if is_fault {
                    *said = (finding.kind, proof.what.as_str());
                }
            }
        }
        Self { of: all, faults }
    }

    /// The end at which a page was missing for this packet: 0 is the one that sent the first.
    fn fault(&self, row: &Row) -> Option<usize> {
        let is_response = row.packet.headers.bth.opcode.is_response();
        let is_nak = row.notes.iter().any(|note| matches!(note, Note::NotReady { .. }));
        let is_back = row.direction == Direction::Back;
        match self.of.get(&row.packet.frame)?.0 {
            Kind::ServerFault if is_nak => Some(usize::from(is_back)),
            Kind::ClientFault if is_response => Some(usize::from(!is_back)),
            _ => None,
        }
    }

    /// The page faults of a conversation that none of its first rows marks, which are drawn: how
    /// many, and what they cost together; empty if there are none.
    fn unmarked(&self, rows: &[Row], drawn: &[Row]) -> String {
        let frame = |row: &Row| row.packet.frame;
        let all: BTreeSet<u64> = rows.iter().map(frame).collect();
        let marked = drawn.iter().filter(|row| self.fault(row).is_some());
        let marked: BTreeSet<u64> = marked.map(frame).collect();
        let is_in = |fault: &Occurrence, frames: &BTreeSet<u64>| {
            fault.proof.iter().any(|proof| frames.contains(&proof.stamp.frame))
        };
        let left = self.faults.iter().filter(|fault| is_in(fault, &all) && !is_in(fault, &marked));
        let (n, cost_ns) = left.fold((0, 0), |(n, sum), fault| (n + 1, sum + fault.cost_ns));
        match n {
            0 => String::new(),
            n => format!("; {} not marked, {}", count_of(n, "page fault"), show::time(cost_ns)),
        }
    }
}

fn chart(conversation: &Conversation, troubles: &Troubles, id: &str) -> Chart {
    let rows = &conversation.rows[..conversation.rows.len().min(MAX_PACKETS)];
    let name = |end: &Endpoint| end.qpn.map_or("QP ?".to_owned(), |qpn| format!("QP {qpn:#x}"));
    let ends = [name(&conversation.a), name(&conversation.b)];
    let transport = show::transport(conversation.transport);
    let title = format!("Packets of {} and {} ({transport})", ends[0], ends[1]);
    let more = match conversation.rows.len() - rows.len() {
        0 => String::new(),
        more => format!(": the first {MAX_PACKETS}; {more} more are in the capture"),
    };
    let description = format!(
        "Each packet between {} and {}, where the first of these captured it. Broken lines are \
         requests without an answer, diamonds are page faults.",
        conversation.a, conversation.b
    );
    let labels = Labels { id: id.to_owned(), title: title.clone(), description };
    let rungs = rungs(conversation, rows, troubles);
    let svg = ladder(&labels, [ends[0].as_str(), ends[1].as_str()], &rungs);
    Chart::new(title + &more + &troubles.unmarked(&conversation.rows, rows), svg)
}

fn rungs(conversation: &Conversation, rows: &[Row], troubles: &Troubles) -> Vec<Rung> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Vec::new() };
    let start_ns = first.packet.at_ns;
    let whole_ns = last.packet.at_ns - start_ns;
    let mut first_psn = [None; 2];
    let (mut before_ns, mut all) = (start_ns, Vec::new());
    for (i, row) in rows.iter().enumerate() {
        let at_ns = row.packet.at_ns;
        let pause_ns = at_ns - std::mem::replace(&mut before_ns, at_ns);
        if pause_ns > 0 && pause_ns >= whole_ns / PAUSE_PART {
            all.push(Rung::Pause(format!("{} later", show::time(pause_ns))));
        }
        // A response has the PSN of its request.
        let psn = row.packet.headers.bth.psn;
        let is_response = row.packet.headers.bth.opcode.is_response();
        let requester = usize::from((row.direction == Direction::Back) != is_response);
        let number = psn.distance_from(*first_psn[requester].get_or_insert(psn));
        let is_unanswered =
            conversation.transport == Transport::Rc && is_unanswered(row, &conversation.rows[i..]);
        let fault = troubles.fault(row);
        all.push(Rung::Packet(Arrow {
            time: match at_ns - start_ns {
                0 => "0".to_owned(),
                since_ns => show::time(since_ns),
            },
            is_forward: row.direction == Direction::Forward,
            name: format!("{} {number}", kind(row)),
            note: note(row, fault.is_some(), is_unanswered),
            text: in_full(row, troubles),
            is_unanswered,
            fault,
        }));
    }
    all
}

/// What the packet is, in a word or two.
fn kind(row: &Row) -> String {
    let opcode = row.packet.headers.bth.opcode;
    let name = show::opcode(opcode);
    let name = match name.as_str() {
        "ACK" => show::syndrome(&row.packet),
        _ => name,
    };
    let name = name.split(',').next().unwrap_or_default();
    name.trim_end_matches(" only").to_owned()
}

fn note(row: &Row, is_fault: bool, is_unanswered: bool) -> String {
    let repeated = row.notes.iter().any(|note| matches!(note, Note::Repeated { .. }));
    match (is_fault, is_unanswered, repeated) {
        (true, ..) => "page fault".to_owned(),
        (_, true, true) => "repeated, no answer".to_owned(),
        (_, true, false) => "no answer".to_owned(),
        (_, _, true) => "repeated".to_owned(),
        _ => String::new(),
    }
}

/// Whether a request is sent again, or the capture ends, before an answer comes. `rows` begins with
/// it.
fn is_unanswered(row: &Row, rows: &[Row]) -> bool {
    let opcode = row.packet.headers.bth.opcode;
    let psn = row.packet.headers.bth.psn;
    if opcode.is_response() {
        return false;
    }
    for later in &rows[1..] {
        let headers = &later.packet.headers.bth;
        let is_back = later.direction != row.direction;
        let distance: i32 = headers.psn.distance_from(psn);
        if is_back && headers.opcode.is_response() {
            let is_gap = later.notes.contains(&Note::GoBack);
            if distance > 0 || (distance == 0 && !is_gap) {
                return false;
            }
        } else if !is_back && distance == 0 && !headers.opcode.is_response() {
            return true;
        }
    }
    true
}

/// All that is known of a packet.
fn in_full(row: &Row, troubles: &Troubles) -> String {
    let packet = &row.packet;
    let psn: Psn = packet.headers.bth.psn;
    let mut all = vec![format!("{}, PSN {}", show::opcode(packet.headers.bth.opcode), psn.get())];
    all.extend(Some(show::syndrome(packet)).filter(|text| !text.is_empty()));
    all.extend(show::length_bytes(packet).map(|bytes| format!("{bytes} B")));
    all.extend(row.notes.iter().map(ToString::to_string));
    let trouble = troubles.of.get(&packet.frame);
    all.extend(trouble.map(|(kind, what)| format!("{}: {what}", kind.name())));
    all.join("; ")
}
