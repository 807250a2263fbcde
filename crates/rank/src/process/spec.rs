//! Where each rank of a team runs.

use super::child::WorkerCommand;
use super::ssh::SshCommand;

/// Where a rank runs.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a process of this machine, started with this command.
    Local(WorkerCommand),
    /// With the server of this address: `HOST` or `HOST:PORT`.
    Remote(String),
    /// On another host, started there by ssh; it comes to the team's [`Gate`](super::Gate).
    Ssh(SshCommand),
    /// Wherever mpirun or srun started it; it comes to the team's [`Gate`](super::Gate).
    Joining,
}

/// What a rank should be.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Where it runs.
    pub place: Place,
    /// CPUs of its host to stay on: the first for the rank, the following ones for threads that it
    /// spawns. Empty: the scheduler's choice.
    pub cores: Vec<usize>,
    /// Whether it yields the processor between two looks; `None`: when it shares a CPU with another
    /// rank of the team.
    pub yielding: Option<bool>,
}

impl Spec {
    /// A rank of this machine, anywhere on it.
    #[must_use]
    pub fn local(worker: WorkerCommand) -> Self {
        Self { place: Place::Local(worker), cores: Vec::new(), yielding: None }
    }

    /// Its name in messages before the handshake.
    pub(super) fn name(&self, rank: usize) -> String {
        match &self.place {
            Place::Ssh(command) => format!("rank {rank} on {}", command.host),
            _ => format!("rank {rank}"),
        }
    }

    /// A rank of another machine, anywhere on it.
    #[must_use]
    pub fn remote(address: &str) -> Self {
        Self { place: Place::Remote(address.to_owned()), cores: Vec::new(), yielding: None }
    }
}
