//! Jobs that single ranks do without the others.

use std::time::Duration;

use serde_bytes::ByteBuf;

use super::WorkerGroup;
use crate::process::frame::{FromWorker, ToLauncher, ToWorker};
use crate::process::handshake::printable;

/// What a rank tells of the jobs that it does alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AloneEvent {
    /// A job has ended.
    Ended {
        /// Its number.
        job: u64,
        /// Its result, or why it failed.
        result: Result<Vec<u8>, String>,
    },
    /// A rank is gone, and with it all jobs that it had not ended.
    Gone {
        /// Which rank.
        rank: usize,
        /// How it ended, with rank and host.
        what: String,
    },
    /// A rank has a line for the user.
    Log {
        /// Which rank.
        rank: usize,
        /// The line.
        text: String,
    },
}

impl WorkerGroup {
    /// Gives a rank a job that it does without the others, beside those that it was given before;
    /// returns its number. If the rank is gone or will be, [`WorkerGroup::next_alone`] tells.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn give(&mut self, rank: usize, bytes: Vec<u8>) -> u64 {
        self.job += 1;
        self.members[rank].alone = self.job;
        self.tell(rank, &ToWorker::Alone { job: self.job, bytes: ByteBuf::from(bytes) });
        self.job
    }

    /// What comes next from the ranks, within this time.
    pub fn next_alone(&mut self, wait: Duration) -> Option<AloneEvent> {
        if !self.early.is_empty() {
            let (rank, text) = self.early.remove(0);
            return Some(AloneEvent::Log { rank, text: printable(&text) });
        }
        let (rank, message) = self.incoming.recv_timeout(wait).ok()?;
        match message {
            FromWorker::Message(ToLauncher::Done { job, cpu, bytes }) => {
                let info = &mut self.members[rank].info;
                (info.cpu, info.alone) = (cpu, info.alone + 1);
                Some(AloneEvent::Ended { job, result: Ok(bytes.into_vec()) })
            }
            FromWorker::Message(ToLauncher::Failed { job, why }) => {
                Some(AloneEvent::Ended { job, result: Err(self.of(rank, &why)) })
            }
            FromWorker::Message(ToLauncher::Log(text)) => {
                Some(AloneEvent::Log { rank, text: printable(&text) })
            }
            FromWorker::Message(ToLauncher::Died(how)) => {
                self.members[rank].gone.get_or_insert(how);
                self.gone(rank)
            }
            FromWorker::Closed(error) => {
                if self.members[rank].gone.is_none() {
                    let _ = self.members[rank].exit_text(error);
                }
                self.gone(rank)
            }
            // Of a job of all ranks.
            FromWorker::Message(_) => None,
        }
    }

    fn gone(&self, rank: usize) -> Option<AloneEvent> {
        Some(AloneEvent::Gone { rank, what: self.end_of(rank)? })
    }

    /// How a rank ended, with its name; `None` while it is there.
    #[must_use]
    pub fn end_of(&self, rank: usize) -> Option<String> {
        let how = self.members.get(rank)?.gone.as_deref()?;
        Some(self.of(rank, how))
    }

    /// Asks a rank to stop all jobs that it does alone.
    pub fn ask_to_stop(&mut self, rank: usize) {
        // A rank knows the last job that it was given, whether that has ended or not.
        let job = self.members[rank].alone;
        self.tell(rank, &ToWorker::Stop { job });
    }

    /// Closes the connection of a rank that does not stop. It is gone then, and ends by itself.
    pub fn cut_off(&mut self, rank: usize, why: &str) {
        self.members[rank].gone.get_or_insert_with(|| why.to_owned());
        self.members[rank].stream.shutdown();
    }
}
