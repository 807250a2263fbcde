//! The timers of a queue pair: their deadlines, and their expiry.

use rdmalab_driver::timers::{self, Timers};
use rdmalab_engine::qp::{Qp, Timer, TimerKind};
use rdmalab_engine::vocab::WcStatus;

use super::QpInner;
use crate::process::Process;
use crate::profile;
use crate::udp::backoff;

/// If a QP has no time-out, the driver checks after this time whether a silent peer is dead, ns.
const SILENCE_NS: u64 = 30_000_000_000;

/// The clock and the deadlines of a process.
struct ProcessTimers<'a>(&'a Process);

/// Whether the profile's adapter finds time-outs by looking at its queue pairs now and then.
fn looks_for_timeouts() -> bool {
    profile::adapter_values().ack_timeout_scan > 0
}

/// The second look from now on of an adapter that looks at its queue pairs once in `wait_ns`: the
/// first one finds that a request waits, and the second one that it still does.
fn second_look_ns(now_ns: u64, wait_ns: u64) -> u64 {
    (now_ns / wait_ns.max(1)).saturating_add(2).saturating_mul(wait_ns)
}

impl Timers for ProcessTimers<'_> {
    fn deadline_ns(&mut self, qp: &Qp, kind: TimerKind) -> Option<u64> {
        // Read the clock only now: this thread may have been descheduled for longer than a
        // time-out, and the next time-out would expire at once.
        let now_ns = crate::clock::now_ns();
        let is_looked_for = kind == TimerKind::Ack && looks_for_timeouts();
        Some(match qp.wait_ns(kind) {
            Some(wait_ns) if is_looked_for => second_look_ns(now_ns, wait_ns),
            wait_ns => now_ns.saturating_add(wait_ns.unwrap_or(SILENCE_NS)),
        })
    }

    fn schedule(&mut self, kind: TimerKind, at_ns: u64) {
        // An ACK time-out may be found late, at the next check of all timers.
        if let TimerKind::Rnr(_) | TimerKind::PageFault = kind {
            self.0.alarm().set(at_ns);
        }
    }
}

impl QpInner {
    /// Gives a wanted timer its deadline. Returns when the running timer is due, ns.
    pub(crate) fn arm_timer(&mut self) -> Option<u64> {
        timers::arm(&mut self.qp, &mut ProcessTimers(self.links.process))
    }

    /// The timer that is due.
    pub(crate) fn due_timer(&self, now_ns: u64) -> Option<TimerKind> {
        timers::due(&self.qp, now_ns)
    }

    pub(crate) fn ack_is_due(&self, now_ns: u64) -> bool {
        self.due_timer(now_ns) == Some(TimerKind::Ack)
    }

    /// When an expired ACK time-out leads to a retransmission, on a network or with fault rules. A
    /// profile whose adapter looks for time-outs says itself how long they last.
    pub(crate) fn retransmit_at_ns(&self) -> u64 {
        match self.qp.timer() {
            Timer::At(TimerKind::Ack, due_ns) if looks_for_timeouts() => due_ns,
            Timer::At(TimerKind::Ack, due_ns) if self.qp.attr.timeout > 0 => {
                let (period_ns, spent) = (self.qp.ack_period_ns(), self.qp.retries_spent());
                backoff::retransmit_at_ns(due_ns, period_ns, spent)
            }
            _ => 0,
        }
    }

    /// Whether an overdue ACK may still be unread, so that the time-out may wait for it.
    pub(crate) fn may_postpone_timeout(&self, now_ns: u64) -> bool {
        match self.qp.timer() {
            Timer::At(TimerKind::Ack, due_ns) if now_ns >= due_ns => {
                now_ns < backoff::retransmit_at_latest_ns(due_ns, self.qp.ack_period_ns())
            }
            _ => false,
        }
    }

    /// Counts the end of a pause under a profile that pages.
    #[cold]
    fn note_pause(&self, kind: TimerKind) {
        if !profile::pages_may_be_missing() {
            return;
        }
        if let (Timer::At(_, due_ns), Some(wait_ns)) = (self.qp.timer(), self.qp.wait_ns(kind)) {
            let late_ns = crate::clock::now_ns().saturating_sub(due_ns);
            self.links.process.timers.delays.note(wait_ns, late_ns);
        }
    }

    pub(crate) fn handle_timer(&mut self, kind: TimerKind, now_ns: u64) {
        if kind == TimerKind::Ack {
            // A peer that is alive will execute a request that is still in its ring.
            let will_answer = match self.carried() {
                true => self.qp.attr.timeout == 0 && self.peer_alive(),
                false => {
                    let peer = self.links.peer.as_ref();
                    peer.is_some_and(|peer| peer.is_alive() && peer.check_ring(now_ns))
                }
            };
            if will_answer {
                return self.qp.postpone_timer();
            }
            if self.qp.attr.timeout == 0 {
                let status = WcStatus::RetryExcErr;
                self.qp.fail_transport(status, &mut self.links);
                return self.settle();
            }
            if let Some(route) = &self.links.route {
                crate::udp::warn_of_narrow_path(route, self.qp.mtu);
            }
        } else {
            self.note_pause(kind);
        }
        if let Some(hooks) = self.links.hooks {
            hooks.timer_fired(self.qp.qpn, kind);
        }
        let is_repeated = self.qp.on_timer(now_ns, &mut self.links);
        if self.links.route.is_some() {
            self.links.congestion.on_timer(&mut self.qp);
        }
        if is_repeated {
            self.transmit();
        }
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_look_is_one_to_two_periods_away() {
        for (now_ns, at_ns) in [(0, 200), (99, 200), (100, 300), (1_050, 1_200)] {
            assert_eq!(second_look_ns(now_ns, 100), at_ns);
        }
        assert_eq!(second_look_ns(u64::MAX, 1 << 40), u64::MAX);
    }
}
