//! The options.

use crate::common::number;
use crate::common::words::no_such;
use crate::connect::By;
use crate::fan::options::{self as fan, Cast, Direction, Sizes};
use crate::options::Opt;
use crate::point::Point;
use crate::point::{
    Arrivals, Call,
    Experiment::{self, Blast, Connect, Fan, Mr, Oneway, Overhead, Ping, Recvq, Rpc, Timeout},
    Flow, Inline, Memory, Op, PauseBy, Polling, Signal, StampOf, Stamps, Transport, Unsignalled,
};
use crate::recvq::options::{self as recvq, Queue, RegionsBy, ReturnWhen};
use crate::timeout::Absent;

/// All of them.
const ALL: &[Experiment] = Experiment::ALL;
/// Those that send messages.
const TRAFFIC: &[Experiment] = &[Oneway, Ping, Blast, Recvq];
/// Those that post requests of a choice.
const POSTS: &[Experiment] = &[Oneway, Ping, Blast, Overhead, Recvq, Fan];
/// Those that may READ.
const READS: &[Experiment] = &[Oneway, Ping, Blast, Overhead, Fan];
/// Those with a number of samples.
const SAMPLES: &[Experiment] = &[Oneway, Ping, Blast, Overhead, Mr, Timeout, Recvq, Rpc, Fan];
/// Those with samples to warm up by.
const WARM: &[Experiment] = &[Oneway, Ping, Blast, Overhead, Mr, Recvq, Rpc, Fan];
/// Those with several queue pairs.
const QPS: &[Experiment] = &[Oneway, Ping, Blast, Connect];
/// Those that run at a rate, and on several threads.
const LOADS: &[Experiment] = &[Oneway, Ping, Blast];
/// Those with connected queue pairs.
const LINKED: &[Experiment] = &[Oneway, Ping, Blast, Overhead, Connect, Timeout, Recvq, Rpc, Fan];
/// Those whose queues have a depth.
const DEEP: &[Experiment] = &[Oneway, Ping, Blast, Overhead, Connect, Recvq, Rpc, Fan];

/// A field that is a word.
macro_rules! word {
    ($name:literal, $letter:expr, $kind:ident, $field:ident, $applies:expr, $help:literal) => {
        Opt {
            name: $name,
            letter: $letter,
            value_name: "WORD",
            unit: "",
            help: $help,
            applies: $applies,
            is_number: false,
            words: $kind::WORDS,
            bare: None,
            get: |p| p.$field.to_string(),
            set: |p, text| text.parse().map(|value| p.$field = value),
        }
    };
}

/// A field that is a number from `$from` to `$to`.
macro_rules! number {
    (
        $name:literal, $letter:expr, $field:ident: $type:ty, $from:literal..=$to:expr,
        $value:literal, $unit:literal, $applies:expr, $help:literal
    ) => {
        Opt {
            name: $name,
            letter: $letter,
            value_name: $value,
            unit: $unit,
            help: $help,
            applies: $applies,
            is_number: true,
            words: &[],
            bare: None,
            get: |p| p.$field.to_string(),
            set: |p, text| {
                let value = within(text, $unit, $from, u64::from($to))?;
                p.$field = <$type>::try_from(value).map_err(|e| e.to_string())?;
                Ok(())
            },
        }
    };
}

/// A field that is so or not.
macro_rules! yes_no {
    ($name:literal, $field:ident, $applies:expr, $help:literal) => {
        Opt {
            name: $name,
            letter: None,
            value_name: "YES|NO",
            unit: "",
            help: $help,
            applies: $applies,
            is_number: false,
            words: &["yes", "no"],
            bare: None,
            get: |p| if p.$field { "yes" } else { "no" }.to_owned(),
            set: |p, text| {
                p.$field = match text {
                    "yes" | "on" => true,
                    "no" | "off" => false,
                    other => return Err(no_such("answer", other, &["yes", "no"])),
                };
                Ok(())
            },
        }
    };
}

/// A number within its bounds.
pub(crate) fn within(text: &str, unit: &str, from: u64, to: u64) -> Result<u64, String> {
    let value = number::parse(text, unit == "ns")?;
    if (from..=to).contains(&value) {
        return Ok(value);
    }
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    Err(format!("{text} is out of range: from {from} to {to}{unit}"))
}

