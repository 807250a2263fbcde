//! ZMTP 3.0 (ZeroMQ RFC 23) with the mechanism NULL: one connection between a publisher and a
//! subscriber. No I/O.
//!
//! A peer of version 3.1 speaks 3.0 with us. Its commands SUBSCRIBE, CANCEL and PING are known in
//! any case.

use std::ops::Range;

use crate::pubsub::wire::{Heard, Input, Role, Wire, Wrong, length};

/// Bytes of a greeting.
const GREETING_BYTES: usize = 64;
/// The first byte of a signature, and its last one, at 9.
const SIGNATURE: (u8, u8) = (0xff, 0x7f);
/// Flags of a frame: more frames of the message follow; the length has 8 bytes; it is a command.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
/// First byte of a subscription, and of its end.
const SUBSCRIBE: u8 = 1;
const CANCEL: u8 = 0;
/// The most subscriptions of a peer, and bytes of each.
const SUBSCRIPTIONS_MAX: usize = 1024;
const TOPIC_BYTES_MAX: usize = 1024;
/// The longest frame besides those of samples.
const SHORT_BYTES_MAX: usize = 4096;
/// Bytes of what a peer says that are told.
const TOLD_BYTES_MAX: usize = 32;
/// Bytes that wait for a peer that asks and does not read.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    Ready,
    Open,
}

/// A connection.
pub struct Zmtp {
    role: Role,
    /// What a publisher sends before the samples as a frame of its own, and to what a subscriber
    /// subscribes.
    filter: Option<Vec<u8>>,
    stage: Stage,
    input: Input,
    answers: Vec<u8>,
    /// What the peer wants.
    subscriptions: Vec<Vec<u8>>,
    /// Whether frames of a message are there; then, whether the first one is wanted.
    within: Option<bool>,
}

impl Zmtp {
    /// A new connection.
    pub fn new(role: Role, filter: Option<&str>) -> Self {
        Self {
            role,
            filter: filter.map(|text| text.as_bytes().to_vec()),
            stage: Stage::Greeting,
            input: Input::default(),
            answers: greeting().to_vec(),
            subscriptions: Vec::new(),
            within: None,
        }
    }

    /// Looks at the greeting as far as it is there; whether it is over.
    fn greet(&mut self) -> Result<bool, Wrong> {
        let bytes = self.input.rest();
        let is_signed = bytes.first().is_none_or(|byte| *byte == SIGNATURE.0)
            && bytes.get(9).is_none_or(|byte| *byte == SIGNATURE.1);
        if !is_signed {
            return Wrong::because("it does not speak ZMTP");
        }
        // Versions before 3 have their number less one here.
        if let Some(version) = bytes.get(10).filter(|version| **version < 3) {
            return Wrong::because(format!("it speaks ZMTP {}; 3 is needed", version + 1));
        }
        if bytes.len() < GREETING_BYTES {
            return Ok(false);
        }
        let mechanism = bytes[12..32].split(|byte| *byte == 0).next().unwrap_or_default();
        if mechanism != b"NULL" {
            let name = told(mechanism);
            return Wrong::because(format!("it wants the mechanism {name}; only NULL is built"));
        }
        self.input.take(GREETING_BYTES);
        frame(COMMAND, &[&ready(self.role)], &mut self.answers);
        self.stage = Stage::Ready;
        Ok(true)
    }

