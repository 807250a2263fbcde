//! What a device counted, in results: page faults, invalidations and prefetches, and packets.

use rdmalab_experiments::Point;
use rdmalab_measure::{Outcome, Quantity, at_rank};

/// The kinds of packets that a requester sends: the name of the counter, and a label.
const OF_REQUESTER: &[(&str, &str)] =
    &[("request_packets", "requests"), ("repeated_packets", "repeated requests")];
/// Those of a responder.
const OF_RESPONDER: &[(&str, &str)] = &[
    ("response_packets", "responses"),
    ("acks_sent", "ACKs"),
    ("rnr_naks_sent", "RNR NAKs"),
    ("sequence_naks_sent", "sequence NAKs"),
];

/// Adds what happened to pages of on-demand regions, unless that is nothing.
pub fn push_pages<'a>(
    measured: &mut Outcome,
    rank: usize,
    pages: impl Iterator<Item = (&'a str, u64)> + Clone,
) {
    if pages.clone().any(|(_, count)| count > 0) {
        for (name, count) in pages {
            measured.push_count(&at_rank(name, rank), count);
        }
    }
}

/// Adds the packets of each kind that a rank sent in a run on average, if the experiment of the
/// point measures them. A rank that sent no request has no numbers of a requester, and so on.
pub fn push_packets<'a>(
    measured: &mut Outcome,
    rank: usize,
    point: &Point,
    counted: impl Iterator<Item = (&'a str, u64)> + Clone,
) {
    let is_wanted = point.quantities().contains(&Quantity::Packets);
    if !is_wanted || measured.cut_short.is_some() {
        return;
    }
    let runs = point.common.runs.max(1) as f64;
    for kinds in [OF_REQUESTER, OF_RESPONDER] {
        let of = |name: &str| counted.clone().find(|(known, _)| *known == name).map_or(0, |c| c.1);
        let all: Vec<(&str, u64)> = kinds.iter().map(|(name, label)| (*label, of(name))).collect();
        if all.iter().any(|(_, count)| *count > 0) {
            for (label, count) in all {
                let label = format!("{label} of rank {rank}");
                measured.push_figure(Quantity::Packets, &label, count as f64 / runs);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_experiments::{Experiment, sweep};

    use super::*;

    #[test]
    fn packets_are_those_of_a_run_and_only_where_they_are_measured() {
        let of = |experiment, counted: &[(&'static str, u64)]| {
            let point = sweep(experiment, &[("runs", "10")]).unwrap().remove(0);
            let mut measured = Outcome::default();
            push_packets(&mut measured, 1, &point, counted.iter().copied());
            measured.figures.into_iter().map(|figure| (figure.label, figure.value)).collect()
        };
        let requester = [("request_packets", 25), ("repeated_packets", 0), ("time_outs", 3)];
        let expected = [("requests of rank 1", 2.5), ("repeated requests of rank 1", 0.0)];
        let expected = expected.map(|(label, value)| (label.to_owned(), value)).to_vec();
        assert_eq!(of(Experiment::ODP, &requester), expected);
        assert_eq!(of(Experiment::BLAST, &requester), []);
        let responder: Vec<(String, f64)> = of(Experiment::ODP, &[("rnr_naks_sent", 40)]);
        assert_eq!((responder.len(), responder[2].1), (4, 4.0));
        assert_eq!(of(Experiment::ODP, &[("request_packets", 0)]), []);
    }

    #[test]
    fn pages_are_counted_by_rank() {
        let mut measured = Outcome::default();
        push_pages(&mut measured, 1, [("page_faults", 0), ("page_prefetches", 0)].into_iter());
        assert_eq!(measured, Outcome::default());
        push_pages(&mut measured, 1, [("page_faults", 3), ("page_prefetches", 0)].into_iter());
        assert_eq!(measured.count("page_faults_at_rank_1"), Some(3));
        assert_eq!(measured.count("page_prefetches_at_rank_1"), Some(0));
    }
}
