//! The timers of reliable connections, as adapters have them: time-outs of requests (IBA vol. 1,
//! 9.7.6.1.3), and waits after RNR NAKs (9.7.5.2.8).

use rdmalab_driver::timers::{self, Timers};
use rdmalab_engine::qp::{Qp, TimerKind};

use crate::adapter::SimQp;
use crate::component::Component;
use crate::event::Event;
use crate::ids::QpId;
use crate::kernel::World;
use crate::time::Ps;

/// The timer of one queue pair, by events of the simulation.
struct QpTimer<'a> {
    world: &'a mut World,
    id: QpId,
    /// The time of the event that was scheduled.
    scheduled: &'a mut Option<Ps>,
}

impl Timers for QpTimer<'_> {
    /// A queue pair without a time-out waits for ever.
    fn deadline_ns(&mut self, qp: &Qp, kind: TimerKind) -> Option<u64> {
        let wait = Ps::from_whole_ns(qp.wait_ns(kind)?);
        let now = self.world.now;
        let deadline = match kind {
            // The next look finds that it waits, and the one after that it still does.
            TimerKind::Ack if self.world.parameters.ack_timeout_scan > 0 => {
                wait * (now.0 / wait.0 + 2)
            }
            _ => now + wait,
        };
        Some(deadline.whole_ns())
    }

    fn schedule(&mut self, _kind: TimerKind, at_ns: u64) {
        let at = Ps::from_whole_ns(at_ns).max(self.world.now);
        if self.scheduled.is_none_or(|scheduled| scheduled > at) {
            *self.scheduled = Some(at);
            self.world.queue.push(at, Event::Timer { qp: self.id });
        }
    }
}

impl World {
    /// Schedules the timer of a queue pair, unless an earlier event will do that.
    pub(crate) fn arm_timer(&mut self, id: QpId, qp: &mut SimQp) {
        let SimQp { qp, timer, .. } = qp;
        timers::arm(qp, &mut QpTimer { world: self, id, scheduled: timer });
    }

    /// The timer of a queue pair may be due.
    pub(crate) fn timer(&mut self, id: QpId) {
        self.with_qp(id, |world, qp| {
            if qp.timer != Some(world.now) {
                return; // An earlier event has taken its place.
            }
            qp.timer = None;
            let now_ns = world.now.whole_ns();
            if let Some(kind) = timers::due(&qp.qp, now_ns) {
                world.note(id.node, Component::Timer, || {
                    "a timer of the queue pair ends".to_owned()
                });
                world.tell_timer(id.node, qp.qp.qpn, kind);
                world.step(id, qp, |qp, env| qp.on_timer(now_ns, env));
            }
            world.wants_turn(id, qp);
        });
    }
}
