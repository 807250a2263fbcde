//! Numbers as C's `printf` writes them. Floats are written by exact integer arithmetic: with `fmt`,
//! the floats of a CSV file take three times as long as now the whole file (17 decimals, 60 against
//! 200 MiB/s).

use std::fmt::Write;

/// Decimals up to which the digits of a fraction fit into 64 bits.
const FAST_DECIMALS: usize = 19;

/// 10 to the power of the index.
const POWERS: [u64; FAST_DECIMALS + 1] = {
    let mut powers = [1; FAST_DECIMALS + 1];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// The numbers 00 to 99 as text.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < pairs.len() {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// Appends `value`.
pub(crate) fn unsigned(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends `value`.
pub(crate) fn integer(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends `value` with zeros before it up to `digits` digits, at most 19.
pub(crate) fn padded(out: &mut Vec<u8>, mut value: u64, digits: usize) {
    if digits > FAST_DECIMALS || value >= POWERS[digits] {
        return unsigned(out, value);
    }
    let mut text = [0; FAST_DECIMALS + 1];
    let text = &mut text[..digits];
    let mut pairs = text.rchunks_exact_mut(2);
    for pair in &mut pairs {
        pair.copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    if let [first] = pairs.into_remainder() {
        *first = b'0' + value as u8;
    }
    out.extend_from_slice(text);
}

/// Appends `value` with `decimals` digits after the point, as `%.*f` does: exactly rounded, half to
/// even; `nan`, `-nan`, `inf`, `-inf`.
pub(crate) fn fixed(out: &mut Vec<u8>, value: f64, decimals: usize) {
    let magnitude = value.abs();
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if !magnitude.is_finite() {
        return out.extend_from_slice(if magnitude.is_nan() { b"nan" } else { b"inf" });
    }
    if decimals > FAST_DECIMALS || magnitude >= i64::MAX as f64 {
        return format(out, format_args!("{magnitude:.decimals$}"));
    }
    // Both parts are exact: a number from 2^53 on has no fraction.
    let whole = magnitude as u64;
    let (whole, fraction) = match fraction(magnitude - whole as f64, decimals, whole) {
        fraction if fraction < POWERS[decimals] => (whole, fraction),
        _ => (whole + 1, 0),
    };
    unsigned(out, whole);
    if decimals > 0 {
        out.push(b'.');
        padded(out, fraction, decimals);
    }
}

/// `fraction`, below 1, times 10 to the power of `decimals`, rounded. If there are no decimals, the
/// digit that decides a tie is that of `whole`.
#[inline]
fn fraction(fraction: f64, decimals: usize, whole: u64) -> u64 {
    const DIGITS: u64 = f64::MANTISSA_DIGITS as u64;
    let exponent = fraction.to_bits() >> (DIGITS - 1);
    let mantissa = fraction.to_bits() & ((1 << (DIGITS - 1)) - 1);
    // The fraction is `mantissa` / 2^`shift`, with the hidden bit unless it is subnormal.
    let (mantissa, shift) = match exponent {
        0 => (mantissa, 1074),
        _ => (mantissa | 1 << (DIGITS - 1), 1075 - exponent),
    };
    // Below 2^53 * 2^64. If 2^127 is at most half of the divisor, the quotient is rounded to 0.
    let product = u128::from(mantissa) * u128::from(POWERS[decimals]);
    if shift > 127 {
        return 0;
    }
    let quotient = (product >> shift) as u64;
    let rest = product & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    let last = if decimals == 0 { whole } else { quotient };
    quotient + u64::from(rest > half || (rest == half && last % 2 == 1))
}

/// Appends `value` as `%+.6e` does, but nothing for what is not finite.
pub(crate) fn signed_exponent(out: &mut Vec<u8>, value: f64) {
    let mut text = Text::default();
    // A text of this length always fits.
    let _ = write!(text, "{value:+.6e}");
    let text = text.bytes();
    let Some(e) = text.iter().position(|byte| *byte == b'e') else { return };
    let (negative, digits) = match &text[e + 1..] {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    out.extend_from_slice(&text[..=e]);
    out.push(if negative { b'-' } else { b'+' });
    if digits.len() < 2 {
        out.push(b'0');
    }
    out.extend_from_slice(digits);
}

/// Appends the finite `value` with `digits` significant digits at most, 1 to 31, as C's `%.*g` does
/// and as JSON wants it: with a point or an exponent, so that it cannot be taken for an integer,
/// and an exponent without `+` and zeros before it.
pub(crate) fn significant(out: &mut Vec<u8>, value: f64, digits: usize) {
    match exponent(value.abs()) {
        // The next exponent is possible too: the number may be rounded up to a power of ten, which
        // has the same digits then.
        Some(exponent) if exponent + 1 < digits as i32 => positional(out, value, digits, exponent),
        _ => rounded_first(out, value, digits),
    }
}

/// The decimal exponent of a number that is 0 or not too far from 1.
fn exponent(magnitude: f64) -> Option<i32> {
    const SMALL: [f64; 3] = [1e-1, 1e-2, 1e-3];
    if magnitude == 0.0 {
        return Some(0);
    }
    if magnitude < 1.0 {
        return SMALL.iter().zip(1..).find(|(power, _)| magnitude >= **power).map(|(_, e)| -e);
    }
    (magnitude < 1e18).then(|| (magnitude as u64).ilog10() as i32)
}

/// Appends `value` without an exponent.
fn positional(out: &mut Vec<u8>, value: f64, digits: usize, exponent: i32) {
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    let start = out.len();
    fixed(out, value, decimals);
    let zeros = trailing_zeros(&out[start..]);
    out.truncate(out.len() - zeros);
    match out.last() {
        Some(b'.') => out.push(b'0'),
        _ if decimals == 0 => out.extend_from_slice(b".0"),
        _ => {}
    }
}

/// The same as [`significant`] for any number: its exponent is known when it has been rounded.
fn rounded_first(out: &mut Vec<u8>, value: f64, digits: usize) {
    let mut text = Text::default();
    let decimals = digits - 1;
    // A text of this length always fits.
    let _ = write!(text, "{value:.decimals$e}");
    let text = text.bytes();
    let e = text.iter().position(|byte| *byte == b'e').unwrap_or(text.len());
    let exponent = std::str::from_utf8(&text[(e + 1).min(text.len())..]);
    let exponent: i32 = exponent.ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    if exponent >= -4 && exponent < digits as i32 {
        return positional(out, value, digits, exponent);
    }
    let mantissa = &text[..e];
    let mantissa = &mantissa[..mantissa.len() - trailing_zeros(mantissa)];
    out.extend_from_slice(mantissa.strip_suffix(b".").unwrap_or(mantissa));
    out.push(b'e');
    integer(out, i64::from(exponent));
}

/// How many zeros at the end of a number are behind its point.
fn trailing_zeros(text: &[u8]) -> usize {
    if !text.contains(&b'.') {
        return 0;
    }
    text.iter().rev().take_while(|byte| **byte == b'0').count()
}

/// Appends what the arguments give.
fn format(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    // Writing into a vector cannot fail.
    let _ = std::io::Write::write_fmt(out, arguments);
}

/// A short text without an allocation.
struct Text {
    bytes: [u8; 64],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; 64], length: 0 }
    }
}

impl Text {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_random::Random;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fixed_numbers_are_those_of_the_standard_library() {
        for seed in rdmalab_testing::seeds(20_000) {
            let mut random = Random::new(seed);
            let bits = random.next_u64();
            let decimals = random.below(23) as usize;
            // Any float; a usual one; one with few digits, which makes ties.
            let usual = (random.unit() - 0.5) * 10_f64.powi(random.below(20) as i32);
            let few = random.below(1 << 20) as f64 / 2_f64.powi(random.below(20) as i32);
            for value in [f64::from_bits(bits), usual, few, -few] {
                if value.is_nan() {
                    continue;
                }
                let ours = text(|out| fixed(out, value, decimals));
                assert_eq!(ours, format!("{value:.decimals$}"), "seed {seed}: {value:e}");
            }
        }
    }

    #[test]
    fn fixed_numbers_at_the_bounds() {
        let fixed = |value, decimals| text(|out| fixed(out, value, decimals));
        assert_eq!(fixed(0.5, 0), "0");
        assert_eq!(fixed(1.5, 0), "2");
        assert_eq!(fixed(-0.0, 2), "-0.00");
        assert_eq!(fixed(0.999_999, 3), "1.000");
        assert_eq!(fixed(f64::from_bits(1), 19), "0.0000000000000000000");
        assert_eq!(fixed(9_223_372_036_854_774_784.0, 1), "9223372036854774784.0");
        assert_eq!(fixed(9_223_372_036_854_775_808.0, 1), "9223372036854775808.0");
        assert_eq!((fixed(f64::NAN, 1), fixed(-f64::NAN, 1)), ("nan".into(), "-nan".into()));
        assert_eq!(
            (fixed(f64::INFINITY, 1), fixed(-f64::INFINITY, 1)),
            ("inf".into(), "-inf".into())
        );
        assert_eq!(fixed(0.1, 31), "0.1000000000000000055511151231258");
    }

    #[test]
    fn significant_digits_need_no_rounding_in_advance() {
        for seed in rdmalab_testing::seeds(20_000) {
            let mut random = Random::new(seed);
            let digits = random.between(1, 31) as usize;
            let power = 10_f64.powi(random.below(40) as i32 - 20);
            // Any number; a usual one; one beside a power of ten.
            let beside = f64::from_bits(power.to_bits() + random.below(3) - 1);
            for value in [f64::from_bits(random.next_u64()), -random.unit() * power, beside] {
                if value.is_finite() {
                    let ours = text(|out| significant(out, value, digits));
                    let slow = text(|out| rounded_first(out, value, digits));
                    assert_eq!(ours, slow, "seed {seed}: {value:e} with {digits} digits");
                }
            }
        }
    }

    #[test]
    fn padded_numbers_keep_all_digits() {
        assert_eq!(text(|out| padded(out, 5, 9)), "000000005");
        assert_eq!(text(|out| padded(out, 4_294_967_295, 9)), "4294967295");
        assert_eq!(text(|out| padded(out, 0, 1)), "0");
        assert_eq!(text(|out| padded(out, 1, 19)), "0000000000000000001");
        assert_eq!(text(|out| padded(out, u64::MAX, 19)), u64::MAX.to_string());
    }

    #[test]
    fn exponents_have_a_sign_and_two_digits() {
        let exponent = |value| text(|out| signed_exponent(out, value));
        assert_eq!(exponent(0.0), "+0.000000e+00");
        assert_eq!(exponent(-0.25), "-2.500000e-01");
        assert_eq!(exponent(9.223_372e18), "+9.223372e+18");
        assert_eq!(exponent(1e-100), "+1.000000e-100");
    }

    #[test]
    fn significant_digits_end_with_the_last_one_that_is_not_zero() {
        let significant = |value, digits| text(|out| significant(out, value, digits));
        assert_eq!(significant(1e-7, 17), "9.9999999999999995e-8");
        assert_eq!(significant(1e15, 17), "1000000000000000.0");
        assert_eq!(significant(1e17, 17), "1e17");
        assert_eq!(significant(-3e10, 3), "-3e10");
        assert_eq!(significant(0.1, 3), "0.1");
        assert_eq!(significant(0.000_123, 6), "0.000123");
        assert_eq!(significant(-0.0, 17), "-0.0");
        assert_eq!(significant(f64::from_bits(1), 17), "4.9406564584124654e-324");
        assert_eq!(significant(100.0, 3), "100.0");
        assert_eq!(significant(999.9, 3), "1e3");
        assert_eq!(significant(f64::MAX, 31), "1.797693134862315708145274237317e308");
    }
}
