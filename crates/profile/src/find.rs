//! Finds a profile by its name or by the path of its file.

use std::fs::File;
use std::io::Read;

use crate::parse::Error;
use crate::shipped::SHIPPED;
use crate::{Limits, Profile};

/// The longest profile file that is read. It stops a mistyped path from loading a large file.
pub const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Whether `asked` is a path (`dir/mine.toml`, `mine.toml`) and not the name of a shipped profile.
#[must_use]
pub fn is_path(asked: &str) -> bool {
    asked.contains('/') || asked.ends_with(".toml")
}

/// The shipped profile `asked`, or the profile in the file `asked`; `most` are the device's limits.
///
/// # Errors
/// No such profile (the error suggests a similar name), or what is wrong with the file, and where.
pub fn find(asked: &str, most: &Limits) -> Result<Profile, Error> {
    if !is_path(asked) {
        let known = SHIPPED.iter().find(|(name, _)| *name == asked);
        let (name, text) = known.ok_or_else(|| unknown(asked))?;
        return Profile::parse(name, text, most);
    }
    let profile = Profile::parse(asked, &read(asked)?, most)?;
    // Results under it would be mistaken for results under the shipped profile.
    match SHIPPED.iter().any(|(name, _)| *name == profile.name) {
        true => Err(Error(format!(
            "{asked}: its name {} is that of a shipped profile: choose another name",
            profile.name
        ))),
        false => Ok(profile),
    }
}

fn read(path: &str) -> Result<String, Error> {
    let wrong = |why: String| Error(format!("{path}: {why}"));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut text = String::new();
    let mut most = file.take(MAX_FILE_BYTES + 1);
    most.read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(format!(
            "the file is too large: a profile has at most {MAX_FILE_BYTES} bytes"
        )));
    }
    Ok(text)
}

fn unknown(asked: &str) -> Error {
    let names = || SHIPPED.iter().map(|(name, _)| *name);
    // The distance is computed from the beginning only: no name is similar to a very long word.
    let asked_letters: String = asked.chars().take(64).collect();
    let meant = names().map(|name| (strsim::osa_distance(&asked_letters, name), name)).min();
    let meant = match meant {
        Some((letters, name)) if letters <= name.len() / 3 => format!(": is {name} meant?"),
        _ => ".".to_owned(),
    };
    Error(format!(
        "there is no profile {asked:?}{meant} The profiles are {} (`rdmalab devices --profiles` \
         tells more); a file's path has a slash, or ends with .toml",
        names().collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::MOST;

    fn wrong(asked: &str) -> String {
        find(asked, &MOST).unwrap_err().to_string()
    }

    #[test]
    fn a_name_is_found_and_a_slip_is_understood() {
        assert_eq!(find("late-ack", &MOST).unwrap().name, "late-ack");
        for slip in ["lateack", "late-ak", "latte-ack", "Late-ack"] {
            assert!(wrong(slip).contains("is late-ack meant?"), "{}", wrong(slip));
        }
        let said = wrong("bluefield");
        assert!(
            !said.contains("meant") && said.contains("The profiles are ideal, connectx3,"),
            "{said}"
        );
        assert!(wrong(&"x".repeat(10_000)).contains("there is no profile"));
    }

    #[test]
    fn a_file_is_read_and_may_not_pass_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (name, text) = SHIPPED[1];
        let name = format!("name = \"{name}\"");
        let mine = put("mine.toml", &text.replace(&name, "name = \"mine\""));
        assert_eq!(find(&mine, &MOST).unwrap().name, "mine");
        assert!(wrong(&put("a", text)).contains("choose another"));
        assert!(wrong(&put("b.toml", "=")).contains("b.toml: line 1: "));
        assert!(wrong(&put("c.toml", &"#".repeat(70_000))).contains("at most 65536"));
        assert!(wrong("./nowhere.toml").contains("No such file"));
        assert!(wrong("/dev/zero").contains("too large"));
    }
}
