//! Aligns the clocks of several machines: the launcher repeatedly asks each rank on another machine
//! for its time, while both ends poll the connection without sleeping. [`rdmalab_measure::sync`]
//! has the arithmetic and the error bound.
//!
//! At both ends, the thread that reads from the connection also does this: it knows at once when a
//! frame has arrived, and nothing else uses the connection meanwhile.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use rdmalab_measure::sync::{Fit, Round, Window};
use rdmalab_measure::{Clock, Stamp};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::thread::sched_yield;
use serde::{Deserialize, Serialize};

use super::frame::{self, ToLauncher, ToWorker};
use super::stream::Stream;

/// Questions of a window.
const ROUNDS: usize = 64;
/// A window ends after so long, however few questions were answered.
const WINDOW: Duration = Duration::from_millis(50);
/// For so long after a frame of a window the next one is looked for without sleeping.
pub(super) const HOT: Duration = Duration::from_millis(2);

/// The relation of a rank's clock to the launcher's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Sight {
    /// The same: they are on one machine.
    Same,
    /// Another one, with a fresh comparison.
    Other(Seen),
    /// Another one, and the rank did not answer.
    Lost,
}

/// A window, and the scales of its two clocks: ns since a first stamp of each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub ours: Scale,
    pub theirs: Scale,
    pub window: Window,
}

/// Converts a counter to nanoseconds since a first stamp. The length of a tick is the one that the
/// owner of the counter measured; its error appears as drift.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Scale {
    pub first: u64,
    pub ns_per_tick: f64,
}

impl Scale {
    fn ns(self, stamp: u64) -> f64 {
        stamp.wrapping_sub(self.first) as i64 as f64 * self.ns_per_tick
    }

    fn stamp(self, ns: f64) -> u64 {
        self.first.wrapping_add((ns / self.ns_per_tick).round() as i64 as u64)
    }
}

/// A rank's clock beside the launcher's, over some windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timeline {
    ours: Scale,
    theirs: Scale,
    fit: Fit,
}

impl Timeline {
    /// `None` without any window.
    pub fn of(seen: &[Seen]) -> Option<Self> {
        let first = seen.first()?;
        let windows: Vec<Window> = seen.iter().map(|seen| seen.window).collect();
        Some(Self { ours: first.ours, theirs: first.theirs, fit: Fit::of(&windows)? })
    }

    pub fn error_ns(&self) -> f64 {
        self.fit.error_ns()
    }

    /// A stamp of the rank as one of the launcher's machine.
    pub fn at_launcher(&self, stamp: Stamp) -> Stamp {
        Stamp(self.ours.stamp(self.fit.ours_at_ns(self.theirs.ns(stamp.0))))
    }

    /// A stamp of the launcher's machine as one of the rank.
    pub fn at_rank(&self, stamp: Stamp) -> Stamp {
        let ours_ns = self.ours.ns(stamp.0);
        Stamp(self.theirs.stamp(ours_ns + self.fit.lead_at_ns(ours_ns)))
    }
}

/// The launcher's side for one rank.
#[derive(Debug)]
pub(super) struct Pinger {
    clock: Clock,
    scales: Option<(Scale, Scale)>,
}

impl Pinger {
    pub fn new(clock: Clock) -> Self {
        Self { clock, scales: None }
    }

    /// Asks the rank for its time. Other frames that come meanwhile go to `aside`.
    ///
    /// # Errors
    /// Those of the stream, and when it has ended.
    pub fn look(
        &mut self,
        stream: &mut (impl PingStream + Read),
        mut aside: impl FnMut(ToLauncher),
    ) -> io::Result<Sight> {
        let until = Instant::now() + WINDOW;
        let mut rounds = Vec::with_capacity(ROUNDS);
        while rounds.len() < ROUNDS && (rounds.is_empty() || Instant::now() < until) {
            let asked = self.clock.now().0;
            stream.send(&ToWorker::Ping)?;
            let (received, answered, ns_per_tick, back) = loop {
                match frame::read(&mut Hot::over(stream))? {
                    Some(ToLauncher::Pong { received, answered, ns_per_tick }) => {
                        break (received, answered, ns_per_tick, self.clock.now().0);
                    }
                    Some(other) => aside(other),
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            };
            let (ours, theirs) = *self.scales.get_or_insert((
                Scale { first: asked, ns_per_tick: self.clock.ns_per_tick() },
                Scale { first: received, ns_per_tick },
            ));
            rounds.push(Round {
                asked_ns: ours.ns(asked),
                received_ns: theirs.ns(received),
                answered_ns: theirs.ns(answered),
                back_ns: ours.ns(back),
            });
        }
        let window = Window::of(&rounds);
        let seen = window
            .zip(self.scales)
            .map(|(window, (ours, theirs))| Sight::Other(Seen { ours, theirs, window }));
        Ok(seen.unwrap_or(Sight::Lost))
    }
}

/// Sends the rank's answer to a question that was received at `received`.
pub(super) fn answer(stream: &mut Stream, clock: &Clock, received: Stamp) -> io::Result<()> {
    let ns_per_tick = clock.ns_per_tick();
    let pong = |answered: Stamp| ToLauncher::Pong {
        received: received.0,
        answered: answered.0,
        ns_per_tick,
    };
    frame::write(stream, &pong(clock.now()))
}

/// A connection that can be polled without sleeping, and written to.
pub(super) trait PingStream {
    fn stream(&self) -> &Stream;

