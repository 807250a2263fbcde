//! The tree as the rules see it: every text file once, with its path from the root.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::mask::mask;

/// Directories that hold what a build or a fuzzer leaves behind.
const SKIPPED_DIRS: [&str; 3] = ["target", "corpus", "artifacts"];

/// Hidden directories that belong to the project.
const HIDDEN_DIRS: [&str; 2] = [".ci", ".github"];

/// One thing to mend.
#[derive(Debug, PartialEq, Eq)]
pub struct Offence {
    /// Path from the root.
    pub path: String,
    /// Line, from 1; 0 means the file as a whole.
    pub line: usize,
    /// What is wrong, and what to do about it.
    pub what: String,
}

impl Offence {
    /// An offence at `line` (from 1) of `path`.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

/// A text file of the tree.
pub struct SourceFile {
    /// Path from the root, with `/`.
    pub path: String,
    /// The text as it stands.
    pub text: String,
    /// For Rust, the text with comments and the insides of literals blanked; else empty.
    pub code: String,
}

impl SourceFile {
    /// A file as the walk would have read it.
    pub fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { mask(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    /// Whether this is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether this is Markdown.
    pub fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// The crate's directory name, for files under `crates/`.
    pub fn krate(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether the file is part of what the crate ships, not of its tests or benches.
    pub fn is_shipped(&self) -> bool {
        let inside = self.path.strip_prefix("crates/").and_then(|p| p.split_once('/'));
        inside.is_some_and(|(_, rest)| rest.starts_with("src/"))
    }

    /// Lines of the masked code, numbered from 1.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(i, l)| (i + 1, l))
    }

    /// Lines as they stand, numbered from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, l)| (i + 1, l))
    }
}

/// All text files below the root of the workspace.
pub struct Tree {
    /// Where the workspace is.
    pub root: PathBuf,
    /// The files, in path order.
    pub files: Vec<SourceFile>,
}

impl Tree {
    /// Walks the workspace that this test was built in.
    pub fn load() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.canonicalize().expect("the workspace root exists");
        let mut files = Vec::new();
        walk(&root, &root, &mut files);
        files.sort_by(|a: &SourceFile, b| a.path.cmp(&b.path));
        Self { root, files }
    }

    /// A tree made of the given files, for the rules' own tests.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(p, t)| SourceFile::new(p, t)).collect();
        Self { root: PathBuf::new(), files }
    }

    /// The file at `path`.
    pub fn get(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|f| f.path == path)
    }

    /// Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|f| f.is_rust())
    }
}

fn walk(root: &Path, dir: &Path, files: &mut Vec<SourceFile>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link could lead out of the tree, or round in circles; a file may vanish in between.
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            let hidden = name.starts_with('.') && !HIDDEN_DIRS.contains(&name.as_str());
            if !hidden && !SKIPPED_DIRS.contains(&name.as_str()) {
                walk(root, &path, files);
            }
        // In a second worktree, `.git` is a file that says where the first one is.
        } else if kind.is_file() && name != ".git" {
            // What is not UTF-8 is data (captures, golden bytes), and has no lines to judge.
            if let Ok(text) = fs::read_to_string(&path) {
                let relative = path.strip_prefix(root).expect("walked from the root");
                files.push(SourceFile::new(&relative.to_string_lossy(), &text));
            }
        }
    }
}
