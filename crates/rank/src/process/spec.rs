//! Where each rank of a group runs.

use super::child::WorkerCommand;
use super::ssh::SshCommand;

/// Where a rank runs.
#[derive(Clone, Debug)]
pub enum LaunchMethod {
    /// In a process of this machine, started with this command.
    Local(WorkerCommand),
    /// With the server of this address: `HOST` or `HOST:PORT`.
    Remote(String),
    /// On another host, started there by ssh; it comes to the group's
    /// [`RendezvousListener`](super::RendezvousListener).
    Ssh(SshCommand),
    /// Wherever mpirun or srun started it; it comes to the group's
    /// [`RendezvousListener`](super::RendezvousListener).
    Joining,
}

/// What a rank should be.
#[derive(Clone, Debug)]
pub struct RankSpec {
    /// Where it runs.
    pub place: LaunchMethod,
    /// CPUs of its host to stay on: the first for the rank, the following ones for threads that it
    /// spawns. Empty: the scheduler's choice.
    pub cores: Vec<usize>,
    /// Whether it yields the processor between two looks; `None`: when it shares a CPU with another
    /// rank of the group.
    pub yielding: Option<bool>,
}

impl RankSpec {
    /// A rank of this machine, anywhere on it.
    #[must_use]
    pub fn local(worker: WorkerCommand) -> Self {
        Self { place: LaunchMethod::Local(worker), cores: Vec::new(), yielding: None }
    }

    /// Its name in messages before the handshake.
    pub(super) fn name(&self, rank: usize) -> String {
        match &self.place {
            LaunchMethod::Ssh(command) => format!("rank {rank} on {}", command.host),
            _ => format!("rank {rank}"),
        }
    }

    /// A rank of another machine, anywhere on it.
    #[must_use]
    pub fn remote(address: &str) -> Self {
        Self { place: LaunchMethod::Remote(address.to_owned()), cores: Vec::new(), yielding: None }
    }
}
