//! How a command fails, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

/// A command that failed: one clear line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The call was wrong: exit code 2. Names the option, the limit, and what to do.
    Usage(String),
    /// The run failed, or an expectation did not hold: exit code 1.
    Run(String),
    /// A number that `exec` defines: 125 to 127.
    Code(u8, String),
}

impl Failure {
    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
            Self::Code(code, _) => *code,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(line) | Self::Run(line) | Self::Code(_, line)) = self;
        f.write_str(line)
    }
}

impl std::error::Error for Failure {}

/// A run that failed for this reason.
pub fn run(reason: impl fmt::Display) -> Failure {
    Failure::Run(reason.to_string())
}

/// A call that was wrong for this reason.
pub fn usage(reason: impl fmt::Display) -> Failure {
    Failure::Usage(reason.to_string())
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;
