//! Checks whether a point can be measured: whether the device supports its options, and whether the
//! options make sense together. The rules of a single experiment are in that experiment's folder.

use rdmalab_rank::process::FRAME_BYTES_MAX;

use crate::common::limits::{Limits, SIMULATED};
use crate::common::model::Link;
use crate::common::params::{Common, Inline, Signal, Transport};
use crate::common::rules::{
    ATOMIC_BYTES, Fault, MEMORY_MAX_BYTES, NUMBER_BYTES, SAMPLES_MAX, must, share_of_send_queue,
};
use crate::common::thread_tag::NUMBERS;
use crate::experiment::Erased;
use crate::point::{Impossible, Point};

/// Bytes of a sample.
const SAMPLE_BYTES: u64 = 8;
/// The message number travels in the 32-bit immediate data.
const NUMBERED_MAX: u64 = 1 << 32;
/// Most bytes of all samples together: one control frame, less room for the rest of the result.
const RESULT_MAX_BYTES: u64 = FRAME_BYTES_MAX as u64 - (1 << 20);

/// Whether a point can be measured on such a device.
///
/// # Errors
/// The first option that cannot be measured, with the limit that it breaks and what to do.
pub fn check(point: &Point, limits: &Limits) -> Result<(), Impossible> {
    let limits = limits.of_model(&point.common.model);
    ranges(point).and_then(|()| fits(point, &limits)).map_err(|fault| point.impossible(fault))
}

/// The most messages of a run that a point can have, where `--duration` decides how many it has.
pub(crate) fn most_messages(point: &Point) -> u64 {
    let common = &point.common;
    let threads = u64::from(common.threads);
    let of_samples = match all_series(point) {
        0 => u64::MAX,
        series => SAMPLES_MAX.min(RESULT_MAX_BYTES / (series * SAMPLE_BYTES)),
    };
    let numbers = if common.share_qp { NUMBERS - 1 } else { u64::MAX };
    let total = (of_samples.min(NUMBERED_MAX - 1) / threads).min(numbers);
    (total.saturating_sub(common.warm_up) / common.runs).max(1)
}

/// The series with a sample of each message: with several threads, each exists per thread and once
/// for all threads together. With `--rate`, one more counts from when each message was due.
fn all_series(point: &Point) -> u64 {
    let common = &point.common;
    let series = point.own.erased().series(common) + u64::from(common.rate_per_s > 0);
    if common.threads > 1 { 2 * series } else { series }
}

fn fits(point: &Point, limits: &Limits) -> Result<(), Fault> {
    let (common, own) = (&point.common, point.own.erased());
    own.check(common, limits)?;
    let not_simulated =
        || format!("{} is not simulated: choose --device sim:ideal or another one", limits.device);
    let is_simulated = limits.kind == SIMULATED;
    must(common.model.is_of_profile() || is_simulated, "sim", not_simulated)?;
    must(common.model.link == Link::Profile || is_simulated, "link", not_simulated)?;
    ops(common, limits)?;
    port(common, limits)?;
    sizes(common, own, limits)?;
    gathered(common, limits)?;
    inline(common, limits)?;
    depths(common, limits)?;
    sharing(common, own)?;
    own.check_queues(common)?;
    signals(common)
}

/// Checks that each option accepts its value: a point may come from a file.
fn ranges(point: &Point) -> Result<(), Fault> {
    for option in point.experiment().options() {
        let text = option.get(point);
        if option.name != "poll" || text != "mixed" {
            let set = option.set(&mut point.clone(), &text);
            set.map_err(|error| (option.name, error.reason))?;
        }
    }
    let common = &point.common;
    // How many fit a time is bounded later: one of a run always.
    let messages = if common.duration_ns > 0 { 1 } else { common.messages };
    let total = Common { messages, ..common.clone() }.total();
    let samples = total.saturating_mul(common.threads.into());
    let series = all_series(point);
    must(series == 0 || samples <= SAMPLES_MAX, "messages", || {
        format!(
            "all runs and threads together take {samples} samples; the limit is {SAMPLES_MAX}: \
             choose fewer"
        )
    })?;
    let bytes = samples.saturating_mul(series * SAMPLE_BYTES);
    must(bytes <= RESULT_MAX_BYTES, "messages", || {
        format!(
            "{samples} samples with all runs and threads, in {series} series, are {bytes} bytes; \
             one rank can return at most {RESULT_MAX_BYTES} bytes of samples: choose fewer \
             --messages, --runs or --threads"
        )
    })?;
    must(samples < NUMBERED_MAX, "messages", || {
        format!("{samples} messages with all runs; the limit is {}: choose fewer", u32::MAX)
    })
}

