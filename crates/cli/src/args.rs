//! The commands and their options: one vocabulary, in which an option means the same everywhere.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

use crate::advise::AdviseArgs;
use crate::compare::CompareArgs;
use crate::doctor::DoctorArgs;
use crate::latency::LatencyArgs;
use crate::link::LinkArgs;
use crate::perftest::args::PerftestArgs;
use crate::run::args::{Format, RunArgs};
use rdmalab_rank::process::SESSIONS_MAX;
use rdmalab_report::expect::Expectation;

/// A laboratory for RDMA performance.
///
/// Without a command: a short tour. Two processes on a device exchange messages; tables and a
/// histogram show what they measured, pages with plots are written, and the bare limits of this
/// machine stand below.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = AFTER)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What the tour measures.
    #[command(flatten)]
    pub tour: TourArgs,
}

const AFTER: &str = "\
Exit codes: 0 fine; 1 the run failed or an expectation did not hold; 2 the call was wrong.
Environment variables: `rdmalab man environment`.
Numbers of soft devices are this host's, never an adapter's.";

/// Options of the tour.
#[derive(Args, Clone, Debug)]
pub struct TourArgs {
    /// The device, by the name that `rdmalab devices` shows [default: the first adapter with an
    /// active port, else soft0]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Fewer samples: seconds instead of a minute, and fewer percentiles
    #[arg(long)]
    pub quick: bool,
    /// The CPUs of the two ends, as A,B; `none`: wherever the scheduler puts them
    #[arg(long, value_name = "A,B")]
    pub cores: Option<String>,
    /// Where the records' directories are made [default: rdmalab-records]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Keep no records
    #[arg(long, conflicts_with = "out")]
    pub no_record: bool,
    /// What lies between the ends.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Every device of every kind, what it can do, and what is wrong with it
    Devices(DevicesArgs),
    /// Measure: all ends on this machine, or with a server on another one
    ///
    /// Measures all combinations of the options' values in random order, keeps a record, and prints
    /// what came out. Ctrl-C ends it and keeps what was measured; a second one ends it at once.
    Run {
        /// Which experiment.
        #[command(subcommand)]
        what: RunArgs,
    },
    /// Be the other end for clients of other machines
    ///
    /// Gives each client a process of its own, which does what the client says: the client's
    /// parameters rule. Listens for this machine alone unless --bind names an address.
    Serve(ServeArgs),
    /// Run a published study again on the device at hand, and write a page about it
    ///
    /// Without a key: the studies that there are. Each figure of a study is a set of sweeps in the
    /// words of `rdmalab run`; the page sets our numbers beside the study's, and says of each of
    /// its claims whether it was confirmed, refuted, or cannot be seen on this device.
    Study(StudyArgs),
    /// Records again: as tables, JSON, CSV, Markdown, perftest's tables, a page, or pictures
    Report(ReportArgs),
    /// Two records side by side: what differs, by how much, and how certain that is
    ///
    /// Matches points by the parameters that vary within a record; what differs between the records
    /// is what is compared. Exits with 1 if B is worse than A by more than --threshold, with
    /// certainty.
    Compare(CompareArgs),
    /// Which way of sending is best here, in plain words, with the evidence
    ///
    /// Measures each way several times, in turns and in random order, and says for each goal which
    /// opcode, transport, inline size, signalling interval, number of buffers, queue depth and way
    /// of polling is best, by how much and with what certainty; or that there is no difference, or
    /// that it cannot tell. With directories it answers from what was measured before, and says
    /// what is missing.
    Advise(AdviseArgs),
    /// What of this machine hurts latency and bandwidth, and how to mend it
    ///
    /// Reads files below /sys and /proc, and changes nothing: --fix shows commands, and runs none.
    Doctor(DoctorArgs),
    /// perftest's programs by their names.
    #[command(flatten)]
    Perftest(PerftestArgs),
    /// Measure the laboratory itself
    Bench {
        /// What of it.
        #[command(subcommand)]
        what: Bench,
    },
    /// Run a program on the soft device, unmodified
    ///
    /// Puts our libibverbs.so.1 before the system's, for the program and its children. Nothing of
    /// ours stays behind as a process. Exits with the program's status (128 + n after signal n);
    /// 125 when something of ours failed, 126 when the program cannot be run, 127 when it is not
    /// there.
    Exec(ExecArgs),
    /// A capture as conversations of queue pairs
    ///
    /// Reads pcap and pcapng files: RoCEv2 as tcpdump, Wireshark or we capture it, InfiniBand as
    /// ibdump does. Shows each packet with its time, direction, opcode, PSN, length and syndrome,
    /// and what it meant: an answer, a repetition, a gap, a refusal.
    Trace(TraceArgs),
    /// The processes that use the soft device on this host
    Ps,
    /// Remove what is left over
    Clean {
        /// Also the library that `env` put into its usual place
        #[arg(long)]
        all: bool,
    },
    /// What a shell or a Dockerfile needs, so that programs find our library without `exec`
    ///
    /// Puts the library into a directory where it stays, and prints the lines that name it.
    Env(EnvArgs),
    /// A manual page, or all of them as files
    ///
    /// To read one: `rdmalab man exec | man -l -`.
    Man(ManArgs),
    /// Completions for a shell
    Completions(CompletionsArgs),
    /// Makes what `exec` shows of /sys/class/infiniband, and prints where it is.
    #[command(hide = true, name = "tree")]
    Tree,
    /// One end of a measurement; started by the others.
    #[command(hide = true, name = "worker")]
    Worker {
        /// The device, whatever the launcher calls its own.
        #[arg(long)]
        device: Option<String>,
        /// The process of the server that started it, with which it ends.
        #[arg(long, value_name = "PID", conflicts_with = "join")]
        server: Option<u32>,
        /// Where the launcher waits, instead of standard input.
        #[arg(long, value_name = "HOST:PORT,...", requires = "rank", conflicts_with = "device")]
        join: Option<String>,
        /// Which rank it is there.
        #[arg(long, requires = "join")]
        rank: Option<usize>,
        /// Refuse devices that are not soft; with the option that asks for it.
        #[arg(long, value_name = "OPTION")]
        soft_only: Option<String>,
    },
}

