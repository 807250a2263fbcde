//! The protocol of nanomsg's scalability protocols over TCP and ipc: one connection between a
//! publisher and a subscriber. No I/O.

use std::ops::Range;

use crate::pubsub::wire::{Heard, Input, Role, Wire, Wrong, length};

/// Bytes of the header that each end sends first.
const HEADER_BYTES: usize = 8;
/// The type of a message over ipc.
const IN_BAND: u8 = 1;

/// A connection.
pub struct Sp {
    role: Role,
    /// Over ipc, each message has its type before its length.
    is_ipc: bool,
    /// With what messages begin.
    filter: Vec<u8>,
    is_open: bool,
    input: Input,
    answers: Vec<u8>,
}

impl Sp {
    /// A new connection.
    pub fn new(role: Role, is_ipc: bool, filter: Option<&str>) -> Self {
        let filter = filter.unwrap_or_default().as_bytes().to_vec();
        let answers = header(role).to_vec();
        Self { role, is_ipc, filter, is_open: false, input: Input::default(), answers }
    }

    /// Looks at the header as far as it is there; whether it is over.
    fn greet(&mut self) -> Result<bool, Wrong> {
        let (bytes, own) = (self.input.rest(), header(self.role));
        let other = match self.role {
            Role::Publisher => Role::Subscriber,
            Role::Subscriber => Role::Publisher,
        };
        let known = bytes.len().min(4);
        if bytes[..known] != own[..known] {
            return Wrong::because("it does not speak SP");
        }
        if bytes.len() < HEADER_BYTES {
            return Ok(false);
        }
        if bytes[..HEADER_BYTES] != header(other) {
            let protocol = u16::from_be_bytes([bytes[4], bytes[5]]);
            let needed = protocol_of(other);
            return Wrong::because(format!("its protocol is {protocol}; {needed} is needed"));
        }
        self.input.take(HEADER_BYTES);
        self.is_open = true;
        Ok(true)
    }

    /// The next message, if all of it is there.
    fn take_message(&mut self) -> Result<Option<Range<usize>>, Wrong> {
        let bytes = self.input.rest();
        if self.role == Role::Publisher && !bytes.is_empty() {
            return Wrong::because("a subscriber sends a message");
        }
        let before = usize::from(self.is_ipc);
        if let Some(kind) = bytes.first().filter(|kind| self.is_ipc && **kind != IN_BAND) {
            return Wrong::because(format!("a message has the type {kind}"));
        }
        let Some(body) = bytes.get(before..).and_then(|rest| rest.first_chunk()) else {
            return Ok(None);
        };
        let (header, body) = (before + 8, length(*body)?);
        if bytes.len() < header + body {
            return Ok(None);
        }
        self.input.take(header);
        Ok(Some(self.input.take(body)))
    }

    /// The next message that is wanted: where its samples are.
    fn advance(&mut self) -> Result<Option<Range<usize>>, Wrong> {
        while let Some(message) = self.take_message()? {
            if self.input.at(message.clone()).starts_with(&self.filter) {
                return Ok(Some(message.start + self.filter.len()..message.end));
            }
        }
        Ok(None)
    }
}

impl Wire for Sp {
    fn receive(&mut self, bytes: &[u8]) {
        self.input.receive(bytes);
    }

    fn next(&mut self) -> Result<Option<Heard<'_>>, Wrong> {
        if !self.is_open {
            return Ok(self.greet()?.then_some(Heard::Opened));
        }
        Ok(self.advance()?.map(|samples| Heard::Message(self.input.at(samples))))
    }

    fn answers(&mut self) -> &mut Vec<u8> {
        &mut self.answers
    }

    fn is_ready(&self) -> bool {
        self.is_open
    }

    /// A subscriber throws away itself what it does not want.
    fn wants(&self, _samples: &[u8]) -> bool {
        self.is_open
    }

    fn frame(&self, samples: &[u8], out: &mut Vec<u8>) {
        if self.is_ipc {
            out.push(IN_BAND);
        }
        let length = self.filter.len() + samples.len();
        out.extend_from_slice(&(length as u64).to_be_bytes());
        out.extend_from_slice(&self.filter);
        out.extend_from_slice(samples);
    }
}

/// The number of the protocol of an end: PUB and SUB.
fn protocol_of(role: Role) -> u16 {
    match role {
        Role::Publisher => 32,
        Role::Subscriber => 33,
    }
}

/// What an end sends first.
fn header(role: Role) -> [u8; HEADER_BYTES] {
    let [high, low] = protocol_of(role).to_be_bytes();
    [0, b'S', b'P', 0, high, low, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::wire::tests::{check, heard};

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let mut own = Sp::new(Role::Publisher, false, None);
        assert_eq!(own.answers().as_slice(), [0, 0x53, 0x50, 0, 0, 0x20, 0, 0]);
        assert_eq!(heard(&mut own, &[0, 0x53, 0x50, 0, 0, 0x21, 0, 0], 1), (vec![], None));
        assert!(own.is_ready() && own.wants(b""));
        let mut out = Vec::new();
        own.frame(b"hi", &mut out);
        assert_eq!(out, [0, 0, 0, 0, 0, 0, 0, 2, b'h', b'i']);
        out.clear();
        Sp::new(Role::Publisher, true, Some("a:")).frame(b"hi", &mut out);
        assert_eq!(out, *b"\x01\0\0\0\0\0\0\0\x04a:hi");
        assert_eq!(Sp::new(Role::Subscriber, true, None).answers()[5], 0x21);
    }

    #[test]
    fn any_split_gives_the_same_messages() {
        for is_ipc in [false, true] {
            let mut stream = header(Role::Publisher).to_vec();
            let short = vec![1; 40];
            for (filter, samples) in [("ab", &short), ("b", &short), ("ab", &vec![2; 700])] {
                Sp::new(Role::Publisher, is_ipc, Some(filter)).frame(samples, &mut stream);
            }
            let make = || Box::new(Sp::new(Role::Subscriber, is_ipc, Some("ab"))) as Box<dyn Wire>;
            check(make, &stream, &[short, vec![2; 700]]);
        }
    }

    #[test]
    fn what_is_wrong_ends_the_connection() {
        let wrong = |role, is_ipc, bytes: &[u8]| {
            let (messages, wrong) = heard(&mut Sp::new(role, is_ipc, None), bytes, 1);
            assert_eq!(messages.len(), 0);
            wrong.expect("the connection ends").0
        };
        assert!(wrong(Role::Publisher, false, b"GET /").contains("does not speak SP"));
        let own = header(Role::Publisher);
        assert!(wrong(Role::Publisher, false, &own).contains("protocol is 32; 33 is needed"));
        let long = [&own[..], &[0xff; 8]].concat();
        assert!(wrong(Role::Subscriber, false, &long).contains("1048576 at most"));
        let kind = [&own[..], &[2]].concat();
        assert!(wrong(Role::Subscriber, true, &kind).contains("the type 2"));
        let sends = [&header(Role::Subscriber)[..], &[0; 8]].concat();
        assert!(wrong(Role::Publisher, false, &sends).contains("a subscriber sends"));
    }
}
