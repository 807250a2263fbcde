//! One end of a measurement: a process that does what it is told on its standard input.

mod end;
mod flood;
mod patience;
mod trips;

use std::io::{BufRead, Write};

use rdmalab_measure::Clock;
use rdmalab_measure::limits::{Pin, pin_to};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::protocol::{Found, Order, Reply, Work};
use end::{Device, End};
use patience::Patience;

/// What stops a work: a sentence with the likely causes.
type Stopped = String;

/// Obeys until the input ends.
pub fn run() -> Outcome {
    // A worker may spin when its command is killed; then it has to go too.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let stop = Interrupt::catch_term();
    let mut worker = Worker { clock: Clock::new(), stop, device: None, end: None };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let order: Order = serde_json::from_str(&line)
            .map_err(|e| failed(format!("a worker is started by rdmalab itself: {e}")))?;
        let reply = match worker.obey(&order) {
            Ok(reply) => reply,
            Err(reason) => Reply::Failed(reason),
        };
        say(&reply)?;
    }
    Ok(())
}

fn say(reply: &Reply) -> Outcome {
    let line = serde_json::to_string(reply).map_err(failed)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(failed)
}

fn done(found: Found) -> Reply {
    Reply::Done(Box::new(found))
}

struct Worker {
    clock: Clock,
    stop: Interrupt,
    device: Option<Opened>,
    end: Option<End>,
}

struct Opened {
    device: Device,
    core: Option<usize>,
    yielding: bool,
}

impl Worker {
    fn obey(&mut self, order: &Order) -> Result<Reply, Stopped> {
        match order {
            Order::Open { device, core, yielding } => {
                let device = Device::open(device)?;
                let (mtu, gids) = (device.mtu_bytes(), device.gids());
                let reply = Reply::Opened { kind: device.kind(), mtu, gids };
                self.device = Some(Opened { device, core: *core, yielding: *yielding });
                Ok(reply)
            }
            Order::Make(make) => {
                // The old queue pair goes first, so that its receives do not count twice.
                self.end = None;
                let end = End::make(&self.opened()?.device, make)?;
                let reply = end.describe();
                self.end = Some(end);
                reply
            }
            Order::Connect { endpoint, memory } => {
                let end = self.end.as_mut().ok_or("nothing to connect")?;
                end.connect(endpoint, memory)?;
                Ok(Reply::Connected)
            }
            Order::Answer(work) => self.work(work, true).map(done),
            Order::Begin(work) => self.work(work, false).map(done),
        }
    }

    fn opened(&self) -> Result<&Opened, Stopped> {
        self.device.as_ref().ok_or_else(|| "no device is open".to_owned())
    }

    /// Pinned only while it works: threads that the device starts in between stay free.
    fn work(&self, work: &Work, answers: bool) -> Result<Found, Stopped> {
        let opened = self.opened()?;
        let end = self.end.as_ref().ok_or("nothing is connected")?;
        let _pin: Option<Pin> = match opened.core {
            Some(core) => {
                Some(pin_to(core).map_err(|e| format!("cannot run on core {core}: {e}"))?)
            }
            None => None,
        };
        let patience = Patience::new(opened.yielding);
        let arm = || say(&Reply::Armed).map_err(|e| e.to_string());
        match (work, answers) {
            (Work::Stamped { bytes, warm_up, trips }, true) => {
                trips::answer_stamped(end, &self.clock, patience, *bytes, warm_up + trips, arm)
            }
            (Work::Stamped { bytes, warm_up, trips }, false) => {
                let stop = || self.stop.is_set();
                trips::stamped(end, &self.clock, patience, *bytes, [*warm_up, *trips], stop)
            }
            (Work::Batches { op, bytes, batches, trips }, true) => {
                let count = trips::BATCH_WARM_UP + batches * trips;
                trips::answer(end, patience, *op, *bytes, count, arm)
            }
            (Work::Batches { op, bytes, batches, trips }, false) => {
                trips::batches(end, &self.clock, patience, *op, *bytes, [*batches, *trips])
            }
            (Work::Flood { op, bytes, messages, list }, true) => {
                flood::receive(end, &self.clock, patience, *op, *bytes, [*messages, *list], arm)
            }
            (Work::Flood { op, bytes, messages, list }, false) => {
                flood::send(end, &self.clock, patience, *op, *bytes, [*messages, *list])
            }
            (Work::Watched { .. }, true) => flood::watch(end, patience, arm),
            (Work::Watched { bytes, messages }, false) => {
                flood::send_watched(end, &self.clock, patience, *bytes, *messages)
            }
        }
    }
}
