//! The options of perftest's programs, and the options of rdmalab that replace them.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use rdmalab_experiments::{Experiment, Op};
use rdmalab_rank::process::DEFAULT_PORT;

use crate::format::Format;
use crate::link::LinkArgs;

/// One of perftest's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// The title of its output.
    pub title: &'static str,
    /// The experiment that replaces it.
    pub experiment: Experiment,
    /// The operation.
    pub op: Op,
}

/// The programs that experiments can replace.
pub const TESTS: [Test; 8] = [
    test("ib_send_lat", "Send Latency Test", Experiment::PING, Op::Send),
    test("ib_write_lat", "RDMA_Write Latency Test", Experiment::PING, Op::Write),
    test("ib_read_lat", "RDMA_Read Latency Test", Experiment::PING, Op::Read),
    test("ib_send_bw", "Send BW Test", Experiment::BLAST, Op::Send),
    test("ib_write_bw", "RDMA_Write BW Test", Experiment::BLAST, Op::Write),
    test("ib_read_bw", "RDMA_Read BW Test", Experiment::BLAST, Op::Read),
    test("ib_atomic_lat", "Atomic Latency Test", Experiment::PING, Op::FetchAdd),
    test("ib_atomic_bw", "Atomic BW Test", Experiment::BLAST, Op::FetchAdd),
];

/// The programs that experiments cannot replace.
const OTHERS: [&str; 2] = ["raw_ethernet_lat", "raw_ethernet_bw"];

/// Names of atomics in perftest.
const ATOMICS: [(&str, Op); 2] = [("FETCH_AND_ADD", Op::FetchAdd), ("CMP_AND_SWAP", Op::CmpSwap)];

const fn test(name: &'static str, title: &'static str, experiment: Experiment, op: Op) -> Test {
    Test { name, title, experiment, op }
}

/// An option of perftest with a value, and the option of rdmalab that replaces it.
struct Letter {
    letter: char,
    long: &'static str,
    /// The option of rdmalab.
    option: &'static str,
    help: &'static str,
    /// The only experiment that has the option; `None` if both have it.
    only: Option<Experiment>,
}

const fn letter(
    letter: char,
    long: &'static str,
    option: &'static str,
    only: Option<Experiment>,
    help: &'static str,
) -> Letter {
    Letter { letter, long, option, help, only }
}

const BLAST: Option<Experiment> = Some(Experiment::BLAST);

const LETTERS: [Letter; 16] = [
    letter('c', "connection", "transport", None, "Connection type: RC, UC or UD"),
    letter('s', "size", "size", None, "Size of a message [default: 2, of bandwidth 65536]"),
    letter('n', "iters", "messages", None, "Messages [default: 1000, of bandwidth 5000]"),
    letter('D', "duration", "duration", None, "Seconds to measure, in place of -n"),
    letter('i', "ib-port", "port", None, "Port of the device"),
    letter('x', "gid-index", "gid-index", None, "Index of the local GID"),
    letter('m', "mtu", "mtu", None, "Path MTU in bytes"),
    letter('t', "tx-depth", "tx-depth", None, "Requests that the send queue holds"),
    letter('r', "rx-depth", "rx-depth", None, "Requests that the receive queue holds"),
    letter('I', "inline_size", "inline", None, "Messages of up to N bytes go inline"),
    letter('u', "qp-timeout", "timeout", None, "Time-out of the QP: 4.096 us x 2^N"),
    letter('S', "sl", "sl", None, "Service level"),
    letter('o', "outs", "outstanding-reads", None, "Outstanding READs"),
    letter('q', "qp", "qps", BLAST, "Queue pairs"),
    letter(
        'Q',
        "cq-mod",
        "signal-every",
        BLAST,
        "A completion for one in N requests [default: 100]",
    ),
    letter('l', "post_list", "list", BLAST, "Requests in each post"),
];

/// An option of perftest that is refused, with what to do instead.
struct Refused {
    letter: Option<char>,
    long: &'static str,
    instead: &'static str,
}

const fn refused(letter: Option<char>, long: &'static str, instead: &'static str) -> Refused {
    Refused { letter, long, instead }
}

