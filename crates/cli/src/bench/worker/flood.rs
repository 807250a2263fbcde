//! Messages one way, as fast as they go.

use std::time::{Duration, Instant};

use rdmalab_measure::{Clock, Stamp, stats};
use rdmalab_verbs::Wc;

use super::end::{CREDIT_BYTES, End};
use super::patience::{Patience, Stopped};
use crate::bench::work::{Found, Op};

/// Receives taken, and posted again, at a time.
const TAKE: usize = 32;
/// Nothing came for so long, although the connection says that it is well: a message was lost, or
/// the other end is. Longer than a queue pair's retries, so that their status is what is reported.
const LOST_AFTER: Duration = Duration::from_secs(8);
/// Messages of a batch, of which the median counts; fewer where they are long.
const BATCH: u64 = 1024;
/// See above: bytes of a batch.
const BATCH_BYTES: u64 = 4 << 20;
/// Empty looks between two looks at the time.
const LOOKS: u32 = 1 << 14;

/// Sends `[messages, list]`: so many, a list with each post. Of SENDs no more are under way than
/// the other end has receives for; its credit says so.
pub fn send(
    end: &End,
    clock: &Clock,
    patience: Patience,
    op: Op,
    bytes: usize,
    [messages, list]: [u64; 2],
) -> Result<Found, Stopped> {
    end.top_up()?;
    let mut sender = end.sender(op, bytes, list.min(TAKE as u64) as usize)?;
    let list = sender.list();
    let mut receives = end.receives(1);
    let window = u64::from(end.recv_depth());
    let posts = messages.div_ceil(list);
    let mut settled = 0;
    let mut batches = Batches::new(clock, bytes);
    for i in 0..posts {
        if op == Op::Send {
            while (i + 1) * list > settled + window {
                settled = next_credit(end, patience, &mut receives, settled)?;
            }
        }
        if i + 1 == posts {
            sender.post_signaled(patience)?
        } else {
            sender.post(patience)?
        }
        batches.count(list);
    }
    sender.finish(patience)?;
    if op == Op::Write {
        return Ok(Found { message_ns: batches.median_ns(), ..Found::default() });
    }
    let sent = posts * list;
    while settled < sent {
        settled = next_credit(end, patience, &mut receives, settled)?;
    }
    // The last credit is the last message. One that stays would hold a receive for good.
    match end.take(&mut [Wc::default()])? {
        0 => Ok(Found::default()),
        _ => Err("a credit came after the last one".to_owned()),
    }
}

/// Takes the next credit: how many messages the receiver has taken or given up, of which `settled`
/// were known before.
///
/// The number comes as immediate data, with the completion itself. In memory a later credit would
/// overwrite it: the sender would know more than it has taken messages, end without the last of
/// them, and have a receive less for good. After some thousands of those the receiver of credits is
/// not ready for any, and with `rnr_retry` 7 that lasts for ever.
fn next_credit(
    end: &End,
    patience: Patience,
    receives: &mut rdmalab_verbs::RecvBatch<'_>,
    settled: u64,
) -> Result<u64, Stopped> {
    let wc = end.receive(patience)?;
    end.post_receives(receives)?;
    let told = wc.imm().ok_or("a credit came without its number")?;
    Ok(settled + u64::from(told.wrapping_sub(settled as u32)))
}

/// The other end: takes `messages`, and counts. Of WRITEs nobody has to be told.
pub fn receive(
    end: &End,
    clock: &Clock,
    patience: Patience,
    op: Op,
    bytes: usize,
    [messages, list]: [u64; 2],
    arm: impl FnOnce() -> Result<(), Stopped>,
) -> Result<Found, Stopped> {
    end.top_up()?;
    let mut sender = end.credits()?;
    let mut receives = end.receives(TAKE);
    let every = u64::from(end.recv_depth() / 4).max(TAKE as u64);
    arm()?;
    if op == Op::Write {
        return Ok(Found::default());
    }
    // Whole lists are sent.
    let list = end.sender(op, bytes, list.min(TAKE as u64) as usize)?.list();
    let messages = messages.next_multiple_of(list);
    let mut wcs = [Wc::default(); TAKE];
    let (mut taken, mut told, mut unposted, mut lost) = (0, 0, 0, 0);
    let mut batches = Batches::new(clock, bytes);
    let mut idle = Idle::default();
    while taken + lost < messages {
        let count = end.take(&mut wcs)?;
        if count == 0 {
            if idle.for_long(patience) {
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
        if taken - told >= every && taken < messages {
            sender.set_imm(taken as u32);
            sender.post(patience)?;
            told = taken;
        }
    }
    sender.set_imm((taken + lost) as u32);
    sender.post_signaled(patience)?;
    sender.finish(patience)?;
    if lost > 0 {
        return Err(format!("{lost} of {messages} messages did not arrive"));
    }
    Ok(Found { message_ns: batches.median_ns(), ..Found::default() })
}

/// Sends WRITEs, and tells the other end when all are done.
pub fn send_watched(
    end: &End,
    clock: &Clock,
    patience: Patience,
    bytes: usize,
    messages: u64,
) -> Result<Found, Stopped> {
    let found = send(end, clock, patience, Op::Write, bytes, [messages, 1])?;
    let mut sender = end.sender(Op::Send, CREDIT_BYTES, 1)?;
    sender.post_signaled(patience)?;
    sender.finish(patience)?;
    Ok(found)
}

/// The other end: polls until it is told that all is done.
pub fn watch(
    end: &End,
    patience: Patience,
    arm: impl FnOnce() -> Result<(), Stopped>,
) -> Result<Found, Stopped> {
    end.top_up()?;
    arm()?;
    end.receive(patience)?;
    end.post_receives(&mut end.receives(1))?;
    Ok(Found::default())
}

/// Times of batches of messages. A window of them is under way all the time, so that what is
/// counted at one end is what goes through.
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

/// Whether nothing has come for long; the time is looked at seldom.
#[derive(Default)]
struct Idle {
    looks: u32,
    since: Option<Instant>,
}

impl Idle {
    fn for_long(&mut self, patience: Patience) -> bool {
        self.looks += 1;
        patience.rest();
        if !self.looks.is_multiple_of(LOOKS) {
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= LOST_AFTER
    }
}
