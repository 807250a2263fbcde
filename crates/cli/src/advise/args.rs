//! Options of `rdmalab advise`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rdmalab_advice::{Goal, QUESTIONS, Question, question};

use crate::failure::{Outcome, usage};
use crate::format::ListFormat;
use crate::latency::LatencyArgs;
use crate::link::LinkArgs;
use crate::run::args::HowArgs;

/// Advise which way of sending is best here, with the evidence
///
/// Measures each way several times, in turns and in random order, and says for each goal which
/// opcode, transport, inline size, signalling interval, list, number of buffers, queues and way
/// of polling is best, by how much and with what certainty; or that there is no difference, or
/// that it cannot tell. With directories it answers from what was measured before, and says
/// what is missing.
#[derive(Args, Clone, Debug, Default)]
pub struct AdviseArgs {
    /// Records to answer from, or directories of them, as `run`, `study` and `advise` keep them
    /// [default: measure]
    #[arg(value_name = "DIR", conflicts_with = "hold_dma_latency")]
    pub records: Vec<PathBuf>,
    /// Best for what, separated by commas [default: each]
    #[arg(long = "for", value_name = "GOAL", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(Goal::ALL.map(Goal::name))
            .try_map(|word| word.parse::<Goal>()))]
    pub goals: Vec<Goal>,
    /// Only these questions, separated by commas [default: all]
    #[arg(long, value_name = "QUESTION", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(QUESTIONS.iter().map(|asked| asked.key))
            .try_map(|key| question(&key)))]
    pub ask: Vec<&'static Question>,
    /// Length of the messages, a list or a range; with DIR, only what has such [default: 32]
    #[arg(short, long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Fewer ways, runs and messages: about half a minute, on slow devices up to two, and fewer
    /// certain answers
    #[arg(long, conflicts_with = "records")]
    pub quick: bool,
    /// About how long it may take, as 90s, 10m or 2h: runs get fewer messages [default: 10m, with
    /// --quick 100s; or twice the time of a device that answers in a microsecond]
    #[arg(long, value_name = "TIME", value_parser = crate::values::time,
        conflicts_with = "records")]
    pub max_time: Option<Duration>,
    /// Runs of each way [default: 15; with --quick 8]
    #[arg(long, value_name = "N", conflicts_with = "records",
        value_parser = clap::value_parser!(u32).range(2..=50))]
    pub repeat: Option<u32>,
    /// Show what would be measured and how long it takes, from a short trial of each way, and keep
    /// no records
    #[arg(long, conflicts_with = "records")]
    pub plan: bool,
    /// Print as JSON: short for --format json
    #[arg(long)]
    pub json: bool,
    /// How it is printed
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "json")]
    pub format: Option<ListFormat>,
    /// The device, by the name that `rdmalab devices` shows [default: the first adapter with an
    /// active port, else soft0]
    #[arg(short, long, value_name = "NAME", conflicts_with = "records")]
    pub device: Option<String>,
    /// The CPUs of the two ends, as A,B; `none` leaves them to the scheduler
    #[arg(long, value_name = "A,B", conflicts_with = "records")]
    pub cores: Option<String>,
    /// Where the directory of its records is made [default: rdmalab-records]
    #[arg(long, value_name = "DIR", conflicts_with = "records")]
    pub out: Option<PathBuf>,
    /// Keep no records
    #[arg(long, conflicts_with_all = ["out", "records"])]
    pub no_record: bool,
    /// The other end: a host, or HOST:PORT, on which `rdmalab serve` runs [default: both ends on
    /// this machine]
    #[arg(long, value_name = "HOST", conflicts_with_all = ["hosts", "records"])]
    pub server: Option<String>,
    /// Start the ends on these two hosts by ssh, as `run --hosts` does
    #[arg(long, value_name = "A,B", value_delimiter = ',', conflicts_with = "records")]
    pub hosts: Vec<String>,
    /// The ssh command, with its options [default: ssh -T -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub ssh: Option<String>,
    /// The program on the other hosts: a path, or a name that is found there
    #[arg(long, value_name = "PATH", default_value = "rdmalab", requires = "hosts")]
    pub remote_program: String,
    /// Where ranks of other hosts find this machine: HOST or HOST:PORT
    #[arg(long, value_name = "HOST", requires = "hosts")]
    pub rendezvous: Option<String>,
    /// Idle states of the processors.
    #[command(flatten)]
    pub latency: LatencyArgs,
    /// What lies between the ends.
    #[command(flatten)]
    pub link: LinkArgs,
}

impl AdviseArgs {
    /// The goals, each once, in the order of the answers.
    pub fn goals(&self) -> Vec<Goal> {
        let is_asked = |goal: &Goal| self.goals.is_empty() || self.goals.contains(goal);
        Goal::ALL.into_iter().filter(is_asked).collect()
    }

    /// The questions, each once, in the order of the answers.
    pub fn questions(&self) -> Vec<&'static Question> {
        let is_asked = |question: &&Question| {
            self.ask.is_empty() || self.ask.iter().any(|asked| asked.key == question.key)
        };
        QUESTIONS.iter().filter(is_asked).collect()
    }

    /// Runs of each way.
    pub fn runs(&self) -> u32 {
        self.repeat.unwrap_or(if self.quick { 8 } else { 15 })
    }

    /// The sizes, as text for a sweep.
    pub fn sizes(&self) -> &str {
        self.size.as_deref().unwrap_or("32")
    }

    /// Whether the output is JSON.
    pub fn is_json(&self) -> bool {
        self.json || self.format == Some(ListFormat::Json)
    }

    /// The options for running the sweeps.
    ///
    /// # Errors
    /// `--hosts` does not name exactly two hosts.
    pub fn how(&self) -> Outcome<HowArgs> {
        if !matches!(self.hosts.len(), 0 | 2) {
            let count = self.hosts.len();
            return Err(usage(format!("--hosts: advise needs two hosts, not {count}: name two")));
        }
        Ok(HowArgs {
            device: self.device.clone(),
            repeat: self.runs(),
            out: self.out.clone(),
            cores: self.cores.clone(),
            host: self.server.clone(),
            hosts: self.hosts.clone(),
            ssh: self.ssh.clone(),
            remote_program: self.remote_program.clone(),
            rendezvous: self.rendezvous.clone(),
            latency: self.latency,
            link: self.link.clone(),
            ..HowArgs::default()
        })
    }
}
