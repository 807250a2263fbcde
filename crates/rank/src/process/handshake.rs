//! The handshake: the first bytes of every connection, and the assignment of a worker.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::process::Child;
use std::time::Duration;

use rdmalab_measure::{Clock, ClockSource};
use serde::{Deserialize, Serialize};

use super::stream::Stream;

/// The version of the protocol. It changes with each change of a message, and of the content of a
/// job: ranks of another build read each other's points wrongly otherwise.
pub const PROTOCOL: u32 = 7;
/// The version of the program. Both ends must have the same, because jobs are the program's own.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Every connection starts with these bytes, in every version; then follow a length of 4 bytes and
/// a [`Hello`]. A hello begins with protocol and version in every version.
const MAGIC: &[u8; 8] = b"rdmalab\0";
/// The variable that gives a process another machine's name, in tests.
const MACHINE_VARIABLE: &str = "RDMALAB_TEST_MACHINE";
/// The longest hello, in bytes.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// The first message of both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// [`VERSION`].
    pub version: String,
    /// Name of its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// See [`machine`].
    pub machine: String,
    /// CPUs that it may use.
    pub cores: Vec<usize>,
    /// Why this end refuses the connection.
    pub refusal: Option<String>,
    /// The rank that it claims, if it connected to the rendezvous.
    pub claim: Option<Claim>,
}

/// The claim of a rank that connects to the rendezvous.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Which rank it is.
    pub rank: usize,
    /// The secret of this run. Empty on one host, where the kernel tells users apart.
    pub token: String,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}", self.rank)
    }
}

/// What a worker learns about its group: its rank, and the other ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Assignment {
    /// Which rank.
    pub index: usize,
    /// All of them, by index.
    pub peers: Vec<Peer>,
    /// Whether it yields where it would spin; `None`: when it shares a CPU with another rank.
    pub yielding: Option<bool>,
    /// How far the counters of cores of this machine may be off from one common core, in ns.
    pub skews: Vec<(usize, f64)>,
}

/// What a rank knows of another one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Peer {
    /// Name of its host.
    pub host: String,
    /// See [`machine`].
    pub machine: String,
    /// Where it runs: the first for itself, the following ones for threads that it spawns. Empty:
    /// anywhere.
    pub cores: Vec<usize>,
}

impl Hello {
    /// Ours. The machine is told only with a clock, which takes a moment to calibrate.
    pub fn ours(clock: Option<&Clock>) -> Self {
        Self {
            protocol: PROTOCOL,
            version: VERSION.to_owned(),
            host: host(),
            pid: std::process::id(),
            machine: clock.map(machine).unwrap_or_default(),
            cores: rdmalab_measure::limits::available_cores().unwrap_or_default(),
            refusal: None,
            claim: None,
        }
    }

    /// Sends it.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let body = postcard::to_stdvec(self).map_err(Error::other)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        to.write_all(&bytes)
    }

    /// Receives the hello of the other end within `limit`. Reads no byte beyond it.
    ///
    /// # Errors
    /// Sentences: it is no rdmalab, has another version, refuses, is silent.
    pub fn read(from: &mut Stream, limit: Duration) -> io::Result<Self> {
        let hello = from.within(limit, |from| Self::read_from(from));
        hello.map_err(|e| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let s = limit.as_secs();
                let what = format!("did not send an rdmalab greeting within {s} s");
                Error::new(ErrorKind::TimedOut, what)
            }
            ErrorKind::UnexpectedEof => {
                Error::new(e.kind(), "closed the connection before it sent an rdmalab greeting")
            }
            _ => e,
        })
    }

    fn read_from(from: &mut impl Read) -> io::Result<Self> {
        let not_rdmalab =
            || Error::new(ErrorKind::InvalidData, "is not rdmalab: check host and port");
        let mut head = [0; 12];
        from.read_exact(&mut head[..8])?;
        if head[..8] != *MAGIC {
            return Err(not_rdmalab());
        }
        from.read_exact(&mut head[8..])?;
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        if length > HELLO_BYTES_MAX {
            return Err(not_rdmalab());
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        // Read these two first: the rest of a hello of another version may not be readable.
        let ((protocol, version), _) =
            postcard::take_from_bytes::<(u32, String)>(&body).map_err(|_| not_rdmalab())?;
        if (protocol, version.as_str()) != (PROTOCOL, VERSION) {
            let version = printable(&version);
            let what = format!(
                "has rdmalab {version} (protocol {protocol}), this process has {VERSION} \
                 (protocol {PROTOCOL}): install the same version on both hosts"
            );
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let mut hello: Self = postcard::from_bytes(&body).map_err(|_| not_rdmalab())?;
        hello.host = printable(&hello.host);
        match hello.refusal {
            Some(why) => Err(Error::new(ErrorKind::ConnectionRefused, printable(&why))),
            None => Ok(hello),
        }
    }
}

/// A worker after the handshake.
pub struct ConnectedWorker {
    /// The connection.
    pub stream: Stream,
    /// Its process, if the launcher started it (the ssh process for another host).
    pub child: Option<Child>,
    /// Its hello.
    pub hello: Hello,
}

/// Text of a peer, for a terminal: one line without control characters.
pub fn printable(text: &str) -> String {
    let lines = text.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Identifies the counter of a rank's clock: two ranks with the same text run on the same boot of
/// one kernel and use the same clock source. Time namespaces shift the kernel's clocks, but not the
/// processor's counter.
pub fn machine(clock: &Clock) -> String {
    // So that a test can have two machines in one.
    if let Ok(name) = std::env::var(MACHINE_VARIABLE) {
        return format!("{name} {}", clock.source());
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // Without a boot id, no two processes may be taken to be on the same machine.
    let boot = boot.unwrap_or_else(|_| format!("pid {}", std::process::id()));
    let mut text = format!("{} {}", boot.trim(), clock.source());
    if clock.source() == ClockSource::MonotonicRaw {
        let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        text.push_str(&namespace.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(bytes: &[u8]) -> Result<Hello, String> {
        Hello::read_from(&mut &*bytes).map_err(|e| e.to_string())
    }

    #[test]
    fn a_hello_comes_back() {
        let hello = Hello::ours(None);
        let mut bytes = Vec::new();
        hello.write(&mut bytes).unwrap();
        assert_eq!(read_back(&bytes), Ok(hello));
    }

    #[test]
    fn another_version_is_named_with_ours_though_the_rest_is_unknown() {
        let body = postcard::to_stdvec(&(9_u32, "7.5.3")).unwrap();
        let mut bytes = MAGIC.to_vec();
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        let error = read_back(&bytes).unwrap_err();
        assert!(error.contains("7.5.3") && error.contains(VERSION), "{error}");
    }

    #[test]
    fn a_strange_text_cannot_play_with_the_terminal() {
        assert_eq!(printable("no\n  such \x1b[2Jqueue\u{9b}A"), "no such ?[2Jqueue?A");
    }

    #[test]
    fn other_protocols_and_long_hellos_are_refused() {
        for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"rdmalab\0\xFF\xFF\xFF\xFF"] {
            assert!(read_back(bytes).unwrap_err().contains("not rdmalab"));
        }
    }

    #[test]
    fn processes_of_one_machine_are_neighbours() {
        let clock = Clock::monotonic_raw();
        assert_eq!(machine(&clock), machine(&clock));
        assert!(machine(&clock).len() > 20);
    }
}
