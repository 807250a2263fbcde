//! Numbers as C's `strtod` and its relatives read them: blanks before them are skipped, and what
//! follows them is left.

use std::str::FromStr;

use crate::kind::Kind;
use crate::value::{Complex, Value};

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The start of `text`.
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// How many bytes lie behind.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// What lies ahead.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// The next byte, if any.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Goes on by `bytes`.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Skips `byte` if it is next, and tells whether it was.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// A whole number as `strtoull` reads it: more than 64 bits give the largest one, and a minus
    /// negates it in 64 bits.
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let (negative, magnitude) = self.whole()?;
        let magnitude = magnitude.unwrap_or(u64::MAX);
        Some(if negative { magnitude.wrapping_neg() } else { magnitude })
    }

    /// A whole number as `strtoll` reads it: what does not fit gives the nearest one that does.
    pub(crate) fn integer(&mut self) -> Option<i64> {
        let (negative, magnitude) = self.whole()?;
        let limit = if negative { i64::MIN } else { i64::MAX };
        let magnitude = i128::from(magnitude.unwrap_or(u64::MAX));
        let value = if negative { -magnitude } else { magnitude };
        Some(i64::try_from(value).unwrap_or(limit))
    }

    /// Sign and magnitude; no magnitude if it has more than 64 bits.
    fn whole(&mut self) -> Option<(bool, Option<u64>)> {
        let rest = self.rest();
        let start = blanks(rest);
        let (negative, start) = sign(rest, start);
        let digits = count(&rest[start..], |byte| byte.is_ascii_digit());
        if digits == 0 {
            return None;
        }
        self.at += start + digits;
        let digits = &rest[start..start + digits];
        let magnitude = digits.iter().try_fold(0_u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        });
        Some((negative, magnitude))
    }

    /// A double-precision number.
    pub(crate) fn float(&mut self) -> Option<f64> {
        self.real()
    }

    /// A single-precision number.
    pub(crate) fn single(&mut self) -> Option<f32> {
        self.real()
    }

    fn real<T: Real>(&mut self) -> Option<T> {
        let rest = self.rest();
        let start = blanks(rest);
        let (negative, digits) = sign(rest, start);
        if let Some((value, length)) = hexadecimal(&rest[digits..]) {
            self.at += digits + length;
            return Some(T::from_double(if negative { -value } else { value }));
        }
        let length = decimal(&rest[digits..]).or_else(|| word(&rest[digits..]))?;
        // `from_str` knows the words without what may stand in brackets behind `nan`.
        let known = count(&rest[digits..digits + length], |byte| byte != b'(');
        let text = std::str::from_utf8(&rest[start..digits + known]).ok()?;
        let value = text.parse().ok()?;
        self.at += digits + length;
        Some(value)
    }

    /// A complex number: `1+2i`, `3i`, `4`; also with `j`.
    pub(crate) fn complex(&mut self) -> Option<Complex> {
        let mut scanner = *self;
        let first = scanner.single()?;
        let value = match scanner.peek() {
            Some(b'i' | b'j') => {
                scanner.skip(1);
                Complex { real: 0.0, imaginary: first }
            }
            Some(b'+' | b'-') => {
                let imaginary = scanner.single()?;
                if !scanner.eat(b'i') && !scanner.eat(b'j') {
                    return None;
                }
                Complex { real: first, imaginary }
            }
            _ => Complex { real: first, imaginary: 0.0 },
        };
        *self = scanner;
        Some(value)
    }

    /// A value of a signal of this kind.
    pub(crate) fn value(&mut self, kind: Kind) -> Option<Value> {
        match kind {
            Kind::Float => self.float().map(Value::from_float),
            Kind::Integer => self.integer().map(Value::from_integer),
            Kind::Boolean => self.integer().map(|number| Value::from_boolean(number != 0)),
            Kind::Complex => self.complex().map(Value::from_complex),
        }
    }
}

/// A floating-point number.
trait Real: FromStr {
    fn from_double(value: f64) -> Self;
}

impl Real for f64 {
    fn from_double(value: f64) -> Self {
        value
    }
}

impl Real for f32 {
    fn from_double(value: f64) -> Self {
        value as Self
    }
}

/// How many bytes at the start of `text` are such.
fn count(text: &[u8], mut is_such: impl FnMut(u8) -> bool) -> usize {
    text.iter().position(|byte| !is_such(*byte)).unwrap_or(text.len())
}

/// How many blanks `text` starts with, as C's `isspace` sees them.
pub(crate) fn blanks(text: &[u8]) -> usize {
    count(text, |byte| matches!(byte, b' ' | b'\t'..=b'\r'))
}

/// Whether a minus stands at `start`, and what follows it or a plus.
fn sign(text: &[u8], start: usize) -> (bool, usize) {
    match text.get(start) {
        Some(b'-') => (true, start + 1),
        Some(b'+') => (false, start + 1),
        _ => (false, start),
    }
}

/// The length of a decimal number with point and exponent at the start of `text`.
fn decimal(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| count(&text[from..], |byte| byte.is_ascii_digit());
    let whole = digits(0);
    let mut end = whole;
    if text.get(end) == Some(&b'.') {
        let decimals = digits(end + 1);
        if whole + decimals == 0 {
            return None;
        }
        end += 1 + decimals;
    } else if whole == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let (_, exponent) = sign(text, end + 1);
        let length = digits(exponent);
        if length > 0 {
            end = exponent + length;
        }
    }
    Some(end)
}

