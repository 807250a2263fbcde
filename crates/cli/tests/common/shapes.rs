//! The results of each experiment: the series and numbers that claims and values refer to. One test
//! compares the plans of the studies with this list, another one compares the list with records.
#![allow(dead_code)] // Each test uses a part.

use rdmalab_measure::Quantity::{self, *};

/// How many samples a run gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A series with a sample of each message.
    OfMessages,
    /// A series with a sample of each run within the point.
    OfRuns,
    /// One number without samples.
    Figure,
}

use Kind::{Figure, OfMessages, OfRuns};

/// A quantity, its label, and how many there are.
pub type Shape = (Quantity, &'static str, Kind);

const ONEWAY: &[Shape] = &[
    (OneWay, "t_lat", OfMessages),
    (CompletionTime, "t_lat_comp", OfMessages),
    (CpuShare, "rank 0", Figure),
];
const ONEWAY_FROM_COPY: &[Shape] =
    &[(OneWay, "t_lat", OfMessages), (OneWayFromCopy, "t_lat_send", OfMessages)];
const PING: &[Shape] = &[(RoundTrip, "", OfMessages), (CpuShare, "rank 0", Figure)];
const PING_HALF: &[Shape] = &[(RoundTrip, "", OfMessages), (HalfRoundTrip, "elapsed / 2n", Figure)];
const BLAST: &[Shape] = &[
    (Rate, "", Figure),
    (Bandwidth, "", Figure),
    (MessageTime, "", Figure),
    (CpuShare, "rank 0", Figure),
    (CpuShare, "rank 1", Figure),
    (MessageTime, "runs", OfRuns),
];
const OVERHEAD: &[Shape] =
    &[(CallCost, "nothing, two stamps", OfMessages), (PostCost, "post_send", OfMessages)];
const MR: &[Shape] =
    &[(CallCost, "register + deregister", OfMessages), (CallCost, "copy", OfMessages)];
const TIMEOUT: &[Shape] = &[
    (CompletionTime, "until it fails", OfMessages),
    (Timeout, "T_o", OfMessages),
    (Timeout, "T_tr", Figure),
];
const ODP: &[Shape] = &[
    (ExecutionTime, "", Figure),
    (ExecutionTime, "trials", OfRuns),
    (CompletionTime, "", OfMessages),
    (TimeoutShare, "", Figure),
    (CpuShare, "rank 0", Figure),
];
const ODP_PAGED: &[Shape] = &[
    (ExecutionTime, "", Figure),
    (ExecutionTime, "trials", OfRuns),
    (CompletionTime, "", OfMessages),
    (TimeoutShare, "", Figure),
    (CpuShare, "rank 0", Figure),
    (Packets, "requests of rank 0", Figure),
    (Packets, "repeated requests of rank 0", Figure),
    (Packets, "responses of rank 1", Figure),
    (Packets, "ACKs of rank 1", Figure),
    (Packets, "RNR NAKs of rank 1", Figure),
    (Packets, "sequence NAKs of rank 1", Figure),
];
/// Each trial is one sample.
const APPLICATION: &[Shape] = &[(ExecutionTime, "", OfMessages)];
const RECVQ: &[Shape] = &[(RoundTrip, "rank 0", OfMessages), (RoundTrip, "rank 1", OfMessages)];
const RPC: &[Shape] = &[(RoundTrip, "", OfMessages), (Bandwidth, "", Figure)];
const FAN: &[Shape] = &[(RoundTrip, "all peers", OfMessages), (MessageTime, "least T/n", Figure)];
const FAN_READ: &[Shape] = &[
    (RoundTrip, "all peers", OfMessages),
    (RoundTrip, "1:n", OfMessages),
    (RoundTrip, "n:1", OfMessages),
    (MessageTime, "least T/n", Figure),
    (MessageTime, "1:n least T/n", Figure),
    (MessageTime, "n:1 least T/n", Figure),
];
const IB_SEND_LAT: &[Shape] = &[(HalfRoundTrip, "", OfMessages)];

/// The results of a point, by its experiment and its parameters as text.
pub fn of(experiment: &str, parameter: impl Fn(&str) -> String) -> &'static [Shape] {
    match experiment {
        "oneway" if parameter("stamps").contains("send") => ONEWAY_FROM_COPY,
        "oneway" => ONEWAY,
        "ping" if parameter("op").ends_with("read") => PING,
        "ping" => PING_HALF,
        "blast" => BLAST,
        "overhead" => OVERHEAD,
        "mr" => MR,
        "timeout" => TIMEOUT,
        // Without paging a soft device executes one-sided operations without packets.
        "odp" if parameter("fault") == "none" => ODP,
        "odp" => ODP_PAGED,
        "application" => APPLICATION,
        "recvq" => RECVQ,
        "rpc" => RPC,
        // With `sizes=series` each size has a series of its own.
        "fan" if parameter("sizes") == "series" => &[],
        "fan" if parameter("op") == "read" => FAN_READ,
        "fan" => FAN,
        "ib_send_lat" => IB_SEND_LAT,
        _ => &[],
    }
}

/// The numbers of a pattern that claims and values refer to.
pub const NUMBERS: &[&str] = &[
    "peak_1_ns",
    "peak_2_ns",
    "peak_1_at_messages",
    "peak_2_at_messages",
    "peak_1_places_messages",
];
