//! The questions that can be asked, as data.

use rdmalab_measure::Method;

use crate::goal::Goal;

/// The experiments that measure for advice, by their names in commands and records, each with its
/// method.
pub type Experiments<'a> = &'a [(&'a str, Method)];

/// A question about a way of sending.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Its name, for `--ask` and for directories.
    pub key: &'static str,
    /// The question in words.
    pub asks: &'static str,
    /// The parameters that it is about, as records name them. All other parameters are the same in
    /// all runs that are compared.
    pub parameters: &'static [&'static str],
    /// The options that set them, for commands.
    pub options: &'static [&'static str],
    /// What to say about several ways that are alike.
    pub pick: Pick,
    /// The sweeps that answer it.
    pub sweeps: &'static [Sweep],
    /// A note that the reader needs for the comparison, and the goals that it is for.
    pub note: Option<(&'static [Goal], &'static str)>,
}

/// What to say about several ways that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// That they are alike.
    Any,
    /// The least number is enough: a larger one costs memory and gains nothing.
    Least,
    /// The size up to which one of two ways is better.
    Threshold {
        /// The way that is better up to some size.
        on: &'static str,
        /// The other way.
        off: &'static str,
    },
}

/// A sweep, as options of `rdmalab run`.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// How it measures; the [`Experiments`] say which experiment does.
    pub method: Method,
    /// The goals for which it measures numbers.
    pub goals: &'static [Goal],
    /// Options and their values; `--size` comes from the command line unless it is in this list.
    pub options: &'static [(&'static str, &'static str)],
    /// The options with `--quick`, instead of `options`.
    pub quick: &'static [(&'static str, &'static str)],
}

const TIMES: &[Goal] = &[Goal::Latency, Goal::Predictability];
const FLOODS: &[Goal] = &[Goal::Rate, Goal::Cpu];

/// Messages of a run: enough for its p99 and no more, since precision comes from more runs.
const TRIPS: (&str, &str) = ("messages", "10000");
const FEW_TRIPS: (&str, &str) = ("messages", "2000");
const FLOOD: (&str, &str) = ("messages", "50000");
const SMALL_FLOOD: (&str, &str) = ("messages", "10000");
const ONCE: (&str, &str) = ("runs", "1");

/// The send queue, of which a completion or a list covers a part.
const SEND_QUEUE: (&str, &str) = ("tx-depth", "128");

type Options = &'static [(&'static str, &'static str)];

/// Round trips, which measure times.
const fn trips(options: Options, quick: Options) -> Sweep {
    Sweep { method: Method::RoundTrips, goals: TIMES, options, quick }
}

/// Round trips over a receive queue.
const fn receives(options: Options, quick: Options) -> Sweep {
    Sweep { method: Method::ReceiveQueue, goals: TIMES, options, quick }
}

/// Messages sent at the highest rate.
const fn floods(options: Options, quick: Options) -> Sweep {
    Sweep { method: Method::Flood, goals: FLOODS, options, quick }
}

/// All questions, in the order of the answers.
pub const QUESTIONS: &[Question] =
    &[OPCODE, TRANSPORT, INLINE, SIGNALS, LIST, BUFFERS, DEPTH, QUEUE, RETURN, POLLING];

const OPCODE: Question = Question {
    key: "opcode",
    asks: "Which opcode?",
    parameters: &["op"],
    options: &["op"],
    pick: Pick::Any,
    sweeps: &[
        trips(
            &[("op", "send,send_imm,write,write_imm,read"), TRIPS],
            &[("op", "send,write,read"), FEW_TRIPS],
        ),
        floods(
            &[("op", "send,send_imm,write,write_imm,read"), FLOOD, ONCE],
            &[("op", "send,write,read"), SMALL_FLOOD, ONCE],
        ),
    ],
    note: Some((
        TIMES,
        "a round trip of read is one request and its data; of the others, a message and its answer",
    )),
};

