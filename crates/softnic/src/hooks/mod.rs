//! What stands between a queue pair and its peers when packets are captured (`RDMALAB_CAPTURE`) or
//! disturbed (`RDMALAB_FAULTS`), or a profile makes them late (`RDMALAB_PROFILE`).
//!
//! While either is armed, no operation of this process takes a short cut: the local lane and the
//! short way of small SENDs are off, and the QP words say nothing, so that initiators elsewhere use
//! the ring as well. The path of each train is then wrapped: [`path::TappedPath`] captures what
//! passes, and [`path::FaultyPath`] does what the rules say. Packets for the network pass the
//! [`network_hook::NetworkHook`].

mod capture_clock;
pub(crate) mod choice;
pub(crate) mod faults;
pub(crate) mod frames;
pub(crate) mod management;
pub(crate) mod network_hook;
pub(crate) mod path;
mod points;
pub(crate) mod tap;

use std::path::PathBuf;
use std::sync::OnceLock;

use rdmalab_engine::backend::VerbsResult;

use faults::Faults;
use tap::Tap;

/// What is armed in this process.
pub(crate) struct Hooks {
    pub(crate) tap: Option<&'static Tap>,
    pub(crate) faults: Option<&'static Faults>,
}

/// What [`choice::choose_hooks`] was told.
static CHOSEN: OnceLock<(Option<PathBuf>, Option<String>)> = OnceLock::new();

impl Hooks {
    /// Whether trains are to be sent packet by packet: rules speak of packets.
    pub(crate) fn cuts_trains(&self) -> bool {
        self.faults.is_some()
    }

    /// What the environment asks for. It lives as long as the process.
    ///
    /// # Errors
    /// That the capture cannot be written, or the rules cannot be read.
    pub(crate) fn from_environment() -> VerbsResult<Option<&'static Hooks>> {
        let tap = tap::from_environment()?;
        let faults = faults::from_environment()?;
        if tap.is_none() && faults.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::leak(Box::new(Hooks { tap, faults }))))
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
