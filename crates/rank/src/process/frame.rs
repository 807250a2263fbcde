//! Frames: a length of four bytes, little endian, and a value as postcard writes it.

use std::io::{self, Error, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::handshake::Assignment;

/// The longest frame, in bytes. It limits the result of a rank's job, and the bytes of all ranks in
/// one exchange.
pub const FRAME_BYTES_MAX: usize = 1 << 30;

/// What the launcher receives from a worker.
#[derive(Debug)]
pub enum FromWorker {
    /// A message.
    Message(ToLauncher),
    /// The connection ended, perhaps with an error.
    Closed(Option<String>),
}

/// To a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The worker's assignment; answered by [`ToLauncher::Ready`].
    Assign(Box<Assignment>),
    /// Work; answered by [`ToLauncher::Done`] or [`ToLauncher::Failed`].
    Job { job: u64, patience_ns: u64, bytes: ByteBuf },
    /// Work that this rank does without the others, and beside its other work of this kind;
    /// answered as a job.
    Alone { job: u64, bytes: ByteBuf },
    /// What all ranks gave to an exchange.
    Exchanged { job: u64, round: u64, all: Vec<ByteBuf> },
    /// Another rank failed, or is gone.
    Other { job: u64, why: String },
    /// The user wants the job to stop.
    Stop { job: u64 },
    /// Asks for the rank's time; answered at once by [`ToLauncher::Pong`].
    Ping,
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToLauncher {
    /// It has its assignment, and runs on this CPU now.
    Ready { cpu: usize },
    /// Its part of an exchange.
    Exchange { job: u64, round: u64, bytes: ByteBuf },
    /// An exchange in which the launcher fills in the rank's part: the comparison of the clocks.
    /// The launcher sends [`ToWorker::Ping`]s first.
    Align { job: u64, round: u64 },
    /// The time there: stamps of when the question came and of when this was sent.
    Pong { received: u64, answered: u64, ns_per_tick: f64 },
    /// The result of the job, and the CPU that the rank ended on.
    Done { job: u64, cpu: usize, bytes: ByteBuf },
    /// Why the job failed.
    Failed { job: u64, why: String },
    /// A line for the user.
    Log(String),
    /// From the server, in place of a worker that is gone: how it ended.
    Died(String),
}

/// A value as a frame.
///
/// # Errors
/// When it is longer than [`FRAME_BYTES_MAX`].
pub fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    encode_up_to(FRAME_BYTES_MAX, value)
}

fn encode_up_to(limit: usize, value: &impl Serialize) -> io::Result<Vec<u8>> {
    let invalid = |e| Error::new(ErrorKind::InvalidInput, format!("cannot be sent: {e}"));
    let mut frame = postcard::to_extend(value, vec![0; 4]).map_err(invalid)?;
    let bytes = frame.len() - 4;
    if bytes > limit {
        return Err(Error::new(ErrorKind::InvalidInput, too_long(bytes, limit)));
    }
    frame[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    Ok(frame)
}

fn too_long(bytes: usize, limit: usize) -> String {
    format!(
        "a message of {bytes} bytes exceeds the limit of {limit}: measure fewer messages or runs \
         at once"
    )
}

/// Sends a value.
///
/// # Errors
/// Those of [`encode`] and of the stream.
pub fn write(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(value)?)
}

/// The next value; `None` when the other end has closed.
///
/// # Errors
/// When the frame is too long (then nothing is allocated for it), truncated, or not a `T`; and
/// those of the stream.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    read_up_to(FRAME_BYTES_MAX, from)
}

fn read_up_to<T: DeserializeOwned>(limit: usize, from: &mut impl Read) -> io::Result<Option<T>> {
    let invalid = |what: String| Error::new(ErrorKind::InvalidData, what);
    let mut length = [0; 4];
    if !fill(from, &mut length)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(invalid(too_long(length, limit)));
    }
    // Grows with what arrives: the length alone, which may be a lie, allocates nothing.
    let mut body = Vec::new();
    from.by_ref().take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        let what = format!(
            "closed the connection in the middle of a message, after {} of {length} bytes",
            body.len()
        );
        return Err(Error::new(ErrorKind::UnexpectedEof, what));
    }
    let value = postcard::from_bytes(&body);
    value
        .map(Some)
        .map_err(|e| invalid(format!("sent something that is not an rdmalab message: {e}")))
}

/// Fills the buffer; false when there was not even a first byte.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut at = 0;
    while at < buffer.len() {
        match from.read(&mut buffer[at..]) {
            Ok(0) if at == 0 => return Ok(false),
            Ok(0) => {
                let what = "closed the connection in the middle of a message's length";
                return Err(Error::new(ErrorKind::UnexpectedEof, what));
            }
            Ok(count) => at += count,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, with an interruption before each.
    struct Trickle<'a>(&'a [u8], bool);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::Interrupted.into());
            }
            let Some((&first, rest)) = self.0.split_first() else { return Ok(0) };
            buffer[0] = first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn exchange(round: u64, bytes: &[u8]) -> ToLauncher {
        ToLauncher::Exchange { job: 7, round, bytes: ByteBuf::from(bytes) }
    }

    #[test]
    fn values_come_back_however_the_bytes_are_cut() {
        let mut sent = encode(&exchange(1, b"one")).unwrap();
        sent.extend(encode(&exchange(2, &[9; 5000])).unwrap());
        let mut from = Trickle(&sent, false);
        for (expected, length) in [(1, 3), (2, 5000)] {
            match read(&mut from).unwrap() {
                Some(ToLauncher::Exchange { job: 7, round, bytes }) => {
                    assert_eq!((round, bytes.len()), (expected, length));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(read::<ToLauncher>(&mut from).unwrap().is_none());
    }

    #[test]
    fn a_frame_that_is_cut_off_is_an_error_at_each_byte() {
        let sent = encode(&exchange(1, b"one")).unwrap();
        for length in 1..sent.len() {
            let error = read::<ToLauncher>(&mut &sent[..length]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{length} bytes: {error}");
        }
    }

    #[test]
    fn a_frame_may_be_as_long_as_the_limit_and_no_longer() {
        let value = exchange(1, &[7; 100]);
        let frame = encode(&value).unwrap();
        let limit = frame.len() - 4;
        assert_eq!(encode_up_to(limit, &value).unwrap(), frame);
        assert!(encode_up_to(limit - 1, &value).unwrap_err().to_string().contains("measure fewer"));
        assert!(read_up_to::<ToLauncher>(limit, &mut frame.as_slice()).unwrap().is_some());
        assert!(read_up_to::<ToLauncher>(limit - 1, &mut frame.as_slice()).is_err());
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_it_is_read() {
        let mut from = Trickle(&[0xFF; 64], false);
        let error = read::<ToLauncher>(&mut from).unwrap_err();
        assert!(error.to_string().contains("1073741824"), "{error}");
        assert_eq!(from.0.len(), 60);
    }

    #[test]
    fn a_length_that_lies_allocates_what_came_only() {
        let mut sent = (FRAME_BYTES_MAX as u32).to_le_bytes().to_vec();
        sent.extend([0; 100]);
        let error = read::<ToLauncher>(&mut sent.as_slice()).unwrap_err();
        assert!(error.to_string().contains("after 100 of"), "{error}");
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let error = read::<ToLauncher>(&mut [2, 0, 0, 0, 99, 99].as_slice()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
