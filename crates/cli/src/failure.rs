//! How a command fails, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

/// A failed command, with a one-line reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A usage error, with exit code 2. The text names the option, the limit, and what to do.
    Usage(String),
    /// The run failed, or an expectation did not hold: exit code 1.
    Run(String),
    /// An exit code that `exec` defines: 125 to 127.
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

impl Failure {
    /// This failure with a prefix.
    pub fn of(self, what: &str) -> Failure {
        match self {
            Self::Usage(line) => Self::Usage(format!("{what}: {line}")),
            Self::Run(line) => Self::Run(format!("{what}: {line}")),
            Self::Code(code, line) => Self::Code(code, format!("{what}: {line}")),
        }
    }

    /// This failure, whose exit code counts, followed by the reason of a later failure.
    pub fn then(self, later: Result<(), Failure>) -> Failure {
        let Err(later) = later else { return self };
        let both = |first: String| format!("{first}; then: {later}");
        match self {
            Self::Usage(line) => Self::Usage(both(line)),
            Self::Run(line) => Self::Run(both(line)),
            Self::Code(code, line) => Self::Code(code, both(line)),
        }
    }
}

/// Calls `act` for each item, also after failures. Returns the first usage error, otherwise one
/// line for all failures.
pub fn for_each<T>(all: &[T], mut act: impl FnMut(&T) -> Outcome) -> Outcome {
    let mut failures: Vec<Failure> = all.iter().filter_map(|one| act(one).err()).collect();
    if failures.len() < 2 {
        return failures.pop().map_or(Ok(()), Err);
    }
    if let Some(usage) = failures.iter().find(|one| matches!(one, Failure::Usage(_))) {
        return Err(usage.clone());
    }
    let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
    Err(Failure::Run(lines.join("; ")))
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

/// A usage error for this reason.
pub fn usage(reason: impl fmt::Display) -> Failure {
    Failure::Usage(reason.to_string())
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_tried_and_a_wrong_call_is_said_first() {
        let tried = |all: &[Outcome]| {
            let mut count = 0;
            let found = for_each(all, |one| {
                count += 1;
                one.clone()
            });
            assert_eq!(count, all.len());
            found
        };
        let (a, b, wrong) = (Err(run("a")), Err(run("b")), Err(usage("wrong")));
        assert_eq!(tried(&[Ok(()), Ok(())]), Ok(()));
        assert_eq!(tried(&[a.clone(), Ok(())]), a);
        assert_eq!(tried(&[a.clone(), b]), Err(run("a; b")));
        assert_eq!(tried(&[a, wrong.clone()]), wrong);
    }

    #[test]
    fn what_failed_later_does_not_hide_what_failed_first() {
        assert_eq!(run("peer gone").then(Ok(())), run("peer gone"));
        let both = run("peer gone").then(Err(usage("disk full")));
        assert_eq!(both, run("peer gone; then: disk full"));
    }
}
