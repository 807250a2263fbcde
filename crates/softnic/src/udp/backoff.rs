//! When a time-out is judged over the network, and over memory where rules of faults may make an
//! answer late.
//!
//! A request may be answered as late as 4 T_tr after it was sent, T_tr being 4.096 us times 2 to
//! the power of `timeout` (IBA vol. 1, 9.7.6.1.3). A thread of the peer that loses its processor
//! has, at that moment, often just read packets (the kernel lets others run at the end of system
//! calls), and nobody else can answer them: on a machine with many runnable threads that was
//! measured to last two seconds. So a first loss is mended after T_tr, and who stays silent is
//! given more each time.
//!
//! So it is where an answer may be here already, and a thread of ours is at it.

/// T_tr that pass before the first, second, third time-out in a row is judged; then
/// [`LONGEST`].
const PERIODS: [u64; 3] = [1, 1, 2];
/// The most that the specification allows.
const LONGEST: u64 = 4;
/// What a thread that just reads has at least, ns, however short T_tr is.
const READING_NS: u64 = 32_000_000;

/// When a time-out is judged that was due at `due_ns`, after one T_tr of `period_ns`, `spent`
/// retries having been of no use.
pub(crate) fn retransmit_at_ns(due_ns: u64, period_ns: u64, spent: u8) -> u64 {
    let periods = PERIODS.get(usize::from(spent)).copied().unwrap_or(LONGEST);
    due_ns.saturating_add(period_ns.saturating_mul(periods - 1))
}

/// When it is judged at the latest, although something may lie somewhere: a flood for others must
/// not keep what was lost from being sent again.
pub(crate) fn retransmit_at_latest_ns(due_ns: u64, period_ns: u64) -> u64 {
    due_ns.saturating_add(period_ns.saturating_mul(LONGEST - 1).max(READING_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_within_what_the_specification_allows() {
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
