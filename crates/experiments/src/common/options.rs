//! The options that several experiments have. An experiment names those that it uses.

use crate::common::model::{Link, Model};
use crate::common::number;
use crate::common::option::{
    COUNT_MAX, Field, Opt, count_or, number_field, within, word_field, yes_no_field,
};
use crate::common::params::{
    Arrivals, Common, Flow, Inline, Memory, Op, PauseBy, Polling, Signal, Transport,
};

/// Most threads of an end.
const THREADS_MAX: u64 = 64;
/// Longest message of InfiniBand (IBA 9.4.1).
const MESSAGE_MAX: u64 = 2 << 30;
/// Longest pause: a minute.
const PAUSE_MAX_NS: u64 = 60_000_000_000;
/// Highest rate: one message a nanosecond.
const RATE_MAX: u64 = 1_000_000_000;

/// The option `--transport`.
pub const TRANSPORT: Field<Common> =
    word_field!("transport", Some('c'), Transport, transport, "transport service");
/// The option `--op`.
pub const OP: Field<Common> = word_field!("op", None, Op, op, "what is posted");
/// The option `--size`.
pub const SIZE: Field<Common> = number_field!(
    "size", Some('s'), size_bytes: u64, 1..=MESSAGE_MAX, "SIZE", "bytes",
    "length of a message"
);
/// The option `--messages`.
pub const MESSAGES: Field<Common> = number_field!(
    "messages", Some('n'), messages: u64, 1..=COUNT_MAX, "N", "",
    "messages, round trips or samples in a run"
);
/// Longest measurement: a day.
const DURATION_MAX_NS: u64 = 86_400_000_000_000;
/// The option `--duration`.
pub const DURATION: Field<Common> = number_field!(
    "duration", None, duration_ns: u64, 0..=DURATION_MAX_NS, "TIME", "ns",
    "time of all runs together, in place of --messages; trials before them find the number of \
     messages; 0: --messages says it"
);
/// The option `--runs`.
pub const RUNS: Field<Common> = number_field!(
    "runs", None, runs: u64, 1..=COUNT_MAX, "N", "",
    "runs; all ranks synchronise before each"
);
/// The option `--warm-up`.
pub const WARM_UP: Field<Common> = number_field!(
    "warm-up", None, warm_up: u64, 0..=COUNT_MAX, "N", "",
    "messages before the first run; results do not include them"
);
/// The option `--inline`.
pub const INLINE: Field<Common> = Field {
    opt: Opt {
        name: "inline",
        letter: Some('I'),
        value_name: "BYTES|WORD",
        unit: "bytes",
        help: "messages that go inline: auto (up to 220 bytes, if the device grants them), on, \
               off, or the largest size in bytes",
        is_number: true,
        words: &["auto", "on", "off"],
        bare: None,
    },
    get: |p| match p.inline {
        Inline::Auto => "auto".to_owned(),
        Inline::On => "on".to_owned(),
        Inline::Off => "off".to_owned(),
        Inline::Bytes(bytes) => bytes.to_string(),
    },
    set: |p, text| {
        p.inline = match text {
            "auto" => Inline::Auto,
            "on" | "yes" => Inline::On,
            "off" | "no" => Inline::Off,
            bytes => Inline::Bytes(
                within(bytes, "bytes", 0, u64::from(u32::MAX))
                    .map_err(|e| format!("{e}; or auto, on, off"))? as u32,
            ),
        };
        Ok(())
    },
};
/// The option `--signal-every`.
pub const SIGNAL_EVERY: Field<Common> = Field {
    opt: Opt {
        name: "signal-every",
        letter: Some('Q'),
        value_name: "N|max",
        unit: "",
        help: "one send in N has a completion; max: only where the send queue would overflow",
        is_number: true,
        words: &["max"],
        bare: None,
    },
    get: |p| match p.signal_every {
        Signal::Every(n) => n.to_string(),
        Signal::Max => "max".to_owned(),
    },
    set: |p, text| {
        p.signal_every = match text {
            "max" => Signal::Max,
            n => Signal::Every(
                within(n, "", 1, u64::from(u32::MAX)).map_err(|e| format!("{e}; or max"))? as u32,
            ),
        };
        Ok(())
    },
};
/// The option `--poll`.
pub const POLL: Field<Common> = Field {
    opt: Opt {
        name: "poll",
        letter: Some('e'),
        value_name: "WORD",
        unit: "",
        help: "how completions of both kinds are waited for; -e alone is event",
        is_number: false,
        words: Polling::WORDS,
        bare: Some("event"),
    },
    get: |p| {
        let both = if p.poll_send == p.poll_recv { p.poll_send.name() } else { "mixed" };
        both.to_owned()
    },
    set: |p, text| {
        let value = text.parse()?;
        (p.poll_send, p.poll_recv) = (value, value);
        Ok(())
    },
};
/// The option `--poll-send`.
pub const POLL_SEND: Field<Common> =
    word_field!("poll-send", None, Polling, poll_send, "how send completions are waited for");
