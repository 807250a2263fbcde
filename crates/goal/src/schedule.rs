//! A schedule: what each rank does, and what has to come before what.

use std::fmt;

/// Most ranks of a schedule: as many as a simulation may have.
pub const MAX_RANKS: usize = 1024;
/// Largest tag: a tag goes as immediate data, beside the kind of the message.
pub const MAX_TAG: u32 = (1 << 30) - 1;
/// Largest message, in bytes.
pub const MAX_BYTES: u64 = 1 << 30;

/// The operations of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Of each rank, in the order of the file.
    pub ranks: Vec<Vec<Op>>,
}

/// An operation of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// Its line in the file, from 1.
    pub line: usize,
    /// Operations of this rank, by index, that have to end before it begins (`requires`).
    pub after_end: Vec<usize>,
    /// Those that have to begin before it begins (`irequires`).
    pub after_begin: Vec<usize>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The processor works for so many nanoseconds.
    Calc(u64),
    /// A message to another rank.
    Send(Message),
    /// A message from another rank.
    Recv(Message),
}

/// One end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its length.
    pub bytes: u64,
    /// The rank at the other end.
    pub peer: usize,
    /// Its tag: a receive takes the first message from its peer with its tag.
    pub tag: u32,
}

impl Op {
    /// Its message, if it has one.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        match &self.kind {
            Kind::Calc(_) => None,
            Kind::Send(message) | Kind::Recv(message) => Some(message),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Calc(ns) => write!(f, "calc {ns}"),
            Kind::Send(m) => write!(f, "send {}b to {} tag {}", m.bytes, m.peer, m.tag),
            Kind::Recv(m) => write!(f, "recv {}b from {} tag {}", m.bytes, m.peer, m.tag),
        }
    }
}

/// What is wrong with a schedule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

impl ScheduleError {
    pub(crate) fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

impl std::error::Error for ScheduleError {}
