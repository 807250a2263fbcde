/// Bits of a number that its bucket keeps: a bucket is at most 1/64 of its numbers wide.
const MANTISSA_BITS: u32 = 6;
/// Buckets of one sign.
const BUCKETS: usize = (64 - MANTISSA_BITS as usize + 1) << MANTISSA_BITS;

/// How often which numbers came, in a fixed amount of memory: buckets whose width grows with the
/// number, so that a quantile is right to 1.6 %. All samples of a stream cannot be kept.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Negative numbers, by magnitude.
    below_zero: Box<[u64]>,
    others: Box<[u64]>,
    count: u64,
    sum: f64,
    /// The sum of squared deviations from the mean.
    squares: f64,
    lowest: i64,
    highest: i64,
    last: i64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            below_zero: vec![0; BUCKETS].into_boxed_slice(),
            others: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            sum: 0.0,
            squares: 0.0,
            lowest: i64::MAX,
            highest: i64::MIN,
            last: 0,
        }
    }
}

impl Histogram {
    /// Counts `value`.
    pub fn add(&mut self, value: i64) {
        let buckets = if value < 0 { &mut self.below_zero } else { &mut self.others };
        buckets[bucket(value.unsigned_abs())] += 1;
        let number = value as f64;
        // Welford: exact enough however large the mean is.
        let from_mean = number - self.mean().unwrap_or(number);
        self.count += 1;
        self.sum += number;
        self.squares += from_mean * (number - self.sum / self.count as f64);
        self.lowest = self.lowest.min(value);
        self.highest = self.highest.max(value);
        self.last = value;
    }

    /// Forgets all numbers.
    pub fn clear(&mut self) {
        self.below_zero.fill(0);
        self.others.fill(0);
        (self.count, self.sum, self.squares) = (0, 0.0, 0.0);
        (self.lowest, self.highest, self.last) = (i64::MAX, i64::MIN, 0);
    }

    /// How many numbers were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The mean, if any number was counted.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// The standard deviation, if two numbers or more were counted.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.squares / (self.count - 1) as f64).sqrt())
    }

    /// The lowest number.
    #[must_use]
    pub fn lowest(&self) -> Option<i64> {
        (self.count > 0).then_some(self.lowest)
    }

    /// The highest number.
    #[must_use]
    pub fn highest(&self) -> Option<i64> {
        (self.count > 0).then_some(self.highest)
    }

    /// The number counted last.
    #[must_use]
    pub fn last(&self) -> Option<i64> {
        (self.count > 0).then_some(self.last)
    }

    /// A number that at least `q` of all numbers do not exceed, and not more than 1.6 % above the
    /// smallest such. `q` is between 0 and 1.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<i64> {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let negative = self.below_zero.iter().enumerate().rev();
        let negative = negative.map(|(i, count)| (-first(i), *count));
        let others = self.others.iter().enumerate();
        let others = others.map(|(i, count)| (first(i + 1) - 1, *count));
        let mut seen = 0;
        let (value, _) = negative.chain(others).find(|(_, count)| {
            seen += count;
            seen >= rank
        })?;
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        Some(value.clamp(self.lowest, self.highest))
    }
}

/// The bucket of a number.
fn bucket(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(MANTISSA_BITS + 1);
    ((shift as usize) << MANTISSA_BITS) + (value >> shift) as usize
}

/// The first number of a bucket.
fn first(bucket: usize) -> i128 {
    let base = 1 << MANTISSA_BITS;
    if bucket < 2 * base {
        return bucket as i128;
    }
    let shift = (bucket >> MANTISSA_BITS) - 1;
    ((bucket - (shift << MANTISSA_BITS)) as i128) << shift
}

#[cfg(test)]
mod tests {
    use rdmalab_random::Random;

    use super::*;

    #[test]
    fn every_number_is_in_its_bucket() {
        let mut random = Random::new(1);
        let edges = [0, 1, 63, 64, 127, 128, 129, u64::MAX, 1 << 63, (1 << 63) - 1];
        let drawn = (0..10_000).map(|_| random.next_u64() >> random.below(64));
        for value in edges.into_iter().chain(drawn.collect::<Vec<_>>()) {
            let bucket = bucket(value);
            assert!(bucket < BUCKETS, "{value}");
            let (start, end) = (first(bucket), first(bucket + 1));
            assert!((start..end).contains(&i128::from(value)), "{value}: {start}..{end}");
            assert!(end - start <= 1 + start / 64, "{value}: {start}..{end}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_numbers() {
        let mut random = Random::new(2);
        let mut histogram = Histogram::default();
        let mut values: Vec<i64> =
            (0..5_000).map(|_| random.below(1 << 30) as i64 - 1000).collect();
        values.iter().for_each(|value| histogram.add(*value));
        values.sort_unstable();
        for q in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = values[((q * 5_000.0_f64).ceil() as usize).clamp(1, 5_000) - 1];
            let ours = histogram.quantile(q).unwrap();
            assert!((exact..=exact + exact.abs() / 63 + 1).contains(&ours), "{q}: {exact} {ours}");
        }
        let mean = values.iter().map(|v| *v as f64).sum::<f64>() / 5_000.0;
        assert!((histogram.mean().unwrap() - mean).abs() < 1e-3);
        let squares = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>();
        let deviation = (squares / 4_999.0).sqrt();
        assert!((histogram.deviation().unwrap() / deviation - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_and_the_extremes() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (None, None));
        histogram.add(i64::MIN);
        histogram.add(i64::MAX);
        assert_eq!(
            (histogram.quantile(0.0), histogram.quantile(1.0)),
            (Some(i64::MIN), Some(i64::MAX))
        );
        histogram.clear();
        assert_eq!(
            (histogram.count(), histogram.lowest(), histogram.quantile(1.0)),
            (0, None, None)
        );
    }
}
