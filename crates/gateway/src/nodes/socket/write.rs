//! The writing half of a socket.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdmalab_sample::{Form, Format, Handle, Pool, Signal};

use super::datagrams::Datagrams;
use crate::node::{Log, NodeCounts, Sink, Teller, World};
use crate::sockets::notice_a_dead_peer;

/// Bytes that wait for a TCP peer at most.
const WAITING_BYTES: usize = 1 << 20;
/// Time between two attempts to reach a TCP peer, and how long one may take.
const PAUSE: Duration = Duration::from_millis(200);

/// What the writing half sends over.
pub enum Sender {
    Datagrams(Arc<Datagrams>),
    Stream(Stream),
}

/// The writing half.
pub struct Writing {
    /// What it sends over.
    pub sender: Sender,
    /// The form of samples.
    pub format: Box<dyn Format>,
    /// Their signals.
    pub signals: Vec<Signal>,
    /// Samples that are sent together.
    pub vectorize: usize,
    /// Samples in `bytes`.
    pub gathered: usize,
    /// What is sent next.
    pub bytes: Vec<u8>,
    /// Whether the last attempt found no room.
    pub is_full: bool,
    /// Tells what is wrong.
    pub teller: Teller,
}

impl Writing {
    /// Sends the gathered samples; whether they were taken. Else they stay.
    fn send(&mut self) -> bool {
        let sent = match &mut self.sender {
            Sender::Datagrams(socket) => socket.send(&self.bytes).map(|_| true),
            Sender::Stream(stream) => Ok(stream.send(&self.bytes, self.gathered as u64)),
        };
        self.is_full = match &sent {
            Ok(is_taken) => !is_taken && self.is_ready(),
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        match sent {
            Ok(true) => {
                self.gathered = 0;
                self.bytes.clear();
                return true;
            }
            Err(error) if !self.is_full => self.teller.tell(error.to_string()),
            _ => {}
        }
        false
    }
}

impl Sink for Writing {
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        let form =
            if matches!(self.sender, Sender::Stream(_)) { Form::File } else { Form::Message };
        let (before, sample) = (self.bytes.len(), [pool.get(sample)]);
        if let Err(why) = self.format.encode(form, &self.signals, &sample, &mut self.bytes) {
            self.bytes.truncate(before);
            self.is_full = false;
            self.teller.tell(why.to_string());
            return Ok(false);
        }
        self.gathered += 1;
        if self.gathered < self.vectorize || self.send() {
            return Ok(true);
        }
        // Those before it were taken, and are sent later.
        self.bytes.truncate(before);
        self.gathered -= 1;
        Ok(false)
    }

    fn is_ready(&self) -> bool {
        !matches!(&self.sender, Sender::Stream(stream) if stream.peer().is_none())
    }

    fn may_retry(&self) -> bool {
        self.is_full
    }

    fn is_behind(&self) -> bool {
        matches!(&self.sender, Sender::Stream(stream) if !stream.waiting.is_empty())
    }

    fn flush(&mut self) -> Result<(), String> {
        if self.gathered > 0 {
            self.send();
        }
        if let Sender::Stream(stream) = &mut self.sender {
            stream.send(&[], 0);
        }
        Ok(())
    }

    fn lost(&self) -> u64 {
        let waiting = match &self.sender {
            Sender::Stream(stream) => stream.lost + stream.samples(),
            _ => 0,
        };
        waiting + self.gathered as u64
    }

    fn close(&mut self, limit: Duration) -> Result<u64, String> {
        let until = Instant::now() + limit;
        self.flush()?;
        while Instant::now() < until
            && match &self.sender {
                Sender::Stream(stream) => stream.peer.is_some() && self.lost() > stream.lost,
                _ => self.is_full,
            }
        {
            std::thread::sleep(Duration::from_millis(1));
            self.flush()?;
        }
        Ok(self.lost())
    }
}

/// A TCP connection that a thread makes anew when it is lost.
pub struct Stream {
    peer: Option<TcpStream>,
    /// What the thread has connected, and whether it shall.
    shared: Arc<Connecting>,
    waiting: Vec<u8>,
    /// The messages in it: bytes that are not sent yet, and samples.
    messages: VecDeque<(usize, u64)>,
    /// Samples that a peer had not taken when it went.
    lost: u64,
    node: String,
    log: Log,
    counts: NodeCounts,
}

#[derive(Default)]
struct Connecting {
    found: Mutex<Option<TcpStream>>,
    is_over: AtomicBool,
    is_wanted: AtomicBool,
}

