//! The kinds of findings, with the cause and the remedy of each.

use serde::Serialize;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $cause:literal, $remedy:literal;)*) => {
        /// What went wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Its name for people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Why it happens.
            #[must_use]
            pub const fn cause(self) -> &'static str {
                match self { $(Self::$kind => $cause,)* }
            }

            /// What to change.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy,)* }
            }
        }
    };
}

kinds! {
    /// A request sent while another one waited to be repeated was lost.
    Damming = "packet damming",
        "The adapter loses a request that is sent while an earlier one waits to be repeated after \
         a page fault. Only the time-out or a later request reveals the loss. ConnectX-4 does so \
         with On-Demand Paging",
        "Register the memory without ODP, or prefetch it (ibv_advise_mr). Otherwise choose the \
         smallest min_rnr_timer, or post a dummy operation by a timer while requests wait";
    /// READs of many queue pairs were repeated at short intervals.
    Flood = "packet flood",
        "The pages are present, but the adapter has not told all queue pairs that share them: each \
         drops the responses and repeats its READ about every 0.5 ms",
        "Use no ODP for pages that many queue pairs share, prefetch them before, or use fewer \
         queue pairs";
    /// The responder's memory was not present.
    ServerFault = "page fault at the responder",
        "A READ, WRITE or atomic needs no receive, so the RNR NAK can only mean that the \
         responder's page was not present (On-Demand Paging)",
        "Prefetch the memory (ibv_advise_mr) or register it without ODP; a smaller min_rnr_timer \
         shortens the wait";
    /// The requester's memory was not present.
    ClientFault = "page fault at the requester",
        "The response came and the request was repeated without a time-out: the requester dropped \
         the response, as an adapter does whose local page is not present (On-Demand Paging)",
        "Prefetch the local buffer (ibv_advise_mr), touch it through the device before, or \
         register it without ODP";
    /// One request was answered by many RNR NAKs.
    RnrStorm = "RNR storm",
        "The responder was not ready for the same request again and again, and rnr_retry = 7 lets \
         the requester try without end",
        "Post receives before the peer sends, or a longer queue of them; a larger min_rnr_timer \
         makes fewer repetitions";
    /// No receive was posted.
    MissingReceive = "missing receive",
        "The responder had no receive posted when the message came. With ODP, a receive buffer \
         whose page was not present looks the same",
        "Post more receives, earlier; give the sender credits; use a shared receive queue with a \
         limit event";
    /// A request was repeated because nothing answered it.
    Timeout = "time-out",
        "The request or its answer was lost, or the responder did not answer in time, and no later \
         packet revealed it",
        "Find where packets are lost (counters of ports and switches, flow control). Choose a \
         smaller `timeout` if the wait is too long, a larger one if answers only come late";
    /// A packet was lost and a NAK revealed it.
    Lost = "lost packet",
        "A packet did not arrive; a later one revealed the gap",
        "Look at the error and discard counters of ports and switches. On Ethernet, check priority \
         flow control and ECN";
    /// The ends do not agree on PSNs.
    PsnError = "PSN error",
        "The responder expects a PSN that the requester never sent: rq_psn of one end is not \
         sq_psn of the other, or an end was reset alone",
        "Exchange the starting PSNs when connecting, and reconnect both ends after an error";
    /// Many requests were repeated that had been answered.
    Duplicates = "duplicate storm",
        "Requests were repeated although they had been answered: the time-out is shorter than the \
         answer takes, a loss makes the requester go back over many packets, or the network \
         duplicates packets",
        "Choose a larger `timeout`; keep fewer packets under way; look for loops in the network";
    /// A request was repeated until the requester gave up.
    Exhausted = "retries exhausted",
        "The responder does not answer: it is gone, its queue pair is not in RTR, or the path is \
         broken. The queue pair is then in the error state",
        "Look at the responder's process and queue pair, and at the path. A larger retry_cnt only \
         helps against short interruptions";
    /// The responder refused the memory access.
    AccessError = "remote access error",
        "The remote key, the range or the access rights of the request are not valid, or the \
         responder failed while it executed it. The queue pair is then in the error state",
        "Check the key, the address, the length, and the access flags of region and queue pair at \
         the responder; check that the region still exists";
    /// The responder refused the request.
    LengthError = "invalid request",
        "The request breaks a rule: it is longer than the receive buffer, more READs are under way \
         than max_dest_rd_atomic, or its operation is not allowed. The queue pair is then in the \
         error state",
        "Check the length of the receive buffers, and that max_rd_atomic of the requester is not \
         above max_dest_rd_atomic of the responder";
    /// Two ends use different MTUs, or the path carries less.
    Mtu = "MTU mismatch",
        "The ends do not use the same path MTU, or the path carries smaller packets than they use",
        "Set the same path_mtu at both ends, not above what ports and switches carry";
    /// A message of the connection manager was repeated.
    CmTimeout = "connection manager: no answer",
        "A request to connect was not answered in time",
        "Look whether the peer's process is alive and accepts, whether datagrams to queue pair 1 \
         arrive, and whether the listen backlog is long enough";
    /// A connection was rejected.
    CmReject = "connection rejected",
        "The peer rejected the connection",
        "See the reason: check the port, the private data and the limits that the peer expects";
    /// Few READs or atomics may be under way.
    SmallRdAtomic = "small max_rd_atomic",
        "READs and atomics wait for each other: only so many are under way at once, and the next \
         leaves when one is answered",
        "Set a larger max_rd_atomic, and max_dest_rd_atomic at the peer (initiator_depth and \
         responder_resources of rdma_cm), or use more queue pairs";
    /// Requests waited for an earlier one.
    HeadOfLine = "head-of-line wait",
        "Requests of one queue pair complete in order, so those behind a repeated one wait too",
        "Use several queue pairs for independent messages; remove the cause of the repetition";
}
