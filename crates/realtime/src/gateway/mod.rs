//! `gateway`: samples of a signal through a node-type of the gateway, from one process to another,
//! as in potter2018.
//!
//! - `options`: what it takes. `configuration`: the gateway of each rank, as a configuration file.
//! - `recorder`: a hook that keeps the latency of each sample. `ends`: both ranks at work.
//!
//! The origin of a sample is stamped after its tick, and its arrival by the receiver, in a field of
//! its own. Both ends run on one host, whose wall clock stamps both.

mod configuration;
mod ends;
mod options;
mod recorder;
mod result;

use rdmalab_experiments::shared::{
    GID_INDEX, INLINE, LINK, MESSAGES, PORT, RATE, RUNS, RX_DEPTH, SIGNAL_EVERY, SIM, TRANSPORT,
    TX_DEPTH, WARM_UP,
};
use rdmalab_experiments::{
    Choice, Common, Fault, Inline, Limits, ResultKind, ResultShape, Signal, Transport, Workload,
    choices,
};
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_sample::record_bytes;
use rdmalab_verbs::Context;

pub use options::Gateway;
use options::{BUFFERS, ENDS, NODE, Node, PREPOST, QUEUE, TIMER, Timer, VALUES};

/// The time of a run in which the ends connect, and what is under way arrives at the end.
const SET_UP_NS: f64 = 200e6;

fn must(holds: bool, option: &'static str, why: String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err((option, why)) }
}

impl Gateway {
    /// Refuses an option that changes nothing for the node-type, unless it has its default.
    fn has_effect(&self, common: &Common) -> Result<(), Fault> {
        let why = || format!("--node {} has nothing that it changes: leave it out", self.node);
        let is_default = self.buffers == Self::OWN.buffers;
        must(self.node.queue().is_some() || is_default, "buffers", why())?;
        let is_default = self.ends == Self::OWN.ends;
        must(self.node != Node::Loopback || is_default, "ends", why())?;
        if self.node == Node::Infiniband {
            return Ok(());
        }
        must(self.prepost == Self::OWN.prepost, "prepost", why())?;
        [TRANSPORT, INLINE, SIGNAL_EVERY, TX_DEPTH, RX_DEPTH, PORT, GID_INDEX].iter().try_for_each(
            |field| {
                let is_default = (field.get)(common) == (field.get)(&Self::COMMON);
                must(is_default, field.opt.name, why())
            },
        )
    }
}

impl Gateway {
    /// Whether samples are asked to go inline.
    fn is_inline(&self, common: &Common) -> bool {
        let bytes = record_bytes(self.values) as u64;
        u64::from(common.inline.wanted_bytes(bytes)) >= bytes
    }

    /// Checks `--inline`, and what needs it.
    fn inline_fits(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        let (bytes, most) = (record_bytes(self.values), limits.max_inline_bytes);
        let is_inline = self.is_inline(common);
        let why = format!(
            "{} grants at most {most} bytes inline, and a sample has {bytes}: choose --inline auto",
            limits.device
        );
        let fits = bytes <= most as usize;
        must(common.inline != Inline::On || fits, "inline", why)?;
        let is_each = matches!(common.signal_every, Signal::Max | Signal::Every(1));
        let why = format!(
            "a sample of {bytes} bytes does not go inline, and then each send has a completion: \
             choose --inline on, or fewer --values"
        );
        must(is_each || (is_inline && fits), "signal-every", why)
    }
}

