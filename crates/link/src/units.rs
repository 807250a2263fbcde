//! Times and ranges of times as users write them.

/// The longest delay of a deferred packet, ns.
pub const MAX_DELAY_NS: u64 = 60_000_000_000;

/// A time, ns: a number with its unit.
pub fn time(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let unit = match &text[digits..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let value: f64 = text[..digits].parse().ok()?;
    Some((value * unit).round() as u64)
}

/// A range of times, ns: `1s..2s`, `..500ms` or `3s..`.
///
/// # Errors
/// The reason, for the user.
pub fn window(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("{text:?} is not a time range: write 1s..2s, ..500ms or 3s..");
    let (from, before) = text.split_once("..").ok_or_else(wrong)?;
    let bound = |text: &str, none: u64| match text {
        "" => Ok(none),
        _ => time(text).ok_or_else(wrong),
    };
    let (from, before) = (bound(from, 0)?, bound(before, u64::MAX)?);
    if from >= before {
        return Err(format!("{text} is an empty range: the second time must be later"));
    }
    Ok((from, before))
}
