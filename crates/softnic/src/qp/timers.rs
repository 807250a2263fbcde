//! The expiry of a queue pair's timers.

use rdmalab_engine::qp::{Timer, TimerKind};
use rdmalab_engine::vocab::WcStatus;

use super::QpInner;
use crate::udp::backoff;

impl QpInner {
    pub(crate) fn ack_is_due(&self, now_ns: u64) -> bool {
        matches!(self.qp.timer(), Timer::At(TimerKind::Ack, at_ns) if now_ns >= at_ns)
    }

    /// When an expired ACK time-out leads to a retransmission, on a network or with fault rules.
    pub(crate) fn retransmit_at_ns(&self) -> u64 {
        match self.qp.timer() {
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
