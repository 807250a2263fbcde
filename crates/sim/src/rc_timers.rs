//! The timers of reliable connections, as adapters have them: time-outs of requests (IBA vol. 1,
//! 9.7.6.1.3), and waits after RNR NAKs (9.7.5.2.8).

use rdmalab_engine::qp::{Timer, TimerKind};

use crate::adapter::SimQp;
use crate::component::Component;
use crate::event::Event;
use crate::ids::QpId;
use crate::kernel::World;
use crate::time::Ps;

impl World {
    /// When a timer that is wanted now is due; `None` for a queue pair without a time-out.
    fn deadline(&self, qp: &SimQp, kind: TimerKind) -> Option<Ps> {
        let wait = Ps::from_whole_ns(qp.qp.wait_ns(kind)?);
        Some(match kind {
            // The next look finds that it waits, and the one after that it still does.
            TimerKind::Ack if self.parameters.ack_timeout_scan > 0 => {
                wait * (self.now.0 / wait.0 + 2)
            }
            _ => self.now + wait,
        })
    }

    /// Schedules the timer of a queue pair, unless an earlier event will do that.
    pub(crate) fn arm_timer(&mut self, id: QpId, qp: &mut SimQp) {
        if let Timer::Wanted(kind) = qp.qp.timer() {
            // Without a time-out it waits for ever.
            let Some(deadline) = self.deadline(qp, kind) else { return };
            qp.qp.arm_timer_at(deadline.whole_ns());
        }
        if let Timer::At(_, at_ns) = qp.qp.timer() {
            let at = Ps::from_whole_ns(at_ns).max(self.now);
            if qp.timer.is_none_or(|scheduled| scheduled > at) {
                qp.timer = Some(at);
                self.queue.push(at, Event::Timer { qp: id });
            }
        }
    }

    /// The timer of a queue pair may be due.
    pub(crate) fn timer(&mut self, id: QpId) {
        self.with_qp(id, |world, qp| {
            if qp.timer != Some(world.now) {
                return; // An earlier event has taken its place.
            }
            qp.timer = None;
            let now_ns = world.now.whole_ns();
            if let Timer::At(kind, at_ns) = qp.qp.timer()
                && at_ns <= now_ns
            {
                world.note(id.node, Component::Timer, || {
                    "a timer of the queue pair ends".to_owned()
                });
                world.tell_timer(id.node, qp.qp.qpn, kind);
                world.step(id, qp, Ps::ZERO, |qp, env| qp.on_timer(now_ns, env));
            }
            world.wants_turn(id, qp);
        });
    }
}
