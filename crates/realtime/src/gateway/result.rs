//! What both ends have counted, and what follows from it.

use rdmalab_experiments::Common;
use rdmalab_gateway::{PathReport, Summary};
use rdmalab_measure::quantity::MISSED_MAX;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_sample::record_bytes;

use super::options::{Gateway, Node};
use super::recorder::Arrival;

/// What the source has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Samples, one for each tick that was not missed.
    pub samples: u64,
    /// Ticks that were missed.
    pub missed: u64,
    /// Samples for which the node had no room.
    pub dropped: u64,
    /// How often a peer came.
    pub connected: u64,
    /// How often a peer went.
    pub disconnected: u64,
    /// How often the wall clock was set.
    pub clock_steps: usize,
    /// A node that ended early.
    pub failed: Option<String>,
}

impl Sent {
    /// That of the first path.
    pub fn of(summary: &Summary) -> Self {
        let clock_steps = summary.clock_steps_ns.len();
        let failed = summary.failed().first().map(|node| (*node).to_owned());
        let Some(path) = summary.paths.first() else { return Self::default() };
        let connected = path.destinations.iter().map(|to| to.connected).sum();
        let disconnected = path.destinations.iter().map(|to| to.disconnected).sum();
        let PathReport { samples, missed, dropped, .. } = *path;
        Self { samples, missed, dropped, connected, disconnected, clock_steps, failed }
    }

    /// With what another run has sent.
    pub fn and(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            missed: self.missed + other.missed,
            dropped: self.dropped + other.dropped,
            connected: self.connected + other.connected,
            disconnected: self.disconnected + other.disconnected,
            clock_steps: self.clock_steps + other.clock_steps,
            failed: self.failed.or(other.failed),
        }
    }
}

/// What the receiver has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Samples.
    pub samples: u64,
    /// Those that came again.
    pub duplicate: u64,
    /// Those that came after one with a higher number.
    pub reordered: u64,
}

impl Received {
    /// That of a path.
    pub fn of(path: &PathReport) -> Self {
        let PathReport { samples, duplicate, reordered, .. } = *path;
        Self { samples, duplicate, reordered }
    }

    /// With what was received in another run.
    pub fn and(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            duplicate: self.duplicate + other.duplicate,
            reordered: self.reordered + other.reordered,
        }
    }

    /// With arrivals, for the other rank.
    pub fn to_bytes(self, arrivals: &[Arrival]) -> Vec<u8> {
        let own = [self.samples, self.duplicate, self.reordered];
        let arrived = arrivals.iter().flat_map(|a| [a.number, a.ns.cast_unsigned()]);
        own.into_iter().chain(arrived).flat_map(u64::to_le_bytes).collect()
    }

    /// The inverse; of no bytes, nothing.
    pub fn from_bytes(bytes: &[u8]) -> (Self, Vec<Arrival>) {
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [samples, duplicate, reordered, rest @ ..] = &words[..] else {
            return (Self::default(), Vec::new());
        };
        let (pairs, _) = rest.as_chunks::<2>();
        let arrivals = pairs.iter().map(|&[number, ns]| Arrival { number, ns: ns.cast_signed() });
        let own = Self { samples: *samples, duplicate: *duplicate, reordered: *reordered };
        (own, arrivals.collect())
    }
}

/// What was measured. Without the receiver's counts, only what the source knows, and the latencies
/// up to then.
///
/// # Errors
/// More samples arrived than were sent.
pub fn outcome(
    own: &Gateway,
    common: &Common,
    sent: &Sent,
    received: Option<&Received>,
    arrivals: &[Arrival],
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let is_warm_up = |arrival: &&Arrival| arrival.number < common.warm_up;
    let warm_up = arrivals.iter().filter(is_warm_up);
    let counted = arrivals.iter().filter(|arrival| !is_warm_up(arrival));
    let all = warm_up.clone().chain(counted).map(|arrival| arrival.ns as f64);
    outcome.push_series(Quantity::OneWay, "t", warm_up.count(), all.collect());
    let ticks = sent.samples + sent.missed;
    share(&mut outcome, Quantity::MissedShare, sent.missed, ticks);
    let bytes_per_s = common.rate_per_s as f64 * record_bytes(own.values) as f64;
    let made = sent.samples as f64 / ticks.max(1) as f64;
    outcome.push_figure(Quantity::OfferedBandwidth, "", made * bytes_per_s);
    let mut counts =
        vec![("sent", sent.samples), ("missed", sent.missed), ("dropped", sent.dropped)];
    warn(own, common, sent, &mut outcome);
    if let Some(&Received { samples, duplicate, reordered }) = received {
        let arrived = samples.saturating_sub(duplicate);
        let taken = sent.samples.saturating_sub(sent.dropped);
        let lost = taken.checked_sub(arrived).ok_or_else(|| {
            format!("{arrived} samples arrived, but the node has taken {taken} only")
        })?;
        if lost > 0 {
            let advice = match own.node {
                Node::Infiniband => ", or a larger --rx-depth",
                _ => "",
            };
            let warning = format!("{lost} samples were lost: choose a lower rate{advice}");
            outcome.warnings.push(warning);
        }
        share(&mut outcome, Quantity::LostShare, lost, sent.samples);
        share(&mut outcome, Quantity::DuplicateShare, duplicate, sent.samples);
        counts.extend([("received", samples), ("lost", lost)]);
        counts.extend([("duplicated", duplicate), ("reordered", reordered)]);
    }
    for (name, count) in counts {
        outcome.push_count(name, count);
    }
    Ok(outcome)
}

