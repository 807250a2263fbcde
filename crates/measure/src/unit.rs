//! The units that names end with, as in `size_bytes`, and numbers with their unit.
//!
//! Names of parameters, columns and JSON keys say their unit. What follows from such a name is
//! decided here, and nowhere else.

use crate::quantity::{fmt_bandwidth, fmt_ns, fmt_rate};

/// The units that a name may end with, behind a `_`. `share` is 1 for the whole; `code` is a number
/// that stands for something else, as a time-out code does.
pub const SUFFIXES: [&str; 9] =
    ["ns", "bytes_per_s", "per_s", "bytes", "messages", "packets", "pages", "share", "code"];

/// The name without its unit, and the unit: `size` and `bytes` of `size_bytes`.
#[must_use]
pub fn split(name: &str) -> (&str, Option<&'static str>) {
    let parts = |unit: &'static str| Some((name.strip_suffix(unit)?.strip_suffix('_')?, unit));
    match SUFFIXES.into_iter().find_map(parts) {
        Some((bare, unit)) => (bare, Some(unit)),
        None => (name, None),
    }
}

/// The unit that a name ends with.
#[must_use]
pub fn of_name(name: &str) -> Option<&'static str> {
    split(name).1
}

/// A number with its unit. A unit that is none of [`SUFFIXES`] counts things, and stands behind the
/// whole number.
#[must_use]
pub fn format(value: f64, unit: &str) -> String {
    let whole = || value.round().max(0.0) as u64;
    match unit {
        "ns" => fmt_ns(value),
        "per_s" => fmt_rate(value),
        "bytes_per_s" => fmt_bandwidth(value),
        "bytes" => fmt_bytes(whole()),
        "share" if value > 0.0 && value < 0.01 => format!("{value:.0e}"),
        "share" => format!("{value:.3}"),
        "code" => format!("{value:.0}"),
        "" => fmt_count(whole()),
        unit => format!("{} {}", fmt_count(whole()), unit.replace('_', " ")),
    }
}

/// A size in GiB, MiB or KiB where it is a whole number of them, else in bytes.
#[must_use]
pub fn fmt_bytes(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// A whole number with a blank between groups of three digits.
#[must_use]
pub fn fmt_count(n: u64) -> String {
    let digits = n.to_string();
    let head = digits.len() % 3;
    let mut text = digits[..head].to_owned();
    for group in digits.as_bytes()[head..].chunks(3) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.extend(group.iter().map(|b| char::from(*b)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quantity;

    #[test]
    fn a_name_tells_its_unit() {
        for (name, bare, unit) in [
            ("size_bytes", "size", Some("bytes")),
            ("base_ns", "base", Some("ns")),
            ("rate_per_s", "rate", Some("per_s")),
            ("bandwidth_bytes_per_s", "bandwidth", Some("bytes_per_s")),
            ("min_share", "min", Some("share")),
            ("period_messages", "period", Some("messages")),
            ("signal_every", "signal_every", None),
            ("messages", "messages", None),
            ("bytes", "bytes", None),
        ] {
            assert_eq!(split(name), (bare, unit));
        }
    }

    /// A period is a number of messages, and its numbers must not be called shares.
    #[test]
    fn a_period_and_a_share_have_different_units() {
        let min_of = |quantity: Quantity| format!("min_{}", quantity.suffix());
        assert_eq!(min_of(Quantity::Period), "min_messages");
        assert_eq!(min_of(Quantity::CpuShare), "min_share");
        for quantity in Quantity::ALL {
            assert_eq!(of_name(&min_of(quantity)), Some(quantity.suffix()), "{quantity}");
        }
    }

    #[test]
    fn numbers_have_the_form_of_their_unit() {
        for (value, unit, text) in [
            (1500.0, "ns", "1.50 us"),
            (1500.0, "per_s", "1.50 k/s"),
            (1500.0, "bytes_per_s", "1.50 kB/s"),
            (4096.0, "bytes", "4 KiB"),
            (1500.4, "bytes", "1500 B"),
            (0.25, "share", "0.250"),
            (0.001, "share", "1e-3"),
            (14.0, "code", "14"),
            (1234.0, "messages", "1 234 messages"),
        ] {
            assert_eq!(format(value, unit), text);
        }
        assert_eq!([0, 12, 1_234, 123_456].map(fmt_count), ["0", "12", "1 234", "123 456"]);
        let sizes = [0, 1000, 1024, 3 << 19, 1 << 20, 1 << 30].map(fmt_bytes);
        assert_eq!(sizes, ["0 B", "1000 B", "1 KiB", "1536 KiB", "1 MiB", "1 GiB"]);
    }
}
