//! Acknowledgements that wait for the program's answer.
//!
//! An acknowledgement costs its sender a system call, some six microseconds. In a talk that time
//! would stand between a message and the program's answer to it: measured, a round trip of SENDs
//! with a completion each took twice as long as bare datagrams. So where a program that polls used
//! to answer at once, the acknowledgement of what it just received is *owed*: it leaves with the
//! next request, behind it and mostly in the same call.
//!
//! Nobody waits for it long. One queue pair of a process owes at most one batch. It pays at the
//! next look at the network that finds nothing, when the next message comes, before a caller
//! sleeps, and when its queue pair changes or ends or the process exits. For a program that turns
//! to something else the helper pays, in its next round; and such a queue pair has to earn the
//! credit again. A program that is killed in between is to its peer as one that died before it
//! received.

use std::sync::atomic::Ordering;

use super::Network;
use crate::process::Process;
use crate::qp::{QpInner, QpObject};

/// Prompt answers in a row that earn credit.
const EARNED: i16 = 4;
/// What a queue pair is put back by when credit was given in vain: this many answers more.
const PENALTY: i16 = 64;
/// An answer that comes later was not prompt, ns: about as long as sending two packets takes.
const PROMPT_NS: u64 = 15_000;

/// How a queue pair's program answers.
#[derive(Default)]
pub(crate) struct Manners {
    /// Prompt answers in a row, up to [`EARNED`]; below zero after credit in vain.
    score: i16,
    /// When the last message came that wants an acknowledgement: callers' looks at the network
    /// until then, and the time, ns. `None` once the program sent something since.
    heard: Option<(u64, u64)>,
    /// Its acknowledgement is owed.
    owes: bool,
}

impl Manners {
    /// A message came that is to be acknowledged. Returns whether there is credit.
    fn hear(&mut self, looks: u64, now_ns: u64) -> bool {
        let is_first = self.heard.is_none();
        self.heard = Some((looks, now_ns));
        self.owes = is_first && self.score >= EARNED;
        self.owes
    }

    /// The program sends; `looks` and `now_ns` as they are now.
    fn answer(&mut self, looks: u64, now_ns: impl FnOnce() -> u64) {
        let Some((heard_looks, heard_ns)) = self.heard.take() else { return };
        let is_prompt = heard_looks == looks && now_ns().wrapping_sub(heard_ns) <= PROMPT_NS;
        match is_prompt {
            true => self.score = (self.score + 1).min(EARNED),
            false if self.owes => self.score = -PENALTY,
            false => self.score = self.score.min(0),
        }
        self.owes = false;
    }

    /// What was owed had to be paid without an answer.
    fn fail(&mut self) {
        if std::mem::take(&mut self.owes) {
            self.score = -PENALTY;
        }
    }
}

impl QpInner {
    /// After messages for a caller: whether what is to be sent now is an acknowledgement that can
    /// wait for the program's answer.
    pub(super) fn may_owe(&mut self, network: &Network) -> bool {
        if self.links.datagram || self.qp.may_send() || !self.qp.has_only_ack() {
            return false;
        }
        let looks = network.looks.load(Ordering::Relaxed);
        self.links.manners.hear(looks, crate::clock::now_ns())
    }

    /// Requests are about to be sent.
    pub(super) fn note_answer(&mut self, network: &Network) {
        let looks = network.looks.load(Ordering::Relaxed);
        self.links.manners.answer(looks, crate::clock::now_ns);
        let mine = self.links.object.index + 1;
        if network.owing.load(Ordering::Relaxed) == mine {
            // Who is about to pay for us finds nothing to send.
            let _ = network.owing.compare_exchange(mine, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Sends an acknowledgement that is owed.
    pub(crate) fn pay(&mut self) {
        self.links.manners.fail();
        if self.links.route.is_some() && self.qp.has_response() {
            self.transmit();
        }
    }
}

impl Process {
    /// Remembers a queue pair that owes; `false` when another does, or the helper may sleep for
    /// long: then it sends at once.
    pub(super) fn owe(&self, network: &Network, object: &QpObject) -> bool {
        let (seq, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
        if network.owing.compare_exchange(0, object.index + 1, seq, relaxed).is_err() {
            return false;
        }
        // Beside `serve` of the helper: it says that it sleeps, and then looks here.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.helper.may_sleep_long() {
            network.owing.store(0, relaxed);
            return false;
        }
        true
    }

    /// Sends the acknowledgement that some queue pair owes, if one does.
    #[inline]
    pub(crate) fn pay_debt(&self) {
        if let Some(network) = self.network()
            && network.owing.load(Ordering::Relaxed) != 0
            && let Some(object) = self.take_debtor(network)
            && let Some(inner) = object.inner.lock().as_mut()
        {
            inner.pay();
        }
    }

    /// The same for a process that exits, perhaps in the midst of a verb: waits for no lock.
    pub(super) fn pay_debt_at_exit(&self, network: &Network) {
        if let Some(object) = self.take_debtor(network)
            && let Some(mut guard) = object.inner.try_lock()
            && let Some(inner) = guard.as_mut()
        {
            inner.pay();
        }
    }

    #[cold]
    fn take_debtor(&self, network: &Network) -> Option<&'static QpObject> {
        let index = network.owing.swap(0, Ordering::SeqCst).checked_sub(1)?;
        self.qp_at(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message and its answer, after `looks` more looks and so much time.
    fn exchange(manners: &mut Manners, looks: u64, after_ns: u64) -> bool {
        let credit = manners.hear(7, 1000);
        manners.answer(7 + looks, || 1000 + after_ns);
        credit
    }

    #[test]
    fn credit_is_earned_by_prompt_answers_and_lost_by_one_late() {
        let mut manners = Manners::default();
        for _ in 0..EARNED {
            assert!(!exchange(&mut manners, 0, PROMPT_NS));
        }
        assert!(exchange(&mut manners, 0, 0));
        assert!(exchange(&mut manners, 0, PROMPT_NS + 1), "nobody knew");
        for _ in 0..EARNED + PENALTY {
            assert!(!exchange(&mut manners, 0, 0));
        }
        assert!(exchange(&mut manners, 1, 0), "the program looked for more before it answered");
        assert!(!exchange(&mut manners, 0, 0));
    }

    #[test]
    fn a_second_message_before_the_answer_is_not_put_off() {
        let mut manners = Manners { score: EARNED, ..Manners::default() };
        assert!(manners.hear(1, 0));
        assert!(!manners.hear(1, 0));
        manners.answer(1, || 0);
        assert!(manners.hear(2, 0), "the answer was prompt all the same");
        manners.fail();
        manners.answer(2, || 0);
        assert!(!manners.hear(3, 0), "it was paid without an answer");
    }

    #[test]
    fn who_sends_unasked_earns_nothing() {
        let mut manners = Manners::default();
        for _ in 0..100 {
            manners.answer(1, || 0);
        }
        assert!(!manners.hear(1, 0));
    }
}
