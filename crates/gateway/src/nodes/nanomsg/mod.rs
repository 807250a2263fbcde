//! `nanomsg`: samples to and from sockets of nanomsg (or NNG) of the protocols PUB and SUB, each
//! sample a message of the format.
//!
//! - `sp`: the protocol.

mod sp;

use rdmalab_config::{At, ConfigError, OneOrMany, group};
use sp::Sp;

use crate::format::FormatChoice;
use crate::keys::{InCommon, NodeCommon, OutCommon, signals_or_default};
use crate::node::Node;
use crate::pubsub::{Endpoint, PubSub};

group! {
    /// The reading half, a SUB.
    pub struct In with (common: InCommon) {
        /// The endpoints of publishers: `tcp://HOST:PORT` or `ipc://PATH`.
        endpoints: Option<OneOrMany<At<String>>>;
        /// With what messages must begin. The samples are behind it.
        filter: Option<String>;
    }
}

group! {
    /// The writing half, a PUB.
    pub struct Out with (common: OutCommon) {
        /// The endpoints where subscribers connect to: `tcp://*:PORT` or `ipc://PATH`.
        endpoints: Option<OneOrMany<At<String>>>;
        /// With what each message begins, before the samples.
        filter: Option<String>;
        /// Samples that wait at most for each subscriber; further ones are dropped.
        queuelen: usize = 1000, in 1..=1_048_576;
    }
}

group! {
    /// Samples over nanomsg.
    pub struct Config with (common: NodeCommon) {
        /// The form of samples.
        format: FormatChoice = FormatChoice::named("json");
        /// The reading half.
        r#in: Option<In>;
        /// The writing half.
        out: Option<Out>;
    }
}

impl Config {
    /// Whether it subscribes to an endpoint.
    #[must_use]
    pub fn reads(&self) -> bool {
        self.r#in.as_ref().is_some_and(|half| half.endpoints.is_some())
    }

