//! What a program chooses to be armed, and what it asks of it later.

use std::path::PathBuf;

use super::CHOSEN;
use super::faults::Faults;
use crate::process::Process;

/// What is armed in this process, for those who report what they measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HooksState {
    /// The file of the capture.
    pub capture: Option<PathBuf>,
    /// The user's rules, as they were written.
    pub faults: Option<String>,
    /// Packets of this process that one of these met so far.
    pub disturbed_packets: u64,
}

/// Chooses the file of the capture and the rules of faults of this process, where `RDMALAB_CAPTURE`
/// and `RDMALAB_FAULTS` would otherwise: for a program that must not change its environment. To be
/// called once, before a device is opened; `None` leaves it to the environment.
///
/// # Errors
/// That a device was opened already: one line.
pub fn choose_hooks(capture: Option<PathBuf>, faults: Option<String>) -> Result<(), String> {
    if capture.is_none() && faults.is_none() {
        return Ok(());
    }
    if Process::existing().is_some() || CHOSEN.set((capture, faults)).is_err() {
        return Err("captures and faults are chosen too late: a device is open".to_owned());
    }
    Ok(())
}

/// What is armed in this process; nothing before a device was opened.
pub fn hooks() -> HooksState {
    let Some(hooks) = Process::existing().and_then(|process| process.hooks) else {
        return HooksState::default();
    };
    HooksState {
        capture: hooks.tap.map(|tap| tap.path().to_owned()),
        faults: hooks.faults.and_then(|faults| faults.text().map(str::to_owned)),
        disturbed_packets: hooks.faults.map_or(0, Faults::disturbed),
    }
}
