//! Whether a point can be measured at all: what the device cannot, and what makes no sense.

use std::fmt;

use rdmalab_rank::process::FRAME_BYTES_MAX;

use crate::common::limits::Limits;
use crate::common::thread_tag::NUMBERS;
use crate::connect::By;
use crate::options::OPTIONS;
use crate::point::{Experiment, Inline, Op, Point, Polling, Signal, Transport};
use crate::timeout::{self, Absent};

/// Most memory for messages at one end.
pub const MEMORY_MAX_BYTES: u64 = 8 << 30;
/// Most messages of a point that have samples each: an end keeps up to 27 bytes of each.
pub const SAMPLES_MAX: u64 = 1 << 25;
/// Bytes of a sample.
const SAMPLE_BYTES: u64 = 8;
/// Most bytes of all samples: what an end hands in at once, and room for the rest of it.
const RESULT_MAX_BYTES: u64 = FRAME_BYTES_MAX as u64 - (1 << 20);
/// Bytes of a message that carry its number.
pub const NUMBER_BYTES: u64 = 8;

/// A point that cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impossible {
    /// The option that is too much, or the second one of a pair that does not fit.
    pub option: &'static str,
    /// Its value.
    pub value: String,
    /// Why, the limit, and what to do.
    pub reason: String,
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{} {}: {}", self.option, self.value, self.reason)
    }
}

impl std::error::Error for Impossible {}

/// What a rule finds: the option, and why.
pub(crate) type Fault = (&'static str, String);

/// Whether a point can be measured on such a device.
///
/// # Errors
/// The first thing that cannot be: the option, the limit, and what to do.
pub fn check(point: &Point, limits: &Limits) -> Result<(), Impossible> {
    let rules = [
        ranges,
        ops,
        port,
        sizes,
        inline,
        depths,
        sharing,
        lists,
        signals,
        waits,
        stamps,
        times,
        manager,
        rates,
        crate::recvq::check,
        crate::fan::check,
    ];
    for rule in rules {
        if let Err((option, reason)) = rule(point, limits) {
            let value = OPTIONS.iter().find(|o| o.name == option).map(|o| o.get(point));
            return Err(Impossible { option, value: value.unwrap_or_default(), reason });
        }
    }
    Ok(())
}

pub(crate) fn must(
    holds: bool,
    option: &'static str,
    reason: impl FnOnce() -> String,
) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err((option, reason())) }
}

/// Each value is one that its option takes: a point may come from a file.
fn ranges(point: &Point, _: &Limits) -> Result<(), Fault> {
    for option in OPTIONS {
        let text = option.get(point);
        if text != "mixed" {
            let set = option.set(&mut point.clone(), &text);
            set.map_err(|error| (option.name, error.reason))?;
        }
    }
    let experiment = point.experiment;
    let samples = point.total();
    let samples = samples.saturating_mul(point.threads.into());
    let has_none = experiment == Experiment::Blast && point.rate_per_s == 0;
    must(has_none || samples <= SAMPLES_MAX, "messages", || {
        format!(
            "{samples} samples with all runs and threads, at most {SAMPLES_MAX} fit: take fewer"
        )
    })?;
    let bytes = result_bytes(point, samples);
    must(bytes <= RESULT_MAX_BYTES, "messages", || {
        format!(
            "{samples} samples with all runs and threads, in {} series, are {bytes} bytes; an end \
             hands in at most {RESULT_MAX_BYTES}: take fewer, or fewer of them",
            bytes / SAMPLE_BYTES / samples.max(1)
        )
    })?;
    // The number of a message is immediate data of 32 bits.
    must(samples < 1 << 32, "messages", || {
        format!("{samples} with all runs: at most {}; take fewer", u32::MAX)
    })
}

/// Bytes of so many samples in all series with one for each message: at a rate also from when it
/// was due, and with several threads of all together too.
fn result_bytes(point: &Point, samples: u64) -> u64 {
    let stamps = &point.stamps;
    let series = match point.experiment {
        Experiment::Oneway => {
            [stamps.recv, stamps.send, stamps.comp, stamps.post].map(u64::from).iter().sum()
        }
        Experiment::Blast => 0,
        Experiment::Overhead => 6,
        Experiment::Mr => 4,
        Experiment::Timeout => 2,
        _ => 1,
    };
    let paced = u64::from(point.rate_per_s > 0);
    let sets = if point.threads > 1 { 2 } else { 1 };
    samples.saturating_mul((series + paced) * sets * SAMPLE_BYTES)
}