    /// The next frame, if all of it is there: its flags, and where its body is.
    fn take_frame(&mut self) -> Result<Option<(u8, Range<usize>)>, Wrong> {
        let bytes = self.input.rest();
        let Some(&flags) = bytes.first() else { return Ok(None) };
        if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
            return Wrong::because(format!("a frame has the flags {flags:#04x}"));
        }
        let (header, body) = if flags & LONG == 0 {
            let Some(&body) = bytes.get(1) else { return Ok(None) };
            (2, usize::from(body))
        } else {
            let Some(body) = bytes[1..].first_chunk() else { return Ok(None) };
            (9, length(*body)?)
        };
        let has_samples = self.role == Role::Subscriber && self.stage == Stage::Open;
        if body > SHORT_BYTES_MAX && (flags & COMMAND != 0 || !has_samples) {
            return Wrong::because(format!("a frame without samples has {body} bytes"));
        }
        if bytes.len() < header + body {
            return Ok(None);
        }
        self.input.take(header);
        Ok(Some((flags, self.input.take(body))))
    }

    /// A command; whether the handshake is over by it.
    fn command(&mut self, body: Range<usize>) -> Result<bool, Wrong> {
        let body = self.input.at(body);
        let split = body.split_first().and_then(|(length, rest)| {
            let length = usize::from(*length);
            Some((rest.get(..length)?, &rest[length..]))
        });
        let Some((name, data)) = split else { return Wrong::because("a command without a name") };
        match (name, self.stage) {
            (b"READY", Stage::Ready) => {
                check_type(data, self.role)?;
                self.stage = Stage::Open;
                if self.role == Role::Subscriber {
                    let filter = self.filter.as_deref().unwrap_or_default();
                    frame(0, &[&[SUBSCRIBE], filter], &mut self.answers);
                }
                return Ok(true);
            }
            (b"ERROR", _) => {
                let why = told(data.get(1..).unwrap_or_default());
                return Wrong::because(format!("it refuses: {why}"));
            }
            (b"SUBSCRIBE", Stage::Open) => {
                let topic = data.to_vec();
                self.subscribe(topic)?;
            }
            (b"CANCEL", Stage::Open) => {
                let topic = data.to_vec();
                self.cancel(&topic);
            }
            (b"PING", Stage::Open) => {
                let Some(context) = data.get(2..) else { return Wrong::because("a short PING") };
                frame(COMMAND, &[b"\x04PONG", context], &mut self.answers);
                if self.answers.len() > ANSWER_BYTES_MAX {
                    return Wrong::because("it asks without end, and reads no answers");
                }
            }
            (_, Stage::Open) => {}
            _ => return Wrong::because("a command other than READY comes first"),
        }
        Ok(false)
    }

    fn subscribe(&mut self, topic: Vec<u8>) -> Result<(), Wrong> {
        if self.subscriptions.len() == SUBSCRIPTIONS_MAX || topic.len() > TOPIC_BYTES_MAX {
            return Wrong::because(format!(
                "more than {SUBSCRIPTIONS_MAX} subscriptions, or one of more than \
                 {TOPIC_BYTES_MAX} bytes"
            ));
        }
        self.subscriptions.push(topic);
        Ok(())
    }

    fn cancel(&mut self, topic: &[u8]) {
        if let Some(at) = self.subscriptions.iter().position(|own| own == topic) {
            self.subscriptions.swap_remove(at);
        }
    }

    /// A frame of a message; where the samples are, if they are wanted.
    fn message(&mut self, flags: u8, body: Range<usize>) -> Result<Option<Range<usize>>, Wrong> {
        if self.stage != Stage::Open {
            return Wrong::because("a message comes before READY");
        }
        if self.role == Role::Publisher {
            match self.input.at(body).split_first() {
                Some((&SUBSCRIBE, topic)) if flags & MORE == 0 => {
                    let topic = topic.to_vec();
                    self.subscribe(topic)?;
                }
                Some((&CANCEL, topic)) if flags & MORE == 0 => {
                    let topic = topic.to_vec();
                    self.cancel(&topic);
                }
                // A message of an XSUB, which no PUB takes.
                _ => {}
            }
            return Ok(None);
        }
        let filter = self.filter.as_deref().unwrap_or_default();
        let is_wanted =
            self.within.unwrap_or_else(|| self.input.at(body.clone()).starts_with(filter));
        self.within = (flags & MORE != 0).then_some(is_wanted);
        // The samples are the last frame.
        Ok((is_wanted && self.within.is_none()).then_some(body))
    }

    fn advance(&mut self) -> Result<Option<Option<Range<usize>>>, Wrong> {
        loop {
            if self.stage == Stage::Greeting {
                if !self.greet()? {
                    return Ok(None);
                }
                continue;
            }
            let Some((flags, body)) = self.take_frame()? else { return Ok(None) };
            if flags & COMMAND != 0 {
                if self.command(body)? {
                    return Ok(Some(None));
                }
            } else if let Some(samples) = self.message(flags, body)? {
                return Ok(Some(Some(samples)));
            }
        }
    }
}

impl Wire for Zmtp {
    fn receive(&mut self, bytes: &[u8]) {
        self.input.receive(bytes);
    }

    fn next(&mut self) -> Result<Option<Heard<'_>>, Wrong> {
        Ok(self.advance()?.map(|samples| match samples {
            None => Heard::Opened,
            Some(samples) => Heard::Message(self.input.at(samples)),
        }))
    }

    fn answers(&mut self) -> &mut Vec<u8> {
        &mut self.answers
    }

    fn is_ready(&self) -> bool {
        match &self.filter {
            Some(filter) => self.wants(filter),
            None => !self.subscriptions.is_empty(),
        }
    }

    fn wants(&self, samples: &[u8]) -> bool {
        let first = self.filter.as_deref().unwrap_or(samples);
        self.subscriptions.iter().any(|topic| first.starts_with(topic))
    }

    fn frame(&self, samples: &[u8], out: &mut Vec<u8>) {
        if let Some(filter) = &self.filter {
            frame(MORE, &[filter], out);
        }
        frame(0, &[samples], out);
    }
}

