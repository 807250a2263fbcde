//! Delayed ACK: which acknowledgements may wait for the program's answer.
//!
//! An acknowledgement costs its sender a system call of some six microseconds. In a ping-pong this
//! time lies between a message and the program's answer: measured, a round trip of SENDs with a
//! completion each took twice as long as bare datagrams. So if a program that polls has answered at
//! once several times, the acknowledgement of the next message is delayed. It leaves with the next
//! request, behind it and mostly in the same system call.
//!
//! The delay is short. A queue pair may delay one batch of ACKs. It sends them when a poll finds
//! the network empty, when the next message comes, before a caller sleeps, when the queue pair
//! changes or is destroyed, and when the process exits. If none of this happens, the progress
//! thread sends them in its next round, and the queue pair has to qualify again. If the program is
//! killed before, it looks to the peer as if it had died before the message came.

/// Prompt answers in a row after which an acknowledgement may be delayed.
const SCORE_NEEDED: i16 = 4;
/// How many more prompt answers a queue pair needs after a delay that was useless.
const PENALTY: i16 = 64;
/// An answer that comes later was not prompt, ns: about as long as sending two packets takes.
const PROMPT_NS: u64 = 15_000;

/// How promptly a queue pair's program answers.
#[derive(Default)]
pub(crate) struct DelayedAck {
    /// Prompt answers in a row, up to [`SCORE_NEEDED`]; below zero after a useless delay.
    score: i16,
    /// The last message that needs an ACK: how often callers had polled when it came, and when that
    /// was, ns. `None` after the program has sent something.
    last_message: Option<(u64, u64)>,
    /// The ACK of the last message is delayed now.
    is_delayed: bool,
}

impl DelayedAck {
    /// A message came that needs an ACK. Returns whether the ACK may be delayed.
    pub(crate) fn on_message(&mut self, caller_polls: u64, now_ns: u64) -> bool {
        let is_first = self.last_message.is_none();
        self.last_message = Some((caller_polls, now_ns));
        self.is_delayed = is_first && self.score >= SCORE_NEEDED;
        self.is_delayed
    }

    /// The program sends; `caller_polls` and `now_ns` as they are now.
    pub(crate) fn on_send(&mut self, caller_polls: u64, now_ns: impl FnOnce() -> u64) {
        let Some((polls_then, then_ns)) = self.last_message.take() else { return };
        let is_prompt = polls_then == caller_polls && now_ns().wrapping_sub(then_ns) <= PROMPT_NS;
        match is_prompt {
            true => self.score = (self.score + 1).min(SCORE_NEEDED),
            false if self.is_delayed => self.score = -PENALTY,
            false => self.score = self.score.min(0),
        }
        self.is_delayed = false;
    }

    /// The delayed acknowledgement had to be sent without an answer.
    pub(crate) fn on_sent_alone(&mut self) {
        if std::mem::take(&mut self.is_delayed) {
            self.score = -PENALTY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message, and its answer after `caller_polls` polls and `after_ns`.
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
    fn unsolicited_sends_do_not_qualify() {
        let mut delayed_ack = DelayedAck::default();
        for _ in 0..100 {
            delayed_ack.on_send(1, || 0);
        }
        assert!(!delayed_ack.on_message(1, 0));
    }
}