fn ops(common: &Common, limits: &Limits) -> Result<(), Fault> {
    let (op, transport) = (common.op, common.transport);
    must(!(op.reads() && transport != Transport::Rc), "op", || {
        let what = if op.is_atomic() { "an atomic" } else { "READ" };
        format!("{what} exists on RC only: choose --transport rc instead of {transport}")
    })?;
    must(!op.is_atomic() || limits.has_atomics, "op", || {
        format!("{} has no atomics: choose read or write, or another device", limits.device)
    })?;
    must(!op.is_atomic() || common.size_bytes == ATOMIC_BYTES, "size", || {
        format!("an atomic is of {ATOMIC_BYTES} bytes: choose --size {ATOMIC_BYTES}")
    })?;
    must(!(op.writes() && transport == Transport::Ud), "op", || {
        "UD has no WRITE: choose --op send or send_imm, or --transport rc or uc".to_owned()
    })
}

fn port(common: &Common, limits: &Limits) -> Result<(), Fault> {
    must((1..=limits.ports).contains(&common.port), "port", || {
        format!("{} has the ports 1 to {}: choose one of them", limits.device, limits.ports)
    })?;
    let index = common.gid_index.map_or(0, u32::from);
    must(common.gid_index.is_none() || index < limits.gids, "gid-index", || {
        format!(
            "the port has {} GIDs, from 0; `rdmalab devices` lists those that are set",
            limits.gids
        )
    })?;
    must(common.mtu_bytes <= limits.active_mtu_bytes, "mtu", || {
        format!("the port's MTU is {} bytes: choose that or less", limits.active_mtu_bytes)
    })
}

fn sizes(common: &Common, own: &dyn Erased, limits: &Limits) -> Result<(), Fault> {
    let size = common.size_bytes;
    let mtu = common.packet_bytes(limits);
    must(common.transport != Transport::Ud || size <= u64::from(mtu), "size", || {
        format!("a datagram is one packet, of at most {mtu} bytes here: choose --transport rc")
    })?;
    must(size <= limits.max_msg_bytes, "size", || {
        format!(
            "the port carries messages of at most {} bytes: choose a smaller size",
            limits.max_msg_bytes
        )
    })?;
    let places = own.memory(common);
    let bytes = size.saturating_mul(places.count).saturating_mul(common.threads.into());
    let most = MEMORY_MAX_BYTES.min(limits.max_mr_bytes);
    must(bytes <= most, if places.count > 1 { places.option } else { "size" }, || {
        format!(
            "{} buffers of {size} bytes are needed, but memory is limited to {most} bytes: choose \
             fewer or smaller ones",
            places.count
        )
    })
}

fn gathered(common: &Common, limits: &Limits) -> Result<(), Fault> {
    let (pieces, size) = (common.sge, common.size_bytes);
    must(pieces <= limits.max_sge, "sge", || {
        format!(
            "a request of {} has at most {1} pieces: choose {1} or less",
            limits.device, limits.max_sge
        )
    })?;
    must(u64::from(pieces) <= size, "sge", || {
        format!("a message of {size} bytes has at most {size} pieces: choose {size} or less")
    })?;
    must(pieces == 1 || !common.op.is_atomic(), "sge", || {
        "the result of an atomic is one piece: choose 1".to_owned()
    })
}