const REFUSED: [Refused; 10] = [
    refused(
        Some('R'),
        "rdma_cm",
        "addresses are exchanged over TCP: leave it out, or use `rdmalab run connect --by rdma_cm`",
    ),
    refused(
        Some('g'),
        "mcg",
        "one server has no group: use `rdmalab run fan --to group --transport ud`",
    ),
    refused(Some('z'), "comm_rdma_cm", "rdmalab exchanges addresses over TCP: leave it out"),
    refused(Some('T'), "tos", "the type of service cannot be set: leave it out"),
    refused(
        Some('H'),
        "report-histogram",
        "use --out DIR: the page below DIR has the histogram, and `rdmalab report DIR` the table",
    ),
    refused(
        Some('U'),
        "report-unsorted",
        "use --out DIR: the record below DIR has every sample in its order",
    ),
    refused(Some('C'), "report-cycles", "times are always in microseconds: leave it out"),
    refused(None, "run_infinitely", "use -D SECONDS"),
    refused(None, "use_cuda", "GPU memory is not supported: leave it out"),
    refused(
        None,
        "odp",
        "`rdmalab run odp` measures it, and `rdmalab exec -- ib_send_lat --odp` has it",
    ),
];

/// The options of one of the programs.
#[derive(Clone, Debug)]
pub struct PerftestArgs {
    /// The program, or the name of one that no experiment can replace.
    pub test: Result<Test, String>,
    /// Options of rdmalab, by name.
    pub options: Vec<(String, String)>,
    /// The refused option that was given, and what to do instead.
    pub refused: Option<(String, &'static str)>,
    /// The device.
    pub device: Option<String>,
    /// The TCP port of the server.
    pub tcp_port: u16,
    /// All sizes from 2 to 8 MiB.
    pub all_sizes: bool,
    /// Whether both ends send at once.
    pub is_bidirectional: bool,
    /// Whether to sleep on completion events.
    pub events: bool,
    /// Whether bandwidth is in Gb/s.
    pub gbits: bool,
    /// How results are printed.
    pub format: Format,
    /// The directory of the record; `None` keeps no record.
    pub out: Option<PathBuf>,
    /// The CPUs of both ends.
    pub cores: Option<String>,
    /// Options of the link between the ends.
    pub link: LinkArgs,
    /// The server; without one, this process is the server.
    pub host: Option<String>,
}

impl Subcommand for PerftestArgs {
    fn augment_subcommands(command: Command) -> Command {
        let command = TESTS.iter().fold(command, |c, test| c.subcommand(definition(test)));
        // These are commands too, which only print what to do instead.
        OTHERS.iter().fold(command, |c, name| {
            let rest =
                Arg::new("rest").num_args(0..).allow_hyphen_values(true).trailing_var_arg(true);
            c.subcommand(Command::new(*name).hide(true).disable_help_flag(true).arg(rest))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        TESTS.iter().any(|test| test.name == name) || OTHERS.contains(&name)
    }
}

impl FromArgMatches for PerftestArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some((name, below)) = matches.subcommand() else {
            return Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand));
        };
        let test = TESTS.iter().find(|test| test.name == name).copied();
        Ok(test.map_or_else(|| Self::of_other(name), |test| Self::of(test, below)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl PerftestArgs {
    fn of(test: Test, matches: &ArgMatches) -> Self {
        let text = |id: &str| matches.get_one::<String>(id).cloned();
        let has = |letter: &&Letter| letter.only.is_none_or(|only| only == test.experiment);
        let given = LETTERS
            .iter()
            .filter(has)
            .filter_map(|letter| Some((letter.option.to_owned(), text(letter.option)?)));
        let is_given = |refused: &&Refused| matches.contains_id(refused.long);
        let refused = REFUSED.iter().find(is_given).map(|refused| {
            let name = refused.letter.map_or(String::new(), |letter| format!("-{letter}, "));
            (format!("{name}--{}", refused.long), refused.instead)
        });
        let is_flagged = |id: &str| matches!(matches.try_get_one(id), Ok(Some(true)));
        let atomic = matches.try_get_one::<String>("atomic_type").ok().flatten();
        let atomic = ATOMICS.iter().find(|(name, _)| atomic.is_some_and(|given| given == name));
        Self {
            test: Ok(Test { op: atomic.map_or(test.op, |(_, op)| *op), ..test }),
            options: given.collect(),
            refused,
            device: text("device"),
            tcp_port: matches.get_one("tcp-port").copied().unwrap_or(DEFAULT_PORT),
            all_sizes: matches.get_flag("all"),
            is_bidirectional: is_flagged("bidirectional"),
            events: matches.get_flag("events"),
            gbits: matches.get_flag("report_gbits"),
            format: matches.get_one("format").copied().unwrap_or(Format::Perftest),
            out: matches.get_one::<PathBuf>("out").cloned(),
            cores: text("cores"),
            link: LinkArgs::from_arg_matches(matches).unwrap_or_default(),
            host: text("host"),
        }
    }

    fn of_other(name: &str) -> Self {
        Self {
            test: Err(name.to_owned()),
            options: Vec::new(),
            refused: None,
            device: None,
            tcp_port: DEFAULT_PORT,
            all_sizes: false,
            is_bidirectional: false,
            events: false,
            gbits: false,
            format: Format::Perftest,
            out: None,
            cores: None,
            link: LinkArgs::default(),
            host: None,
        }
    }
}

fn definition(test: &Test) -> Command {
    let about = format!("perftest's {}: server without a host, client with one", test.name);
    let mut command = Command::new(test.name).after_help(AFTER);
    for l in LETTERS.iter().filter(|l| l.only.is_none_or(|only| only == test.experiment)) {
        command = command.arg(
            Arg::new(l.option)
                .short(l.letter)
                .long(l.long)
                .value_name("VALUE")
                .help(l.help)
                .value_parser(NonEmptyStringValueParser::new()),
        );
    }
    command = command.mut_arg("duration", |arg| arg.conflicts_with("messages"));
    if test.experiment == Experiment::BLAST {
        let arg = Arg::new("bidirectional").short('b').long("bidirectional");
        command =
            command.arg(arg.action(ArgAction::SetTrue).help("Both ends send and receive at once"));
    }
    if test.op.is_atomic() {
        let arg = Arg::new("atomic_type").short('A').long("atomic_type").value_name("TYPE");
        let parser = PossibleValuesParser::new(ATOMICS.map(|(name, _)| name));
        command = command.arg(arg.value_parser(parser).help("The atomic [default: FETCH_AND_ADD]"));
    }
    for refused in &REFUSED {
        // Some of them have a value.
        let mut arg = Arg::new(refused.long).long(refused.long).num_args(0..=1).hide(true);
        if let Some(letter) = refused.letter {
            arg = arg.short(letter);
        }
        command = command.arg(arg);
    }
    LinkArgs::augment_args(own_arguments(command)).about(about)
}

const AFTER: &str = "\
The client's options hold at both ends; the server takes -d and -p. Other options of perftest are \
refused with the reason. `rdmalab exec -- ib_send_lat` runs perftest itself.";

fn own_arguments(command: Command) -> Command {
    let flag = |id: &'static str, help: &'static str| {
        Arg::new(id).long(id).action(ArgAction::SetTrue).help(help)
    };
    let text = |id: &'static str| Arg::new(id).value_parser(NonEmptyStringValueParser::new());
    command
        .arg(text("device").short('d').long("ib-dev").value_name("NAME").help("The device"))
        .arg(
            Arg::new("tcp-port")
                .short('p')
                .long("port")
                .value_name("PORT")
                .value_parser(clap::value_parser!(u16).range(1..))
                .default_value("18515")
                .help("TCP port of the server"),
        )
        .arg(flag("all", "All sizes from 2 bytes to 8 MiB").short('a').conflicts_with("size"))
        .arg(flag("events", "Sleep until there is a completion").short('e'))
        .arg(flag("report_gbits", "Bandwidth in Gb/s instead of MiB/s"))
        .arg(flag("CPU-freq", "Accepted without effect: the CPU frequency is not used").short('F'))
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORM")
                .value_parser(clap::value_parser!(Format))
                .default_value("perftest")
                .help("How results are printed"),
        )
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Keep a record below this directory"),
        )
        .arg(text("cores").long("cores").value_name("A,B").help("The CPUs of the two ends"))
        .arg(text("host").value_name("HOST").help("The server [default: be the server]"))
}