const TRANSPORT: Question = Question {
    key: "transport",
    asks: "Which transport?",
    parameters: &["transport"],
    options: &["transport"],
    pick: Pick::Any,
    sweeps: &[
        trips(&[("transport", "rc,uc,ud"), TRIPS], &[("transport", "rc,uc,ud"), FEW_TRIPS]),
        floods(
            &[("transport", "rc,uc,ud"), FLOOD, ONCE],
            &[("transport", "rc,uc,ud"), SMALL_FLOOD, ONCE],
        ),
    ],
    note: Some((&Goal::ALL, "rc sends again what is lost; uc and ud do not")),
};

const INLINE: Question = Question {
    key: "inline",
    asks: "Inline up to which size?",
    parameters: &["inline_bytes"],
    options: &["inline"],
    pick: Pick::Threshold { on: "on", off: "off" },
    sweeps: &[
        trips(
            &[("size", "16..1024*2"), ("inline", "on,off"), TRIPS],
            &[("size", "16,128,1024"), ("inline", "on,off"), FEW_TRIPS],
        ),
        floods(
            &[("size", "16..1024*2"), ("inline", "on,off"), FLOOD, ONCE],
            &[("size", "16,128,1024"), ("inline", "on,off"), SMALL_FLOOD, ONCE],
        ),
    ],
    note: None,
};

const SIGNALS: Question = Question {
    key: "signalling",
    asks: "One completion in how many sends?",
    parameters: &["signal_every"],
    options: &["signal-every"],
    pick: Pick::Least,
    sweeps: &[
        trips(&[("signal-every", "1,4,16,64"), TRIPS], &[("signal-every", "1,16"), FEW_TRIPS]),
        floods(
            &[("signal-every", "1,4,16,64"), SEND_QUEUE, FLOOD, ONCE],
            &[("signal-every", "1,4,16,64"), SEND_QUEUE, SMALL_FLOOD, ONCE],
        ),
    ],
    note: Some((FLOODS, "64 is half of the send queue, which holds 128")),
};

const LIST: Question = Question {
    key: "list",
    asks: "How many sends in one post?",
    parameters: &["list"],
    options: &["list"],
    pick: Pick::Least,
    sweeps: &[floods(
        &[("list", "1,4,16,64"), SEND_QUEUE, FLOOD, ONCE],
        &[("list", "1,4,16"), SEND_QUEUE, SMALL_FLOOD, ONCE],
    )],
    note: None,
};

const BUFFERS: Question = Question {
    key: "buffers",
    asks: "How many messages under way?",
    parameters: &["buffers"],
    options: &["buffers"],
    pick: Pick::Least,
    sweeps: &[floods(
        &[("buffers", "1,4,16,64,256"), ("tx-depth", "512"), FLOOD, ONCE],
        &[("buffers", "1,4,16,64"), SMALL_FLOOD, ONCE],
    )],
    note: None,
};

const DEPTH: Question = Question {
    key: "depth",
    asks: "How deep a receive queue?",
    parameters: &["rx_depth"],
    options: &["rx-depth"],
    pick: Pick::Least,
    sweeps: &[floods(
        &[("rx-depth", "16,64,256,1024"), FLOOD, ONCE],
        &[("rx-depth", "16,64,512"), SMALL_FLOOD, ONCE],
    )],
    note: None,
};

const QUEUE: Question = Question {
    key: "queue",
    asks: "A receive queue of its own or a shared one, for how many scatter entries?",
    parameters: &["queue", "max_sge"],
    options: &["queue", "max-sge"],
    pick: Pick::Any,
    sweeps: &[receives(
        &[("queue", "own,srq"), ("max-sge", "1,8"), TRIPS],
        &[("queue", "own,srq"), ("max-sge", "1,8"), FEW_TRIPS],
    )],
    note: Some((&Goal::ALL, "each receive uses one entry")),
};

