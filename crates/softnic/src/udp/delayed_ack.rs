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
//! to something else the progress thread pays, in its next round; and such a queue pair has to earn
//! the credit again. A program that is killed in between is to its peer as one that died before it
//! received.

/// Prompt answers in a row that earn credit.
const SCORE_NEEDED: i16 = 4;
/// What a queue pair is put back by when credit was given in vain: this many answers more.
const PENALTY: i16 = 64;
/// An answer that comes later was not prompt, ns: about as long as sending two packets takes.
const PROMPT_NS: u64 = 15_000;

/// How a queue pair's program answers.
#[derive(Default)]
pub(crate) struct DelayedAck {
    /// Prompt answers in a row, up to [`SCORE_NEEDED`]; below zero after credit in vain.
    score: i16,
    /// When the last message came that wants an acknowledgement: callers' looks at the network
    /// until then, and the time, ns. `None` once the program sent something since.
    last_message: Option<(u64, u64)>,
    /// Its acknowledgement is owed.
    is_delayed: bool,
}

impl DelayedAck {
    /// A message came that is to be acknowledged. Returns whether there is credit.
    pub(super) fn on_message(&mut self, caller_polls: u64, now_ns: u64) -> bool {
        let is_first = self.last_message.is_none();
        self.last_message = Some((caller_polls, now_ns));
        self.is_delayed = is_first && self.score >= SCORE_NEEDED;
        self.is_delayed
    }

    /// The program sends; `caller_polls` and `now_ns` as they are now.
    pub(super) fn on_send(&mut self, caller_polls: u64, now_ns: impl FnOnce() -> u64) {
        let Some((polls_then, then_ns)) = self.last_message.take() else { return };
        let is_prompt = polls_then == caller_polls && now_ns().wrapping_sub(then_ns) <= PROMPT_NS;
        match is_prompt {
            true => self.score = (self.score + 1).min(SCORE_NEEDED),
            false if self.is_delayed => self.score = -PENALTY,
            false => self.score = self.score.min(0),
        }
        self.is_delayed = false;
    }

    /// What was owed had to be paid without an answer.
    pub(super) fn on_sent_alone(&mut self) {
        if std::mem::take(&mut self.is_delayed) {
            self.score = -PENALTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message and its answer, after `looks` more looks and so much time.
    fn exchange(delayed_ack: &mut DelayedAck, caller_polls: u64, after_ns: u64) -> bool {
        let may_delay = delayed_ack.on_message(7, 1000);
        delayed_ack.on_send(7 + caller_polls, || 1000 + after_ns);
        may_delay
    }

    #[test]
    fn credit_is_earned_by_prompt_answers_and_lost_by_one_late() {
        let mut delayed_ack = DelayedAck::default();
        for _ in 0..SCORE_NEEDED {
            assert!(!exchange(&mut delayed_ack, 0, PROMPT_NS));
        }
        assert!(exchange(&mut delayed_ack, 0, 0));
        assert!(exchange(&mut delayed_ack, 0, PROMPT_NS + 1), "nobody knew");
        for _ in 0..SCORE_NEEDED + PENALTY {
            assert!(!exchange(&mut delayed_ack, 0, 0));
        }
        assert!(exchange(&mut delayed_ack, 1, 0), "the program looked for more before it answered");
        assert!(!exchange(&mut delayed_ack, 0, 0));
    }

    #[test]
    fn a_second_message_before_the_answer_is_not_put_off() {
        let mut delayed_ack = DelayedAck { score: SCORE_NEEDED, ..DelayedAck::default() };
        assert!(delayed_ack.on_message(1, 0));
        assert!(!delayed_ack.on_message(1, 0));
        delayed_ack.on_send(1, || 0);
        assert!(delayed_ack.on_message(2, 0), "the answer was prompt all the same");
        delayed_ack.on_sent_alone();
        delayed_ack.on_send(2, || 0);
        assert!(!delayed_ack.on_message(3, 0), "it was paid without an answer");
    }

    #[test]
    fn who_sends_unasked_earns_nothing() {
        let mut delayed_ack = DelayedAck::default();
        for _ in 0..100 {
            delayed_ack.on_send(1, || 0);
        }
        assert!(!delayed_ack.on_message(1, 0));
    }
}