fn inline(common: &Common, limits: &Limits) -> Result<(), Fault> {
    let most = limits.max_inline_bytes;
    let size = common.size_bytes;
    match common.inline {
        Inline::Auto | Inline::Off => Ok(()),
        Inline::On => {
            must(common.op.has_payload(), "inline", || {
                "READs and atomics cannot be inline: choose --inline off".to_owned()
            })?;
            must(size <= most.into(), "inline", || {
                format!(
                    "{} grants at most {most} bytes inline, and the size is {size}: choose \
                     --inline auto",
                    limits.device
                )
            })
        }
        Inline::Bytes(bytes) => must(bytes <= most, "inline", || {
            format!(
                "{} grants at most {most} bytes inline: choose {most} or less, or auto",
                limits.device
            )
        }),
    }
}

fn depths(common: &Common, limits: &Limits) -> Result<(), Fault> {
    let most = limits.max_qp_wr;
    for (option, depth) in [("tx-depth", common.tx_depth), ("rx-depth", common.rx_depth)] {
        must(depth <= most, option, || {
            format!(
                "a queue of {} holds at most {most} requests: choose {most} or less",
                limits.device
            )
        })?;
        let together = u64::from(depth) * u64::from(common.qps);
        must(together <= limits.max_cqe.into(), option, || {
            format!(
                "{} queue pairs have {together} completions together; a completion queue of {} \
                 holds at most {}: reduce --qps or the queue depths",
                common.qps, limits.device, limits.max_cqe
            )
        })?;
    }
    // One queue pair each; the device needs some itself.
    must(common.qps < limits.max_qp, "qps", || {
        format!(
            "{} has at most {} queue pairs, and needs some itself: choose fewer",
            limits.device, limits.max_qp
        )
    })?;
    let all = u64::from(common.qps) * u64::from(common.threads / common.sharers());
    must(all < limits.max_qp.into(), "threads", || {
        format!(
            "all threads together have {all} queue pairs, but {} has at most {}: choose fewer \
             --threads or --qps",
            limits.device, limits.max_qp
        )
    })?;
    let reads = u32::from(common.outstanding_reads);
    let most = limits.max_rd_atomic;
    must(!common.op.reads() || reads <= most, "outstanding-reads", || {
        format!(
            "a queue pair of {} has at most {most} outstanding READs and atomics: choose {most} \
             or less",
            limits.device
        )
    })?;
    Ok(())
}

/// Checks the share that each of several threads has of a shared queue pair.
fn sharing(common: &Common, own: &dyn Erased) -> Result<(), Fault> {
    if !common.share_qp {
        return Ok(());
    }
    must(common.threads > 1, "share-qp", || {
        "it needs at least two threads: choose --threads 2 or more".to_owned()
    })?;
    must(!common.tags_payload() || common.size_bytes >= NUMBER_BYTES, "size", || {
        format!(
            "with --share-qp the payload carries the number of its thread, in {NUMBER_BYTES} \
             bytes: choose {NUMBER_BYTES} or more, or --op send_imm"
        )
    })?;
    must(!common.op.has_imm() || common.total() < NUMBERS, "messages", || {
        format!(
            "{} messages with all runs; immediate data that also carries the number of the thread \
             can count {NUMBERS}: choose fewer, or --op send",
            common.total()
        )
    })?;
    share_of_send_queue(common, 1)?;
    let share = common.of_a_thread();
    must(share.rx_depth >= 1, "rx-depth", || {
        format!(
            "{0} threads share the receive queue, and each needs one receive: choose {0} or more",
            common.threads
        )
    })?;
    // The limits of whole queues apply to a thread's share, too.
    own.check_queues(&share)
        .and_then(|()| signals(&share))
        .map_err(|(option, why)| (option, format!("in the share of each thread: {why}")))
}

fn signals(common: &Common) -> Result<(), Fault> {
    let Signal::Every(every) = common.signal_every else { return Ok(()) };
    must(every <= common.tx_depth, "signal-every", || {
        format!(
            "the send queue of {} requests is full before the first completion: choose max, or a \
             larger --tx-depth",
            common.tx_depth
        )
    })
}

#[cfg(test)]
mod tests;