/// The option `--poll-recv`.
pub const POLL_RECV: Field<Common> =
    word_field!("poll-recv", None, Polling, poll_recv, "how receive completions are waited for");
/// The option `--pause`.
pub const PAUSE: Field<Common> = number_field!(
    "pause", None, pause_ns: u64, 0..=PAUSE_MAX_NS, "TIME", "ns",
    "from one post to the next, or between bursts; before a round trip"
);
/// The option `--pause-by`.
pub const PAUSE_BY: Field<Common> = word_field!(
    "pause-by",
    None,
    PauseBy,
    pause_by,
    "how a pause is spent: busy, or asleep (auto: asleep from 1 ms on)"
);
/// The option `--rate`.
pub const RATE: Field<Common> = Field {
    opt: Opt {
        name: "rate",
        letter: None,
        value_name: "N|WORD",
        unit: "per_s",
        help: "messages per second, sent on schedule even if earlier ones are late; 0: each \
               follows the one before; sweep: rates from far below the device's maximum to above \
               it",
        is_number: true,
        words: &["0", "sweep"],
        bare: None,
    },
    get: |p| match p.rate_per_s {
        Common::SWEEP => "sweep".to_owned(),
        rate => rate.to_string(),
    },
    set: |p, text| {
        p.rate_per_s = match text {
            "sweep" => Common::SWEEP,
            rate => within(rate, "", 0, RATE_MAX).map_err(|e| format!("{e} a second; or sweep"))?,
        };
        Ok(())
    },
};
/// The option `--arrivals`.
pub const ARRIVALS: Field<Common> =
    word_field!("arrivals", None, Arrivals, arrivals, "when messages are due, with --rate");
/// The option `--list`.
pub const LIST: Field<Common> = Field {
    opt: Opt {
        name: "list",
        letter: Some('l'),
        value_name: "N|all",
        unit: "",
        help: "requests in one post, or connections made at once; all: as many as there are free \
               buffers, or connections",
        is_number: true,
        words: &["all"],
        bare: None,
    },
    get: |p| if p.list == 0 { "all".to_owned() } else { p.list.to_string() },
    set: |p, text| {
        p.list = count_or(text, "all", u32::MAX.into())?;
        Ok(())
    },
};
/// The option `--qps`.
pub const QPS: Field<Common> = number_field!(
    "qps", Some('q'), qps: u32, 1..=u32::MAX, "N", "",
    "queue pairs, used in turns, or connected in a run"
);
/// The option `--threads`.
pub const THREADS: Field<Common> = number_field!(
    "threads", None, threads: u32, 1..=THREADS_MAX, "N", "",
    "threads of each end, each with queue pairs of its own (see --share-qp) and all messages"
);
/// The option `--share-qp`.
pub const SHARE_QP: Field<Common> = yes_no_field!(
    "share-qp",
    None,
    share_qp,
    "whether all threads of an end post to the same queue pairs, each to its share of their send \
     queues"
);
/// The option `--mtu`.
pub const MTU: Field<Common> = Field {
    opt: Opt {
        name: "mtu",
        letter: Some('m'),
        value_name: "BYTES",
        unit: "bytes",
        help: "payload of a packet: 256, 512, 1024, 2048 or 4096; 0: what the port uses",
        is_number: true,
        words: &["0", "256", "512", "1024", "2048", "4096"],
        bare: None,
    },
    get: |p| p.mtu_bytes.to_string(),
    set: |p, text| {
        let bytes = number::parse(text, number::Kind::Bytes)?;
        // A 2 is a code in a configuration file, never a number of bytes.
        match bytes {
            0 | 256 | 512 | 1024 | 2048 | 4096 => p.mtu_bytes = bytes as u32,
            _ => {
                return Err(format!(
                    "{text} is not a path MTU: choose 256, 512, 1024, 2048 or 4096 bytes, or 0"
                ));
            }
        }
        Ok(())
    },
};
/// The option `--sl`.
pub const SL: Field<Common> =
    number_field!("sl", Some('S'), sl: u8, 0..=15u64, "SL", "", "service level");
/// The option `--tx-depth`.
pub const TX_DEPTH: Field<Common> = number_field!(
    "tx-depth", Some('t'), tx_depth: u32, 1..=u32::MAX, "N", "",
    "requests that a send queue holds"
);
/// The option `--rx-depth`.
pub const RX_DEPTH: Field<Common> = number_field!(
    "rx-depth", Some('r'), rx_depth: u32, 1..=u32::MAX, "N", "",
    "requests that a receive queue holds"
);
/// The option `--outstanding-reads`.
pub const OUTSTANDING_READS: Field<Common> = number_field!(
    "outstanding-reads", Some('o'), outstanding_reads: u8, 1..=255u64, "N", "",
    "outstanding READs and atomics of a queue pair"
);
/// The option `--flow`.
pub const FLOW: Field<Common> =
    word_field!("flow", None, Flow, flow, "whether the sender keeps within the receive queue");
