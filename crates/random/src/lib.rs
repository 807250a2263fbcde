//! Pseudo-random numbers whose sequence never changes: a seed in an old failure report still names
//! the same run. (Crates for random numbers change theirs between versions.)

#![forbid(unsafe_code)]

/// The increment of SplitMix64's state: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// The number at `index`, from 0, of the sequence that `seed` names; without the ones before it.
#[must_use]
pub const fn nth(seed: u64, index: u64) -> u64 {
    scrambled(seed.wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
}

/// Maps a number one to one to a number that is evenly spread over all 64 bits; 0 gives 0.
#[must_use]
pub const fn scrambled(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `end`, in proportion to a drawn one of 64 bits. The bias is below `end` / 2^64.
#[must_use]
pub const fn scaled(drawn: u64, end: u64) -> u64 {
    ((drawn as u128 * end as u128) >> 64) as u64
}

impl Random {
    /// The sequence that `seed` names.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        scrambled(self.state)
    }

    /// The next 32 bits.
    pub const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `end`; 0 when `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        scaled(self.next_u64(), end)
    }

    /// A number in `min ..= max`.
    pub const fn between(&mut self, min: u64, max: u64) -> u64 {
        min + self.below(max - min + 1)
    }

    /// True `per_mille` times in a thousand.
    pub const fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as u64
    }

    /// Uniform: at least 0, below 1.
    pub const fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform: above 0, at most 1. It has a logarithm.
    pub const fn unit_above_0(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential, with mean 1: at least 0. The logarithm is not the C library's, whose last bit
    /// differs between versions and processors.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit_above_0())
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Shuffles the items (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// `length` bytes.
    #[must_use]
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(length + 8);
        while out.len() < length {
            out.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        out.truncate(length);
        out
    }

    /// A generator for another purpose, whose use does not change the sequence of this one.
    #[must_use]
    pub const fn fork(&mut self) -> Random {
        Random::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first = [(); 3].map(|()| random.next_u64());
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first, published);
        assert_eq!([0, 1, 2].map(|index| nth(1_234_567, index)), published);
    }

    /// The bits of the sequence, and those of a sum, in which a bit of any of its parts would show.
    #[test]
    fn exponential_numbers_are_the_same_on_each_machine() {
        let mut random = Random::new(7);
        let first = [(); 3].map(|()| random.exponential().to_bits());
        let known =
            [4_606_660_408_168_305_058, 4_616_287_653_976_104_933, 4_592_195_568_524_181_834];
        assert_eq!(first, known);
        let more: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        let bits = more.iter().fold(0, |hash, one| scrambled(hash ^ one.to_bits()));
        assert_eq!(bits, 5_332_850_161_851_192_349);
        let mean = more.iter().sum::<f64>() / more.len() as f64;
        assert!((mean - 1.0).abs() < 0.02 && more.iter().all(|one| *one >= 0.0), "{mean}");
    }

    #[test]
    fn bounds_are_kept() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            assert!(random.below(7) < 7);
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!((0.0..1.0).contains(&random.unit()));
            assert!(random.unit_above_0() > 0.0);
        }
        assert_eq!(random.bytes(13).len(), 13);
        let mut order: Vec<u32> = (0..50).collect();
        random.shuffle(&mut order);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }
}
