//! What stands between a queue pair and its peers when packets are captured (`RDMALAB_CAPTURE`) or
//! disturbed (`RDMALAB_FAULTS`), or a profile makes them late (`RDMALAB_PROFILE`).
//!
//! While either is armed, no operation of this process takes a short cut: the local lane and the
//! short way of small SENDs are off, and the QP words say nothing, so that initiators elsewhere use
//! the ring as well. The path of each train is then wrapped: [`path::Tapped`] captures what passes,
//! and [`path::Judged`] does what the rules say. Packets for the network pass the
//! [`network_seam::NetworkSeam`].

mod capture_clock;
pub(crate) mod faults;
pub(crate) mod frames;
pub(crate) mod management;
pub(crate) mod network_seam;
pub(crate) mod path;
pub(crate) mod tap;

use std::path::PathBuf;
use std::sync::OnceLock;

use rdmalab_engine::backend::VerbsResult;

use crate::process::Process;
use faults::Faults;
use tap::Tap;

/// What is armed in this process.
pub(crate) struct Armed {
    pub(crate) tap: Option<&'static Tap>,
    pub(crate) faults: Option<&'static Faults>,
}

/// What is armed in this process, for those who report what they measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArmedState {
    /// The file of the capture.
    pub capture: Option<PathBuf>,
    /// The user's rules, as they were written.
    pub faults: Option<String>,
    /// Packets of this process that one of these met so far.
    pub disturbed_packets: u64,
}

/// What [`choose_armed`] was told.
static CHOSEN: OnceLock<(Option<PathBuf>, Option<String>)> = OnceLock::new();

/// Chooses the file of the capture and the rules of faults of this process, where `RDMALAB_CAPTURE`
/// and `RDMALAB_FAULTS` would otherwise: for a program that must not change its environment. To be
/// called once, before a device is opened; `None` leaves it to the environment.
///
/// # Errors
/// That a device was opened already: one line.
pub fn choose_armed(capture: Option<PathBuf>, faults: Option<String>) -> Result<(), String> {
    if capture.is_none() && faults.is_none() {
        return Ok(());
    }
    if Process::existing().is_some() || CHOSEN.set((capture, faults)).is_err() {
        return Err("captures and faults are chosen too late: a device is open".to_owned());
    }
    Ok(())
}

/// What is armed in this process; nothing before a device was opened.
pub fn armed() -> ArmedState {
    let Some(armed) = Process::existing().and_then(|process| process.armed) else {
        return ArmedState::default();
    };
    ArmedState {
        capture: armed.tap.map(|tap| tap.path().to_owned()),
        faults: armed.faults.and_then(|faults| faults.text().map(str::to_owned)),
        disturbed_packets: armed.faults.map_or(0, Faults::disturbed),
    }
}

impl Armed {
    /// Whether trains are to be sent packet by packet: rules speak of packets.
    pub(crate) fn cuts_trains(&self) -> bool {
        self.faults.is_some()
    }

    /// What the environment asks for. It lives as long as the process.
    ///
    /// # Errors
    /// That the capture cannot be written, or the rules cannot be read.
    pub(crate) fn from_environment() -> VerbsResult<Option<&'static Armed>> {
        let tap = tap::from_environment()?;
        let faults = faults::from_environment()?;
        if tap.is_none() && faults.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::leak(Box::new(Armed { tap, faults }))))
    }

    /// Writes what was captured so far.
    pub(crate) fn flush(&self) {
        if let Some(tap) = self.tap {
            tap.flush();
        }
    }

    /// In the child of a fork: the file is the parent's.
    pub(crate) fn close_in_child(&self) {
        if let Some(tap) = self.tap {
            tap.close_in_child();
        }
        if let Some(faults) = self.faults {
            faults.close_in_child();
        }
    }
}