/// Of nothing, nothing is lost: a point always has its shares.
fn share(outcome: &mut Outcome, quantity: Quantity, part: u64, all: u64) {
    outcome.push_figure(quantity, "", part as f64 / all.max(1) as f64);
}

/// Warnings of what the source has found.
fn warn(own: &Gateway, common: &Common, sent: &Sent, outcome: &mut Outcome) {
    let ticks = sent.samples + sent.missed;
    if sent.missed as f64 > MISSED_MAX * ticks as f64 {
        outcome.warnings.push(format!(
            "--rate {}: the source missed {:.0} % of the ticks, and latencies are those of the \
             others: choose a lower rate, fewer --values, or more processors",
            common.rate_per_s,
            sent.missed as f64 / ticks as f64 * 100.0
        ));
    }
    if sent.dropped > 0 {
        let queue = own.node.queue().map_or("", |_| ", or more --buffers");
        outcome.warnings.push(format!(
            "{} samples found the queue of the node full: choose a lower rate{queue}",
            sent.dropped
        ));
    }
    if sent.disconnected > 0 {
        outcome.warnings.push(format!(
            "the ranks lost their connection {} times, and the time without one counts",
            sent.disconnected
        ));
    }
    if sent.clock_steps > 0 {
        outcome.warnings.push(
            "the wall clock was set meanwhile, and some latencies are wrong: repeat the run"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::Workload;

    use super::*;

    const ARRIVALS: [Arrival; 4] = [
        Arrival { number: 0, ns: 900 },
        Arrival { number: 3, ns: 200 },
        Arrival { number: 1, ns: 800 },
        Arrival { number: 4, ns: -3 },
    ];

    fn found(sent: &Sent, received: &Received) -> Outcome {
        let common = Common { warm_up: 2, ..Gateway::COMMON };
        outcome(&Gateway::OWN, &common, sent, Some(received), &ARRIVALS).unwrap()
    }

    fn count(outcome: &Outcome, name: &str) -> Option<u64> {
        outcome.counts.iter().find(|count| count.name == name).map(|count| count.value)
    }

    fn share(outcome: &Outcome, quantity: Quantity) -> Option<f64> {
        outcome.figures.iter().find(|f| f.quantity == quantity).map(|figure| figure.value)
    }

    #[test]
    fn each_trouble_is_a_share_of_its_own() {
        let (connected, disconnected) = (2, 1);
        let sent = Sent { samples: 8, missed: 2, dropped: 1, ..Sent::default() };
        let sent = Sent { connected, disconnected, ..sent };
        let received = Received { samples: 7, duplicate: 2, reordered: 1 };
        let outcome = found(&sent, &received);
        // Of ten ticks two were missed; of eight samples one found no room, two never came,
        // and two came twice.
        assert_eq!(share(&outcome, Quantity::MissedShare), Some(0.2));
        assert_eq!(share(&outcome, Quantity::LostShare), Some(0.25));
        assert_eq!(share(&outcome, Quantity::DuplicateShare), Some(0.25));
        // 88 bytes of each tick at 1 kHz that was not missed.
        assert_eq!(share(&outcome, Quantity::OfferedBandwidth), Some(0.8 * 88e3));
        assert_eq!((count(&outcome, "lost"), count(&outcome, "dropped")), (Some(2), Some(1)));
        for (at, says) in [
            "missed 20 % of the ticks",
            "1 samples found",
            "lost their connection 1 times",
            "2 samples were lost",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(outcome.warnings[at].contains(says), "{outcome:?}");
        }
        let series = &outcome.series[0];
        assert_eq!((series.warm_up, &series.samples[..]), (2, &[900.0, 800.0, 200.0, -3.0][..]));
    }

    #[test]
    fn a_run_without_trouble_has_no_warning() {
        let received = Received { samples: 4, ..Received::default() };
        let outcome = found(&Sent { samples: 4, ..Sent::default() }, &received);
        assert_eq!(share(&outcome, Quantity::LostShare), Some(0.0));
        assert!(outcome.warnings.is_empty(), "{outcome:?}");
        // Each tick was missed.
        let nothing = found(&Sent { missed: 9, ..Sent::default() }, &Received::default());
        assert_eq!(share(&nothing, Quantity::MissedShare), Some(1.0));
        assert_eq!(share(&nothing, Quantity::LostShare), Some(0.0));
    }

    #[test]
    fn without_the_receiver_nothing_is_said_of_what_is_lost() {
        let sent = Sent { samples: 9, ..Sent::default() };
        let outcome = outcome(&Gateway::OWN, &Gateway::COMMON, &sent, None, &[]).unwrap();
        assert_eq!(share(&outcome, Quantity::MissedShare), Some(0.0));
        assert_eq!((share(&outcome, Quantity::LostShare), count(&outcome, "lost")), (None, None));
        assert_eq!(count(&outcome, "sent"), Some(9));
    }

    #[test]
    fn more_arrivals_than_samples_are_an_error() {
        let sent = Sent { samples: 9, dropped: 1, ..Sent::default() };
        let received = |samples| Received { samples, ..Received::default() };
        let judged =
            |received| outcome(&Gateway::OWN, &Gateway::COMMON, &sent, Some(&received), &ARRIVALS);
        assert!(judged(received(8)).is_ok());
        assert!(judged(received(9)).unwrap_err().contains("9 samples arrived"));
    }

    #[test]
    fn counts_and_arrivals_survive_the_way_to_the_other_rank() {
        let received = Received { samples: 7, duplicate: 2, reordered: 1 };
        let bytes = received.to_bytes(&ARRIVALS);
        assert_eq!(Received::from_bytes(&bytes), (received, ARRIVALS.to_vec()));
        assert_eq!(Received::from_bytes(&[]), (Received::default(), Vec::new()));
    }
}