/// The length of `nan`, `nan(...)`, `inf` or `infinity` at the start of `text`.
fn word(text: &[u8]) -> Option<usize> {
    let starts = |word: &str| {
        text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
    };
    if starts("infinity") {
        return Some(8);
    }
    if starts("inf") {
        return Some(3);
    }
    if !starts("nan") {
        return None;
    }
    let inside = match text.get(3) {
        Some(b'(') => count(&text[4..], |byte| byte.is_ascii_alphanumeric() || byte == b'_'),
        _ => return Some(3),
    };
    Some(if text.get(4 + inside) == Some(&b')') { 5 + inside } else { 3 })
}

/// A hexadecimal number such as `0x1.8p1` at the start of `text`, and its length. Beyond 60 bits
/// its digits only count as more than nothing, which is enough to round it.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let [b'0', b'x' | b'X', ..] = text else { return None };
    let (mut mantissa, mut exponent, mut digits, mut end) = (0_u64, 0_i64, 0, 2);
    let mut is_behind_point = false;
    while let Some(byte) = text.get(end) {
        if *byte == b'.' && !is_behind_point {
            is_behind_point = true;
        } else if let Some(digit) = char::from(*byte).to_digit(16) {
            digits += 1;
            if mantissa >> 60 == 0 {
                mantissa = mantissa << 4 | u64::from(digit);
                exponent -= if is_behind_point { 4 } else { 0 };
            } else {
                mantissa |= u64::from(digit != 0);
                exponent += if is_behind_point { 0 } else { 4 };
            }
        } else {
            break;
        }
        end += 1;
    }
    if digits == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'p' | b'P')) {
        let mut power = Scanner::new(&text[end + 1..]);
        let is_next = power.peek().is_some_and(|byte| !byte.is_ascii_whitespace());
        if let (true, Some(power_of_2)) = (is_next, power.integer()) {
            exponent = exponent.saturating_add(power_of_2);
            end += 1 + power.at();
        }
    }
    // In two steps, because 2^-1100 is zero but a mantissa times it need not be.
    let exponent = exponent.clamp(-2_000, 2_000) as i32;
    let half = exponent / 2;
    Some((mantissa as f64 * 2_f64.powi(half) * 2_f64.powi(exponent - half), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan<'t, T>(
        text: &'t str,
        read: impl Fn(&mut Scanner<'t>) -> Option<T>,
    ) -> Option<(T, &'t str)> {
        let mut scanner = Scanner::new(text.as_bytes());
        let value = read(&mut scanner)?;
        Some((value, &text[scanner.at()..]))
    }

    #[test]
    fn floats_end_where_they_end() {
        let float = |text| scan(text, Scanner::float);
        assert_eq!(float(" \t1.5e1x"), Some((15.0, "x")));
        assert_eq!(float("1e+"), Some((1.0, "e+")));
        assert_eq!(float("-.5."), Some((-0.5, ".")));
        assert_eq!(float("1."), Some((1.0, "")));
        assert_eq!(float("+infinit"), Some((f64::INFINITY, "init")));
        assert_eq!(float("-Infinity,"), Some((f64::NEG_INFINITY, ",")));
        assert_eq!(float("1e999"), Some((f64::INFINITY, "")));
        for text in ["", ".", "-", "e5", "abc", "--1", "+ 1"] {
            assert_eq!(float(text), None, "{text}");
        }
        let (nan, rest) = float("-nan(0x1),").unwrap();
        assert!(nan.is_nan() && nan.is_sign_negative() && rest == ",");
        assert_eq!(float("nan(").unwrap().1, "(");
    }

    #[test]
    fn hexadecimal_floats() {
        let float = |text| scan(text, Scanner::float);
        assert_eq!(float("0x1.8p1"), Some((3.0, "")));
        assert_eq!(float("-0X10 "), Some((-16.0, " ")));
        assert_eq!(float("0x1p-1074"), Some((f64::from_bits(1), "")));
        assert_eq!(float("0x1p99999999999999999999"), Some((f64::INFINITY, "")));
        assert_eq!(float("0x1.00000000000008000000001"), Some((1.0 + f64::EPSILON, "")));
        assert_eq!(float("0x"), Some((0.0, "x")));
        assert_eq!(float("0x1p"), Some((1.0, "p")));
    }

    #[test]
    fn whole_numbers_saturate() {
        let integer = |text| scan(text, Scanner::integer).map(|(value, _)| value);
        assert_eq!(integer("9223372036854775808"), Some(i64::MAX));
        assert_eq!(integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer("-99999999999999999999999"), Some(i64::MIN));
        let unsigned = |text| scan(text, Scanner::unsigned).map(|(value, _)| value);
        assert_eq!(unsigned("18446744073709551616"), Some(u64::MAX));
        assert_eq!(unsigned("-1"), Some(u64::MAX));
        assert_eq!(unsigned("x"), None);
        assert_eq!(scan("1.9", Scanner::integer), Some((1, ".9")));
    }

    #[test]
    fn complex_numbers_have_up_to_two_parts() {
        let complex = |text| {
            scan(text, Scanner::complex).map(|(value, rest)| (value.real, value.imaginary, rest))
        };
        assert_eq!(complex("-1.5-2.5i\t"), Some((-1.5, -2.5, "\t")));
        assert_eq!(complex("3i"), Some((0.0, 3.0, "")));
        assert_eq!(complex("4"), Some((4.0, 0.0, "")));
        assert_eq!(complex("1e10-1e-10j"), Some((1e10, -1e-10, "")));
        assert_eq!(complex("1+infi"), Some((1.0, f32::INFINITY, "")));
        assert_eq!((complex("1+2"), complex("1+i"), complex("i")), (None, None, None));
    }
}