/// The greeting of version 3.0, with NULL, which has no server.
fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    (bytes[0], bytes[9], bytes[10]) = (SIGNATURE.0, SIGNATURE.1, 3);
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// The beginning of what a peer says, for people.
fn told(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(TOLD_BYTES_MAX)]))
}

/// The body of READY.
fn ready(role: Role) -> Vec<u8> {
    let own: &[u8] = if role == Role::Publisher { b"PUB" } else { b"SUB" };
    [b"\x05READY\x0bSocket-Type\0\0\0\x03", own].concat()
}

/// Appends a frame whose body has these pieces.
fn frame(flags: u8, pieces: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    match u8::try_from(length) {
        Ok(short) => out.extend_from_slice(&[flags, short]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
}

/// Whether the properties of READY are those of a peer of the other role.
fn check_type(mut properties: &[u8], role: Role) -> Result<(), Wrong> {
    let wanted: [&[u8]; 2] =
        if role == Role::Publisher { [b"SUB", b"XSUB"] } else { [b"PUB", b"XPUB"] };
    while let Some((length, rest)) = properties.split_first() {
        let length = usize::from(*length);
        let value = rest.get(length..).and_then(|rest| {
            let (size, rest) = rest.split_first_chunk::<4>()?;
            let size = u32::from_be_bytes(*size) as usize;
            Some((rest.get(..size)?, &rest[size..]))
        });
        let Some((value, others)) = value else { return Wrong::because("a broken READY") };
        if rest[..length].eq_ignore_ascii_case(b"Socket-Type") {
            if wanted.contains(&value) {
                return Ok(());
            }
            let (name, wanted) = (told(value), String::from_utf8_lossy(wanted[0]));
            return Wrong::because(format!("it is a socket of type {name}; {wanted} is needed"));
        }
        properties = others;
    }
    Wrong::because("its READY has no Socket-Type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::wire::MESSAGE_BYTES_MAX;
    use crate::pubsub::wire::tests::{check, heard};

    /// What libzmq 4.3.4 sent as PUB to a SUB of version 3.0, and as SUB: greeting and READY.
    fn peer(own: &[u8]) -> Vec<u8> {
        let mut bytes = greeting().to_vec();
        bytes[11] = 1;
        let property = [b"\x05READY\x0bSocket-Type\0\0\0", &[own.len() as u8][..], own].concat();
        frame(COMMAND, &[&property], &mut bytes);
        bytes
    }

    fn wrong(role: Role, bytes: &[u8]) -> String {
        let (messages, wrong) = heard(&mut Zmtp::new(role, None), bytes, 1);
        assert_eq!(messages.len(), 0);
        wrong.expect("the connection ends").0
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let mut own = Zmtp::new(Role::Subscriber, Some("ab"));
        let mut golden = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0];
        golden.extend(b"NULL");
        golden.resize(64, 0);
        assert_eq!(*own.answers(), golden);
        own.answers().clear();
        assert_eq!(heard(&mut own, &peer(b"PUB"), 3), (vec![], None));
        assert_eq!(
            own.answers().as_slice(),
            b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB\x00\x03\x01ab"
        );
        let mut publisher = Zmtp::new(Role::Publisher, Some("ab"));
        assert_eq!(heard(&mut publisher, &peer(b"SUB"), 3), (vec![], None));
        let mut out = Vec::new();
        publisher.frame(&[7; 3], &mut out);
        assert_eq!(out, b"\x01\x02ab\x00\x03\x07\x07\x07");
        out.clear();
        Zmtp::new(Role::Publisher, None).frame(&[7; 256], &mut out);
        assert_eq!(out[..10], [2, 0, 0, 0, 0, 0, 0, 1, 0, 7]);
    }

    #[test]
    fn any_split_gives_the_same_messages() {
        let (short, long) = (vec![1; 40], vec![2; 700]);
        let mut stream = peer(b"PUB");
        for (filter, samples) in [("ab", &short), ("abc", &long), ("b", &short), ("ab", &short)] {
            frame(MORE, &[filter.as_bytes()], &mut stream);
            frame(0, &[samples], &mut stream);
            frame(COMMAND, &[b"\x04PING\x00\x00ctx"], &mut stream);
        }
        let make = || Box::new(Zmtp::new(Role::Subscriber, Some("ab"))) as Box<dyn Wire>;
        check(make, &stream, &[short.clone(), long, short]);
    }

    #[test]
    fn subscribers_get_what_they_want() {
        let mut own = Zmtp::new(Role::Publisher, None);
        let mut stream = peer(b"XSUB");
        assert_eq!(heard(&mut own, &stream, 1), (vec![], None));
        assert!(!own.wants(b"abc"), "nothing was subscribed");
        assert!(!own.is_ready());
        let mut send = |flags, body: &[u8], own: &mut Zmtp| {
            stream.clear();
            frame(flags, &[body], &mut stream);
            assert_eq!(heard(own, &stream, 1), (vec![], None));
        };
        send(0, b"\x01ab", &mut own);
        send(COMMAND, b"\x09SUBSCRIBEx", &mut own);
        assert_eq!([b"abc", b"xyz", b"bcd"].map(|m| own.wants(m)), [true, true, false]);
        send(0, b"\x00ab", &mut own);
        send(COMMAND, b"\x06CANCELx", &mut own);
        send(0, b"\x00never", &mut own);
        assert_eq!([b"abc", b"xyz"].map(|m| own.wants(m)), [false, false]);
        send(0, b"\x02of an XSUB", &mut own);
        send(0, b"\x01", &mut own);
        assert!(own.wants(b"") && own.wants(b"bcd"));
        let mut envelope = Zmtp::new(Role::Publisher, Some("power"));
        assert_eq!(heard(&mut envelope, &peer(b"SUB"), 1), (vec![], None));
        send(0, b"\x01other", &mut envelope);
        assert!(!envelope.is_ready());
        send(0, b"\x01pow", &mut envelope);
        assert!(own.is_ready() && envelope.is_ready());
        assert!(envelope.wants(b"other bytes"), "the envelope counts, not the samples");
    }

    #[test]
    fn a_ping_has_a_pong() {
        let mut own = Zmtp::new(Role::Publisher, None);
        assert_eq!(heard(&mut own, &peer(b"SUB"), 1), (vec![], None));
        own.answers().clear();
        let ping = b"\x04\x0a\x04PING\x00\x0actx";
        assert_eq!(heard(&mut own, ping, 1), (vec![], None));
        assert_eq!(own.answers().as_slice(), b"\x04\x08\x04PONGctx");
        let (_, wrong) = heard(&mut own, &ping.repeat(10_000), 1);
        assert!(wrong.is_some_and(|wrong| wrong.0.contains("without end")));
    }

    #[test]
    fn what_is_wrong_ends_the_connection() {
        assert!(wrong(Role::Publisher, b"GET / HTTP/1.1\r\n").contains("does not speak ZMTP"));
        let mut old = peer(b"SUB");
        old[10] = 1;
        assert!(wrong(Role::Publisher, &old).contains("it speaks ZMTP 2; 3 is needed"));
        let mut curve = peer(b"SUB");
        curve[12..17].copy_from_slice(b"CURVE");
        assert!(wrong(Role::Publisher, &curve).contains("\"CURVE\"; only NULL is built"));
        assert!(wrong(Role::Publisher, &peer(b"PUB")).contains("type \"PUB\"; SUB is needed"));
        assert!(wrong(Role::Subscriber, &peer(b"REQ")).contains("type \"REQ\"; PUB is needed"));
        let with = |more: &[u8]| [&peer(b"PUB"), more].concat();
        let long = (MESSAGE_BYTES_MAX as u64 + 1).to_be_bytes();
        let long = [&[LONG][..], &long].concat();
        assert!(wrong(Role::Subscriber, &with(&long)).contains("1048577 bytes; 1048576 at most"));
        assert!(wrong(Role::Subscriber, &with(b"\x08\x00")).contains("flags 0x08"));
        assert!(wrong(Role::Subscriber, &with(b"\x05\x00")).contains("flags 0x05"));
        assert!(wrong(Role::Subscriber, &with(b"\x04\x00")).contains("without a name"));
        let refused = with(b"\x04\x0a\x05ERROR\x03why");
        assert!(wrong(Role::Subscriber, &refused).contains("it refuses: \"why\""));
        let early = [&greeting()[..], b"\x00\x01x"].concat();
        assert!(wrong(Role::Subscriber, &early).contains("before READY"));
        let empty = [&greeting()[..], b"\x04\x06\x05READY"].concat();
        assert!(wrong(Role::Subscriber, &empty).contains("no Socket-Type"));
        let control = wrong(Role::Publisher, &peer(b"SUB\n\x1b["));
        assert!(control.contains("type \"SUB\\n\\u{1b}[\"; SUB"), "{control}");
        let large = [&peer(b"SUB")[..], &[LONG, 0, 0, 0, 0, 0, 0, 0x10, 1]].concat();
        assert!(wrong(Role::Publisher, &large).contains("without samples has 4097 bytes"));
        let many = [&peer(b"SUB")[..], &b"\x00\x02\x01x".repeat(SUBSCRIPTIONS_MAX + 1)].concat();
        assert!(wrong(Role::Publisher, &many).contains("more than 1024 subscriptions"));
    }
}
