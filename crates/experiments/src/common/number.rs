//! Numbers as people write them, alone and as ranges.

/// Most values that one range gives.
pub const MAX_RANGE: usize = 4096;

/// What a number counts. It decides which letters may follow the digits, and what these mean, so
/// that numbers are read as they are printed: `64 KiB`, `100 k/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes: `K`, `M` and `G` are powers of 1024.
    Bytes,
    /// A time: `ns`, `us`, `ms` or `s`; nanoseconds without.
    Time,
    /// Anything else, such as messages or a rate: `K`, `M` and `G` are powers of 1000.
    Count,
}

impl Kind {
    /// The kind of a number whose unit is written like this; empty for a plain count.
    #[must_use]
    pub fn of(unit: &str) -> Self {
        match unit {
            "ns" => Self::Time,
            "bytes" => Self::Bytes,
            _ => Self::Count,
        }
    }

    /// Examples for an error text.
    const fn hint(self) -> &'static str {
        match self {
            Self::Bytes => "64, 64K (1024 each) or 1M",
            Self::Time => "500, 500ns, 20us, 1ms or 2s",
            Self::Count => "64, 10K (1000 each) or 1M",
        }
    }

    /// What a number with these letters is multiplied by.
    fn factor(self, letters: &str) -> Option<u64> {
        Some(match (self, letters) {
            (_, "") | (Self::Time, "ns") => 1,
            (Self::Time, "us") | (Self::Count, "K" | "k") => 1_000,
            (Self::Time, "ms") | (Self::Count, "M") => 1_000_000,
            (Self::Time, "s") | (Self::Count, "G") => 1_000_000_000,
            (Self::Bytes, "K" | "k" | "KiB") => 1 << 10,
            (Self::Bytes, "M" | "MiB") => 1 << 20,
            (Self::Bytes, "G" | "GiB") => 1 << 30,
            _ => return None,
        })
    }
}

/// A number: decimal or `0x` digits, with the letters that its kind has.
///
/// # Errors
/// What was wrong with it, and how one is written.
pub fn parse(text: &str, kind: Kind) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a valid number: write it as in {}", kind.hint());
    let text = text.trim();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).map_err(|_| wrong());
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, letters) = text.split_at(end);
    let factor = kind.factor(letters).ok_or_else(wrong)?;
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(|| format!("{text} is too large: at most {}", u64::MAX))
}

/// A single number, or `FIRST..LAST*FACTOR`, or `FIRST..LAST+STEP`; the last one is included where
/// it is met.
///
/// # Errors
/// What was wrong with it, and how one is written.
pub fn range(text: &str, kind: Kind) -> Result<Vec<u64>, String> {
    let Some((first, rest)) = text.split_once("..") else {
        return Ok(vec![parse(text, kind)?]);
    };
    let at = rest.find(['*', '+']).ok_or_else(|| {
        format!(
            "{text:?}: a range needs a step, as in {text}*2 (doubled) or {text}+1 (one more each \
             time)"
        )
    })?;
    let (last, step) = rest.split_at(at);
    let is_factor = step.starts_with('*');
    let (first, last) = (parse(first, kind)?, parse(last, kind)?);
    let step = parse(&step[1..], if is_factor { Kind::Count } else { kind })?;
    if first > last {
        return Err(format!("{text:?} is an empty range: write the smaller number first"));
    }
    if step < 1 + u64::from(is_factor) || (is_factor && first == 0) {
        return Err(format!(
            "{text:?} never ends: a factor is at least 2 and starts above 0, a step at least 1"
        ));
    }
    let next = |n: &u64| if is_factor { n.checked_mul(step) } else { n.checked_add(step) };
    let all = std::iter::successors(Some(first), next).take_while(|n| *n <= last);
    let found: Vec<u64> = all.take(MAX_RANGE + 1).collect();
    if found.len() > MAX_RANGE {
        return Err(format!("{text:?} has more than {MAX_RANGE} values: take larger steps"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        let size = |text| parse(text, Kind::Bytes);
        assert_eq!((size("8"), size("32K"), size("1M")), (Ok(8), Ok(32768), Ok(1 << 20)));
        assert_eq!((size("2G"), size("0x10")), (Ok(2 << 30), Ok(16)));
        let time = |text| parse(text, Kind::Time);
        assert_eq!((time("5500"), time("1s")), (Ok(5500), Ok(1_000_000_000)));
        assert_eq!((time("5us"), time("20ms")), (Ok(5000), Ok(20_000_000)));
        for wrong in ["", "K", "1s", "-1", "1.5", "8 K", "99999999999G", "0x", "+1"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(time("1K").is_err());
        let count = |text| parse(text, Kind::Count);
        assert_eq!((count("64"), count("100K"), count("1k")), (Ok(64), Ok(100_000), Ok(1_000)));
        assert_eq!((count("3M"), count("2G")), (Ok(3_000_000), Ok(2_000_000_000)));
        assert!(count("1KiB").is_err());
    }

    #[test]
    fn ranges_double_and_step() {
        let of = |text| range(text, Kind::Count);
        assert_eq!(of("8..64*2"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(of("1..1K*10"), Ok(vec![1, 10, 100, 1000]));
        assert_eq!(range("1K..4K*2", Kind::Bytes), Ok(vec![1024, 2048, 4096]));
        assert_eq!(of("0..100+25"), Ok(vec![0, 25, 50, 75, 100]));
        assert_eq!(of("5..5+1"), Ok(vec![5]));
        assert_eq!(of("18446744073709551614..18446744073709551615+1").map(|v| v.len()), Ok(2));
        assert_eq!(range("1us..3us+1us", Kind::Time), Ok(vec![1000, 2000, 3000]));
        for wrong in ["1..8", "8..1*2", "0..8*2", "1..8*1", "1..8+0", "1..", "..8*2", "1..8*2*2"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(of("0..4095+1").is_ok_and(|v| v.len() == MAX_RANGE));
        assert!(of("0..4096+1").is_err_and(|e| e.contains("larger steps")));
    }
}