impl Workload for Gateway {
    const NAME: &'static str = "gateway";
    const SUMMARY: &'static str = "samples of a signal through a node-type of the sample gateway: \
        one-way times, and the shares that were missed, lost and duplicate";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Own [NODE]
        Common [TRANSPORT MESSAGES RUNS WARM_UP INLINE SIGNAL_EVERY RATE]
        Own [BUFFERS VALUES TIMER PREPOST ENDS]
        // The last two for the refusal of simulated devices, which says why.
        Common [TX_DEPTH RX_DEPTH PORT GID_INDEX LINK SIM]
    };
    const COMMON: Common = Common {
        messages: 10_000,
        warm_up: 100,
        rate_per_s: 1000,
        signal_every: Signal::Max,
        tx_depth: 512,
        rx_depth: 512,
        ..Common::DEFAULT
    };
    const OWN: Self = Self {
        node: Node::Infiniband,
        values: 8,
        timer: Timer::Timerfd,
        buffers: 512,
        prepost: true,
        ends: 2,
    };
    const WAITS: bool = false;
    const SAMPLES_EACH: bool = true;

    fn check(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        let real = "a gateway runs in real time only: choose --device soft0, or an adapter";
        must(limits.kind != "sim", "node", real.to_owned())?;
        let has_rate = ![0, Common::SWEEP].contains(&common.rate_per_s);
        must(has_rate, "rate", "samples come at a rate: choose one".to_owned())?;
        self.has_effect(common)?;
        if let Some(queue) = self.node.queue() {
            let why =
                format!("the queue of {} takes {} to {}", self.node, queue.start(), queue.end());
            must(queue.contains(&self.buffers), "buffers", why)?;
        }
        if self.node != Node::Infiniband {
            return Ok(());
        }
        let queue = |depth: u32| QUEUE.contains(&depth) && depth <= limits.max_qp_wr;
        let most = limits.max_qp_wr.min(*QUEUE.end());
        let why = || format!("the queues of infiniband take {} to {most}", QUEUE.start());
        must(queue(common.tx_depth), "tx-depth", why())?;
        must(queue(common.rx_depth), "rx-depth", why())?;
        self.inline_fits(common, limits)?;
        // The gateway chooses the port of an unreliable connection by itself.
        let chooses = common.transport == Transport::Uc;
        let why = || "UC of the gateway takes port 1: choose --transport rc or ud".to_owned();
        must(!chooses || common.port == 1, "port", why())?;
        let (bytes, mtu) = (record_bytes(self.values), limits.active_mtu_bytes as usize);
        let why = format!("a datagram has at most {mtu} bytes, and a sample {bytes}");
        must(common.transport != Transport::Ud || bytes <= mtu, "values", why)
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        use Quantity::{DuplicateShare, LostShare, MissedShare, OfferedBandwidth, OneWay};
        vec![OneWay, MissedShare, OfferedBandwidth, LostShare, DuplicateShare]
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        &[
            (Quantity::OneWay, "t", ResultKind::OfMessages),
            (Quantity::MissedShare, "", ResultKind::Figure),
            (Quantity::OfferedBandwidth, "", ResultKind::Figure),
            (Quantity::LostShare, "", ResultKind::Figure),
            (Quantity::DuplicateShare, "", ResultKind::Figure),
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        let set_up_ns = SET_UP_NS * common.runs as f64;
        1e9 / common.rate_per_s.max(1) as f64 + set_up_ns / common.total().max(1) as f64
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        ends::run(self, common, rank, context, limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_without_effect_is_refused() {
        let of_infiniband =
            ["transport", "inline", "signal-every", "tx-depth", "rx-depth", "port", "gid-index"];
        for &node in Node::ALL {
            let own = Gateway { node, ..Gateway::OWN };
            assert_eq!(own.has_effect(&Gateway::COMMON), Ok(()));
            let is_it = node == Node::Infiniband;
            for name in of_infiniband {
                let mut common = Gateway::COMMON;
                let value = ["7", "uc", "off"].into_iter().find(|v| set(&mut common, name, v));
                assert!(value.is_some(), "{name}");
                assert_eq!(own.has_effect(&common).is_ok(), is_it, "{node} {name}");
            }
            let other = Gateway { buffers: 7, ..own.clone() };
            let has_queue = !matches!(node, Node::Infiniband | Node::Socket);
            assert_eq!(other.has_effect(&Gateway::COMMON).is_ok(), has_queue, "{node}");
            let other = Gateway { ends: 1, ..own.clone() };
            assert_eq!(
                other.has_effect(&Gateway::COMMON).is_ok(),
                node != Node::Loopback,
                "{node}"
            );
            let other = Gateway { prepost: false, ..own };
            assert_eq!(other.has_effect(&Gateway::COMMON).is_ok(), is_it, "{node}");
        }
    }

    fn limits(max_inline_bytes: u32) -> Limits {
        Limits {
            kind: "system".to_owned(),
            device: "mlx5_0".to_owned(),
            link_layer: "Ethernet".to_owned(),
            profile: None,
            max_qp: 64,
            max_qp_wr: 8192,
            max_cqe: 8192,
            max_mr_bytes: 1 << 30,
            has_atomics: true,
            max_rd_atomic: 16,
            max_inline_bytes,
            max_sge: 4,
            max_srq_sge: 4,
            ports: 1,
            active_mtu_bytes: 1024,
            max_msg_bytes: 1 << 30,
            gids: 4,
            needs_gid: true,
            has_on_demand_paging: false,
            ack_delay_code: 0,
        }
    }

    #[test]
    fn inline_is_judged_by_the_bytes_of_a_sample() {
        // A sample of eight values has 88 bytes.
        let own = Gateway::OWN;
        let with = |inline, signal_every| Common { inline, signal_every, ..Gateway::COMMON };
        let judged =
            |common: &Common, most| own.check(common, &limits(most)).map_err(|(option, _)| option);
        for (inline, signal_every, most, expected) in [
            (Inline::On, Signal::Max, 88, Ok(())),
            (Inline::On, Signal::Max, 87, Err("inline")),
            (Inline::Auto, Signal::Max, 87, Ok(())),
            (Inline::Auto, Signal::Every(2), 88, Ok(())),
            (Inline::Auto, Signal::Every(2), 87, Err("signal-every")),
            (Inline::Off, Signal::Every(2), 88, Err("signal-every")),
            (Inline::Off, Signal::Every(1), 88, Ok(())),
        ] {
            assert_eq!(judged(&with(inline, signal_every), most), expected, "{inline:?} {most}");
        }
    }

    fn set(common: &mut Common, name: &str, value: &str) -> bool {
        let all = [TRANSPORT, INLINE, SIGNAL_EVERY, TX_DEPTH, RX_DEPTH, PORT, GID_INDEX];
        let field = all.into_iter().find(|field| field.opt.name == name).expect("it is one");
        (field.set)(common, value).is_ok()
    }
}
