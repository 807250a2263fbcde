//! The signals that a generator makes.

use std::f64::consts::TAU;

use rdmalab_random::{Random, nth};
use serde::{Deserialize, Serialize};

/// The shape of a generated signal.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// A walk from the offset, whose steps are normally distributed.
    Random,
    /// A sine.
    Sine,
    /// Half a period low, half a period high.
    Square,
    /// Down for half a period and up again, from the maximum.
    Triangle,
    /// Up to the amplitude, again and again. As in VILLASnode, its period is `frequency` *seconds*.
    Ramp,
    /// Amplitude times the number of the tick.
    Counter,
    /// Offset plus amplitude.
    Constant,
    /// One of the shapes before this one, by the number of the signal.
    #[default]
    Mixed,
    /// High at the start of each period for a number of ticks, and low otherwise.
    Pulse,
}

impl Shape {
    /// The names of all shapes.
    pub const NAMES: [&str; 9] =
        ["random", "sine", "square", "triangle", "ramp", "counter", "constant", "mixed", "pulse"];
}

/// Nanoseconds of a second.
const NS_PER_S: u64 = 1_000_000_000;

/// The shapes of mixed signals, in order.
const MIXED: [Shape; 7] = [
    Shape::Random,
    Shape::Sine,
    Shape::Square,
    Shape::Triangle,
    Shape::Ramp,
    Shape::Counter,
    Shape::Constant,
];

/// A generated signal.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Waveform {
    /// The shape.
    pub signal: Shape,
    /// Periods a second.
    pub frequency: f64,
    /// The factor of the shape, which is between -1 and 1.
    pub amplitude: f64,
    /// What is added.
    pub offset: f64,
    /// The standard deviation of a step of a random signal.
    pub stddev: f64,
    /// Where in its period the signal starts, in radians.
    pub phase: f64,
    /// Ticks for which a pulse is high.
    pub pulse_width: f64,
    /// A pulse when it is low, without the offset.
    pub pulse_low: f64,
    /// A pulse when it is high, without the offset.
    pub pulse_high: f64,
}

impl Default for Waveform {
    fn default() -> Self {
        Self {
            signal: Shape::default(),
            frequency: 1.0,
            amplitude: 1.0,
            offset: 0.0,
            stddev: 0.2,
            phase: 0.0,
            pulse_width: 1.0,
            pulse_low: 0.0,
            pulse_high: 1.0,
        }
    }
}

/// Makes the values of a [`Waveform`].
#[derive(Clone, Debug)]
pub struct Generator {
    waveform: Waveform,
    seed: u64,
    /// Where a random walk is.
    last: f64,
}

impl Generator {
    /// A generator for `waveform`. If that is mixed, it takes the shape of signal number `index`. A
    /// random signal is drawn from `seed`, and each signal has its own sequence.
    #[must_use]
    pub fn new(mut waveform: Waveform, index: usize, seed: u64) -> Self {
        if waveform.signal == Shape::Mixed {
            waveform.signal = MIXED[index % MIXED.len()];
        }
        let seed = nth(seed, index as u64);
        Self { waveform, seed, last: waveform.offset }
    }

    /// The shape, which is not [`Shape::Mixed`].
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.waveform.signal
    }

    /// The value at tick number `tick`, `time_ns` nanoseconds after the start, with `rate` ticks a
    /// second. It depends on these alone, except that a random signal goes on from where it was the
    /// last time, by a step that depends on the tick.
    #[must_use]
    pub fn value(&mut self, tick: u64, time_ns: u64, rate: f64) -> f64 {
        let Waveform { frequency, amplitude, offset, phase, .. } = self.waveform;
        let seconds = seconds(time_ns);
        // The part of the period that has passed.
        let part = || (seconds * frequency + phase / TAU) % 1.0;
        match self.waveform.signal {
            Shape::Random => {
                self.last += self.waveform.stddev * normal(nth(self.seed, tick));
                self.last
            }
            Shape::Sine => offset + amplitude * (seconds * frequency * TAU + phase).sin(),
            Shape::Square => offset + amplitude * if part() < 0.5 { -1.0 } else { 1.0 },
            Shape::Triangle => offset + amplitude * ((part() - 0.5).abs() - 0.25) * 4.0,
            Shape::Ramp => offset + amplitude * (seconds % frequency),
            Shape::Counter => offset + amplitude * tick as f64,
            Shape::Constant | Shape::Mixed => offset + amplitude,
            Shape::Pulse => {
                let Waveform { pulse_width, pulse_low, pulse_high, .. } = self.waveform;
                let is_high = part().abs() <= pulse_width / rate;
                offset + if is_high { pulse_high } else { pulse_low }
            }
        }
    }
}

/// When tick number `tick` is, in nanoseconds after the start, with `rate` ticks a second.
#[must_use]
pub fn time_ns(tick: u64, rate: f64) -> u64 {
    // The whole seconds apart: a product of both would not be exact beyond 2^53 ns, 104 days.
    let seconds = tick as f64 / rate;
    let whole = seconds.trunc();
    whole as u64 * NS_PER_S + ((seconds - whole) * NS_PER_S as f64) as u64
}

/// Nanoseconds as seconds, rounded as VILLASnode does.
fn seconds(ns: u64) -> f64 {
    (ns / NS_PER_S) as f64 + (ns % NS_PER_S) as f64 * 1e-9
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(seed: u64) -> f64 {
    let mut random = Random::new(seed);
    (-2.0 * random.unit_above_0().ln()).sqrt() * (TAU * random.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> Vec<f64> {
        let waveform = Waveform { signal: Shape::Random, stddev: 0.5, ..Waveform::default() };
        let mut generator = Generator::new(waveform, 0, seed);
        (0..10_000).map(|tick| generator.value(tick, 0, 1.0)).collect()
    }

    #[test]
    fn a_random_signal_is_a_walk_with_the_steps_asked_for() {
        let values = random(1);
        assert_eq!(values, random(1));
        assert_ne!(values, random(2));
        let steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        let variance = steps.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / steps.len() as f64;
        assert!(mean.abs() < 0.02 && (variance.sqrt() - 0.5).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn ticks_of_a_year_are_exact() {
        assert_eq!([0, 1, 3].map(|tick| time_ns(tick, 1000.0)), [0, 1_000_000, 3_000_000]);
        let year_s = 31_556_952;
        assert_eq!(time_ns(year_s * 4 + 1, 4.0), year_s * NS_PER_S + 250_000_000);
    }

    #[test]
    fn mixed_signals_take_turns() {
        let shapes: Vec<Shape> =
            (0..9).map(|i| Generator::new(Waveform::default(), i, 0).shape()).collect();
        assert_eq!(shapes[..7], MIXED);
        assert_eq!(shapes[7..], MIXED[..2]);
    }
}
