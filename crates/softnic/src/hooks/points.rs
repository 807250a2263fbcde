//! The points outside the paths where quirks are called: timers, completions and resets. Each costs
//! one test while no hook is active.

use rdmalab_engine::qp::TimerKind;
use rdmalab_engine::vocab::Wc;
use rdmalab_link::quirk::Completion;
use rdmalab_wire::ids::Qpn;

use super::Hooks;

impl Hooks {
    /// A timer of a queue pair fired.
    pub(crate) fn timer_fired(&self, qp: Qpn, kind: TimerKind) {
        if let Some(faults) = self.faults {
            faults.timer_fired(qp, kind);
        }
    }

    /// A work request completed.
    #[inline]
    pub(crate) fn message_completed(&self, wc: &Wc, is_receive: bool) {
        if let Some(faults) = self.faults {
            let Wc { wr_id, status, qp_num, .. } = *wc;
            let qp = Qpn::new(qp_num);
            faults.message_completed(&Completion { qp, wr_id, status, is_receive });
        }
    }

    /// A queue pair was reset or destroyed.
    pub(crate) fn queue_pair_reset(&self, qp: Qpn) {
        if let Some(faults) = self.faults {
            faults.queue_pair_reset(qp);
        }
    }
}
