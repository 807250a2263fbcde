//! Names of files with the time in them, as strftime(3) has it.

use rdmalab_sample::Timestamp;

/// Year, month and day of a number of days since 1970 (the algorithm `civil_from_days` of Howard
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A name with the time `now` in it, UTC.
///
/// # Errors
/// For a conversion that is not known.
pub fn expand(name: &str, now: Timestamp) -> Result<String, String> {
    let (year, month, day) = date(now.seconds.div_euclid(86_400));
    let of_day = now.seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut text = String::new();
    let mut rest = name.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        text += &match rest.next() {
            Some('Y') => format!("{year}"),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('H') => format!("{hour:02}"),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('s') => format!("{}", now.seconds),
            Some('%') => "%".to_owned(),
            other => {
                let other = other.map_or_else(String::new, String::from);
                return Err(format!(
                    "%{other} is not known; %Y, %y, %m, %d, %H, %M, %S, %F, %T, %s and %% are"
                ));
            }
        };
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date_1() {
        // `date -u -d @1466498424 '+%F_%T %y'`
        let of = |name, seconds| expand(name, Timestamp::new(seconds, 0)).unwrap();
        assert_eq!(of("out_%F_%T.csv", 1_466_498_424), "out_2016-06-21_08:40:24.csv");
        assert_eq!(of("%Y%m%d-%H%M%S %y %s %%", 951_782_400), "20000229-000000 00 951782400 %");
        assert_eq!(of("%F", 4_107_542_400), "2100-03-01");
        assert!(expand("%Q", Timestamp::new(0, 0)).unwrap_err().contains("%Q"));
        assert!(expand("100%", Timestamp::new(0, 0)).is_err());
    }
}
