//! Delaying acknowledgements and sending them; [`super::delayed_ack`] says which may be delayed.

use std::sync::atomic::Ordering;

use super::Network;
use crate::process::Process;
use crate::qp::QpObject;

impl Network {
    /// How often callers have polled for packets.
    pub(crate) fn caller_polls(&self) -> u64 {
        self.caller_polls.load(Ordering::Relaxed)
    }

    /// A queue pair is about to send its delayed ACK itself: no other thread shall send it.
    pub(crate) fn forget_delayed_ack(&self, object: &QpObject) {
        let (mine, relaxed) = (object.index + 1, Ordering::Relaxed);
        if self.delayed_ack_qp.load(relaxed) == mine {
            let _ = self.delayed_ack_qp.compare_exchange(mine, 0, relaxed, relaxed);
        }
    }
}

impl Process {
    /// Records that a queue pair delays its ACK. Returns `false` if another queue pair delays one,
    /// or if the progress thread may sleep for long: then the ACK must be sent at once.
    pub(super) fn delay_ack(&self, network: &Network, object: &QpObject) -> bool {
        let (seq, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
        if network.delayed_ack_qp.compare_exchange(0, object.index + 1, seq, relaxed).is_err() {
            return false;
        }
        // Pairs with `progress_loop::make_progress`: it stores that it sleeps, and then looks here.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.progress_thread.may_sleep_long() {
            network.delayed_ack_qp.store(0, relaxed);
            return false;
        }
        true
    }

    /// Sends the delayed acknowledgement of any queue pair, if there is one.
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

    /// The same while the process exits. It may exit inside a verb, so this waits for no lock.
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
