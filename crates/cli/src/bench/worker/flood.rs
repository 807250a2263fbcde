//! Messages in one direction, as fast as possible.

use std::time::{Duration, Instant};

use rdmalab_measure::{Clock, Stamp, stats};
use rdmalab_verbs::Wc;

use super::endpoint::{CREDIT_BYTES, Endpoint};
use super::spin::{Spin, Stopped};
use crate::bench::task::{Op, Timings};

/// Number of receives that are polled and posted again together.
const TAKE: usize = 32;
/// If no message arrives for this long and the queue pair reports no error, messages are lost. It
/// is longer than the retries of a queue pair, so that their status is reported first.
const LOST_AFTER: Duration = Duration::from_secs(8);
/// Messages of a batch; the median of batches is the result. Batches of long messages have fewer.
const BATCH: u64 = 1024;
/// Most bytes of a batch.
const BATCH_BYTES: u64 = 4 << 20;
/// Number of empty polls between two readings of the clock.
const LOOKS: u32 = 1 << 14;

/// Sends `[messages, list]`: the number of messages, and the number of requests per post. SENDs
/// wait for credits, so that there are never more in flight than the other end has receives.
pub fn send(
    end: &Endpoint,
    clock: &Clock,
    spin: Spin,
    op: Op,
    bytes: usize,
    [messages, list]: [u64; 2],
) -> Result<Timings, Stopped> {
    end.fill_receive_queue()?;
    let mut sender = end.sender(op, bytes, list.min(TAKE as u64) as usize)?;
    let list = sender.list();
    let mut receives = end.receives(1);
    let window = u64::from(end.recv_depth());
    let posts = messages.div_ceil(list);
    let mut consumed = 0;
    let mut batches = Batches::new(clock, bytes);
    for i in 0..posts {
        if op == Op::Send {
            while (i + 1) * list > consumed + window {
                consumed = next_credit(end, spin, &mut receives, consumed)?;
            }
        }
        sender.post(spin, i + 1 == posts)?;
        batches.count(list);
    }
    sender.finish(spin)?;
    if op == Op::Write {
        return Ok(Timings { message_ns: batches.median_ns(), ..Timings::default() });
    }
    let sent = posts * list;
    while consumed < sent {
        consumed = next_credit(end, spin, &mut receives, consumed)?;
    }
    // The last credit belongs to the last message. Unpolled, it would keep its receive in use.
    match end.poll(&mut [Wc::default()])? {
        0 => Ok(Timings::default()),
        _ => Err("a credit came after the last one".to_owned()),
    }
}

/// Receives the next credit: the number of messages that the receiver has consumed or given up.
/// `consumed` is the number in the last credit.
///
/// The number is the immediate data in the completion itself. In memory, a later credit could
/// overwrite it before it is read: the sender would end before it has polled all credits, and lose
/// a receive each time. After some thousands of runs it would have no receives left, and with
/// `rnr_retry` 7 the other end would retry for ever.
fn next_credit(
    end: &Endpoint,
    spin: Spin,
    receives: &mut rdmalab_verbs::RecvBatch<'_>,
    consumed: u64,
) -> Result<u64, Stopped> {
    let wc = end.receive(spin)?;
    end.post_receives(receives)?;
    let credited = wc.imm().ok_or("a credit came without its number")?;
    Ok(consumed + u64::from(credited.wrapping_sub(consumed as u32)))
}

