//! Delaying acknowledgements and requests, and sending them; [`super::delayed_ack`] and
//! [`super::nagle`] say which may be delayed.

use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use super::Network;
use super::handover::EXIT_WAIT;
use super::io::UdpIo;
use crate::qp::{QpInner, QpObject};

impl Network {
    /// How often callers have polled for packets.
    pub(crate) fn caller_polls(&self) -> u64 {
        self.caller_polls.load(Ordering::Relaxed)
    }

    /// A queue pair is about to send what it delays: no other thread shall do so.
    pub(crate) fn forget_delayed(&self, object: &QpObject) {
        self.delayed.remove(object.index);
    }
}

impl UdpIo<'_> {
    /// Records that a queue pair delays what it has to send. The caller holds the queue pair's
    /// lock. Returns `false` if too many queue pairs delay, or if the progress thread may sleep for
    /// long: then it must be sent at once.
    pub(crate) fn delay(self, object: &QpObject) -> bool {
        let UdpIo { process, network } = self;
        // Whoever takes this out of the word waits for the lock, and sends.
        if network.delayed.contains(object.index) {
            return true;
        }
        if !network.delayed.add(object.index) {
            return false;
        }
        // Pairs with `progress_loop::make_progress`: it stores that it sleeps, and then looks here.
        fence(Ordering::SeqCst);
        if process.progress_thread.may_sleep_long() || network.is_exiting() {
            network.forget_delayed(object);
            return false;
        }
        true
    }

    /// Sends what queue pairs delay.
    pub(crate) fn send_delayed(self) {
        self.take_delayed(QpInner::send_delayed);
    }

    /// Called before the progress thread sleeps: no caller has sent it.
    pub(crate) fn send_delayed_late(self) {
        self.take_delayed(QpInner::send_delayed_late);
    }

    fn take_delayed(self, send: impl Fn(&mut QpInner)) {
        let UdpIo { process, network } = self;
        for object in network.delayed.take().filter_map(|index| process.qps.at(index)) {
            if let Some(inner) = object.inner.lock().as_mut() {
                send(inner);
            }
        }
    }

    /// The same after a poll found the network empty; requests may wait for some more polls.
    #[inline]
    pub(crate) fn send_delayed_at_poll(self) {
        self.visit_delayed(QpInner::send_delayed_at_poll);
    }

    /// The same in a round of the progress thread; requests may wait for another round.
    pub(crate) fn send_delayed_in_round(self) {
        self.visit_delayed(QpInner::send_delayed_in_round);
    }

    /// Leaves alone the queue pairs that another thread uses: there is another poll or round.
    #[inline]
    fn visit_delayed(self, visit: impl Fn(&mut QpInner)) {
        let UdpIo { process, network } = self;
        for object in network.delayed.indices().filter_map(|index| process.qps.at(index)) {
            if let Some(mut guard) = object.inner.try_lock()
                && let Some(inner) = guard.as_mut()
            {
                visit(inner);
            }
        }
    }

    /// The same while the process exits. It may exit inside a verb, so this waits for a queue pair
    /// for a short time only.
    pub(super) fn send_delayed_at_exit(self) {
        let UdpIo { process, network } = self;
        let until = Instant::now() + EXIT_WAIT;
        for object in network.delayed.take().filter_map(|index| process.qps.at(index)) {
            let mut guard = object.inner.try_lock();
            while guard.is_none() && Instant::now() < until {
                std::thread::yield_now();
                guard = object.inner.try_lock();
            }
            if let Some(inner) = guard.as_mut().and_then(|guard| guard.as_mut()) {
                inner.send_delayed();
            }
        }
    }
}
