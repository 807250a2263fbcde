//! Options of `rdmalab study`.

use std::path::PathBuf;

use clap::Args;

use crate::latency::LatencyArgs;

/// Run a published study again on the device at hand, and write a page about it
///
/// Without a key: the studies that there are. Each figure of a study is a set of sweeps in the
/// words of `rdmalab run`; the page sets our numbers beside the study's, and says of each of
/// its claims whether it was confirmed, refuted, or cannot be seen on this device.
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
    #[arg(long, value_name = "TIME", value_parser = crate::values::time, requires = "key")]
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
