//! The thread that makes unreliable connections, which rdma_cm does not: the ends exchange the
//! addresses of their queue pairs over a TCP connection to the configured address and port. That
//! connection stays open, and its end shows that the peer is gone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdmalab_verbs::{
    Access, CmAddress, Context, Device, GidEntry, Mtu, Path, QpEndpoint, ReadyToReceive,
    ReadyToSend, VerbsError,
};

use super::connect::Ends;
use super::hello::HELLO_BYTES;
use super::link::Link;
use super::shared::Shared;
use crate::node::{NodeCounts, Teller};
use crate::sockets::notice_a_dead_peer;

/// How long the peer may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time between two looks at the connection, and between two attempts.
const SLICE: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(200);
/// The longest line of a peer.
const LINE_BYTES: u64 = 512;

/// The thread's state.
pub struct Exchanger {
    ends: Ends,
    shared: Arc<Shared>,
    context: Context,
    path: Path,
    mtu: Mtu,
    listener: Option<TcpListener>,
    teller: Teller,
    counts: NodeCounts,
}

fn socket_address(address: CmAddress) -> Result<SocketAddr, String> {
    address.to_string().parse().map_err(|_| format!("{address} is no address"))
}

fn text(error: VerbsError) -> String {
    error.to_string()
}

/// The path by this entry of the GID table. If none is given, by that of the own address, if the
/// port has it; else by the first one.
fn path_of(context: &Context, index: Option<u8>, here: Option<SocketAddr>) -> Path {
    let wanted = here.map(|here| match here.ip() {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    });
    let has = |index: &u8| {
        let entry: Result<GidEntry, _> = context.query_gid_entry(1, (*index).into());
        entry.is_ok_and(|entry| Some(entry.gid) == wanted)
    };
    Path::by_gid(1, index.or_else(|| (0..16).find(has)).unwrap_or(0))
}

impl Exchanger {
    /// Opens the device, and listens if the node does.
    ///
    /// # Errors
    /// Why not, in one line.
    pub fn new(
        ends: Ends,
        shared: Arc<Shared>,
        device: &Device,
        teller: Teller,
        counts: NodeCounts,
    ) -> Result<Self, String> {
        let context = device.open().map_err(text)?;
        let here = ends.here.map(socket_address).transpose()?;
        if let Some(index) = ends.gid_index {
            let failed = |error| format!("gid_index {index}: port 1 has no such entry: {error}");
            context.query_gid_entry(1, index.into()).map_err(failed)?;
        }
        let path = path_of(&context, ends.gid_index, here);
        let mtu = context.query_port(path.port_num).map_err(text)?.active_mtu;
        let listens = ends.there.is_none() || ends.use_fallback;
        let listener = match here.filter(|_| listens) {
            Some(here) => {
                let failed = |error| format!("in.address {here}: {error}");
                let listener = TcpListener::bind(here).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                Some(listener)
            }
            None => None,
        };
        Ok(Self { ends, shared, context, path, mtu, listener, teller, counts })
    }

