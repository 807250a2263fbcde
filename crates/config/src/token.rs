//! The tokens of a file. The grammar is that of libconfig 1.8 (its manual, section 2, and
//! `lib/scanner.l`). JSON has been checked by `serde_json` before; here it only gets positions.

use std::sync::Arc;

use crate::error::ConfigError;
use crate::position::{Position, Source};

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A key, or `null` of JSON.
    Name(String),
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// One of `= : ; , { } [ ] ( )`; `:` is `=` too.
    Symbol(char),
    /// `@include "path"` on a line of its own.
    Include(String),
}

/// A token and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Lexeme {
    pub token: Token,
    pub at: Position,
}

/// The tokens of a file.
pub(crate) fn tokens(source: &Arc<Source>) -> Result<Vec<Lexeme>, ConfigError> {
    let mut scanner = Scanner { source, next: 0 };
    let mut all = Vec::new();
    while scanner.skip_blank()? {
        let start = scanner.next;
        let token = scanner.token()?;
        all.push(Lexeme { token, at: scanner.since(start) });
    }
    Ok(all)
}

/// How far what begins like a number goes on.
fn number_length(text: &str) -> usize {
    let is_decimal = !text.starts_with("0x") && !text.starts_with("0X");
    let mut previous = None;
    let end = text.find(|c: char| {
        let goes_on = match (c, previous) {
            ('+' | '-', Some('e' | 'E')) => is_decimal,
            ('+' | '-', before) => before.is_none(),
            _ => c.is_ascii_alphanumeric() || c == '.',
        };
        previous = Some(c);
        !goes_on
    });
    end.unwrap_or(text.len())
}

