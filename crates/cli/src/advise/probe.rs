//! A short trial of each way, before the plan is made.

use rdmalab_experiments::Limits;

use super::fit::least_messages;
use super::parts::Part;
use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::run::ends::Ends;
use crate::run::probe::each_ns;
use crate::run::session::Session;

/// The trials.
pub struct Probe<'a> {
    /// The device's name.
    pub device: &'a str,
    /// The ends.
    pub ends: &'a Ends,
    /// Stops the trials.
    pub interrupt: &'a Interrupt,
}

impl Probe<'_> {
    /// Tries each possible point of all parts, and sets its time per message. A point that fails is
    /// ignored: its run reports the failure.
    ///
    /// # Errors
    /// The trials were interrupted, or the ends cannot be started again after a failure.
    pub fn all(&self, parts: &mut [Part], limits: &[Limits], session: &mut Session) -> Outcome {
        for part in parts {
            for i in part.possible(limits) {
                let least = least_messages(&part.points);
                part.each_ns[i] = each_ns(&part.points[i], least, session);
                if self.interrupt.is_set() {
                    return Err(failed("interrupted"));
                }
                if part.each_ns[i].is_none() {
                    *session = Session::open(self.interrupt, self.device, self.ends)?;
                    break;
                }
            }
        }
        Ok(())
    }
}
