//! The conditions of `--under NAME=COMMAND`.

use std::os::fd::AsFd;
use std::process::Command;

use crate::failure::{Outcome, run as failed};

/// A condition, and the command that makes the machine have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub name: String,
    command: String,
}

impl std::str::FromStr for Condition {
    type Err = String;

    /// `NAME=COMMAND`; the command may be empty.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, command) = text.split_once('=').unwrap_or_default();
        // The name is also that of directories.
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err("write NAME=COMMAND, as in performance='cpupower frequency-set -g \
                        performance'; a name has no slash, and does not begin with a dot"
                .to_owned());
        }
        Ok(Self { name: name.to_owned(), command: command.to_owned() })
    }
}

impl Condition {
    /// Runs the command. What it prints goes to standard error, since results go to standard
    /// output.
    ///
    /// # Errors
    /// It failed.
    pub fn prepare(&self) -> Outcome {
        let refused = |why: String| failed(format!("--under {}: {why}", self.name));
        let to = std::io::stderr().as_fd().try_clone_to_owned();
        let to = to.map_err(|error| refused(format!("standard error: {error}")))?;
        let ended = Command::new("sh").arg("-c").arg(&self.command).stdout(to).status();
        let ended = ended.map_err(|error| refused(format!("sh cannot be started: {error}")))?;
        match ended.success() {
            true => Ok(()),
            false => Err(refused(format!("`{}` failed: {ended}", self.command))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_has_a_name_and_a_command() {
        let of = |text: &str| text.parse::<Condition>().map(|one| (one.name, one.command));
        let own = |name: &str, command: &str| Ok((name.to_owned(), command.to_owned()));
        assert_eq!(of("quiet="), own("quiet", ""));
        assert_eq!(of("a=X=1 run"), own("a", "X=1 run"));
        for wrong in ["quiet", "=true", "../x=true", "a/b=true", ".=true"] {
            assert!(of(wrong).unwrap_err().starts_with("write NAME=COMMAND"), "{wrong}");
        }
    }

    #[test]
    fn a_command_that_fails_is_named() {
        let of = |text: &str| text.parse::<Condition>().unwrap().prepare();
        assert_eq!(of("a="), Ok(()));
        let said = of("b=exit 3").unwrap_err().to_string();
        assert_eq!(said, "--under b: `exit 3` failed: exit status: 3");
    }
}