struct Scanner<'a> {
    source: &'a Arc<Source>,
    next: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        &self.source.text[self.next..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn since(&self, start: usize) -> Position {
        Position::new(self.source, start..self.next)
    }

    fn error(&self, start: usize, what: impl Into<String>) -> ConfigError {
        ConfigError::new(&Position::new(self.source, start..start), what)
    }

    /// Passes over the characters that match, and returns them.
    fn take(&mut self, is_in: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !is_in(c)).unwrap_or(rest.len())];
        self.next += taken.len();
        taken
    }

    /// Passes over blanks and comments; whether a token follows.
    fn skip_blank(&mut self) -> Result<bool, ConfigError> {
        loop {
            self.take(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c'));
            let rest = self.rest();
            if rest.starts_with('#') || rest.starts_with("//") {
                self.take(|c| c != '\n');
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/");
                let end = end.ok_or_else(|| self.error(self.next, "this comment has no end"))?;
                self.next += end + 4;
            } else {
                return Ok(!rest.is_empty());
            }
        }
    }

    fn token(&mut self) -> Result<Token, ConfigError> {
        let start = self.next;
        let Some(first) = self.peek() else {
            return Err(self.error(start, "the file ends here"));
        };
        match first {
            ':' | '=' | ';' | ',' | '{' | '}' | '[' | ']' | '(' | ')' => {
                self.next += 1;
                Ok(Token::Symbol(if first == ':' { '=' } else { first }))
            }
            '"' if self.source.is_json => self.json_string(),
            '"' => self.string().map(Token::Text),
            'A'..='Z' | 'a'..='z' | '*' => Ok(self.word()),
            '0'..='9' | '+' | '-' | '.' => self.number(),
            '@' => self.include(),
            other => Err(self.error(start, format!("unexpected character {other:?}"))),
        }
    }

    fn word(&mut self) -> Token {
        let name = self.take(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*'));
        match name {
            _ if name.eq_ignore_ascii_case("true") => Token::Bool(true),
            _ if name.eq_ignore_ascii_case("false") => Token::Bool(false),
            _ => Token::Name(name.to_owned()),
        }
    }

    fn number(&mut self) -> Result<Token, ConfigError> {
        let start = self.next;
        let written = &self.rest()[..number_length(self.rest())];
        self.next += written.len();
        let short = written.trim_end_matches('L');
        let suffix = written.len() - short.len();
        let radix = [("0x", 16), ("0b", 2), ("0q", 8), ("0o", 8)];
        let lower = short.to_ascii_lowercase();
        let other = radix.into_iter().find_map(|(p, r)| Some((lower.strip_prefix(p)?, r)));
        let is_float = other.is_none() && lower.contains(['.', 'e']);
        let wrong = || self.error(start, format!("{written} is no number"));
        if suffix > 2 || (suffix > 0 && is_float) {
            return Err(wrong());
        }
        if is_float {
            let number: f64 = short.parse().map_err(|_| wrong())?;
            return if number.is_finite() { Ok(Token::Float(number)) } else { Err(wrong()) };
        }
        let integer = match other {
            // Sixteen digits are 64 bits, the first of which is the sign.
            Some((digits, radix)) => u64::from_str_radix(digits, radix).map(u64::cast_signed),
            None => short.parse(),
        };
        integer.map(Token::Int).map_err(|error| {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            match error.kind() {
                PosOverflow | NegOverflow => {
                    self.error(start, format!("{written} does not fit in 64 bits"))
                }
                _ => wrong(),
            }
        })
    }

    /// A string of JSON, as `serde_json` reads it.
    fn json_string(&mut self) -> Result<Token, ConfigError> {
        let start = self.next;
        let mut is_escaped = false;
        let end = self.rest()[1..].find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let end = end.ok_or_else(|| self.error(start, "this string has no end"))?;
        let written = &self.rest()[..end + 2];
        self.next += written.len();
        let text = serde_json::from_str(written);
        text.map(Token::Text).map_err(|error| self.error(start, error.to_string()))
    }

    /// A string of libconfig, from one quotation mark to the other. Bytes may be given as `\xNN`.
    fn string(&mut self) -> Result<String, ConfigError> {
        let start = self.next;
        let mut bytes = Vec::new();
        self.next += 1;
        loop {
            bytes.extend_from_slice(self.take(|c| c != '"' && c != '\\').as_bytes());
            let rest = self.rest();
            if rest.starts_with('"') {
                self.next += 1;
                let text = String::from_utf8(bytes);
                return text.map_err(|_| self.error(start, "this string is no UTF-8"));
            }
            let Some(escape) = rest.as_bytes().get(1) else {
                return Err(self.error(start, "this string has no end"));
            };
            let simple = match escape {
                b'n' => Some(b'\n'),
                b'r' => Some(b'\r'),
                b't' => Some(b'\t'),
                b'f' => Some(0x0c),
                b'a' => Some(0x07),
                b'b' => Some(0x08),
                b'v' => Some(0x0b),
                b'\\' | b'"' => Some(*escape),
                _ => None,
            };
            let code = rest.get(2..4).filter(|_| escape.eq_ignore_ascii_case(&b'x'));
            let code = code.filter(|c| c.bytes().all(|b| b.is_ascii_hexdigit()));
            let code = code.and_then(|c| u8::from_str_radix(c, 16).ok());
            let (byte, length) = match (simple, code) {
                (Some(byte), _) => (byte, 2),
                (None, Some(byte)) => (byte, 4),
                // A backslash that begins nothing stands for itself.
                (None, None) => (b'\\', 1),
            };
            bytes.push(byte);
            self.next += length;
        }
    }

    fn include(&mut self) -> Result<Token, ConfigError> {
        let start = self.next;
        let line = self.source.text[..start].rsplit('\n').next().unwrap_or("");
        let is_alone = line.chars().all(|c| matches!(c, ' ' | '\t'));
        let Some(rest) = self.rest().strip_prefix("@include").filter(|_| is_alone) else {
            return Err(self
                .error(start, "unexpected '@'")
                .right("@include \"FILE\" stands at the start of a line"));
        };
        let gap = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        if gap == 0 || !rest[gap..].starts_with('"') {
            return Err(self.error(start, "@include without a file").right("@include \"FILE\""));
        }
        self.next += "@include".len() + gap;
        self.string().map(Token::Include)
    }
}
