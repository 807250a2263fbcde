//! The interface by which a program selects a capture and fault rules, and queries them later.

use std::path::PathBuf;

use super::chosen::CHOSEN;
use super::deferred::{DelayCounts, delay_counts};
use super::faults::Faults;
use crate::process::Process;

/// The active capture and fault rules of this process, for reports on measurements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HooksState {
    /// The file of the capture.
    pub capture: Option<PathBuf>,
    /// The user's rules, as the user wrote them.
    pub faults: Option<String>,
    /// Number of packets of this process that one of these rules applied to.
    pub disturbed_packets: u64,
    /// Packets of this process that left after a delay, by any rule.
    pub delays: DelayCounts,
}

/// Selects the capture file and the fault rules of this process in place of `RDMALAB_CAPTURE` and
/// `RDMALAB_FAULTS`, for a program that must not change its environment. Must be called once,
/// before a device is opened. With `None` the environment decides.
///
/// # Errors
/// A device was opened already: one line.
pub fn choose_hooks(capture: Option<PathBuf>, faults: Option<String>) -> Result<(), String> {
    if capture.is_none() && faults.is_none() {
        return Ok(());
    }
    if Process::existing().is_some() || CHOSEN.set((capture, faults)).is_err() {
        return Err("captures and faults are chosen too late: a device is open".to_owned());
    }
    Ok(())
}

/// The active capture and fault rules of this process; none before a device was opened.
pub fn hooks() -> HooksState {
    let Some(hooks) = Process::existing().and_then(|process| process.hooks) else {
        return HooksState::default();
    };
    HooksState {
        capture: hooks.tap.map(|tap| tap.path().to_owned()),
        faults: hooks.faults.and_then(|faults| faults.text().map(str::to_owned)),
        disturbed_packets: hooks.faults.map_or(0, Faults::disturbed),
        delays: delay_counts(),
    }
}
