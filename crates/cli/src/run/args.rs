//! `rdmalab run EXPERIMENT`: the table of the experiments crate defines the options, so that a name
//! has the same meaning here, in a record and in a study.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use rdmalab_experiments::{Experiment, Opt, Point, options};
use rdmalab_report::expect::Expectation;

use super::condition::Condition;
use super::until::Goal;

use crate::format::Format;
use crate::latency::LatencyArgs;
use crate::link::LinkArgs;
use crate::simulated::Wanted;
use crate::team::Team;

/// The arguments of `rdmalab run`.
#[derive(Clone, Debug)]
pub struct RunArgs {
    /// The experiment.
    pub experiment: Experiment,
    /// Options of its points, each with a value, a list or a range, in the order of the command
    /// line: the last one varies fastest.
    pub sweep: Vec<(String, String)>,
    /// How to run it.
    pub how: HowArgs,
}

/// Options that do not change what is measured at a point.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "How it is run")]
pub struct HowArgs {
    /// The device, by the name that `rdmalab devices` shows [default: the first adapter with an
    /// active port, else soft0]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Measure each point so many times; all points once, then all again
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Show every default, the points and the expected duration, and measure nothing
    #[arg(long)]
    pub plan: bool,
    /// How results are printed
    #[arg(long, value_enum, value_name = "FORM", default_value = "table")]
    pub format: Format,
    /// Where the record's directory is made [default: rdmalab-records]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Keep no record
    #[arg(long, conflicts_with = "out")]
    pub no_record: bool,
    /// Repeat the points until the 95 % interval of a quantile of the first quantity, over five
    /// runs or more, is so narrow: median±1%, or p99+-5%
    #[arg(long, value_name = "GOAL", conflicts_with = "repeat")]
    pub until: Option<Goal>,
    /// Begin no round of runs for --until that would end later than this many seconds of this
    /// machine's time, which is not that of a simulated device
    #[arg(long, value_name = "S", default_value_t = 60, requires = "until")]
    pub max_time: u64,
    /// What has to hold at every point, as 'p99<5us', 'round trip median<=1.2us', 'rate>1M/s' or
    /// 'loss<0.1%'; may be given several times. Exits with 1 when one does not hold
    #[arg(long, value_name = "EXPECTATION")]
    pub expect: Vec<Expectation>,
    /// Idle states of the processors.
    #[command(flatten)]
    pub latency: LatencyArgs,
    /// What it is measured under, in a word, for comparisons and studies: quiet, loaded
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub condition: Option<String>,
    /// Measure under this condition, which the command makes on this machine before each turn; give
    /// one for each condition. A command undoes what those of the other conditions did:
    /// --under on='echo 1 >FILE' --under off='echo 0 >FILE'. --repeat says how many turns each has
    #[arg(long, value_name = "NAME=COMMAND",
        conflicts_with_all = ["condition", "until", "expect", "timeline", "capture"])]
    pub under: Vec<Condition>,
    /// How many ranks take part, each a process, or simulated: up to 256, or 1024 [default: as few
    /// as the experiment takes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ranks: Option<u32>,
    /// The CPU of each rank, as A,B; `none`: wherever the scheduler puts them [default: the first
    /// that this process may use, where there are enough]
    #[arg(long, value_name = "A,B")]
    pub cores: Option<String>,
    /// The other end: a host, or HOST:PORT, on which `rdmalab serve` runs [default: both ends on
    /// this machine]
    #[arg(conflicts_with_all = ["ranks", "hosts"])]
    pub host: Option<String>,
    /// Start a rank on each of these hosts by ssh, rank 0 on the first; `localhost` is this
    /// machine, without ssh; with --ranks, round the hosts until there are enough
    #[arg(long, value_name = "A,B", value_delimiter = ',', help_heading = ELSEWHERE)]
    pub hosts: Vec<String>,
    /// How ssh is called, with its options [default: ssh -T -o BatchMode=yes -o ConnectTimeout=10]
    #[arg(long, value_name = "COMMAND", requires = "hosts", help_heading = ELSEWHERE)]
    pub ssh: Option<String>,
    /// The program on the other hosts: a path, or a name that is found there
    #[arg(long, value_name = "PATH", default_value = "rdmalab", requires = "hosts",
        help_heading = ELSEWHERE)]
    pub remote_program: String,
    /// Where ranks of other hosts find rank 0's (with --hosts: this) machine: HOST or HOST:PORT
    /// [default: with --hosts, where ssh comes from; under mpirun and srun, the first host]
    #[arg(long, value_name = "HOST", help_heading = ELSEWHERE)]
    pub rendezvous: Option<String>,
    /// Show what happens to a message step by step, from the post with this number of a rank to its
    /// next one, and where the time of all its messages goes; on simulated devices only, and for
    /// the point that is measured last
    #[arg(long, value_name = "N")]
    pub timeline: Option<u64>,
    /// The rank of --timeline
    #[arg(long, value_name = "RANK", requires = "timeline", default_value_t = 0)]
    pub timeline_rank: usize,
    /// What lies between the ends.
    #[command(flatten)]
    pub link: LinkArgs,
    /// The part of a study that this is: nothing is printed, and its record goes on.
    #[arg(skip)]
    pub part: Option<PartOf>,
    /// The repetition that the first run of each point is: what is drawn differs between them.
    #[arg(skip)]
    pub first_repetition: usize,
    /// The processes that mpirun or srun started, if all parts of a study share them.
    #[arg(skip)]
    pub team: Option<Team>,
}