/// Options of `serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where to listen: ADDRESS or ADDRESS:PORT; 0.0.0.0 is every address of this machine
    /// [default: 127.0.0.1:18515]
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<String>,
    /// The device for all clients [default: the one that the client names]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Clients at the same time
    #[arg(long, value_name = "N", default_value_t = SESSIONS_MAX as u64,
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub sessions: u64,
    /// What lies between this end and others: for all clients.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// Options of `study`.
#[derive(Args, Clone, Debug)]
pub struct StudyArgs {
    /// Which study, as `potter2018` [default: list them]
    pub key: Option<String>,
    /// Only these figures, separated by commas
    #[arg(short = 'F', long, value_delimiter = ',', value_name = "FIGURE", requires = "key")]
    pub figure: Vec<String>,
    /// Fewer points and samples: --plan says how long that takes
    #[arg(long, requires = "key")]
    pub quick: bool,
    /// Go on with what was ended early: the newest directory of the study, or this one
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, requires = "key")]
    pub resume: Option<Option<PathBuf>>,
    /// About how long it may take, as 90s, 10m or 2h; what is repeated is repeated less often,
    /// everywhere alike
    #[arg(long, value_name = "TIME", value_parser = crate::study::trim::time, requires = "key")]
    pub max_time: Option<std::time::Duration>,
    /// Show the sweeps and the expected duration, by a short try of some points, and keep nothing
    #[arg(long, requires = "key")]
    pub plan: bool,
    /// A label for what it is measured under, kept in the records; see --beside
    #[arg(long, value_name = "NAME")]
    pub condition: Option<String>,
    /// Set other runs of the study, of other conditions, beside this one on its page; may be given
    /// several times
    #[arg(long, value_name = "DIR")]
    pub beside: Vec<PathBuf>,
    /// The device, by the name that `rdmalab devices` shows [default: the first adapter with an
    /// active port, else soft0]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// How a soft device is: its limits, and what it makes packets cost. The name of a profile that
    /// `rdmalab devices --profiles` lists, or a file's path [default: what RDMALAB_PROFILE says,
    /// else ideal]
    #[arg(long, value_name = "NAME|FILE", value_parser = crate::link::profile, requires = "key")]
    pub profile: Option<String>,
    /// A directory of studies, each a directory with a plan.toml [default: those that are shipped]
    #[arg(long, value_name = "DIR")]
    pub studies: Option<PathBuf>,
    /// Where the study's directory is made [default: rdmalab-records]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The CPUs of the two ends, as A,B; `none`: wherever the scheduler puts them
    #[arg(long, value_name = "A,B")]
    pub cores: Option<String>,
    /// Start the ranks on these hosts by ssh, as `rdmalab run --hosts` does: round them until there
    /// are as many as a sweep takes
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// How ssh is called, with its options
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub ssh: Option<String>,
    /// The program on the other hosts: a path, or a name that is found there
    #[arg(long, value_name = "PATH", default_value = "rdmalab", requires = "hosts")]
    pub remote_program: String,
    /// Idle states of the processors.
    #[command(flatten)]
    pub latency: LatencyArgs,
}

