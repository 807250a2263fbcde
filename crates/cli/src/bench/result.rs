//! What a row of `bench self` measured, and whether its budget holds.

use rdmalab_measure::stats::PairedRatio;
use serde::Serialize;

use super::rows::{Row, Target};

/// Confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// The result of a row.
#[derive(Clone, Debug)]
pub struct RowResult {
    pub row: Row,
    pub limit_name: String,
    pub ours: Vec<f64>,
    pub limit: Vec<f64>,
    pub ratio: Option<PairedRatio>,
    /// Why it could not be measured.
    pub missing: Option<String>,
}

/// The conditions of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    pub device: String,
    pub kind: String,
    pub cores: [usize; 2],
    pub one_cpu: bool,
    pub rounds: usize,
    pub load_before: Option<f64>,
    pub load_after: Option<f64>,
    pub clock: String,
    /// The limit of the exit latency of the processors' idle states; `None`: no limit was set.
    pub held_dma_latency_us: Option<u32>,
}

/// Whether a budget holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// The whole interval is within it.
    Holds,
    /// The whole interval is beyond it.
    Misses,
    /// The interval contains the budget.
    Unclear,
}

impl RowResult {
    /// The result before anything was measured.
    pub fn of(row: Row, limit_name: String) -> RowResult {
        let (ours, limit) = (Vec::new(), Vec::new());
        RowResult { row, limit_name, ours, limit, ratio: None, missing: None }
    }

    /// Whether the budget holds, if there is one.
    pub fn verdict(&self) -> Option<Verdict> {
        if self.row.target == Target::None {
            return None;
        }
        let ratio = self.ratio?.ratio;
        let (low, high) = match ratio.interval {
            Some(interval) => (interval.low, interval.high),
            None => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let holds = |r: f64| self.row.target.holds(r);
        Some(match (holds(low), holds(high)) {
            (true, true) => Verdict::Holds,
            (false, false) => Verdict::Misses,
            _ => Verdict::Unclear,
        })
    }

    /// The width of the middle half of the ratios, as a share of the median.
    pub fn spread(&self) -> Option<f64> {
        let interval = self.ratio?.ratio.interval?;
        Some((interval.high - interval.low) / self.ratio?.ratio.value)
    }
}

impl Target {
    /// Whether a ratio of the device to the limit is within the budget.
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(most) => ratio <= most,
            Self::AtLeast(least) => ratio >= least,
            Self::None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_measure::stats::paired_ratio;

    use super::super::rows;
    use super::*;

    fn result(ours: &[f64], target: Target) -> RowResult {
        let mut row = rows::all(false)[0];
        row.target = target;
        let limit = vec![1.0; ours.len()];
        let ratio = paired_ratio(ours, &limit, CONFIDENCE);
        let ours = ours.to_vec();
        RowResult { row, limit_name: String::new(), ours, limit, ratio, missing: None }
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        let narrow: Vec<f64> = (0..9).map(|i| 2.0 + f64::from(i) / 100.0).collect();
        assert_eq!(result(&narrow, Target::AtMost(2.5)).verdict(), Some(Verdict::Holds));
        assert_eq!(result(&narrow, Target::AtMost(1.5)).verdict(), Some(Verdict::Misses));
        assert_eq!(result(&narrow, Target::AtMost(2.04)).verdict(), Some(Verdict::Unclear));
        assert_eq!(result(&narrow, Target::AtLeast(1.5)).verdict(), Some(Verdict::Holds));
        // With too few rounds there is no interval, and so no decision.
        assert_eq!(result(&[2.0, 2.0], Target::AtMost(2.5)).verdict(), Some(Verdict::Unclear));
        assert_eq!(result(&[], Target::AtMost(2.5)).verdict(), None);
    }
}