const RETURN: Question = Question {
    key: "return",
    asks: "When to post receives again: after each message, or in bulk?",
    parameters: &["return", "return_when"],
    options: &["return", "return-when"],
    pick: Pick::Any,
    sweeps: &[receives(
        &[("return", "1,half,all"), ("return-when", "before,after"), TRIPS],
        &[("return", "1,all"), ("return-when", "before,after"), FEW_TRIPS],
    )],
    note: Some((&Goal::ALL, "before or after the answer, of a queue of 32")),
};

const POLLING: Question = Question {
    key: "polling",
    asks: "Busy polling, or events?",
    parameters: &["poll_send", "poll_recv"],
    options: &["poll"],
    pick: Pick::Any,
    sweeps: &[
        trips(
            &[("poll", "busy,event"), ("messages", "5000")],
            &[("poll", "busy,event"), FEW_TRIPS],
        ),
        Sweep {
            method: Method::Flood,
            goals: &[Goal::Rate],
            options: &[("poll", "busy,event"), FLOOD, ONCE],
            quick: &[("poll", "busy,event"), SMALL_FLOOD, ONCE],
        },
        Sweep {
            method: Method::RoundTrips,
            goals: &[Goal::Cpu],
            options: &[("poll", "busy,event"), ("rate", "2000"), ("messages", "2000")],
            quick: &[("poll", "busy,event"), ("rate", "2000"), ("messages", "400")],
        },
    ],
    note: None,
};

/// Most bytes of a run, unless too few messages would be left.
const RUN_BYTES: u64 = 1 << 30;
/// Least messages of a run that has a p99.
pub const MESSAGES_OF_P99: u64 = 1000;

/// Messages of a run: fewer than planned if they are large.
#[must_use]
pub fn fewer_of_large(planned: u64, size_bytes: u64) -> u64 {
    planned.min((RUN_BYTES / size_bytes.max(1)).max(MESSAGES_OF_P99))
}

impl Question {
    /// The note on the comparison for a goal.
    #[must_use]
    pub fn note_to(&self, goal: Goal) -> Option<&'static str> {
        self.note.filter(|(goals, _)| goals.contains(&goal)).map(|(_, note)| note)
    }

    /// Whether points of a method, with or without a rate, measure the goal's number.
    #[must_use]
    pub fn is_answered_by(&self, goal: Goal, method: Method, is_paced: bool) -> bool {
        self.varying(goal, method, is_paced).is_some()
    }

    /// Messages of a run of the short sweep with such points.
    #[must_use]
    pub fn least_messages(&self, goal: Goal, method: Method, is_paced: bool) -> Option<u64> {
        let options = self.varying(goal, method, is_paced)?.quick;
        options.iter().find(|(name, _)| *name == "messages")?.1.parse().ok()
    }

    fn varying(&self, goal: Goal, method: Method, is_paced: bool) -> Option<&Sweep> {
        let is_it = |sweep: &&Sweep| {
            let at_rate = sweep.options.iter().any(|(name, _)| *name == "rate");
            sweep.method == method && at_rate == is_paced && sweep.goals.contains(&goal)
        };
        self.sweeps.iter().find(is_it)
    }
}

impl Sweep {
    /// The sweep's options, with `sizes` unless it sets its own.
    #[must_use]
    pub fn words(&self, sizes: &str, is_quick: bool) -> Vec<(String, String)> {
        let own = if is_quick { self.quick } else { self.options };
        let mut words: Vec<(String, String)> = Vec::new();
        if !own.iter().any(|(name, _)| *name == "size") {
            words.push(("size".to_owned(), sizes.to_owned()));
        }
        words.extend(own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        words
    }
}

/// The question with that key.
///
/// # Errors
/// There is no such question; the error lists all of them.
pub fn question(key: &str) -> Result<&'static Question, String> {
    QUESTIONS.iter().find(|question| question.key == key).ok_or_else(|| {
        let keys: Vec<&str> = QUESTIONS.iter().map(|question| question.key).collect();
        format!("{key:?} is not a question: choose one of {}", keys.join(", "))
    })
}