/// The other end: receives and counts `messages`. WRITEs need no credits.
pub fn receive(
    end: &Endpoint,
    clock: &Clock,
    spin: Spin,
    op: Op,
    bytes: usize,
    [messages, list]: [u64; 2],
    arm: impl FnOnce() -> Result<(), Stopped>,
) -> Result<Timings, Stopped> {
    end.fill_receive_queue()?;
    let mut sender = end.credits()?;
    let mut receives = end.receives(TAKE);
    let every = u64::from(end.recv_depth() / 4).max(TAKE as u64);
    arm()?;
    if op == Op::Write {
        return Ok(Timings::default());
    }
    // The sender sends whole lists.
    let list = end.sender(op, bytes, list.min(TAKE as u64) as usize)?.list();
    let messages = messages.next_multiple_of(list);
    let mut wcs = [Wc::default(); TAKE];
    let (mut taken, mut credited, mut unposted, mut lost) = (0, 0, 0, 0);
    let mut batches = Batches::new(clock, bytes);
    let mut idle = Idle::default();
    while taken + lost < messages {
        let count = end.poll(&mut wcs)?;
        if count == 0 {
            if idle.for_long(spin) {
                end.check()?;
                lost = messages - taken;
            }
            continue;
        }
        idle = Idle::default();
        if taken == 0 {
            batches = Batches::new(clock, bytes);
        }
        taken += count as u64;
        batches.count(count as u64);
        unposted += count;
        if unposted >= TAKE {
            end.post_receives(&mut receives)?;
            unposted -= TAKE;
        }
        if taken - credited >= every && taken < messages {
            sender.set_imm(taken as u32);
            sender.post(spin, false)?;
            credited = taken;
        }
    }
    sender.set_imm((taken + lost) as u32);
    sender.post(spin, true)?;
    sender.finish(spin)?;
    if lost > 0 {
        return Err(format!("{lost} of {messages} messages did not arrive"));
    }
    Ok(Timings { message_ns: batches.median_ns(), ..Timings::default() })
}

/// Sends WRITEs, and a SEND after the last one.
pub fn send_to_poller(
    end: &Endpoint,
    clock: &Clock,
    spin: Spin,
    bytes: usize,
    messages: u64,
) -> Result<Timings, Stopped> {
    let found = send(end, clock, spin, Op::Write, bytes, [messages, 1])?;
    let mut sender = end.sender(Op::Send, CREDIT_BYTES, 1)?;
    sender.post(spin, true)?;
    sender.finish(spin)?;
    Ok(found)
}

/// The other end: polls until the SEND arrives.
pub fn poll_until_done(
    end: &Endpoint,
    spin: Spin,
    arm: impl FnOnce() -> Result<(), Stopped>,
) -> Result<Timings, Stopped> {
    end.fill_receive_queue()?;
    arm()?;
    end.receive(spin)?;
    end.post_receives(&mut end.receives(1))?;
    Ok(Timings::default())
}

/// Times of batches of messages. A window of messages is always in flight, so the rate at one end
/// is the throughput.
struct Batches<'a> {
    clock: &'a Clock,
    size: u64,
    counted: u64,
    since: Stamp,
    ns_per_message: Vec<f64>,
}

impl<'a> Batches<'a> {
    fn new(clock: &'a Clock, bytes: usize) -> Self {
        let size = (BATCH_BYTES / bytes as u64).clamp(1, BATCH);
        Self { clock, size, counted: 0, since: clock.now(), ns_per_message: Vec::new() }
    }

    #[inline]
    fn count(&mut self, messages: u64) {
        self.counted += messages;
        if self.counted >= self.size {
            let now = self.clock.now();
            let ns = self.clock.ns_between(self.since, now);
            self.ns_per_message.push(ns / self.counted as f64);
            (self.since, self.counted) = (now, 0);
        }
    }

    fn median_ns(mut self) -> Option<f64> {
        stats::sort(&mut self.ns_per_message);
        (!self.ns_per_message.is_empty()).then(|| stats::median(&self.ns_per_message))
    }
}

/// Detects that no message has arrived for long. It reads the clock seldom.
#[derive(Default)]
struct Idle {
    looks: u32,
    since: Option<Instant>,
}

impl Idle {
    fn for_long(&mut self, spin: Spin) -> bool {
        self.looks += 1;
        spin.pause();
        if !self.looks.is_multiple_of(LOOKS) {
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= LOST_AFTER
    }
}
