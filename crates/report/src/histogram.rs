//! Histograms of samples: for the terminal, and for the page.

use rdmalab_measure::{Quantity, stats};

use crate::table::Style;
use crate::value::fmt_count;

/// How bin widths are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Of equal width.
    Linear,
    /// Of equal ratio; only if all samples are above zero.
    Log,
    /// Logarithmic if the largest sample is far from the median, otherwise linear.
    Auto,
}

/// From this ratio of the largest sample to the median on, bins of equal width hide the shape.
const FAR: f64 = 5.0;

/// Eighths of a block.
const BLOCKS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Counts of samples in bins. Every sample is in one bin.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Whether bins have equal ratios.
    pub is_log: bool,
    /// Ends of the bins, one more than there are bins; empty without samples.
    pub edges: Vec<f64>,
    /// Samples in each bin: its lower end is included, its upper one only in the last bin.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// The histogram of `samples` in at most `bins` bins; NaN is left out.
    #[must_use]
    pub fn of(samples: &[f64], scale: Scale, bins: usize) -> Self {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite()).collect();
        stats::sort(&mut sorted);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Self { is_log: false, edges: Vec::new(), counts: Vec::new() };
        };
        let is_log = min > 0.0
            && match scale {
                Scale::Linear => false,
                Scale::Log => true,
                Scale::Auto => max > FAR * stats::median(&sorted),
            };
        let bins = if max > min { bins.max(1) } else { 1 };
        let edge = |i: usize| {
            let part = i as f64 / bins as f64;
            if i == bins {
                max
            } else if is_log {
                min * (max / min).powf(part)
            } else {
                min + (max - min) * part
            }
        };
        let edges: Vec<f64> = (0..=bins).map(edge).collect();
        let mut counts = vec![0; bins];
        let mut bin = 0;
        for sample in sorted {
            while bin + 1 < bins && sample >= edges[bin + 1] {
                bin += 1;
            }
            counts[bin] += 1;
        }
        Self { is_log, edges, counts }
    }

    /// Lines of text with bars: the lower end of each bin, a bar, and the count. Successive empty
    /// bins share one line; the bar of a single sample is visible.
    #[must_use]
    pub fn text(&self, quantity: Quantity, style: Style) -> String {
        let largest = self.counts.iter().copied().max().unwrap_or(0);
        if largest == 0 {
            return "no samples\n".to_owned();
        }
        let ends: Vec<String> = self.edges.iter().map(|e| quantity.format(*e)).collect();
        let end_columns = ends.iter().map(|e| e.chars().count()).max().unwrap_or(0);
        let count_columns = fmt_count(largest).len();
        let room = style.columns.saturating_sub(end_columns + count_columns + 4).max(8);
        let mut text = String::new();
        let mut gap = 0;
        for (end, &count) in ends.iter().zip(&self.counts) {
            if count == 0 {
                gap += 1;
                continue;
            }
            if gap > 0 {
                let dots = if style.is_unicode { "⋮" } else { ":" };
                text += &format!("{dots:>end_columns$}\n");
                gap = 0;
            }
            let bar = bar(count as f64 / largest as f64, room, style.is_unicode);
            let side = if style.is_unicode { '│' } else { '|' };
            text += &format!("{end:>end_columns$} {side}{bar} {}\n", fmt_count(count));
        }
        let kind = if self.is_log { "bins of equal ratio" } else { "bins of equal width" };
        let last = ends.last().map_or("", String::as_str);
        text + &format!("{last:>end_columns$}  largest; {kind}\n")
    }
}

fn bar(share: f64, room: usize, is_unicode: bool) -> String {
    if !is_unicode {
        return "#".repeat(((share * room as f64).round() as usize).max(1));
    }
    let eighths = ((share * room as f64 * 8.0).round() as usize).max(1);
    let mut bar: String = std::iter::repeat_n(BLOCKS[7], eighths / 8).collect();
    if !eighths.is_multiple_of(8) {
        bar.push(BLOCKS[eighths % 8 - 1]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_a_bin() {
        let samples: Vec<f64> = (0..1000).map(|i| 100.0 + f64::from(i * i)).collect();
        for scale in [Scale::Linear, Scale::Log, Scale::Auto] {
            let found = Histogram::of(&samples, scale, 17);
            assert_eq!(found.counts.iter().sum::<u64>(), 1000, "{scale:?}");
            assert_eq!(
                (found.edges.len(), found.edges[0], found.edges[17]),
                (18, 100.0, 998_101.0)
            );
        }
        let equal = Histogram::of(&[5.0; 3], Scale::Auto, 10);
        assert_eq!((equal.counts, equal.edges), (vec![3], vec![5.0, 5.0]));
        assert!(Histogram::of(&[f64::NAN], Scale::Auto, 10).counts.is_empty());
    }

    #[test]
    fn a_sample_on_an_edge_is_in_the_bin_above() {
        let found = Histogram::of(&[0.0, 1.0, 2.0, 3.0, 4.0], Scale::Linear, 4);
        assert_eq!(found.counts, [1, 1, 1, 2]);
    }

    #[test]
    fn the_scale_follows_the_tail_and_needs_positive_samples() {
        let mut samples = vec![10.0; 99];
        samples.push(1000.0);
        assert!(Histogram::of(&samples, Scale::Auto, 10).is_log);
        samples.push(-1.0);
        assert!(!Histogram::of(&samples, Scale::Auto, 10).is_log);
        assert!(!Histogram::of(&samples, Scale::Log, 10).is_log);
        assert!(!Histogram::of(&[1.0, 2.0, 3.0], Scale::Auto, 10).is_log);
    }

    #[test]
    fn bars_show_a_single_sample_and_fit_the_terminal() {
        let mut samples = vec![1000.0; 5000];
        samples.extend([1100.0; 2500]);
        samples.push(2000.0);
        let found = Histogram::of(&samples, Scale::Linear, 10);
        let style = Style { columns: 40, is_unicode: true };
        assert_eq!(
            found.text(Quantity::OneWay, style),
            "1.00 us │████████████████████████ 5 000\n\
             1.10 us │████████████ 2 500\n\
             \x20     ⋮\n\
             1.90 us │▏ 1\n\
             2.00 us  largest; bins of equal width\n"
        );
        let plain = found.text(Quantity::OneWay, Style { is_unicode: false, ..style });
        assert!(plain.is_ascii() && plain.contains("1.90 us |# 1\n"), "{plain}");
        let none = Histogram::of(&[], Scale::Auto, 10).text(Quantity::OneWay, style);
        assert_eq!(none, "no samples\n");
    }
}