/// The place of a part of a study.
#[derive(Clone, Debug)]
pub struct PartOf {
    /// The directory of its record, which may exist already.
    pub dir: PathBuf,
    /// The command that measures the part alone.
    pub command: Vec<String>,
}

impl HowArgs {
    /// The message whose steps are wanted.
    pub fn wanted(&self) -> Option<Wanted> {
        self.timeline.map(|message| Wanted { rank: self.timeline_rank, message })
    }

    /// The device to measure.
    pub fn device(&self) -> String {
        let unnamed = || crate::soft::best(&self.link);
        self.device.clone().unwrap_or_else(unnamed)
    }
}

const ELSEWHERE: &str = "Ranks on other hosts";

impl RunArgs {
    /// Parses the words behind `rdmalab run`.
    ///
    /// # Errors
    /// As on the command line.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, clap::Error> {
        let command = Command::new("rdmalab run").no_binary_name(true).subcommand_required(true);
        Self::from_arg_matches(&Self::augment_subcommands(command).try_get_matches_from(words)?)
    }
}

/// Whether an experiment has no option that `run` has itself.
///
/// # Errors
/// Which option, and what to do.
pub fn clashes(experiment: Experiment) -> Result<(), String> {
    let command = HowArgs::augment_args(Command::new("run"));
    let own: Vec<(Option<&str>, Option<char>)> =
        command.get_arguments().map(|arg| (arg.get_long(), arg.get_short())).collect();
    let is_taken = |option: &&&Opt| {
        let help = option.name == "help" || option.letter == Some('h');
        let same = |(long, short): &(Option<&str>, Option<char>)| {
            *long == Some(option.name) || short.is_some() && *short == option.letter
        };
        help || own.iter().any(same)
    };
    match experiment.options().iter().find(is_taken) {
        None => Ok(()),
        Some(option) => Err(format!(
            "--{} of {experiment} is an option of `run` itself: choose another name and letter",
            option.name
        )),
    }
}

/// Prefix of the identifiers of letters that need no value.
const BARE: &str = "bare-";

impl Subcommand for RunArgs {
    fn augment_subcommands(command: Command) -> Command {
        // Options that come while another test parses would not be those of its definition.
        #[cfg(test)]
        crate::know_experiments();
        let add =
            |command: Command, experiment: Experiment| command.subcommand(definition(experiment));
        Experiment::all().fold(command, add).subcommand_value_name("EXPERIMENT")
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Experiment::all().any(|experiment| experiment.name() == name)
    }
}

impl FromArgMatches for RunArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let named =
            matches.subcommand().and_then(|(name, below)| Some((name.parse().ok()?, below)));
        let Some((experiment, below)) = named else {
            return Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand));
        };
        let how = HowArgs::from_arg_matches(below)?;
        Ok(Self { experiment, sweep: given(below), how })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The command of an experiment.
