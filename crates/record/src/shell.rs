//! Words of a command, to be copied into a shell.

/// An argument as the shell needs it: quoted where necessary. Records may come from strangers, so
/// control characters, which could command a terminal, are written as their numbers.
///
/// ```
/// assert_eq!(rdmalab_record::shell_word("p99<5us"), "'p99<5us'");
/// ```
#[must_use]
pub fn shell_word(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    if !argument.chars().any(char::is_control) {
        return format!("'{}'", argument.replace('\'', "'\\''"));
    }
    let mut quoted = "$'".to_owned();
    for c in argument.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn what_a_shell_or_a_terminal_would_act_on_is_quoted() {
        for plain in ["--size", "/usr/bin/rdmalab", "10.0.0.1:4791", "p99+-5%"] {
            assert_eq!(shell_word(plain), plain);
        }
        for (word, quoted) in [
            ("8..32K*2", "'8..32K*2'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
            ("p99<5us", "'p99<5us'"),
            ("$(reboot)`x`|y", "'$(reboot)`x`|y'"),
            ("a\nb\u{1b}[2J'\\", "$'a\\u000ab\\u001b[2J\\'\\\\'"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }
}
