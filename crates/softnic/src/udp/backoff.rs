//! Retransmission back-off: how long a requester waits after a time-out before it retransmits. It
//! applies over the network, and over shared memory if fault rules may delay an answer.
//!
//! A requester may wait up to 4 T_tr for an answer; T_tr is 4.096 us times 2 to the power of
//! `timeout` (IBA vol. 1, 9.7.6.1.3). The peer answers in a thread. The kernel often takes the
//! processor from this thread at the end of the system call that read packets, and no other thread
//! can answer these packets. With many runnable threads this was measured to last two seconds. So
//! the first retransmission follows after T_tr, and each further one after a longer time.
//!
//! The requester also waits while an answer may have arrived and a thread of this process reads it.

/// How many T_tr pass before the first, second and third retransmission in a row; before a later
/// one it is [`LONGEST`].
const PERIODS: [u64; 3] = [1, 1, 2];
/// The most T_tr that the specification allows.
const LONGEST: u64 = 4;
/// A thread of this process gets at least this time to finish reading, ns, even if T_tr is shorter.
const READING_NS: u64 = 32_000_000;

/// When to retransmit if the time-out was due at `due_ns`, after one T_tr of `period_ns`. `spent`:
/// retries so far without an answer.
pub(crate) fn retransmit_at_ns(due_ns: u64, period_ns: u64, spent: u8) -> u64 {
    let periods = PERIODS.get(usize::from(spent)).copied().unwrap_or(LONGEST);
    due_ns.saturating_add(period_ns.saturating_mul(periods - 1))
}

/// When to retransmit at the latest, even if unread packets may hold the answer: a flood of other
/// packets must not delay a retransmission for ever.
pub(crate) fn retransmit_at_latest_ns(due_ns: u64, period_ns: u64) -> u64 {
    due_ns.saturating_add(period_ns.saturating_mul(LONGEST - 1).max(READING_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_within_the_bounds_of_the_specification() {
        let period_ns = 4096 << 14;
        let waits: Vec<u64> = (0..8)
            .map(|spent| (retransmit_at_ns(period_ns, period_ns, spent)) / period_ns)
            .collect();
        assert_eq!(waits, [1, 1, 2, 4, 4, 4, 4, 4]);
        assert_eq!(retransmit_at_latest_ns(period_ns, period_ns), 4 * period_ns);
        assert_eq!(retransmit_at_latest_ns(8192, 8192), 8192 + READING_NS, "a short T_tr");
        assert_eq!(retransmit_at_ns(u64::MAX, u64::MAX, 7), u64::MAX);
    }
}