fn definition(experiment: Experiment) -> Command {
    let mut command =
        Command::new(experiment.name()).after_help(AFTER).next_help_heading("What is measured");
    for option in options() {
        for arg in arguments(option, experiment) {
            command = command.arg(arg);
        }
    }
    // Set last, since the doc comment of the struct would replace it otherwise.
    let about = sentence(experiment.summary());
    HowArgs::augment_args(command).about(about.clone()).long_about(about)
}

const AFTER: &str = "\
Each option of what is measured takes a value, a list (rc,uc) or a range (8..32K*2, 0..100+10); \
all combinations are measured, in random order. --plan shows them.";

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |c| c.to_uppercase().chain(letters).collect())
}

/// Nanoseconds in a larger unit, if that is shorter.
fn as_time(ns: &str) -> String {
    let units = [("000000000", "s"), ("000000", "ms"), ("000", "us")];
    let shorter =
        |(zeros, unit): &(&str, &str)| ns.strip_suffix(zeros).map(|n| format!("{n}{unit}"));
    units.iter().find_map(shorter).filter(|_| ns != "0").unwrap_or_else(|| ns.to_owned())
}

/// The arguments for an option: one with a value, and possibly a letter without a value. Options
/// that the experiment does not use are hidden, and refused later with a better reason than clap's.
fn arguments(option: &'static Opt, experiment: Experiment) -> Vec<Arg> {
    let default = Point::default_for(experiment).get(option.name);
    let is_used = default.is_some();
    let mut help = option.help.to_owned();
    if let Some(default) = default {
        let default = if option.unit == "ns" { as_time(&default) } else { default };
        help = format!("{help} [default: {default}]");
    }
    let mut arg = Arg::new(option.name)
        .long(option.name)
        .value_name(option.value_name)
        .help(sentence(&help))
        .value_parser(NonEmptyStringValueParser::new())
        .allow_negative_numbers(true)
        .hide(!is_used);
    let Some(letter) = option.letter else { return vec![arg] };
    if option.bare.is_none() {
        arg = arg.short(letter);
        return vec![arg];
    }
    let bare = Arg::new(format!("{BARE}{}", option.name))
        .short(letter)
        .action(ArgAction::SetTrue)
        .conflicts_with(option.name)
        .help(format!("The same as --{} {}", option.name, option.bare.unwrap_or_default()))
        .hide(!is_used);
    vec![arg, bare]
}

/// The options that were given, in the order of the command line.
fn given(matches: &ArgMatches) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for option in options() {
        let bare = format!("{BARE}{}", option.name);
        if let Some(text) = matches.get_one::<String>(option.name) {
            let index = matches.index_of(option.name).unwrap_or(usize::MAX);
            found.push((index, option.name.to_owned(), text.clone()));
        } else if option.bare.is_some() && matches.get_flag(&bare) {
            let index = matches.index_of(&bare).unwrap_or(usize::MAX);
            found.push((index, option.name.to_owned(), option.bare.unwrap_or_default().to_owned()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, name, text)| (name, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<RunArgs, String> {
        RunArgs::parse(words.iter().map(|word| (*word).to_owned())).map_err(|e| e.to_string())
    }

    #[test]
    fn options_keep_their_order_and_letters_their_meaning() {
        let args =
            parsed(&["ping", "--transport", "rc,uc", "-e", "-s", "8..32*2", "host"]).unwrap();
        let pairs = |args: &RunArgs| {
            args.sweep.iter().map(|(n, t)| format!("{n}={t}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(pairs(&args), "transport=rc,uc poll=event size=8..32*2");
        assert_eq!((args.experiment, args.how.host.as_deref()), (Experiment::PING, Some("host")));
        assert_eq!(args.how.repeat, 1);
    }

    #[test]
    fn what_an_experiment_does_not_use_is_hidden_and_still_understood() {
        // The sweep then reports which experiment has the option.
        assert_eq!(parsed(&["ping", "--stamps", "recv"]).unwrap().sweep.len(), 1);
        let help = parsed(&["ping", "--help"]).unwrap_err();
        assert!(help.contains("--size") && !help.contains("--stamps"), "{help}");
        let typo = parsed(&["ping", "--sise", "8"]).unwrap_err();
        assert!(typo.contains("'--size'"), "{typo}");
        let typo = parsed(&["pong"]).unwrap_err();
        assert!(typo.contains("'ping'"), "{typo}");
    }
}
