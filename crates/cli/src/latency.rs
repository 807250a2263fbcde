//! `--hold-dma-latency`: limits the exit latency of idle states during a measurement.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use clap::Args;

use crate::failure::{Failure, Outcome, run as failed};

/// While a process holds this file open, the kernel limits the exit latency of all processors' idle
/// states to the microseconds written to it (Documentation/power/pm_qos_interface.rst).
const FILE: &str = "/dev/cpu_dma_latency";

/// The option, wherever something is measured.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct LatencyArgs {
    /// Keep the processors of this machine out of idle states that take longer than so many
    /// microseconds to end, while it measures: 0 keeps them awake. Needs write access to
    /// /dev/cpu_dma_latency
    #[arg(long, value_name = "US")]
    pub hold_dma_latency: Option<u32>,
}

impl LatencyArgs {
    /// Sets the limit if the option was given.
    ///
    /// # Errors
    /// Why it cannot be set, and what to do.
    pub fn hold(self) -> Outcome<Option<Hold>> {
        self.hold_dma_latency.map(Hold::of).transpose()
    }

    /// Checks that the limit can be set, without setting it.
    ///
    /// # Errors
    /// As [`LatencyArgs::hold`].
    pub fn check(self) -> Outcome {
        self.hold_dma_latency.map_or(Ok(()), |us| open(Path::new(FILE), us).map(drop))
    }
}

/// Keeps the limit until dropped.
#[derive(Debug)]
pub struct Hold {
    /// The limit ends when this file is closed.
    _file: File,
}

impl Hold {
    /// Sets the limit.
    ///
    /// # Errors
    /// Why it cannot be set, and what to do.
    fn of(us: u32) -> Outcome<Self> {
        Self::at(Path::new(FILE), us)
    }

    fn at(path: &Path, us: u32) -> Outcome<Self> {
        let value = i32::try_from(us).unwrap_or(i32::MAX);
        let mut file = open(path, us)?;
        file.write_all(&value.to_ne_bytes()).map_err(|error| wrong(path, us, &error))?;
        Ok(Self { _file: file })
    }
}

/// Opens the file for this limit.
fn open(path: &Path, us: u32) -> Outcome<File> {
    OpenOptions::new().write(true).open(path).map_err(|error| wrong(path, us, &error))
}

/// Why that limit cannot be set, and what to do.
fn wrong(path: &Path, us: u32, error: &std::io::Error) -> Failure {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "only root may write to it, unless an administrator grants the right"
        }
        std::io::ErrorKind::NotFound => "this kernel has no PM QoS, or it is not in /dev",
        _ => "leave the option out",
    };
    failed(format!("--hold-dma-latency {us}: {}: {error}; {hint}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_written_and_held() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("latency");
        std::fs::write(&path, "").unwrap();
        let hold = Hold::at(&path, 20).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), 20i32.to_ne_bytes());
        drop(hold);
        let error = Hold::at(&directory.path().join("none"), 0).unwrap_err().to_string();
        assert!(error.starts_with("--hold-dma-latency 0: ") && error.contains("PM QoS"), "{error}");
    }
}