/// Options of `report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Directories of records, or with records in them; or one of a study, whose page is then
    /// written again
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// How they are printed
    #[arg(long, value_enum, value_name = "FORM", default_value = "table")]
    pub format: Format,
    /// Write one page of all of them that needs nothing but a browser, instead of printing
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    pub html: Option<PathBuf>,
    /// Write each chart as an SVG file into this directory, instead of printing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["format", "html"])]
    pub svg: Option<PathBuf>,
    /// What has to hold at every point, as for `run`; may be given several times. Exits with 1
    /// when one does not hold
    #[arg(long, value_name = "EXPECTATION")]
    pub expect: Vec<Expectation>,
}

/// Options of `devices`.
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// List the profiles that a soft device can be under, instead of devices
    #[arg(long)]
    pub profiles: bool,
    /// Say what this profile is, and show soft devices under it
    #[arg(
        long,
        value_name = "NAME|FILE",
        value_parser = crate::link::profile,
        conflicts_with = "profiles"
    )]
    pub profile: Option<String>,
    /// Print as JSON: short for --format json
    #[arg(long)]
    json: bool,
    /// How it is printed
    #[arg(long, value_enum, value_name = "FORM", default_value = "table", conflicts_with = "json")]
    format: ListFormat,
}

/// How lists are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people
    Table,
    /// One JSON document
    Json,
}

impl DevicesArgs {
    /// Whether programs read it.
    pub fn is_json(&self) -> bool {
        self.json || self.format == ListFormat::Json
    }
}

/// What `bench` measures.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The soft device beside the bare limits of this machine, as ratios
    ///
    /// Never fails on speed: it reports. Two sets of rows have to be asked for, because they take
    /// longer: `--only UDP` (two network namespaces, as root) and `--only captured`.
    #[command(name = "self")]
    Own(BenchArgs),
}

/// Options of `bench self`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Fewer rounds: wider intervals
    #[arg(long)]
    pub quick: bool,
    /// Print as JSON: short for --format json
    #[arg(long)]
    json: bool,
    /// How it is printed
    #[arg(long, value_enum, value_name = "FORM", default_value = "table", conflicts_with = "json")]
    format: ListFormat,
    /// The device to measure
    #[arg(short, long, default_value = "soft0")]
    pub device: String,
    /// The two cores, as A,B [default: the first two that this process may use]
    #[arg(long, value_delimiter = ',', value_name = "A,B", num_args = 1)]
    pub cores: Vec<usize>,
    /// Only rows whose name contains this; rows over UDP and of captures only by this, as
    /// --only UDP (needs root) or --only captured
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Rounds; more than --quick and the default give narrower intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub rounds: Option<u64>,
    /// Idle states of the processors.
    #[command(flatten)]
    pub latency: LatencyArgs,
}

impl BenchArgs {
    /// Whether programs read it.
    pub fn is_json(&self) -> bool {
        self.json || self.format == ListFormat::Json
    }
}

/// Options of `exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// How the device's ports are addressed [default: what RDMALAB_PERSONALITY says, else
    /// infiniband]
    #[arg(long, value_enum)]
    pub personality: Option<Personality>,
    /// What lies between its processes and others.
    #[command(flatten)]
    pub link: LinkArgs,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// Options of `env`.
#[derive(Args, Debug)]
pub struct EnvArgs {
    /// For whom
    #[arg(long, value_enum, default_value = "shell")]
    pub format: EnvFormat,
    /// The directory of the library [default: where it is installed, else a directory of yours]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Who reads what `env` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EnvFormat {
    /// A POSIX shell
    Shell,
    /// A Dockerfile
    Docker,
}

/// Options of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Which, as `exec` or `environment` [default: rdmalab]
    pub page: Option<String>,
    /// Write all of them into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    pub out: Option<PathBuf>,
}

/// Options of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Options of `trace`.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// The capture
    #[arg(value_name = "FILE")]
    pub file: std::path::PathBuf,
    /// Only conversations with this queue pair at either end (0x for hexadecimal)
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair)]
    pub qp: Option<u32>,
    /// At most so many packets of each conversation; 0 for all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Only a line for each conversation
    #[arg(long)]
    pub summary: bool,
}

/// A queue pair's number.
fn queue_pair(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match number {
        Ok(number) if number < 1 << 24 => Ok(number),
        _ => Err("expected a number of 24 bits, like 17 or 0x11".to_owned()),
    }
}

/// How ports are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Personality {
    /// By LIDs, and by GIDs too
    Infiniband,
    /// By GIDs (RoCE)
    Ethernet,
}

impl Personality {
    /// The value of `RDMALAB_PERSONALITY`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Infiniband => "infiniband",
            Self::Ethernet => "ethernet",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
