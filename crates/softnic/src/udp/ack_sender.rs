//! Delaying acknowledgements and sending them; [`super::delayed_ack`] says which may be delayed.

use std::sync::atomic::Ordering;

use super::Network;
use crate::process::Process;
use crate::qp::{QpInner, QpObject};

impl QpInner {
    /// After messages for a caller: whether what is to be sent now is an acknowledgement that can
    /// wait for the program's answer.
    pub(super) fn may_delay_ack(&mut self, network: &Network) -> bool {
        if self.links.datagram || self.qp.may_send() || !self.qp.has_only_ack() {
            return false;
        }
        let caller_polls = network.caller_polls.load(Ordering::Relaxed);
        self.links.delayed_ack.on_message(caller_polls, crate::clock::now_ns())
    }

    /// Requests are about to be sent.
    pub(super) fn note_requests_sent(&mut self, network: &Network) {
        let caller_polls = network.caller_polls.load(Ordering::Relaxed);
        self.links.delayed_ack.on_send(caller_polls, crate::clock::now_ns);
        let mine = self.links.object.index + 1;
        if network.delayed_ack_qp.load(Ordering::Relaxed) == mine {
            // Who is about to pay for us finds nothing to send.
            let _ = network.delayed_ack_qp.compare_exchange(
                mine,
                0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Sends an acknowledgement that is owed.
    pub(crate) fn send_delayed_ack(&mut self) {
        self.links.delayed_ack.on_sent_alone();
        if self.links.route.is_some() && self.qp.has_response() {
            self.transmit();
        }
    }
}

impl Process {
    /// Remembers a queue pair that owes; `false` when another does, or the progress thread may
    /// sleep for long: then it sends at once.
    pub(super) fn delay_ack(&self, network: &Network, object: &QpObject) -> bool {
        let (seq, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
        if network.delayed_ack_qp.compare_exchange(0, object.index + 1, seq, relaxed).is_err() {
            return false;
        }
        // Beside `serve` of the progress thread: it says that it sleeps, and then looks here.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.progress_thread.may_sleep_long() {
            network.delayed_ack_qp.store(0, relaxed);
            return false;
        }
        true
    }

    /// Sends the acknowledgement that some queue pair owes, if one does.
    #[inline]
    pub(crate) fn send_delayed_ack(&self) {
        if let Some(network) = self.network()
            && network.delayed_ack_qp.load(Ordering::Relaxed) != 0
            && let Some(object) = self.take_delayed_ack_qp(network)
            && let Some(inner) = object.inner.lock().as_mut()
        {
            inner.send_delayed_ack();
        }
    }

    /// The same for a process that exits, perhaps in the midst of a verb: waits for no lock.
    pub(super) fn send_delayed_ack_at_exit(&self, network: &Network) {
        if let Some(object) = self.take_delayed_ack_qp(network)
            && let Some(mut guard) = object.inner.try_lock()
            && let Some(inner) = guard.as_mut()
        {
            inner.send_delayed_ack();
        }
    }

    #[cold]
    fn take_delayed_ack_qp(&self, network: &Network) -> Option<&'static QpObject> {
        let index = network.delayed_ack_qp.swap(0, Ordering::SeqCst).checked_sub(1)?;
        self.qps.at(index as usize)
    }
}
