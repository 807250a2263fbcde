//! The hooks between a queue pair and its peers: packets are captured (`RDMALAB_CAPTURE`),
//! disturbed (`RDMALAB_FAULTS`), or delayed by a profile (`RDMALAB_PROFILE`).
//!
//! While a hook is active, every operation of this process uses the ring: the local lane is off,
//! and the QP words are closed, so that initiators in other processes use the ring as well. The
//! path of each train is wrapped: [`path::TappedPath`] captures the trains, and
//! [`path::FaultyPath`] applies the fault rules. Under a capture, SENDs of one packet keep their
//! short way (`qp/single`), as do their acknowledgements: the slots are captured. Fault rules turn
//! these ways off. A packet that resembles an earlier one of its flow is queued as what differs
//! ([`frames::FlowTemplates`]). Packets for the network pass the [`network_hook::NetworkHook`].

mod capture_clock;
pub(crate) mod capture_file;
pub(crate) mod choice;
mod chosen;
pub(crate) mod deferred;
pub(crate) mod faults;
pub(crate) mod frames;
pub(crate) mod management;
pub(crate) mod network_hook;
pub(crate) mod path;
mod points;
pub(crate) mod tap;
mod watch;

use rdmalab_engine::backend::VerbsResult;

use crate::profile;
use faults::Faults;
use tap::Tap;

/// The active hooks of this process.
pub(crate) struct Hooks {
    pub(crate) tap: Option<&'static Tap>,
    pub(crate) faults: Option<&'static Faults>,
}

impl Hooks {
    /// Whether trains are sent packet by packet, because fault rules apply to packets.
    pub(crate) fn cuts_trains(&self) -> bool {
        self.faults.is_some()
    }

    /// The capture, if packets may take a short way under it. Fault rules and missing pages need
    /// the general path.
    pub(crate) fn short_tap(&self) -> Option<&'static Tap> {
        let needs_general_path = self.faults.is_some() || profile::pages_may_be_missing();
        self.tap.filter(|_| !needs_general_path)
    }

    /// The hooks that the environment asks for. They live as long as the process.
    ///
    /// # Errors
    /// The capture cannot be written, or the rules cannot be parsed.
    pub(crate) fn from_environment() -> VerbsResult<Option<&'static Hooks>> {
        let tap = tap::from_environment()?;
        let faults = faults::from_environment()?;
        if tap.is_none() && faults.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::leak(Box::new(Hooks { tap, faults }))))
    }

    /// Writes the packets captured so far.
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
    }
}