fn ops(point: &Point, _: &Limits) -> Result<(), Fault> {
    let (op, transport) = (point.op, point.transport);
    must(point.experiment != Experiment::Rpc || transport == Transport::Rc, "transport", || {
        "a call is answered for certain: choose rc".to_owned()
    })?;
    let connects = point.experiment == Experiment::Connect;
    must(!(connects && transport == Transport::Ud), "transport", || {
        "datagrams need no connection: choose rc or uc".to_owned()
    })?;
    must(!(op.reads() && transport != Transport::Rc), "op", || {
        format!("READ exists on RC only: choose --transport rc instead of {transport}")
    })?;
    must(!(op.writes() && transport == Transport::Ud), "op", || {
        "UD has no WRITE: choose --op send or send_imm, or --transport rc or uc".to_owned()
    })?;
    match point.experiment {
        Experiment::Oneway => must(!op.reads(), "op", || {
            "a READ comes back, so it has no one-way time: choose another one, or `ping`".to_owned()
        }),
        Experiment::Blast => must(op != Op::WriteRead, "op", || {
            "it is a round trip: choose write or read, or `ping`".to_owned()
        }),
        Experiment::Overhead => must(op != Op::WriteRead, "op", || {
            "two calls: choose write or read, whose costs are to be had one by one".to_owned()
        }),
        Experiment::Ping
        | Experiment::Recvq
        | Experiment::Rpc
        | Experiment::Fan
        | Experiment::Mr
        | Experiment::Connect
        | Experiment::Timeout => Ok(()),
    }
}

fn port(point: &Point, limits: &Limits) -> Result<(), Fault> {
    must((1..=limits.ports).contains(&point.port), "port", || {
        format!("{} has ports 1 to {}", limits.device, limits.ports)
    })?;
    let index = point.gid_index.map_or(0, u32::from);
    must(point.gid_index.is_none() || index < limits.gids, "gid-index", || {
        format!(
            "the port has {} GIDs, from 0; `rdmalab devices` lists those that are set",
            limits.gids
        )
    })?;
    must(point.mtu_bytes <= limits.active_mtu_bytes, "mtu", || {
        format!("the port uses packets of at most {} bytes", limits.active_mtu_bytes)
    })
}

/// The payload of a packet that a point will use.
#[must_use]
pub fn mtu_bytes(point: &Point, limits: &Limits) -> u32 {
    if point.mtu_bytes == 0 { limits.active_mtu_bytes } else { point.mtu_bytes }
}

fn sizes(point: &Point, limits: &Limits) -> Result<(), Fault> {
    let size = point.size_bytes;
    let mtu = mtu_bytes(point, limits);
    must(point.transport != Transport::Ud || size <= u64::from(mtu), "size", || {
        format!("a datagram is one packet, of at most {mtu} bytes here: choose --transport rc")
    })?;
    must(size <= limits.max_msg_bytes, "size", || {
        format!("the port carries messages of at most {} bytes", limits.max_msg_bytes)
    })?;
    let numbered = point.experiment == Experiment::Oneway && !point.op.has_imm();
    must(!numbered || size >= NUMBER_BYTES, "size", || {
        format!(
            "at least {NUMBER_BYTES} bytes, which carry the number of the message: or choose --op \
             {}_imm",
            point.op
        )
    })?;
    let places = match point.experiment {
        Experiment::Blast => point.buffers.into(),
        Experiment::Overhead => point.list.into(),
        // Receive buffers, and a log of two at least.
        Experiment::Rpc => u64::from(point.rx_depth) + 3,
        _ => 1u64,
    };
    let memory = size.saturating_mul(places).saturating_mul(point.threads.into());
    let most = MEMORY_MAX_BYTES.min(limits.max_mr_bytes);
    let of = match point.experiment {
        Experiment::Overhead => "list",
        Experiment::Rpc => "rx-depth",
        _ => "buffers",
    };
    must(memory <= most, if places > 1 { of } else { "size" }, || {
        format!("{places} x {size} bytes of memory, at most {most}: take fewer or smaller ones")
    })
}

fn inline(point: &Point, limits: &Limits) -> Result<(), Fault> {
    let most = limits.max_inline_bytes;
    let size = point.size_bytes;
    match point.inline {
        Inline::Auto | Inline::Off => Ok(()),
        Inline::On => {
            must(point.op != Op::Read, "inline", || {
                "a READ brings data and takes none along: choose off".to_owned()
            })?;
            must(size <= most.into(), "inline", || {
                format!("{size} bytes; {} grants at most {most}: choose auto", limits.device)
            })
        }
        Inline::Bytes(bytes) => must(bytes <= most, "inline", || {
            format!("{} grants at most {most} bytes inline", limits.device)
        }),
    }
}

