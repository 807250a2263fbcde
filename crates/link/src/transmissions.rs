//! How often recent packets of a flow were sent.

use rdmalab_wire::ids::Psn;

/// Counts the transmissions of each PSN of a flow. It remembers [`REMEMBERED`] PSNs: a sender may
/// not have more outstanding.
#[derive(Debug, Default)]
pub struct Transmissions {
    seen: Vec<(u32, u32)>,
}

/// Numbers that [`Transmissions`] remembers; a power of two.
pub const REMEMBERED: usize = 1024;
/// No PSN has this number.
const NONE: u32 = u32::MAX;

impl Transmissions {
    /// Counts a transmission of `psn` and says how many there were before.
    pub fn next(&mut self, psn: Psn) -> u32 {
        if self.seen.is_empty() {
            self.seen = vec![(NONE, 0); REMEMBERED];
        }
        let entry = &mut self.seen[psn.get() as usize % REMEMBERED];
        if entry.0 != psn.get() {
            *entry = (psn.get(), 0);
        }
        let before = entry.1;
        entry.1 = before.saturating_add(1);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmissions_are_counted_for_each_number() {
        let mut sent = Transmissions::default();
        assert_eq!((sent.next(Psn::new(5)), sent.next(Psn::new(6))), (0, 0));
        assert_eq!((sent.next(Psn::new(5)), sent.next(Psn::new(5))), (1, 2));
        // A PSN that maps to the same entry replaces the first one.
        assert_eq!(sent.next(Psn::new(5 + 1024)), 0);
        assert_eq!(sent.next(Psn::new(5)), 0);
    }
}