    /// Whether it publishes at an endpoint.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.out.as_ref().is_some_and(|half| half.endpoints.is_some())
    }

    /// The node.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn node(self, name: &At<String>) -> Result<Box<dyn Node>, ConfigError> {
        let signals = signals_or_default(self.r#in.as_ref().map(|half| &half.common));
        let mut node = PubSub::new(&name.value, self.format, signals, |role, is_ipc, filter| {
            Box::new(Sp::new(role, is_ipc, filter))
        });
        if let Some(half) = self.r#in {
            let from = Endpoint::all(half.endpoints.as_ref(), false, false)?;
            node.reads(from, half.filter);
        }
        if let Some(half) = self.out {
            let to = Endpoint::all(half.endpoints.as_ref(), true, false)?;
            node.writes(to, half.filter, half.queuelen);
        }
        Ok(Box::new(node))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use rdmalab_measure::Clock;
    use rdmalab_sample::{Handle, Kind, Pool, Signal, Value};
    use rdmalab_testing::{LIMIT, WaitLimit};

    use super::*;
    use crate::node::{Log, Sink, SourceState, Stop, World};
    use crate::pubsub::PEER_BYTES_MAX;
    use crate::pubsub::wire::{Heard, Role, Wire as _};
    use crate::timer::TimerKind;

    /// Samples that may wait.
    const ROOM: usize = 10;

    fn world() -> (World, Arc<Mutex<Vec<String>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let lines = told.clone();
        let log = Log::new(move |line| lines.lock().unwrap().push(line.to_owned()));
        let (clock, stop) = (Clock::new(), Stop::default());
        (World { device: None, clock, timer: TimerKind::Timerfd, stop, log }, told)
    }

    /// A node that publishes or reads at a path.
    fn node(path: &Path, binds: bool) -> PubSub {
        with_room(path, binds, ROOM)
    }

    fn with_room(path: &Path, binds: bool, room: usize) -> PubSub {
        let position = rdmalab_config::parse("a.conf", "").unwrap().at;
        let text = At { value: format!("ipc://{}", path.display()), at: position };
        let ends = Endpoint::all(Some(&OneOrMany(vec![text])), binds, false).unwrap();
        let format = FormatChoice::named("rdmalab.binary");
        let signals = Signal::numbered(8, Kind::Float);
        let mut node = PubSub::new("nn", format, signals, |role, is_ipc, _| {
            Box::new(Sp::new(role, is_ipc, None))
        });
        match binds {
            true => node.writes(ends, None, room),
            false => node.reads(ends, None),
        }
        node
    }

    /// A peer that knows the protocol.
    struct Other {
        stream: UnixStream,
        wire: Sp,
        messages: u64,
    }

    impl Other {
        fn new(mut stream: UnixStream, role: Role) -> Self {
            let mut wire = Sp::new(role, true, None);
            stream.write_all(&std::mem::take(wire.answers())).unwrap();
            stream.set_nonblocking(true).unwrap();
            Self { stream, wire, messages: 0 }
        }

        fn subscribed(path: &Path) -> Self {
            Self::new(UnixStream::connect(path).unwrap(), Role::Subscriber)
        }

        /// Reads what is there.
        fn read(&mut self) {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = self.stream.read(&mut bytes) {
                self.wire.receive(&bytes[..length]);
                while let Some(heard) = self.wire.next().unwrap() {
                    self.messages += u64::from(matches!(heard, Heard::Message(_)));
                }
            }
        }
    }

    fn sample(pool: &mut Pool) -> Handle {
        let mut one = pool.take().unwrap();
        let mut sample = pool.get_mut(&mut one);
        sample.set_sequence(1);
        (0..8).for_each(|_| assert!(sample.push(Value::from_float(1.0))));
        one
    }

    fn until(what: &str, mut look: impl FnMut() -> bool) {
        let mut wait_limit = WaitLimit::of(LIMIT);
        while !look() {
            assert!(wait_limit.is_left(), "no {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn flushed(sink: &mut dyn Sink, what: &str, mut look: impl FnMut(&dyn Sink) -> bool) {
        until(what, || {
            sink.flush().unwrap();
            look(sink)
        });
    }

    #[test]
    fn each_sample_that_a_slow_subscriber_does_not_get_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut node = node(&path, true);
        let mut sink = node.sink(&world().0, &node.signals.clone()).unwrap();
        let (mut quick, mut slow) = (Other::subscribed(&path), Other::subscribed(&path));
        flushed(&mut *sink, "two subscribers", |_| node.counts.connected.get() == 2);
        let mut pool = Pool::new(1, 8);
        let one = sample(&mut pool);
        let (mut taken, mut dropped) = (0, 0);
        while dropped < 500 {
            match sink.write(&pool, &one).unwrap() {
                true => taken += 1,
                false => dropped += 1,
            }
            // Part of the subscribers has got it: to write it again would double it.
            assert!(!sink.may_retry());
            quick.read();
        }
        assert!(sink.lost() == ROOM as u64, "those that wait for the slow one");
        assert!(sink.is_behind());
        flushed(&mut *sink, "room", |sink| {
            slow.read();
            sink.lost() == 0
        });
        assert!(!sink.is_behind());
        assert_eq!(sink.close(LIMIT), Ok(0));
        [&mut quick, &mut slow].into_iter().for_each(Other::read);
        assert_eq!((quick.messages, slow.messages), (taken + dropped, taken));
        assert!(!path.exists(), "the file of the socket");
    }

    #[test]
    fn what_the_only_subscriber_has_no_room_for_may_be_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut node = node(&path, true);
        let mut sink = node.sink(&world().0, &node.signals.clone()).unwrap();
        let mut pool = Pool::new(1, 8);
        let one = sample(&mut pool);
        assert_eq!((sink.write(&pool, &one), sink.may_retry()), (Ok(false), false), "nobody");
        let mut only = Other::subscribed(&path);
        flushed(&mut *sink, "a subscriber", |sink| sink.is_ready());
        let mut taken = 0;
        let mut fill = |sink: &mut dyn Sink| {
            while sink.write(&pool, &one).unwrap() {
                taken += 1;
            }
            assert!(sink.may_retry());
        };
        fill(&mut *sink);
        only.read();
        fill(&mut *sink);
        drop(only);
        flushed(&mut *sink, "its end", |_| node.counts.disconnected.get() == 1);
        assert!(!sink.is_ready() && taken > ROOM as u64);
        assert_eq!((node.counts.unread.get(), sink.close(LIMIT)), (ROOM as u64, Ok(0)));
    }

    #[test]
    fn a_subscriber_that_does_not_read_keeps_no_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut node = node(&path, true);
        let mut sink = node.sink(&world().0, &node.signals.clone()).unwrap();
        let _stuck = Other::subscribed(&path);
        flushed(&mut *sink, "a subscriber", |sink| sink.is_ready());
        let mut pool = Pool::new(1, 8);
        let one = sample(&mut pool);
        while sink.write(&pool, &one).unwrap() {}
        assert_eq!(sink.close(Duration::from_millis(20)), Ok(ROOM as u64));
    }

    #[test]
    fn what_waits_for_a_subscriber_is_bounded_in_bytes_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut node = with_room(&path, true, usize::MAX);
        let mut sink = node.sink(&world().0, &node.signals.clone()).unwrap();
        let _stuck = Other::subscribed(&path);
        flushed(&mut *sink, "a subscriber", |sink| sink.is_ready());
        let mut pool = Pool::new(1, 8);
        let one = sample(&mut pool);
        let (format, mut body, mut message) = ("rdmalab.binary", Vec::new(), Vec::new());
        let format = FormatChoice::named(format).build();
        let form = rdmalab_sample::Form::Message;
        format.encode(form, &node.signals, &[pool.get(&one)], &mut body).unwrap();
        Sp::new(Role::Publisher, true, None).frame(&body, &mut message);
        while sink.write(&pool, &one).unwrap() {}
        // What waits are whole messages and the rest of one.
        let waiting = sink.lost() as usize * message.len();
        let most = PEER_BYTES_MAX + 2 * message.len();
        assert!((PEER_BYTES_MAX - message.len()..most).contains(&waiting), "{waiting}");
        assert!(sink.may_retry());
    }

    #[test]
    fn those_that_do_not_speak_the_protocol_are_told_once_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut node = node(&path, true);
        let (world, told) = world();
        let mut sink = node.sink(&world, &node.signals.clone()).unwrap();
        for count in 1..=3 {
            let mut stranger = UnixStream::connect(&path).unwrap();
            stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            flushed(&mut *sink, "an end", |_| node.counts.garbage.get() == count);
            let mut rest = Vec::new();
            // It is closed, perhaps with a reset because not all was read.
            let _ = stranger.read_to_end(&mut rest);
            assert_eq!(rest, b"\0SP\0\0\x20\0\0");
        }
        let other = Other::subscribed(&path);
        flushed(&mut *sink, "a subscriber", |sink| sink.is_ready());
        drop(other);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(told[0].ends_with("the peer is refused: it does not speak SP"), "{told:#?}");
    }

    #[test]
    fn numbers_of_a_publisher_that_is_back_begin_anew_or_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mut node = node(&path, false);
        let (world, told) = world();
        let mut source = node.source(&world).unwrap();
        let mut pool = Pool::new(4, 9);
        let mut to = Vec::new();
        let mut one = sample(&mut pool);
        let format = FormatChoice::named("rdmalab.binary").build();
        let form = rdmalab_sample::Form::Message;
        for (run, number) in [5, 5, 4, 55].into_iter().enumerate() {
            let mut body = Vec::new();
            pool.get_mut(&mut one).set_sequence(number);
            format.encode(form, &node.signals, &[pool.get(&one)], &mut body).unwrap();
            let listener = UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            let (mut peer, mut restarts) = (None, 0);
            until("a sample", || {
                if let (None, Ok((stream, _))) = (&peer, listener.accept()) {
                    let mut other = Other::new(stream, Role::Publisher);
                    let mut message = Vec::new();
                    other.wire.frame(&body, &mut message);
                    other.stream.write_all(&message).unwrap();
                    peer = Some(other);
                }
                let state = source.read(&mut pool, &mut to, Duration::from_millis(1)).unwrap();
                restarts += u32::from(state == SourceState::Restarted);
                !to.is_empty()
            });
            assert_eq!((to.len(), restarts), (1, u32::from(run == 1 || run == 2)), "{run}");
            to.drain(..).for_each(|sample| pool.give(sample));
            drop((peer, listener));
            std::fs::remove_file(&path).unwrap();
            until("its end", || {
                let read = source.read(&mut pool, &mut to, Duration::from_millis(1));
                assert_eq!((read, to.len()), (Ok(SourceState::Open), 0));
                node.counts.disconnected.get() == run as u64 + 1
            });
        }
        let told = told.lock().unwrap();
        let count = |end: &str| told.iter().filter(|line| line.ends_with(end)).count();
        assert_eq!((count("is connected"), count("is gone")), (4, 4), "{told:#?}");
    }
}
