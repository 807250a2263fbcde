//! A train that a device holds: waiting to be accepted, or between the two halves of its step.

use rdmalab_engine::qp::Accept;
use rdmalab_engine::train::Train;

/// A train with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainData {
    /// The headers.
    pub train: Train,
    /// The payload.
    pub payload: Vec<u8>,
}

/// An accepted train between its two halves.
#[derive(Debug)]
pub struct Step {
    /// When to retire it.
    pub due_ns: u64,
    /// The train.
    pub train_data: TrainData,
    pub(super) accepted: Accept,
}
