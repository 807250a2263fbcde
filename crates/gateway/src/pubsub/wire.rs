//! What a protocol has to offer: one connection as a state machine, bytes in and bytes out.

use std::ops::Range;

/// The longest message of a peer, and the longest frame.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What this end of a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It sends messages.
    Publisher,
    /// It receives them.
    Subscriber,
}

/// What a connection has given.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// The handshake is over: messages may follow.
    Opened,
    /// The samples of a message.
    Message(&'a [u8]),
}

/// Why a connection has to end: the peer breaks the protocol, or is none that we want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl Wrong {
    /// The reason.
    pub fn because<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self(why.into()))
    }
}

/// One connection.
pub trait Wire: Send {
    /// Takes bytes of the peer, in pieces of any size. Comes when [`Wire::next`] has given `None`,
    /// so that what is kept has a bound.
    fn receive(&mut self, bytes: &[u8]);

    /// What the bytes so far have given, one thing after the other.
    ///
    /// # Errors
    /// Why the connection has to end.
    fn next(&mut self) -> Result<Option<Heard<'_>>, Wrong>;

    /// Bytes for the peer besides messages, which the caller takes out.
    fn answers(&mut self) -> &mut Vec<u8>;

    /// Whether the handshake is over, and the peer wants some samples.
    fn is_ready(&self) -> bool;

    /// Whether the peer wants these samples.
    fn wants(&self, samples: &[u8]) -> bool;

    /// Appends a message with these samples to `out`.
    fn frame(&self, samples: &[u8], out: &mut Vec<u8>);
}

/// Bytes that have come and were not used yet.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    used: usize,
}

impl Input {
    /// More bytes. Ranges that were given before are no longer valid.
    pub fn receive(&mut self, more: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend_from_slice(more);
    }

    /// What is not used yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Uses as many bytes, of those that are there: where they are.
    pub fn take(&mut self, bytes: usize) -> Range<usize> {
        let begin = self.used;
        self.used = (begin + bytes).min(self.bytes.len());
        begin..self.used
    }

    /// The bytes there.
    pub fn at(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

/// A number of 8 bytes in network order as a length, if a message may be as long.
///
/// # Errors
/// That it may not.
pub fn length(bytes: [u8; 8]) -> Result<usize, Wrong> {
    let length = u64::from_be_bytes(bytes);
    match usize::try_from(length) {
        Ok(length) if length <= MESSAGE_BYTES_MAX => Ok(length),
        _ => Wrong::because(format!("it announces {length} bytes; {MESSAGE_BYTES_MAX} at most")),
    }
}

#[cfg(test)]
pub mod tests {
    use rdmalab_random::Random;

    use super::*;

    /// What a connection has given for all of the bytes, fed in pieces of random length.
    pub fn heard(wire: &mut dyn Wire, bytes: &[u8], seed: u64) -> (Vec<Vec<u8>>, Option<Wrong>) {
        let mut random = Random::new(seed);
        let (mut messages, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            // Mostly short pieces, which end within each field.
            let most = [1, 3, 20, bytes.len()][random.below(4) as usize];
            let length = 1 + random.below(most as u64) as usize;
            let end = (at + length).min(bytes.len());
            wire.receive(&bytes[at..end]);
            at = end;
            loop {
                match wire.next() {
                    Ok(None) => break,
                    Ok(Some(Heard::Opened)) => {}
                    Ok(Some(Heard::Message(samples))) => messages.push(samples.to_vec()),
                    Err(wrong) => return (messages, Some(wrong)),
                }
            }
        }
        (messages, None)
    }

    /// Any split of `stream` gives the same messages; changed at random, it ends the connection or
    /// gives some, and what a connection keeps stays below a bound.
    pub fn check(mut make: impl FnMut() -> Box<dyn Wire>, stream: &[u8], messages: &[Vec<u8>]) {
        for seed in 0..200 {
            assert_eq!(heard(&mut *make(), stream, seed), (messages.to_vec(), None), "{seed}");
        }
        let mut random = Random::new(7);
        let mut ended = 0;
        for seed in 0..2000 {
            let mut changed = stream.to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(changed.len() as u64) as usize;
                match random.below(3) {
                    0 => changed[at] = random.below(256) as u8,
                    1 => changed.truncate(at.max(1)),
                    _ => changed.insert(at, random.below(256) as u8),
                }
            }
            let mut wire = make();
            let (found, wrong) = heard(&mut *wire, &changed, seed);
            let bytes: usize = found.iter().map(Vec::len).sum();
            assert!(bytes <= changed.len() && wire.answers().len() <= 2 * changed.len() + 256);
            ended += u32::from(wrong.is_some_and(|wrong| !wrong.0.is_empty()));
        }
        assert!(ended > 200, "{ended} of 2000 were noticed");
    }

    #[test]
    fn bytes_are_used_once() {
        let mut input = Input::default();
        input.receive(b"abc");
        let two = input.take(2);
        assert_eq!((input.at(two), input.rest()), (&b"ab"[..], &b"c"[..]));
        input.receive(b"de");
        let rest = input.take(9);
        assert_eq!((input.at(rest), input.rest()), (&b"cde"[..], &b""[..]));
    }
}