impl Stream {
    /// A connection to this address.
    pub fn to(there: SocketAddr, node: &str, world: &World, counts: &NodeCounts) -> Self {
        let shared = Arc::new(Connecting::default());
        shared.is_wanted.store(true, Relaxed);
        let own = shared.clone();
        let work = move || {
            while !own.is_over.load(Relaxed) {
                if own.is_wanted.load(Relaxed)
                    && let Ok(stream) = TcpStream::connect_timeout(&there, PAUSE)
                {
                    let _ = (stream.set_nodelay(true), stream.set_nonblocking(true));
                    let _ = notice_a_dead_peer(&stream);
                    own.is_wanted.store(false, Relaxed);
                    *own.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
                    continue;
                }
                std::thread::sleep(PAUSE / 10);
            }
        };
        // Without the thread nothing is ever connected, which the counts show.
        let _ = std::thread::Builder::new().name(format!("{node}-connect")).spawn(work);
        let (node, log, counts) = (node.to_owned(), world.log.clone(), counts.clone());
        let (waiting, messages) = (Vec::new(), VecDeque::new());
        Self { peer: None, shared, waiting, messages, lost: 0, node, log, counts }
    }

    /// Its peer, once there is a connection.
    pub fn peer(&self) -> Option<&TcpStream> {
        self.peer.as_ref()
    }

    /// Samples that wait.
    fn samples(&self) -> u64 {
        self.messages.iter().map(|(_, samples)| samples).sum()
    }

    /// Sends a message after those that wait; whether it was taken.
    pub fn send(&mut self, bytes: &[u8], samples: u64) -> bool {
        if self.peer.is_none() {
            let found = self.shared.found.try_lock().ok().and_then(|mut found| found.take());
            let Some(stream) = found else { return bytes.is_empty() };
            self.counts.connected.add(1);
            self.log.say(format_args!("{}: connected", self.node));
            self.peer = Some(stream);
        }
        let takes = self.waiting.len() + bytes.len() <= WAITING_BYTES;
        if takes && !bytes.is_empty() {
            self.waiting.extend_from_slice(bytes);
            self.messages.push_back((bytes.len(), samples));
        }
        while let (Some(peer), false) = (&mut self.peer, self.waiting.is_empty()) {
            match peer.write(&self.waiting) {
                Ok(sent) if sent > 0 => self.sent(sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => {
                    // This message stays with the caller.
                    let own = if takes { samples } else { 0 };
                    self.lost += self.samples().saturating_sub(own);
                    self.peer = None;
                    self.waiting.clear();
                    self.messages.clear();
                    self.counts.disconnected.add(1);
                    self.log.say(format_args!("{}: the receiver is gone", self.node));
                    self.shared.is_wanted.store(true, Relaxed);
                    return bytes.is_empty();
                }
            }
        }
        takes
    }

    /// Forgets bytes that the kernel has taken, and the messages that it has taken as a whole.
    fn sent(&mut self, bytes: usize) {
        self.waiting.drain(..bytes);
        let mut left = bytes;
        while let Some((length, _)) = self.messages.front_mut() {
            if *length > left {
                *length -= left;
                return;
            }
            left -= *length;
            self.messages.pop_front();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rdmalab_sample::{Kind, Value};

    use super::*;
    use crate::format::FormatChoice;

    fn writing(sender: Sender, vectorize: usize) -> Writing {
        Writing {
            sender,
            format: FormatChoice::named("villas.binary").build(),
            signals: Signal::numbered(1, Kind::Float),
            vectorize,
            gathered: 0,
            bytes: Vec::new(),
            is_full: false,
            teller: Teller::new("net", &Log::new(|_| {})),
        }
    }

    /// How many of so many samples are taken.
    fn write(writing: &mut Writing, samples: usize) -> usize {
        let mut pool = Pool::new(1, 1);
        let mut one = pool.take().unwrap();
        let mut sample = pool.get_mut(&mut one);
        sample.set_sequence(1);
        assert!(sample.push(Value::from_float(1.0)));
        (0..samples).filter(|_| writing.write(&pool, &one) == Ok(true)).count()
    }

    #[test]
    fn samples_that_were_taken_and_not_sent_are_lost() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("nowhere").display().to_string();
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let socket = Datagrams::Unix { socket, here: None, there: Some(nowhere) };
        let mut writing = writing(Sender::Datagrams(Arc::new(socket)), 4);
        assert_eq!(write(&mut writing, 5), 3, "three are gathered, two are dropped");
        assert_eq!(writing.close(Duration::ZERO), Ok(3));
    }

    fn stream(peer: TcpStream) -> Stream {
        peer.set_nonblocking(true).unwrap();
        Stream {
            peer: Some(peer),
            shared: Arc::default(),
            waiting: Vec::new(),
            messages: VecDeque::new(),
            lost: 0,
            node: "net".to_owned(),
            log: Log::new(|_| {}),
            counts: NodeCounts::default(),
        }
    }

    #[test]
    fn samples_that_wait_for_a_peer_that_goes_are_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        let mut writing = writing(Sender::Stream(stream(peer)), 1);
        // Until neither the kernel nor the node takes more.
        let mut taken = 0;
        while write(&mut writing, 1) == 1 {
            taken += 1;
        }
        let waiting = writing.lost();
        assert!(waiting > 0 && waiting <= taken, "{waiting} of {taken}");
        // With bytes that it has not read, a peer ends with a reset.
        drop(other);
        while writing.is_ready() {
            writing.flush().unwrap();
        }
        assert_eq!(writing.close(Duration::ZERO), Ok(waiting));
    }
}