fn depths(point: &Point, limits: &Limits) -> Result<(), Fault> {
    let most = limits.max_qp_wr;
    for (option, depth) in [("tx-depth", point.tx_depth), ("rx-depth", point.rx_depth)] {
        must(depth <= most, option, || {
            format!("a queue of {} holds at most {most} requests", limits.device)
        })?;
        let together = u64::from(depth) * u64::from(point.qps);
        must(together <= limits.max_cqe.into(), option, || {
            format!(
                "{} queue pairs have {together} completions together; a completion queue of {} \
                 holds at most {}: choose fewer of either",
                point.qps, limits.device, limits.max_cqe
            )
        })?;
    }
    // A queue pair of each, and what the device needs itself.
    must(point.qps < limits.max_qp, "qps", || {
        format!("{} has at most {} queue pairs", limits.device, limits.max_qp)
    })?;
    let all = u64::from(point.qps) * u64::from(point.threads / point.sharers());
    must(all < limits.max_qp.into(), "threads", || {
        format!("{all} queue pairs of all threads; {} has {}", limits.device, limits.max_qp)
    })?;
    let reads = u32::from(point.outstanding_reads);
    let most = limits.max_rd_atomic;
    must(!point.op.reads() || reads <= most, "outstanding-reads", || {
        format!("a queue pair of {} has at most {most} READs under way", limits.device)
    })?;
    Ok(())
}

/// What one of several threads at a queue pair has to itself.
fn sharing(point: &Point, limits: &Limits) -> Result<(), Fault> {
    if !point.share_qp {
        return Ok(());
    }
    must(point.threads > 1, "share-qp", || {
        "one thread has nobody to share with: choose --threads 2 or more".to_owned()
    })?;
    must(!point.tags_payload() || point.size_bytes >= NUMBER_BYTES, "size", || {
        format!(
            "a receive of a shared queue pair takes whichever thread's message comes next, and \
             its payload has to say whose it is: choose {NUMBER_BYTES} or more, or --op send_imm"
        )
    })?;
    must(!point.op.has_imm() || point.total() < NUMBERS, "messages", || {
        format!(
            "{} with all runs: immediate data that says whose a message is has room for {NUMBERS} \
             of a thread; take fewer, or --op send",
            point.total()
        )
    })?;
    let own = point.of_a_thread();
    // A WRITE, a READ, and a WRITE that frees the slot of an earlier one.
    let least = if point.experiment == Experiment::Ping { 3 } else { 1 };
    must(own.tx_depth >= least, "tx-depth", || {
        format!(
            "{} threads share it, and each needs {least}: choose {} or more",
            point.threads,
            least * point.threads
        )
    })?;
    must(own.rx_depth >= 1, "rx-depth", || {
        format!("{0} threads share it, and each needs one: choose {0} or more", point.threads)
    })?;
    // Their limits hold for a thread's share too.
    lists(&own, limits)
        .and_then(|()| signals(&own, limits))
        .map_err(|(option, why)| (option, format!("of each thread's share: {why}")))
}

/// Requests in one post.
fn lists(point: &Point, _: &Limits) -> Result<(), Fault> {
    if point.experiment == Experiment::Overhead {
        return list_of_calls(point);
    }
    if point.experiment != Experiment::Blast {
        return Ok(());
    }
    let (buffers, list, qps) = (point.buffers, point.list, point.qps);
    must(list <= buffers, "list", || {
        format!("requests in one post, of only {buffers} buffers: choose --buffers {list} or more")
    })?;
    must(qps <= buffers, "qps", || {
        format!("queue pairs for only {buffers} buffers: choose --buffers {qps} or more")
    })?;
    must(list <= point.tx_depth, "list", || {
        format!("a send queue holds {}: choose a larger --tx-depth", point.tx_depth)
    })?;
    must(!point.op.needs_receives() || list <= point.rx_depth, "list", || {
        format!("a receive queue holds {}: choose a larger --rx-depth", point.rx_depth)
    })?;
    must(u64::from(buffers) <= u64::from(point.tx_depth) * u64::from(qps), "buffers", || {
        format!(
            "{qps} send queues of {} requests hold fewer: choose a larger --tx-depth",
            point.tx_depth
        )
    })
}

