//! The files of a machine, below a root directory that tests can choose.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A root directory.
pub struct Tree(PathBuf);

impl Tree {
    /// The tree below `root`.
    pub fn at(root: &Path) -> Self {
        Self(root.to_owned())
    }

    /// The trimmed text of a small file; `None` if it is absent, unreadable or empty.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.0.join(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The number in a file.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Names in a directory, sorted; numbers at their ends are sorted by value.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by_key(|name| {
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            (stem.to_owned(), name[stem.len()..].parse::<u64>().unwrap_or(0))
        });
        names
    }

    /// Directories `cpuN`.
    pub fn cpus(&self) -> Vec<String> {
        let mut names = self.names("sys/devices/system/cpu");
        names.retain(|name| {
            name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.parse::<u32>().is_ok())
        });
        names
    }
}

/// The numbers of a kernel list such as `0-3,8`; other text is ignored.
pub fn list(text: &str) -> BTreeSet<u32> {
    /// More than any machine has. It bounds the memory for a list that a file contains.
    const MOST: u32 = 1 << 16;
    let mut found = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            found.extend(first..=last.min(MOST));
        }
    }
    found
}

/// The word in brackets of `always [madvise] never`.
pub fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

/// The value of the first line `name: value`.
pub fn entry<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut entries = text.lines().filter_map(|line| line.split_once(':'));
    entries.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}