/// All options, in the order of a help text.
pub const OPTIONS: &[Opt] = &[
    word!("transport", Some('c'), Transport, transport, DEEP, "transport service"),
    word!("op", None, Op, op, POSTS, "what is posted"),
    number!("size", Some('s'), size_bytes: u64, 1..=MESSAGE_MAX, "SIZE", "bytes", WARM,
        "length of a message"),
    number!("messages", Some('n'), messages: u64, 1..=COUNT_MAX, "N", "", SAMPLES,
        "messages, round trips or samples of a run"),
    number!("runs", None, runs: u64, 1..=COUNT_MAX, "N", "", ALL,
        "runs; both ends meet before each"),
    number!("warm-up", None, warm_up: u64, 0..=COUNT_MAX, "N", "", WARM,
        "messages before the first run; they are kept apart"),
    INLINE,
    SIGNAL_EVERY,
    POLL,
    word!("poll-send", None, Polling, poll_send, TRAFFIC, "how send completions are waited for"),
    word!("poll-recv", None, Polling, poll_recv, TRAFFIC, "how receive completions are waited for"),
    number!("burst", None, burst: u64, 0..=COUNT_MAX, "N", "", &[Oneway],
        "messages posted one after the other before everything is waited for; 0: the whole run"),
    number!("pause", None, pause_ns: u64, 0..=PAUSE_MAX_NS, "TIME", "ns", &[Oneway, Ping, Recvq],
        "from one post to the next, or between bursts; before a round trip"),
    word!(
        "pause-by",
        None,
        PauseBy,
        pause_by,
        &[Oneway, Ping, Recvq],
        "how a pause is spent: busy, or asleep (auto: asleep from 1 ms on)"
    ),
    RATE,
    word!("arrivals", None, Arrivals, arrivals, LOADS, "when messages are due, with --rate"),
    number!("buffers", None, buffers: u32, 1..=u32::MAX, "N", "", &[Blast],
        "places in memory that messages go round through; so many are under way"),
    LIST,
    number!("qps", Some('q'), qps: u32, 1..=u32::MAX, "N", "", QPS,
        "queue pairs, used in turns, or connected in a run"),
    number!("threads", None, threads: u32, 1..=THREADS_MAX, "N", "", LOADS,
        "threads of each end, each with queue pairs of its own (see --share-qp) and all messages"),
    SHARE_QP,
    MTU,
    number!("sl", Some('S'), sl: u8, 0..=15u64, "SL", "", LINKED, "service level"),
    number!("tx-depth", Some('t'), tx_depth: u32, 1..=u32::MAX, "N", "", DEEP,
        "requests that a send queue holds"),
    number!("rx-depth", Some('r'), rx_depth: u32, 1..=u32::MAX, "N", "", DEEP,
        "requests that a receive queue holds"),
    number!("outstanding-reads", Some('o'), outstanding_reads: u8, 1..=255u64, "N", "", READS,
        "READs under way at once"),
    word!(
        "flow",
        None,
        Flow,
        flow,
        &[Oneway, Blast],
        "whether the sender keeps within the receive queue"
    ),
    word!(
        "unsignalled",
        None,
        Unsignalled,
        unsignalled,
        &[Ping],
        "which request of write_read has no completion"
    ),
    STAMPS,
    TOUCH,
    number!("stamp-every", None, stamp_every: u64, 0..=COUNT_MAX, "N", "", &[Blast],
        "take a stamp after so many messages; 0: none"),
    word!(
        "memory",
        None,
        Memory,
        memory,
        WARM,
        "what messages lie in: what the device reaches best, or private memory like a heap"
    ),
    number!("port", Some('i'), port: u8, 1..=255u64, "PORT", "", ALL, "port of the device"),
    GID_INDEX,
    number!("timeout", Some('u'), timeout: u8, 0..=31u64, "CODE", "", LINKED,
        "time before an RC request is sent again: 4.096 us x 2^CODE; 0: never"),
    number!("retry-cnt", None, retry_cnt: u8, 0..=7u64, "N", "", LINKED,
        "times that an RC request is sent again"),
    number!("rnr-retry", None, rnr_retry: u8, 0..=7u64, "N", "", DEEP,
        "times that an RC request is sent again after RNR; 7: for ever"),
    number!("min-rnr-timer", None, min_rnr_timer: u8, 0..=31u64, "CODE", "", DEEP,
        "how long a peer waits after RNR, as a code: 12 is 0.64 ms, 0 is 655 ms"),
    word!("call", None, Call, call, &[Rpc], "what is called"),
    word!("by", None, By, by, &[Connect], "how the queue pairs come to know of each other"),
    number!("limit", None, limit_ns: u64, 0..=LIMIT_MAX_NS, "TIME", "ns", &[Timeout],
        "the longest time that a sample may take; 0: as long as its code allows, 20 s to 10 min"),
    word!("absent", None, Absent, absent, &[Timeout], "what of the other end is not there"),
    word!("queue", None, Queue, queue, &[Recvq], "where receives are posted"),
    recvq::MAX_SGE,
    recvq::REGIONS,
    word!(
        "regions-by",
        None,
        RegionsBy,
        regions_by,
        &[Recvq],
        "which buffers share a region: neighbours, or every so many"
    ),
    recvq::MISSING,
    recvq::RETURN,
    word!(
        "return-when",
        None,
        ReturnWhen,
        return_when,
        &[Recvq],
        "on which side of the answer receives are posted again"
    ),
    fan::PEERS,
    word!(
        "direction",
        None,
        Direction,
        direction,
        &[Fan],
        "which way the messages of that size go; the others have one byte"
    ),
    word!(
        "to",
        None,
        Cast,
        cast,
        &[Fan],
        "a message for each of the others, or one to a multicast group (UD)"
    ),
    word!(
        "sizes",
        None,
        Sizes,
        sizes,
        &[Fan],
        "--size alone, or all from 1 byte doubled up to it: in series, or drawn at random"
    ),
    number!("lost-after", None, lost_after_ns: u64, 1..=fan::LOST_AFTER_MAX_NS, "TIME", "ns",
        &[Fan], "how long a message of UC and UD is waited for"),
    number!("seed", None, seed: u64, 0..=u64::MAX, "N", "", ALL, "for whatever is drawn"),
];

