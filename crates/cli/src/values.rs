//! Values of options that several commands take: quantiles, percentages, times.

use std::time::Duration;

use rdmalab_report::expect::share_of;

/// `median` or `p99.9`.
pub fn quantile(text: &str) -> Result<f64, String> {
    let wrong = || {
        format!("{text:?} is not a quantile: write median, or p and a percentage, such as p99.9")
    };
    if text == "median" {
        return Ok(0.5);
    }
    let percent: f64 = text.strip_prefix('p').and_then(|p| p.parse().ok()).ok_or_else(wrong)?;
    share_of(percent).ok_or_else(wrong)
}

/// A percentage such as `5%` or `5`.
pub fn percentage(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a percentage from 0 to 1000: write it as 5%");
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: f64 = number.parse().map_err(|_| wrong())?;
    if (0.0..=1000.0).contains(&percent) { Ok(percent / 100.0) } else { Err(wrong()) }
}

/// A time such as `90s`, `10m`, `2h`; seconds without a unit.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: write it as 90s, 10m or 2h");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[end..] {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..end].parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * factor).ok().filter(|t| !t.is_zero()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_their_unit() {
        let seconds = |text| time(text).map(|t| t.as_secs_f64());
        assert_eq!(seconds("90"), Ok(90.0));
        assert_eq!(seconds("1.5m"), Ok(90.0));
        assert_eq!(seconds("2h"), Ok(7200.0));
        for wrong in ["", "s", "0", "5d", "-1s", "1e400"] {
            assert!(seconds(wrong).unwrap_err().contains("10m"), "{wrong}");
        }
    }

    #[test]
    fn quantiles_and_shares_are_read() {
        assert_eq!(
            (quantile("median"), quantile("p99"), quantile("p99.9")),
            (Ok(0.5), Ok(0.99), Ok(0.999))
        );
        for wrong in ["", "99", "p", "p0", "p100", "p99.9999999999999", "pNaN", "mean"] {
            assert!(quantile(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (percentage("5%"), percentage("2.5"), percentage("0 %")),
            (Ok(0.05), Ok(0.025), Ok(0.0))
        );
        for wrong in ["", "%", "-1%", "x", "NaN", "1e9"] {
            assert!(percentage(wrong).is_err(), "{wrong}");
        }
    }
}
