//! Texts for packets and notes.

use std::fmt;

use rdmalab_wire::aeth::{NakCode, Syndrome};
use rdmalab_wire::opcode::{Opcode, Operation, Position, Suffix, Transport};

use crate::conversation::Note;
use crate::packet::Seen;

/// The name of a transport: `RC`, `UC`, `UD`, `CNP`.
#[must_use]
pub const fn transport(transport: Transport) -> &'static str {
    match transport {
        Transport::Rc => "RC",
        Transport::Uc => "UC",
        Transport::Ud => "UD",
        Transport::Cnp => "CNP",
    }
}

/// The name of an opcode as people write it: `SEND first`, `WRITE only+imm`, `ACK`.
#[must_use]
pub fn opcode(opcode: Opcode) -> String {
    let name = match opcode.operation() {
        Operation::Send => "SEND",
        Operation::Write => "WRITE",
        Operation::ReadRequest => return "READ".to_owned(),
        Operation::ReadResponse => "READ response",
        Operation::Acknowledge => return "ACK".to_owned(),
        Operation::AtomicAcknowledge => return "atomic ACK".to_owned(),
        Operation::CompareSwap => return "CMP_SWAP".to_owned(),
        Operation::FetchAdd => return "FETCH_ADD".to_owned(),
        Operation::CongestionNotification => return "CNP".to_owned(),
    };
    let place = match opcode.position() {
        Position::First => "first",
        Position::Middle => "middle",
        Position::Last => "last",
        Position::Only => "only",
    };
    let suffix = match opcode.suffix() {
        Suffix::None => "",
        Suffix::Immediate => "+imm",
        Suffix::Invalidate => "+inv",
    };
    format!("{name} {place}{suffix}")
}

/// The syndrome of an answer: `ACK`, `RNR NAK`, `NAK sequence`; empty where there is none.
#[must_use]
pub fn syndrome(packet: &Seen) -> String {
    match packet.headers.aeth.map(|aeth| aeth.syndrome) {
        None => String::new(),
        Some(Syndrome::Ack { credits: Syndrome::UNLIMITED_CREDITS }) => "ACK".to_owned(),
        Some(Syndrome::Ack { credits }) => format!("ACK, credit code {credits}"),
        Some(Syndrome::RnrNak(timer)) => format!("RNR NAK, timer {}", timer.get()),
        Some(Syndrome::Nak(code)) => format!("NAK, {}", nak(code)),
    }
}

const fn nak(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequenceError => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccessError => "remote access error",
        NakCode::RemoteOperationalError => "remote operational error",
        NakCode::InvalidRdRequest => "invalid RD request",
    }
}

/// The length that a packet is about: for a READ the bytes requested, for an atomic 8, else its own
/// payload; `None` for an acknowledgement.
#[must_use]
pub fn length_bytes(packet: &Seen) -> Option<u64> {
    let opcode = packet.headers.bth.opcode;
    match (opcode.operation(), &packet.headers.reth) {
        (Operation::ReadRequest, Some(reth)) => Some(reth.dma_length.into()),
        (Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicAcknowledge, _) => Some(8),
        _ => opcode.has_payload().then_some(packet.payload_bytes as u64),
    }
}

/// A time with three digits: `1.23 us`.
#[must_use]
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        _ if ns < 1e3 => (ns, "ns"),
        _ if ns < 1e6 => (ns / 1e3, "us"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = match value {
        _ if value < 10.0 => 2,
        _ if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// A text of a capture, made safe for a terminal: control characters are written as their numbers,
/// and line breaks as `; `.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("; "),
            '\'' | '"' | '\\' => shown.push(c),
            // This also escapes characters that change the direction of writing.
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repeated { after_ns: 0 } => f.write_str("repeats what was not seen"),
            Self::Repeated { after_ns } => write!(f, "repeated after {}", time(*after_ns)),
            Self::Gap { psns: 1 } => f.write_str("1 packet before it is missing"),
            Self::Gap { psns } => write!(
                f,
                "{psns} PSNs before it are missing: as many packets, or fewer, since a READ takes \
                 one for each packet of its response"
            ),
            Self::Answers { after_ns } => write!(f, "after {}", time(*after_ns)),
            Self::Stale => f.write_str("answers nothing that was seen"),
            Self::GoBack => f.write_str("the requester has to go back to this PSN"),
            Self::NotReady { wait_ns } => {
                write!(
                    f,
                    "no receive was posted, or a page is missing: wait {} or more",
                    time(*wait_ns)
                )
            }
            Self::Refused(code) => write!(f, "refused: {}", nak(*code)),
            Self::BadIcrc => f.write_str("wrong ICRC: dropped by the receiver"),
            Self::Cm(name) => write!(f, "CM {name}"),
            Self::Comment(text) => f.write_str(&plain(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_read_as_people_write_them() {
        assert_eq!(opcode(Opcode::RcSendOnlyInv), "SEND only+inv");
        assert_eq!(opcode(Opcode::RcWriteLastImm), "WRITE last+imm");
        assert_eq!(opcode(Opcode::RcReadRequest), "READ");
        assert_eq!(opcode(Opcode::RcAcknowledge), "ACK");
    }

    #[test]
    fn a_capture_does_not_command_the_terminal() {
        for (text, shown) in [
            ("fault: drop nth 6 of send", "fault: drop nth 6 of send"),
            ("\u{1b}]0;title\u{7}\u{9b}2J", "\\u{1b}]0;title\\u{7}\\u{9b}2J"),
            ("one\ntwo\rthree\tfour", "one; two\\rthree\\tfour"),
            ("\u{202e}evil \u{fc} \"'\\", "\\u{202e}evil \u{fc} \"'\\"),
        ] {
            assert_eq!(Note::Comment(text.to_owned()).to_string(), shown);
        }
    }

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [(5, "5.00 ns"), (1234, "1.23 us"), (56_700_000, "56.7 ms")] {
            assert_eq!(time(ns), text);
        }
    }
}