/// Most threads of an end.
const THREADS_MAX: u64 = 64;
/// Longest message of InfiniBand (IBA 9.4.1).
const MESSAGE_MAX: u64 = 2 << 30;
/// Longest pause: a minute.
const PAUSE_MAX_NS: u64 = 60_000_000_000;
/// Longest wait for a sample: a day.
const LIMIT_MAX_NS: u64 = 86_400_000_000_000;
/// Most of anything that is counted; [`crate::check`] bounds their product.
const COUNT_MAX: u64 = 1 << 40;

const INLINE: Opt = Opt {
    name: "inline",
    letter: Some('I'),
    value_name: "BYTES|WORD",
    unit: "bytes",
    help: "messages that go inline: auto (up to 220 bytes, as the device grants), on, off, or up \
           to so many bytes",
    applies: POSTS,
    is_number: true,
    words: &["auto", "on", "off"],
    bare: None,
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

const RATE: Opt = Opt {
    name: "rate",
    letter: None,
    value_name: "N|WORD",
    unit: "per_s",
    help: "messages due a second, whatever became of those before; 0: each follows the one before; \
           sweep: from far below what the device does to beyond it",
    applies: LOADS,
    is_number: true,
    words: &["0", "sweep"],
    bare: None,
    get: |p| match p.rate_per_s {
        Point::SWEEP => "sweep".to_owned(),
        rate => rate.to_string(),
    },
    set: |p, text| {
        p.rate_per_s = match text {
            "sweep" => Point::SWEEP,
            rate => within(rate, "", 0, RATE_MAX).map_err(|e| format!("{e} a second; or sweep"))?,
        };
        Ok(())
    },
};

/// Highest rate: one message a nanosecond.
const RATE_MAX: u64 = 1_000_000_000;

const LIST: Opt = Opt {
    name: "list",
    letter: Some('l'),
    value_name: "N|all",
    unit: "",
    help: "requests in one post, or connections made at once; all: as many as there are free \
           buffers, or connections",
    applies: &[Blast, Overhead, Connect],
    is_number: true,
    words: &["all"],
    bare: None,
    get: |p| if p.list == 0 { "all".to_owned() } else { p.list.to_string() },
    set: |p, text| {
        p.list = match text {
            "all" => 0,
            n => within(n, "", 1, u64::from(u32::MAX)).map_err(|e| format!("{e}; or all"))? as u32,
        };
        Ok(())
    },
};

const SIGNAL_EVERY: Opt = Opt {
    name: "signal-every",
    letter: Some('Q'),
    value_name: "N|max",
    unit: "",
    help: "one send in so many has a completion; max: only where the send queue would overflow",
    applies: TRAFFIC,
    is_number: true,
    words: &["max"],
    bare: None,
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

const POLL: Opt = Opt {
    name: "poll",
    letter: Some('e'),
    value_name: "WORD",
    unit: "",
    help: "how completions of both kinds are waited for; -e alone is event",
    applies: TRAFFIC,
    is_number: false,
    words: Polling::WORDS,
    bare: Some("event"),
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

const MTU: Opt = Opt {
    name: "mtu",
    letter: Some('m'),
    value_name: "BYTES",
    unit: "bytes",
    help: "payload of a packet: 256, 512, 1024, 2048 or 4096; 0: what the port uses",
    applies: LINKED,
    is_number: true,
    words: &["0", "256", "512", "1024", "2048", "4096"],
    bare: None,
    get: |p| p.mtu_bytes.to_string(),
    set: |p, text| {
        let bytes = number::parse(text, false)?;
        // A 2 is a code in a configuration file, never a number of bytes.
        match bytes {
            0 | 256 | 512 | 1024 | 2048 | 4096 => p.mtu_bytes = bytes as u32,
            _ => {
                return Err(format!(
                    "{text} is no path MTU: choose one of 256, 512, 1024, 2048, 4096 bytes, or 0"
                ));
            }
        }
        Ok(())
    },
};

const STAMPS: Opt = Opt {
    name: "stamps",
    letter: None,
    value_name: "LIST",
    unit: "",
    help: "stamps to take, separated by commas: recv, comp, send (when the adapter copies the \
           message), post (the end of the post call); subm, before the post, always is",
    applies: &[Oneway],
    is_number: false,
    words: &["subm", "subm,recv", "subm,recv,comp", "subm,send,recv", "subm,send,recv,comp,post"],
    bare: None,
    get: |p| {
        let names: Vec<&str> =
            StampOf::ALL.iter().filter(|s| p.stamps.has(**s)).map(|s| s.name()).collect();
        names.join(",")
    },
    set: |p, text| {
        let mut stamps = Stamps { send: false, recv: false, comp: false, post: false };
        for word in text.split(',') {
            match word.trim().parse()? {
                StampOf::Subm => {}
                StampOf::Send => stamps.send = true,
                StampOf::Recv => stamps.recv = true,
                StampOf::Comp => stamps.comp = true,
                StampOf::Post => stamps.post = true,
            }
        }
        p.stamps = stamps;
        Ok(())
    },
};

const TOUCH: Opt = yes_no!(
    "touch",
    touch,
    WARM,
    "whether the memory for stamps is touched before, so that no page is missing"
);

const SHARE_QP: Opt = yes_no!(
    "share-qp",
    share_qp,
    LOADS,
    "whether all threads of an end post to the same queue pairs, each to its share of their send \
     queues"
);

const GID_INDEX: Opt = Opt {
    name: "gid-index",
    letter: Some('x'),
    value_name: "INDEX|WORD",
    unit: "",
    help: "index of the local GID; auto: by LID where the port has LIDs, else the best kind \
           that all ends have: RoCEv2 over IPv4, IPv6, link-local",
    applies: LINKED,
    is_number: true,
    words: &["auto"],
    bare: None,
    get: |p| p.gid_index.map_or_else(|| "auto".to_owned(), |index| index.to_string()),
    set: |p, text| {
        p.gid_index = match text {
            "auto" => None,
            index => Some(within(index, "", 0, 255).map_err(|e| format!("{e}; or auto"))? as u8),
        };
        Ok(())
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_names_every_experiment() {
        let chapter = include_str!("../../../../docs/book/src/numbers.md");
        let (_, table) = chapter.split_once("## What is measured").unwrap();
        let (table, _) = table.split_once("For `t_lat_send`").unwrap();
        for experiment in ALL {
            assert!(table.contains(&format!("`{experiment}`")), "{experiment} is not in the table");
        }
        assert!(ALL.len() == 10 && table.contains("Ten experiments"), "{} of them", ALL.len());
    }
}
