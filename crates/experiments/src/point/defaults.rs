//! What each experiment does unless told otherwise.

use super::{
    Arrivals, Call, Experiment, Flow, Inline, Memory, Op, PauseBy, Point, Polling, Signal, Stamps,
    Transport, Unsignalled,
};
use crate::connect::By;
use crate::fan::options::{Cast, Direction, Sizes};
use crate::recvq::options::{Queue, RegionsBy, Return, ReturnWhen};
use crate::timeout::Absent;

impl Point {
    /// What an experiment does unless told otherwise.
    ///
    /// `oneway` and `ping` take at least 10^5 samples, so that a 99.99th percentile means
    /// something.
    #[must_use]
    pub const fn default_for(experiment: Experiment) -> Self {
        let any = Self::plain(experiment);
        match experiment {
            // The runs of potter2018, with the pause of its figures over sizes, so that no message
            // waits behind another.
            Experiment::Oneway => Self {
                op: Op::SendImm,
                messages: 8000,
                runs: 25,
                pause_ns: 5500,
                tx_depth: 512,
                rx_depth: 4096,
                ..any
            },
            Experiment::Ping => any,
            Experiment::Blast => Self {
                size_bytes: 64 << 10,
                messages: 20_000,
                runs: 5,
                buffers: 64,
                outstanding_reads: 16,
                ..any
            },
            // In steps: 10^4 samples of each call, with room for lists.
            Experiment::Overhead => Self { messages: 10_000, tx_depth: 512, ..any },
            Experiment::Mr => Self {
                size_bytes: 64 << 10,
                messages: 200,
                warm_up: 20,
                memory: Memory::Private,
                ..any
            },
            Experiment::Connect => Self {
                op: Op::Write,
                size_bytes: 8,
                messages: 1,
                runs: 20,
                warm_up: 0,
                tx_depth: 16,
                rx_depth: 16,
                ..any
            },
            // As mordkovich2013 has it; an RNR NAK asks for 10 us, and does not hide all else.
            Experiment::Recvq => Self {
                size_bytes: 128,
                messages: 10_000,
                warm_up: 100,
                rx_depth: 32,
                min_rnr_timer: 1,
                ..any
            },
            // As RAMCloud's ClusterPerf, with its shared receive queue.
            Experiment::Rpc => Self {
                size_bytes: 100,
                messages: 1000,
                warm_up: 100,
                tx_depth: 16,
                rx_depth: 32,
                min_rnr_timer: 1,
                ..any
            },
            Experiment::Fan => Self { messages: 10_000, tx_depth: 16, rx_depth: 16, ..any },
            Experiment::Timeout => {
                Self { messages: 20, warm_up: 0, timeout: 10, retry_cnt: 1, ..any }
            }
        }
    }

    /// What all have in common.
    const fn plain(experiment: Experiment) -> Self {
        Self {
            experiment,
            transport: Transport::Rc,
            op: Op::Send,
            size_bytes: 32,
            messages: 100_000,
            runs: 1,
            warm_up: 1000,
            inline: Inline::Auto,
            signal_every: Signal::Every(1),
            poll_send: Polling::Busy,
            poll_recv: Polling::Busy,
            burst: 0,
            pause_ns: 0,
            pause_by: PauseBy::Auto,
            rate_per_s: 0,
            arrivals: Arrivals::Poisson,
            buffers: 1,
            list: 1,
            mtu_bytes: 0,
            sl: 0,
            qps: 1,
            threads: 1,
            share_qp: false,
            tx_depth: 128,
            rx_depth: 512,
            outstanding_reads: 1,
            flow: Flow::Credit,
            touch: true,
            stamps: Stamps { send: false, recv: true, comp: true, post: false },
            stamp_every: 0,
            unsignalled: Unsignalled::Write,
            memory: Memory::Device,
            port: 1,
            gid_index: None,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            call: Call::Read,
            by: By::Plain,
            limit_ns: 0,
            absent: Absent::QueuePair,
            queue: Queue::Own,
            max_sge: 1,
            regions: 1,
            regions_by: RegionsBy::Block,
            missing: 0,
            return_at: Return::Every(1),
            return_when: ReturnWhen::After,
            peers: 0,
            direction: Direction::Both,
            cast: Cast::Each,
            sizes: Sizes::Alone,
            lost_after_ns: 250_000_000,
            seed: 1,
            stream: 0,
        }
    }
}
