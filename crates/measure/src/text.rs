//! Lists and numbers in sentences.

/// `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn and(items: &[impl AsRef<str>]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The first few, and how many there are beyond them: `a, b and 7 more`.
#[must_use]
pub fn and_more(items: &[impl AsRef<str>], most: usize) -> String {
    let mut named: Vec<String> = items.iter().map(|item| item.as_ref().to_owned()).collect();
    if named.len() > most + 1 {
        let more = named.len() - most;
        named.truncate(most);
        named.push(format!("{more} more"));
    }
    and(&named)
}

/// The first few, one after another, and how many there are beyond them: `a; b; and 7 more`.
#[must_use]
pub fn first_few(items: &[impl AsRef<str>], most: usize) -> String {
    let named: Vec<&str> = items.iter().take(most).map(AsRef::as_ref).collect();
    match items.len().saturating_sub(most) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

/// The word for one thing, or that for several: `is`, `are`.
#[must_use]
pub fn plural<'a>(n: usize, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

/// `1 run`, `2 runs`.
#[must_use]
pub fn count_of(n: usize, what: &str) -> String {
    format!("{n} {what}{}", plural(n, "", "s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_numbers_are_sentences() {
        let all = ["oneway", "ping", "blast", "rpc"];
        for (n, text) in [(0, ""), (1, "oneway"), (2, "oneway and ping")] {
            assert_eq!(and(&all[..n]), text);
        }
        assert_eq!(and(&all), "oneway, ping, blast and rpc");
        assert_eq!(and_more(&all, 2), "oneway, ping and 2 more");
        assert_eq!(and_more(&all, 3), "oneway, ping, blast and rpc", "1 more is no shorter");
        assert_eq!(first_few(&all, 2), "oneway; ping; and 2 more");
        assert_eq!(first_few(&all, 4), "oneway; ping; blast; rpc");
        assert_eq!([1, 2, 0].map(|n| plural(n, "does", "do")), ["does", "do", "do"]);
        assert_eq!([1, 2].map(|n| count_of(n, "run")), ["1 run", "2 runs"]);
    }
}
