//! The t distribution of Student, to about 12 digits.

/// Coefficients of Lanczos (1964) for g = 7, as Godfrey computed them.
const LANCZOS: [f64; 9] = [
    0.999_999_999_999_809_9,
    676.520_368_121_885_1,
    -1_259.139_216_722_402_8,
    771.323_428_777_653_1,
    -176.615_029_162_140_6,
    12.507_343_278_686_905,
    -0.138_571_095_265_720_12,
    9.984_369_578_019_572e-6,
    1.505_632_735_149_311_6e-7,
];

/// The logarithm of the gamma function, for x >= 1/2.
fn ln_gamma(x: f64) -> f64 {
    let x = x - 1.0;
    let series =
        LANCZOS.iter().enumerate().skip(1).fold(LANCZOS[0], |sum, (i, c)| sum + c / (x + i as f64));
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and
/// Stegun, 26.5.8), evaluated as Lentz (1976) does.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on one side of the mean only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..=1000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    let front = ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln();
    front.exp() * fraction / a
}

/// The probability of more than `t`, at `freedom` >= 1 degrees of freedom.
pub fn upper_tail(t: f64, freedom: f64) -> f64 {
    let both = incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t >= 0.0 { both / 2.0 } else { 1.0 - both / 2.0 }
}

/// The `t` that is exceeded with probability `tail`, for 0 < `tail` <= 1/2.
pub fn upper_quantile(tail: f64, freedom: f64) -> f64 {
    let mut high = 1.0;
    while upper_tail(high, freedom) > tail && high < 1e30 {
        high *= 2.0;
    }
    super::normal::bisect(0.0, high, |t| upper_tail(t, freedom) > tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: upper critical values.
        for (freedom, tail, t) in [
            (1.0, 0.1, 3.078),
            (1.0, 0.025, 12.706),
            (2.0, 0.025, 4.303),
            (4.0, 0.025, 2.776),
            (4.0, 0.001, 7.173),
            (10.0, 0.05, 1.812),
            (19.0, 0.025, 2.093),
            (30.0, 0.005, 2.750),
            (100.0, 0.001, 3.174),
        ] {
            let found = upper_quantile(tail, freedom);
            assert!((found - t).abs() < 0.000_51, "{freedom} {tail}: {found}");
            assert!((upper_tail(found, freedom) / tail - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn known_cases_are_exact() {
        // One degree is Cauchy's, two have a closed form.
        for t in [0.0, 0.3, 1.0, 5.0, 300.0] {
            let cauchy = 0.5 - f64::atan(t) / std::f64::consts::PI;
            assert!((upper_tail(t, 1.0) - cauchy).abs() < 1e-12, "{t}");
            let two = 0.5 - t / (2.0 * (2.0 + t * t).sqrt());
            assert!((upper_tail(t, 2.0) - two).abs() < 1e-12, "{t}");
            assert!((upper_tail(-t, 2.0) - (1.0 - two)).abs() < 1e-12, "{t}");
        }
        // Many degrees are the normal distribution.
        let normal = super::super::normal::upper_tail(1.5);
        assert!((upper_tail(1.5, 1e7) / normal - 1.0).abs() < 1e-6);
        assert!(upper_quantile(1e-14, 4.0) > 1000.0);
    }
}
