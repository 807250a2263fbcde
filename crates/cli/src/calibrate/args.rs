//! Options of `rdmalab calibrate`.

use std::path::PathBuf;

use clap::Args;

use crate::format::ListFormatArgs;

/// Fit a profile of the simulator to measurements
///
/// Measures a small plan of points on a device, or takes the points of records that `run` wrote,
/// and searches for the times and rates with which the simulator gives the same medians and rates.
/// It prints each value with its standard error, names the parameters that the points do not
/// determine, shows how far the model is from each measurement, and writes a profile for `--device
/// sim:./FILE`. Whole numbers and switches of the profile stay as they are. Exits with 1 if the
/// search did not converge; the profile then has the best values that the search found.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArgs {
    /// Records to fit to, or directories of them, as `run` and `calibrate` keep them
    #[arg(value_name = "RECORD", conflicts_with = "device")]
    pub records: Vec<PathBuf>,
    /// Measure the built-in points on this device, by the name that `rdmalab devices` shows
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// The profile to begin with: a shipped one by its name, or a file by its path. What the
    /// measurements do not determine stays as it is there
    #[arg(long, value_name = "BASE", default_value = "connectx4")]
    pub profile: String,
    /// Fit only these parameters, separated by commas; `devices --parameters` lists them
    /// [default: all times and rates on which some point depends]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub fit: Vec<String>,
    /// The file of the new profile
    #[arg(long, value_name = "FILE", default_value = "calibrated.toml")]
    pub output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Measure each point so many times
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "records",
        value_parser = clap::value_parser!(u32).range(1..=50))]
    pub repeat: u32,
    /// Where the directory of its records is made [default: rdmalab-records]
    #[arg(long, value_name = "DIR", conflicts_with = "records")]
    pub out: Option<PathBuf>,
    /// Keep no records
    #[arg(long, conflicts_with_all = ["out", "records"])]
    pub no_record: bool,
    /// Form of the output.
    #[command(flatten)]
    pub format: ListFormatArgs,
}