    /// Makes connections until the node ends.
    pub fn run(mut self) {
        let mut next_try = Instant::now();
        while !self.is_over() {
            let accepted = self.listener.as_ref().and_then(|listener| listener.accept().ok());
            if let Some((stream, from)) = accepted {
                self.serve(&stream, false, &from.to_string());
            } else if let Some(there) = self.ends.there.filter(|_| Instant::now() >= next_try) {
                next_try = Instant::now() + PAUSE;
                let stream = socket_address(there).and_then(|address| {
                    TcpStream::connect_timeout(&address, ANSWER_MAX).map_err(|e| e.to_string())
                });
                match stream {
                    Ok(stream) => self.serve(&stream, true, &there.to_string()),
                    Err(why) => {
                        self.teller.tell(format!("cannot connect to {there}: {why}; trying again"));
                    }
                }
            } else {
                std::thread::sleep(SLICE);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }

    /// Makes a link over the connection, and waits for the end of either.
    fn serve(&mut self, stream: &TcpStream, asks: bool, peer: &str) {
        let mut link = match Link::make(&self.context, &self.ends.wish, None) {
            Ok(link) => link,
            Err(error) => return self.teller.tell(error.to_string()),
        };
        if let Err(why) = self.connect(&mut link, stream, asks) {
            self.shared.free(link);
            self.teller.tell(format!("no connection to {peer}: {why}"));
            return std::thread::sleep(PAUSE);
        }
        link.peer = peer.to_owned();
        let inline = link.inline_bytes();
        let link = Arc::new(link);
        if self.ends.receives {
            self.shared.receiving.put(link.clone());
        }
        if self.ends.sends {
            self.shared.sending.put(link.clone());
        }
        self.counts.connected.add(1);
        self.teller.tell(format!("UC to {peer} by a TCP connection, up to {inline} bytes inline"));
        let _ = stream.set_read_timeout(Some(SLICE));
        while !self.is_over() && !link.is_down() {
            // The peer says nothing more: the end is all that can come.
            match (&mut &*stream).read(&mut [0; 16]) {
                Ok(1..) => {}
                Err(error) if is_timeout(&error) => {}
                _ => link.set_down(),
            }
        }
        link.set_down();
        self.shared.receiving.discard(&link);
        self.shared.sending.discard(&link);
        if !self.is_over() {
            self.counts.disconnected.add(1);
            let why = link.reason().map_or_else(String::new, |why| format!(": {why}"));
            self.teller.tell(format!("lost {peer}{why}"));
        }
        while !self.is_over() && Arc::strong_count(&link) > 1 {
            std::thread::sleep(SLICE);
        }
        if let Ok(link) = Arc::try_unwrap(link) {
            self.shared.free(link);
        }
    }

    /// Exchanges addresses and brings the queue pair up. Each end says its address, goes to RTS,
    /// and says that it has: then neither end sends before the other one can receive.
    fn connect(&mut self, link: &mut Link, stream: &TcpStream, asks: bool) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        stream.set_nonblocking(false).map_err(failed)?;
        stream.set_read_timeout(Some(SLICE)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
        notice_a_dead_peer(stream).map_err(failed)?;
        // The peer ends with an empty WRITE.
        link.qp().to_init(self.path.port_num, Access::REMOTE_WRITE, 0).map_err(text)?;
        if self.ends.receives {
            let samples = self.shared.take_receives();
            let samples = samples.ok_or("the connection before has not ended yet")?;
            link.post_all(samples).map_err(text)?;
        }
        let ours = link.qp().endpoint(&self.path, 0).map_err(text)?;
        let hello = hex(&self.ends.sent.to_bytes());
        let mut reader = BufReader::new(stream.take(LINE_BYTES));
        let until = Instant::now() + ANSWER_MAX;
        let mut read = || read_line(&mut reader, until, &self.shared.is_over);
        let mut line = String::new();
        if !asks {
            // The end that asks speaks first, so that another program is not answered.
            line = read()?;
        }
        (&mut &*stream).write_all(format!("{ours} {hello}\n").as_bytes()).map_err(failed)?;
        if asks {
            line = read()?;
        }
        let theirs = self.understand(&line)?;
        let receive = ReadyToReceive::new(theirs, self.path, self.mtu);
        link.qp().to_rtr(&receive).map_err(text)?;
        link.qp().to_rts(&ReadyToSend::new(0)).map_err(text)?;
        (&mut &*stream).write_all(b"ready\n").map_err(failed)?;
        if read()? == "ready\n" { Ok(()) } else { Err("it is not ready".to_owned()) }
    }

    fn understand(&self, line: &str) -> Result<QpEndpoint, String> {
        let (endpoint, hello) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let endpoint = endpoint.parse().map_err(|_| "it is no gateway".to_owned())?;
        let heard = self.ends.accepts_hello(&unhex(hello), self.ends.receives);
        heard.map(|()| endpoint).map_err(|why| why.to_string())
    }
}

/// Reads a line, at most until then and until the node ends. The reads of the stream time out soon.
fn read_line(
    from: &mut impl BufRead,
    until: Instant,
    is_over: &AtomicBool,
) -> Result<String, String> {
    let mut line = Vec::new();
    loop {
        if is_over.load(Ordering::Relaxed) {
            return Err("the gateway ends".to_owned());
        }
        if Instant::now() >= until {
            return Err("it does not answer in time".to_owned());
        }
        // What came before an error stays in the line.
        match from.read_until(b'\n', &mut line) {
            Ok(_) => return String::from_utf8(line).map_err(|_| "it is no gateway".to_owned()),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes of hexadecimal text, none where it is no such text.
fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> =
        (0..text.len().min(2 * HELLO_BYTES)).step_by(2).map(byte).collect();
    bytes.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::infiniband::hello::Hello;

    /// Brings a line in pieces, with a time-out before each.
    struct Slow<'a>(std::slice::Chunks<'a, u8>, bool);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            let mut piece = self.0.next().unwrap_or_default();
            piece.read(into)
        }
    }

    #[test]
    fn a_line_comes_in_pieces_until_its_time_is_over_or_the_node_ends() {
        let slow = || BufReader::new(Slow(b"ready\nmore\n".chunks(2), false));
        let later = Instant::now() + Duration::from_secs(3600);
        let is_over = AtomicBool::new(false);
        assert_eq!(read_line(&mut slow(), later, &is_over).as_deref(), Ok("ready\n"));
        let late = read_line(&mut slow(), Instant::now(), &is_over);
        assert!(late.unwrap_err().contains("in time"));
        is_over.store(true, Ordering::Relaxed);
        assert!(read_line(&mut slow(), later, &is_over).unwrap_err().contains("ends"));
    }

    #[test]
    fn a_hello_survives_its_text() {
        let bytes = Hello::of([0, 1, 2].into_iter()).to_bytes();
        assert_eq!(unhex(&hex(&bytes)), bytes);
        assert!(unhex("0g").is_empty());
        assert!(unhex("abc").is_empty());
    }
}
