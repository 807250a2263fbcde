//! The configuration of a gateway: VILLASnode's keys, with its defaults.

use rdmalab_config::{At, Named, OneOrMany, group, one_of};

use crate::hooks::HookChoice;
use crate::nodes::NodeConfig;
use crate::queue::Overflow;
use crate::timer::TimerKind;

group! {
    /// A gateway: its nodes, and the paths between them.
    pub struct Gateway {
        /// The nodes by their names.
        nodes: Named<NodeConfig>;
        /// The paths, each with a thread of its own.
        paths: Vec<At<PathConfig>>;
        /// The processors that threads may run on, as bits; 0 for all.
        affinity: Option<u64>;
        /// The priority of threads under SCHED_FIFO; 0 leaves it as it is.
        priority: Option<u8>, in 0..=99;
        /// More than 0 locks the memory of the process. No page is taken from the system's pool.
        hugepages: u64 = 0;
        /// How timers wait, unless the node says so itself.
        timer: TimerKind = TimerKind::Timerfd;
    }
    ignored {
        http: "there is no web server; the summary has the numbers";
        logging: "messages go to standard error";
        stats: "the summary has all statistics";
        uuid: "nothing refers to it";
        name: "nothing refers to it";
        description: "it is for people";
        idle_stop: "the gateway ends when all sources have ended";
        seed: "a signal node has a seed of its own";
    }
}

one_of! {
    /// When a path with several sources makes a sample.
    pub enum Mode {
        /// When any source has one.
        Any = "any";
        /// When all sources have one.
        All = "all";
    }
}

group! {
    /// A path from sources to destinations.
    pub struct PathConfig {
        /// The sources, or expressions of mapping such as `a.data[0-2]`.
        r#in: OneOrMany<At<String>>;
        /// The destinations.
        out: Option<OneOrMany<At<String>>>;
        /// The hooks, in their order.
        hooks: Vec<At<HookChoice>> = Vec::new();
        /// When several sources make a sample.
        mode: Mode = Mode::Any;
        /// The sources whose samples count for the mode.
        mask: Option<Vec<At<String>>>;
        /// Sends the last sample again at this rate [Hz], and only then.
        rate: f64 = 0.0, in 0.0..=1e9;
        /// Samples that wait at most where threads meet.
        queuelen: usize = 1024, in 1..=16_777_216;
        /// Which sample a full queue drops.
        overflow: Overflow = Overflow::Newest;
        /// Keeps the numbers of the source; the default if there is one source.
        original_sequence_no: Option<bool>;
        /// Makes the path in the other direction too.
        reverse: bool = false;
        /// Waits so long for destinations to be connected before the first sample [s].
        connect_wait: f64 = 1.0, in 0.0..=1e6;
        /// Stamps and numbers samples that lack it.
        builtin: bool = true;
        /// Whether there is such a path.
        enabled: bool = true;
        /// The processors that its thread may run on, as bits; 0 for all.
        affinity: Option<u64>;
        /// The priority of its thread under SCHED_FIFO; 0 leaves it as it is.
        priority: Option<u8>, in 0..=99;
    }
    ignored {
        poll: "a path with one source waits for it, and one with several looks at them in turn";
        uuid: "nothing refers to it";
    }
}