/// Of lists of a fixed length, with the next one posted when all of it is through.
fn list_of_calls(point: &Point) -> Result<(), Fault> {
    let (list, tx, rx) = (point.list, point.tx_depth, point.rx_depth);
    must(list > 0, "list", || "the cost of a call needs a length: choose a number".to_owned())?;
    must(list <= tx, "list", || format!("a send queue holds {tx}: choose a larger --tx-depth"))?;
    must(list <= rx, "list", || format!("a receive queue holds {rx}: choose a larger --rx-depth"))?;
    // Of the other half the receiver may not have told yet.
    must(!point.op.needs_receives() || list == 1 || list <= rx / 2, "list", || {
        format!("more than half of the receive queue of {rx}: choose --rx-depth {}", 2 * list)
    })
}

/// How long a request to nobody may take.
fn times(point: &Point, limits: &Limits) -> Result<(), Fault> {
    if point.experiment != Experiment::Timeout {
        return Ok(());
    }
    must(point.timeout > 0, "timeout", || "0 waits for ever: choose 1 to 31".to_owned())?;
    let by_gid = limits.needs_gid || point.gid_index.is_some();
    must(point.absent != Absent::Lid || !by_gid, "absent", || {
        "the ports have no LIDs, or are not addressed by them, and an IP address that nobody has \
         is refused before anything is sent: choose queue_pair"
            .to_owned()
    })?;
    let attempts = u64::from(point.retry_cnt) + 1;
    let least_ns = timeout::least_ns(point);
    must(least_ns <= timeout::limit_ns(point), "timeout", || {
        format!(
            "a sample takes {attempts} x {:.1} s or more: choose fewer --retry-cnt, or a --limit \
             above {:.0}s",
            least_ns as f64 / attempts as f64 / 1e9,
            (least_ns as f64 / 1e9).ceil()
        )
    })
}

/// Open loop.
fn rates(point: &Point, _: &Limits) -> Result<(), Fault> {
    if point.rate_per_s == 0 {
        return Ok(());
    }
    must(point.burst == 0, "burst", || {
        "at a --rate each message has a time of its own: choose 0".to_owned()
    })?;
    let lists = point.experiment == Experiment::Blast && point.list != 1;
    must(!lists, "list", || {
        "at a --rate each message is posted when it is due: choose 1".to_owned()
    })
}

/// What makes connections.
fn manager(point: &Point, _: &Limits) -> Result<(), Fault> {
    let is_used = point.experiment == Experiment::Connect && point.by == By::RdmaCm;
    must(!is_used || point.transport == Transport::Rc, "by", || {
        "it makes reliable connections: choose --transport rc, or --by plain".to_owned()
    })
}

fn signals(point: &Point, _: &Limits) -> Result<(), Fault> {
    let Signal::Every(every) = point.signal_every else { return Ok(()) };
    must(every <= point.tx_depth, "signal-every", || {
        format!(
            "the send queue of {} requests is full before the first completion: choose max, or a \
             larger --tx-depth",
            point.tx_depth
        )
    })?;
    let share = (point.buffers / point.qps).max(1);
    must(point.experiment != Experiment::Blast || every <= share, "signal-every", || {
        format!(
            "all {share} buffers of a queue pair are under way before the first completion: choose \
             {share} or less, or max"
        )
    })
}

fn waits(point: &Point, _: &Limits) -> Result<(), Fault> {
    let looks = point.op == Op::Write && point.experiment != Experiment::Blast;
    must(!looks || point.poll_recv == Polling::Busy, "poll-recv", || {
        "a WRITE raises no event at its target, which has to look at its memory: choose --op \
         write_imm, or --poll-recv busy"
            .to_owned()
    })
}

fn stamps(point: &Point, _: &Limits) -> Result<(), Fault> {
    if point.experiment != Experiment::Oneway {
        return Ok(());
    }
    let s = point.stamps;
    must(!s.send || point.threads == 1, "stamps", || {
        "send needs a thread that writes the time, beside one that sends: choose --threads 1"
            .to_owned()
    })?;
    must(s.recv || s.comp || s.post, "stamps", || {
        "nothing is left to measure: add recv, comp or post".to_owned()
    })?;
    must(!s.send || s.recv, "stamps", || {
        "the time from the copy on ends with the arrival: add recv".to_owned()
    })?;
    must(!s.send || point.op.has_imm(), "stamps", || {
        format!(
            "send fills the message with the time, so that its number has to be immediate data: \
             choose --op {}_imm",
            if point.op == Op::Write { "write" } else { "send" }
        )
    })?;
    must(!s.send || point.size_bytes >= NUMBER_BYTES, "stamps", || {
        format!("send needs room for a stamp: choose --size {NUMBER_BYTES} or more")
    })
}

#[cfg(test)]
mod tests;
