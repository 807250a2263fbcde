//! The timers of queue pairs: the engine says which one a queue pair wants, and the driver when it
//! is due.

use rdmalab_engine::qp::{Qp, Timer, TimerKind};

/// The driver's clock and its list of deadlines.
pub trait Timers {
    /// When a timer that `qp` wants now is due, ns of the driver's clock; `None`: it stays wanted,
    /// without a deadline.
    fn deadline_ns(&mut self, qp: &Qp, kind: TimerKind) -> Option<u64>;

    /// Makes sure that the driver looks at the queue pair again at `at_ns`.
    fn schedule(&mut self, kind: TimerKind, at_ns: u64);
}

/// Gives a timer that `qp` wants its deadline, and schedules a running one. Returns when the timer
/// is due, ns; `None` if none runs.
#[inline]
pub fn arm(qp: &mut Qp, timers: &mut impl Timers) -> Option<u64> {
    if let Timer::Wanted(kind) = qp.timer()
        && let Some(deadline_ns) = timers.deadline_ns(qp, kind)
    {
        qp.arm_timer(deadline_ns);
    }
    let Timer::At(kind, at_ns) = qp.timer() else { return None };
    timers.schedule(kind, at_ns);
    Some(at_ns)
}

/// The timer of `qp` that is due, for [`Qp::on_timer`].
#[inline]
pub fn due(qp: &Qp, now_ns: u64) -> Option<TimerKind> {
    match qp.timer() {
        Timer::At(kind, at_ns) if at_ns <= now_ns => Some(kind),
        _ => None,
    }
}
