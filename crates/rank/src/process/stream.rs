//! A connection between launcher and worker: a socket pair on one machine, TCP between two.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, sockopt};

/// After this time without data, the kernel sends a TCP keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(3);
/// Interval between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Unanswered probes after which the connection counts as broken: about 9 s in all.
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent bytes may stay unacknowledged.
const UNACKNOWLEDGED_MS: u32 = 10_000;

/// A stream of bytes, both ways.
#[derive(Debug)]
pub enum Stream {
    /// Within a machine.
    Local(UnixStream),
    /// Between machines.
    Tcp(TcpStream),
}

impl Stream {
    /// Two connected ends; neither is inherited by programs started later.
    pub fn pair() -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::Local(ours), theirs))
    }

    /// A TCP connection that does not delay small messages, and notices within about 10 s when
    /// the other host is gone.
    pub fn tcp(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        // Time-outs belong to the socket: remove those that another program set.
        tcp.set_write_timeout(None)?;
        sockopt::set_socket_keepalive(&tcp, true)?;
        sockopt::set_tcp_keepidle(&tcp, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&tcp, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&tcp, KEEPALIVE_PROBES)?;
        sockopt::set_tcp_user_timeout(&tcp, UNACKNOWLEDGED_MS)?;
        Ok(Self::Tcp(tcp))
    }

    /// A socket that another program handed over.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        match sockopt::socket_domain(&fd)? {
            AddressFamily::UNIX => Ok(Self::Local(fd.into())),
            _ => Self::tcp(fd.into()),
        }
    }

    /// The same connection once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Local(s) => Self::Local(s.try_clone()?),
            Self::Tcp(s) => Self::Tcp(s.try_clone()?),
        })
    }

    /// The descriptor, for another program.
    pub fn into_fd(self) -> OwnedFd {
        match self {
            Self::Local(s) => s.into(),
            Self::Tcp(s) => s.into(),
        }
    }

    /// Shuts the connection down for both ends. This also ends a read of another thread.
    pub fn shutdown(&self) {
        // An error means that it has ended already.
        let _ = match self {
            Self::Local(s) => s.shutdown(Shutdown::Both),
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
        };
    }

    /// Limits each write, so that an end that does not read cannot hold us.
    pub fn set_write_limit(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Local(s) => s.set_write_timeout(Some(limit)),
            Self::Tcp(s) => s.set_write_timeout(Some(limit)),
        }
    }

    fn set_read_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Local(s) => s.set_read_timeout(limit),
            Self::Tcp(s) => s.set_read_timeout(limit),
        }
    }

    /// Reads of `body` fail once `limit` is over, however slowly bytes trickle in.
    pub fn within<T>(
        &mut self,
        limit: Duration,
        body: impl FnOnce(&mut Within<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let result = body(&mut Within { stream: self, until: Instant::now() + limit });
        self.set_read_limit(None)?;
        result
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(s) => s.read(buffer),
            Self::Tcp(s) => s.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Local(s) => (&*s).write(bytes),
            Stream::Tcp(s) => (&*s).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Local(s) => s.as_fd(),
            Self::Tcp(s) => s.as_fd(),
        }
    }
}

/// See [`Stream::within`].
pub struct Within<'a> {
    stream: &'a mut Stream,
    until: Instant,
}

impl Read for Within<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_limit(Some(left))?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn tcp() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Stream::tcp(listener.accept().unwrap().0).unwrap(), there)
    }

    #[test]
    fn a_vanished_host_would_be_noticed() {
        let (stream, _there) = tcp();
        assert!(sockopt::tcp_nodelay(&stream).unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let probes = sockopt::tcp_keepintvl(&stream).unwrap() * KEEPALIVE_PROBES;
        let idle = sockopt::tcp_keepidle(&stream).unwrap();
        assert!(idle + probes <= Duration::from_secs(10));
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), UNACKNOWLEDGED_MS);
    }

    #[test]
    fn trickling_bytes_do_not_prolong_the_limit() {
        let (mut stream, mut there) = tcp();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over() && there.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let mut count = 0;
            let error = stream.within(Duration::from_millis(50), |from| {
                while count < 10_000 {
                    let mut byte = [0];
                    from.read_exact(&mut byte)?;
                    count += 1;
                }
                Ok(())
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let kind = error.unwrap_err().kind();
            let is_timeout = matches!(kind, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
            assert!(is_timeout, "{kind} after {count} bytes");
        });
    }

    #[test]
    fn a_socket_is_taken_over_as_what_it_is() {
        let (stream, _there) = tcp();
        assert!(matches!(Stream::from_fd(stream.into_fd()), Ok(Stream::Tcp(_))));
        let (ours, _theirs) = Stream::pair().unwrap();
        assert!(matches!(Stream::from_fd(ours.into_fd()), Ok(Stream::Local(_))));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Stream::from_fd(file.into()).is_err());
    }
}