/// The option `--verify`.
pub const VERIFY: Field<Common> = yes_no_field!(
    "verify",
    None,
    verify,
    "whether the receiver checks each payload, and counts those that are damaged; it takes time"
);
/// The option `--touch`.
pub const TOUCH: Field<Common> = yes_no_field!(
    "touch",
    None,
    touch,
    "whether the memory for timestamps is touched beforehand, so that no access to it page-faults"
);
/// The option `--memory`.
pub const MEMORY: Field<Common> = word_field!(
    "memory",
    None,
    Memory,
    memory,
    "memory of the messages: what the device reaches fastest, or private memory like a heap"
);
/// The option `--port`.
pub const PORT: Field<Common> =
    number_field!("port", Some('i'), port: u8, 1..=255u64, "PORT", "", "port of the device");
/// The option `--gid-index`.
pub const GID_INDEX: Field<Common> = Field {
    opt: Opt {
        name: "gid-index",
        letter: Some('x'),
        value_name: "INDEX|WORD",
        unit: "",
        help: "index of the local GID; auto: by LID where the port has LIDs, else the best kind \
               that all ends have: RoCEv2 over IPv4, IPv6, link-local",
        is_number: true,
        words: &["auto"],
        bare: None,
    },
    get: |p| p.gid_index.map_or_else(|| "auto".to_owned(), |index| index.to_string()),
    set: |p, text| {
        p.gid_index = match text {
            "auto" => None,
            index => Some(within(index, "", 0, 255).map_err(|e| format!("{e}; or auto"))? as u8),
        };
        Ok(())
    },
};
/// The option `--timeout`.
pub const TIMEOUT: Field<Common> = number_field!(
    "timeout", Some('u'), timeout: u8, 0..=31u64, "CODE", "",
    "time before an RC request is sent again: 4.096 us x 2^CODE; 0: never"
);
/// The option `--retry-cnt`.
pub const RETRY_CNT: Field<Common> = number_field!(
    "retry-cnt", None, retry_cnt: u8, 0..=7u64, "N", "",
    "times that an RC request is sent again"
);
/// The option `--rnr-retry`.
pub const RNR_RETRY: Field<Common> = number_field!(
    "rnr-retry", None, rnr_retry: u8, 0..=7u64, "N", "",
    "times that an RC request is sent again after RNR; 7: for ever"
);
/// The option `--min-rnr-timer`.
pub const MIN_RNR_TIMER: Field<Common> = number_field!(
    "min-rnr-timer", None, min_rnr_timer: u8, 0..=31u64, "CODE", "",
    "how long a peer waits after RNR, as a code: 12 is 0.64 ms, 0 is 655 ms"
);
/// Longest wait for a message that may be lost: a minute.
const LOST_AFTER_MAX_NS: u64 = 60_000_000_000;
/// The option `--lost-after`.
pub const LOST_AFTER: Field<Common> = number_field!(
    "lost-after", None, lost_after_ns: u64, 1..=LOST_AFTER_MAX_NS, "TIME", "ns",
    "how long a message of UC, UD or a multicast is waited for"
);
/// The option `--max-sge`.
pub const MAX_SGE: Field<Common> = number_field!(
    "max-sge", None, max_sge: u32, 1..=u32::MAX, "N", "",
    "scatter/gather entries that a receive may have; it uses one, but an adapter reserves room \
     for all"
);
/// The option `--sge`.
pub const SGE: Field<Common> = number_field!(
    "sge", None, sge: u32, 1..=u32::MAX, "N", "",
    "pieces of memory that the payload of a request lies in, one behind the other"
);
/// The option `--seed`.
pub const SEED: Field<Common> =
    number_field!("seed", None, seed: u64, 0..=u64::MAX, "N", "", "seed of all random choices");
/// The option `--link`.
pub const LINK: Field<Common> = Field {
    opt: Opt {
        name: "link",
        letter: None,
        value_name: "WORD",
        unit: "",
        help: "the link of simulated adapters, in place of that of their profile",
        is_number: false,
        words: Link::WORDS,
        bare: None,
    },
    get: |p| p.model.link.to_string(),
    set: |p, text| text.parse().map(|link| p.model = p.model.with_link(link)),
};
/// The option `--sim`.
pub const SIM: Field<Common> = Field {
    opt: Opt {
        name: "sim",
        letter: None,
        value_name: "NAME=VALUES",
        unit: "",
        help: "a parameter of a simulated adapter that differs from its profile, as \
               bus_read_ns=300,500 or '...;blue_flame=0'; ablate leaves out the time of each part \
               in turn; `rdmalab devices --parameters` lists them",
        is_number: false,
        words: &["profile"],
        bare: None,
    },
    get: |p| p.model.to_string(),
    set: |p, text| text.parse().map(|model: Model| p.model = model.with_link(p.model.link)),
};
