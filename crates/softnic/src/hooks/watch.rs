//! When the thread that sends delayed packets looks for them.
//!
//! Callers inside verbs send due packets, and a thread that woke up for each packet would take the
//! processor from them. So while callers send the packets in time, the thread looks seldom. If
//! callers sleep or compute, it sends the packets itself, and spins shortly before they are due.

/// The thread stops sleeping this long before it must send a packet, ns. Kernels wake a thread
/// about this late.
pub(super) const LEAD_NS: u64 = 60_000;
/// How long callers have to send a due packet, at least, before the thread does, ns.
pub(super) const GRACE_NS: u64 = 20_000;
/// How often this time is doubled, at most.
const DOUBLINGS: u32 = 6;
/// The thread does not spin for this long after no processor was free for it, ns.
const CROWDED_NS: u64 = 10_000_000;

/// What the thread knows of the callers. In the beginning there are none.
#[derive(Default)]
pub(super) struct Watch {
    /// How often the time that callers have is doubled; `None`: the thread sends each packet itself
    /// when it is due.
    doublings: Option<u32>,
    /// The count of calls when the thread looked last.
    seen_calls: u64,
    /// For packets that are due before this time, the thread does not spin, ns.
    crowded_until_ns: u64,
}

impl Watch {
    /// The thread looks. `calls` counts the calls that made progress. With `is_overdue` a packet
    /// left, or will leave, later than `GRACE_NS` after it was due.
    pub(super) fn look(&mut self, calls: u64, callers_sleep: bool, is_overdue: bool) {
        let are_active = calls != self.seen_calls && !callers_sleep;
        self.seen_calls = calls;
        self.doublings = are_active.then(|| match self.doublings {
            Some(doublings) if !is_overdue => (doublings + 1).min(DOUBLINGS),
            _ => 0,
        });
    }

    /// The spinning thread gave up its processor from one time to the other. After a long time
    /// others need the processors.
    pub(super) fn yielded(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns.saturating_sub(from_ns) > GRACE_NS {
            self.crowded_until_ns = to_ns.saturating_add(CROWDED_NS);
        }
    }

    /// When the thread must look next, ns; `first_ns` is the time when the first waiting packet is
    /// due. `None`: when a packet comes.
    pub(super) fn next_look_ns(
        &self,
        first_ns: Option<u64>,
        callers_sleep: bool,
        now_ns: u64,
    ) -> Option<u64> {
        match (first_ns, self.doublings.filter(|_| !callers_sleep)) {
            (first_ns, Some(doublings)) => {
                Some(first_ns.unwrap_or(now_ns).saturating_add(GRACE_NS << doublings))
            }
            (Some(first_ns), None) if first_ns < self.crowded_until_ns => Some(first_ns),
            (Some(first_ns), None) => Some(first_ns.saturating_sub(LEAD_NS)),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long after it is due a packet is looked for.
    fn grace_ns(watch: &Watch) -> u64 {
        watch.next_look_ns(Some(LEAD_NS), false, 0).expect("a packet waits") - LEAD_NS
    }

    #[test]
    fn the_thread_looks_seldom_while_callers_send_in_time() {
        let mut watch = Watch::default();
        let mut looks = Vec::new();
        for calls in 1..=9 {
            watch.look(calls, false, false);
            looks.push(grace_ns(&watch));
        }
        let doubled: Vec<u64> = (0..9).map(|n| GRACE_NS << n.min(DOUBLINGS)).collect();
        assert_eq!(looks, doubled);
        assert_eq!(watch.next_look_ns(None, false, 7), Some(7 + (GRACE_NS << DOUBLINGS)));
        watch.look(10, false, true);
        assert_eq!(grace_ns(&watch), GRACE_NS, "they were late once");
    }

    #[test]
    fn the_thread_comes_before_the_packet_is_due_if_no_caller_does() {
        let early = Some(1_000_000 - LEAD_NS);
        let mut watch = Watch::default();
        assert_eq!(watch.next_look_ns(Some(1_000_000), false, 0), early, "nobody has called yet");
        assert_eq!(watch.next_look_ns(None, false, 0), None);
        (1..5).for_each(|calls| watch.look(calls, false, false));
        assert_eq!(watch.next_look_ns(Some(1_000_000), true, 0), early, "callers went to sleep");
        watch.look(4, false, false);
        assert_eq!(watch.next_look_ns(Some(1_000_000), false, 0), early, "no call since");
        watch.look(5, true, false);
        assert_eq!(watch.next_look_ns(Some(1_000_000), false, 0), early, "they slept then");
        watch.look(6, false, false);
        assert_eq!(watch.next_look_ns(Some(1_000_000), false, 0), Some(1_000_000 + GRACE_NS));
    }

    #[test]
    fn the_thread_does_not_spin_while_others_need_the_processors() {
        let mut watch = Watch::default();
        let lead_ns = |watch: &Watch, due_ns| {
            due_ns - watch.next_look_ns(Some(due_ns), false, 0).expect("a packet waits")
        };
        watch.yielded(1_000, 1_000 + GRACE_NS);
        assert_eq!(lead_ns(&watch, 1_000_000), LEAD_NS, "the processor was free");
        watch.yielded(1_000, 1_001 + GRACE_NS);
        let until_ns = 1_001 + GRACE_NS + CROWDED_NS;
        assert_eq!((lead_ns(&watch, until_ns - 1), lead_ns(&watch, until_ns)), (0, LEAD_NS));
    }
}
