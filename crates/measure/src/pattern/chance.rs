//! Probabilities so small that only their logarithms are numbers.

use crate::stats::normal::upper_tail;
use libm::{exp, log, log1p};

/// The logarithm of the probability that a standard normal exceeds `z`.
pub fn ln_normal_tail(z: f64) -> f64 {
    if z < 30.0 {
        return log(upper_tail(z));
    }
    // The leading term; the next one is 1/z^2 of it.
    -z * z / 2.0 - log(z * (2.0 * std::f64::consts::PI).sqrt())
}

/// The quantile of the standard normal distribution, within 0.00045: Abramowitz and Stegun,
/// 26.2.23. Enough for a score, and quick.
pub fn normal_quantile(q: f64) -> f64 {
    let tail = q.min(1.0 - q);
    let t = (-2.0 * log(tail)).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let z = t - above / below;
    if q < 0.5 { -z } else { z }
}

/// The logarithm of the probability that chi-squared with so many degrees of freedom exceeds `x`.
pub fn ln_chi_squared_tail(x: f64, freedom: f64) -> f64 {
    ln_upper_gamma(freedom / 2.0, x / 2.0)
}

/// ln Q(a, x), the regularised upper incomplete gamma function, for `a` > 0.
fn ln_upper_gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let front = a * log(x) - x - ln_gamma(a);
    if x < a + 1.0 {
        // P(a, x) = e^front (1/a + x/(a (a+1)) + ...): Abramowitz and Stegun, 6.5.29.
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return log1p((-exp(front + log(sum))).max(-1.0));
    }
    // The continued fraction 6.5.31, by Lentz's method; it converges the faster the larger x is.
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..10_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = an * d + b;
        d = 1.0 / if d.abs() < TINY { TINY } else { d };
        c = b + an / c;
        c = if c.abs() < TINY { TINY } else { c };
        h *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front + log(h)
}

/// ln of the gamma function, for `x` > 0: Stirling's series, from 10 on.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += log(x);
        x += 1.0;
    }
    let square = x * x;
    let series = (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square)
        / x;
    (x - 0.5) * log(x) - x + 0.5 * log(2.0 * std::f64::consts::PI) + series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_tables() {
        // Abramowitz and Stegun, table 26.8, and e^(-x/2) for two degrees.
        for (x, freedom, tail) in [
            (3.841_458_820_694_124, 1.0, 0.05),
            (18.307_038_053_275_146, 10.0, 0.05),
            (3.247_0, 10.0, 0.975),
            (124.342_113_404_004_1, 100.0, 0.05),
            (140.169_5, 100.0, 0.005),
        ] {
            let found = ln_chi_squared_tail(x, freedom).exp();
            assert!((found / tail - 1.0).abs() < 1e-4, "{x} {freedom}: {found}");
        }
        for x in [0.1, 1.0, 2.0, 10.0, 700.0, 1e6] {
            let found = ln_chi_squared_tail(x, 2.0);
            assert!((found + x / 2.0).abs() < 1e-9 * x, "{x}: {found}");
        }
        assert_eq!(ln_chi_squared_tail(0.0, 5.0), 0.0);
    }

    #[test]
    fn normal_tails_go_on_where_floats_end() {
        assert!((ln_normal_tail(1.959_963_984_540_054) - 0.025f64.ln()).abs() < 1e-9);
        let (below, above) = (ln_normal_tail(29.999_999), ln_normal_tail(30.000_001));
        assert!((below - above).abs() < 2e-3, "{below} {above}");
        assert!((ln_normal_tail(100.0) + 5005.52).abs() < 0.01);
        for (q, z) in [(0.025, -1.959_964), (0.5, 0.0), (0.9, 1.281_552), (0.999, 3.090_232)] {
            assert!((normal_quantile(q) - z).abs() < 5e-4, "{q}");
        }
    }

    #[test]
    fn gamma_is_the_factorial() {
        let mut ln_factorial = 0.0;
        for n in 1..200u32 {
            let found = ln_gamma(f64::from(n) + 1.0);
            ln_factorial += f64::from(n).ln();
            assert!((found - ln_factorial).abs() <= 1e-12 * found.max(1.0), "{n}: {found}");
        }
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
    }
}
