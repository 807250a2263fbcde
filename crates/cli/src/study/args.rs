//! Options of `rdmalab study`.

use std::path::PathBuf;

use clap::Args;

use crate::latency::LatencyArgs;

/// Repeat a published study on a device here, and write a page about it
///
/// Without a key, lists the studies. Each figure of a study is a set of sweeps in the words of
/// `rdmalab run`. The page compares our numbers with the study's, and says for each claim whether
/// it was confirmed, was refuted, or cannot be seen on this device.
#[derive(Args, Clone, Debug)]
pub struct StudyArgs {
    /// Which study, as `potter2018` [default: list them]
    pub key: Option<String>,
    /// Only these figures, separated by commas
    #[arg(short = 'F', long, value_delimiter = ',', value_name = "FIGURE", requires = "key")]
    pub figure: Vec<String>,
    /// Your build of the application that the figure is about, with its options, as a shell takes
    /// it: it runs under `rdmalab exec`, once for each trial
    #[arg(long, value_name = "COMMAND", requires = "figure")]
    pub program: Option<String>,
    /// Fewer points and samples: --plan says how long that takes
    #[arg(long, requires = "key")]
    pub quick: bool,
    /// Resume a run that ended early: the newest directory of the study, or DIR
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, requires = "key")]
    pub resume: Option<Option<PathBuf>>,
    /// About how long the study may take, as 90s, 10m or 2h; all sweeps are shortened by the same
    /// share. This is time of this machine, also where the time of the device is virtual
    #[arg(long, value_name = "TIME", value_parser = crate::values::time, requires = "key")]
    pub max_time: Option<std::time::Duration>,
    /// Show the sweeps and their expected duration, from a short trial of some points, and keep no
    /// records; of a simulated device also the virtual time, the link and the topology
    #[arg(long, requires = "key")]
    pub plan: bool,
    /// A label for the conditions of the measurement, kept in the records; see --beside
    #[arg(long, value_name = "NAME")]
    pub condition: Option<String>,
    /// Show other runs of the study, under other conditions, beside this one on its page; may be
    /// given several times
    #[arg(long, value_name = "DIR")]
    pub beside: Vec<PathBuf>,
    /// The device, by the name that `rdmalab devices` shows [default: the first adapter with an
    /// active port, else soft0]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// The profile of a soft device: its limits, and what packets cost. A name that `rdmalab
    /// devices --profiles` lists, or the path of a file [default: RDMALAB_PROFILE, else ideal]
    #[arg(long, value_name = "NAME|FILE", value_parser = crate::link::profile, requires = "key")]
    pub profile: Option<String>,
    /// A directory of studies, each a directory with a plan.toml [default: those that are shipped]
    #[arg(long, value_name = "DIR")]
    pub studies: Option<PathBuf>,
    /// Where the study's directory is made [default: rdmalab-records]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The CPUs of the two ends, as A,B; `none` leaves them to the scheduler
    #[arg(long, value_name = "A,B")]
    pub cores: Option<String>,
    /// Start the ranks on these hosts by ssh, as `rdmalab run --hosts` does; a sweep with more
    /// ranks takes the hosts in turns
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// The ssh command, with its options
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub ssh: Option<String>,
    /// The program on the other hosts: a path, or a name that is found there
    #[arg(long, value_name = "PATH", default_value = "rdmalab", requires = "hosts")]
    pub remote_program: String,
    /// Idle states of the processors.
    #[command(flatten)]
    pub latency: LatencyArgs,
}