    /// Sends a frame with one call, so that it does not mix with what other threads send.
    fn send(&self, what: &ToWorker) -> io::Result<()> {
        frame::write(&mut self.stream(), what)
    }
}

impl PingStream for Stream {
    fn stream(&self) -> &Stream {
        self
    }
}

/// A reader that polls without sleeping for a while, and then blocks.
pub(super) struct Hot<'a, S> {
    stream: &'a mut S,
    until: Instant,
}

impl<'a, S: PingStream> Hot<'a, S> {
    pub fn over(stream: &'a mut S) -> Self {
        Self::until(stream, Instant::now() + HOT)
    }

    pub fn until(stream: &'a mut S, until: Instant) -> Self {
        Self { stream, until }
    }
}

impl<S: PingStream + Read> Read for Hot<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while Instant::now() < self.until {
            match recv(self.stream.stream(), &mut *buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => sched_yield(),
                // There is data or an error, which the read below returns.
                Ok(_) | Err(_) => break,
            }
        }
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at_ns: f64, lead_ns: f64) -> Seen {
        Seen {
            ours: Scale { first: 1_000_000_000_000, ns_per_tick: 0.5 },
            theirs: Scale { first: 77, ns_per_tick: 0.4 },
            window: Window { at_ns, lead_ns, half_trip_ns: 100.0 },
        }
    }

    #[test]
    fn stamps_go_there_and_back() {
        let timeline = Timeline::of(&[seen(0.0, 500.0), seen(1e9, 501.0)]).unwrap();
        assert!((timeline.error_ns() - 100.0).abs() < 1e-6);
        // 2e9 ticks of ours after the first are 1e9 ns, where theirs is ahead by 501 ns.
        let ours = Stamp(1_002_000_000_000);
        let theirs = timeline.at_rank(ours);
        assert_eq!(theirs.0, 77 + ((1e9 + 501.0) / 0.4f64).round() as u64);
        assert!(timeline.at_launcher(theirs).0.abs_diff(ours.0) <= 1);
        // Before the first stamp too.
        let earlier = Stamp(999_999_000_000);
        let back = timeline.at_launcher(timeline.at_rank(earlier));
        assert!(back.0.abs_diff(earlier.0) <= 1);
        assert_eq!(Timeline::of(&[]), None);
    }

    #[test]
    fn a_clock_that_is_asked_over_a_connection_is_where_it_is() {
        let (mut ours, theirs) = Stream::pair().unwrap();
        let clock = Clock::monotonic_raw();
        let sight = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut theirs = Stream::Local(theirs);
                while let Ok(Some(ToWorker::Ping)) = frame::read(&mut Hot::over(&mut theirs)) {
                    answer(&mut theirs, &clock, clock.now()).unwrap();
                }
            });
            let sight = Pinger::new(clock).look(&mut ours, |other| panic!("{other:?}"));
            ours.shutdown();
            sight
        });
        let Ok(Sight::Other(seen)) = sight else { panic!("{sight:?}") };
        let timeline = Timeline::of(&[seen]).unwrap();
        let now = clock.now();
        let off_ns = clock.ns_between(now, timeline.at_launcher(now)).abs();
        assert!(off_ns <= timeline.error_ns(), "{off_ns} beyond {timeline:?}");
        assert!(timeline.error_ns() < 1e9);
    }
}
