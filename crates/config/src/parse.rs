//! Tokens to a tree.

use crate::error::ConfigError;
use crate::position::Position;
use crate::token::{Lexeme, Token};
use crate::value::{Entry, Kind, Value};

/// How deep groups and lists may stand in each other.
pub(crate) const NESTING_MAX: usize = 64;

/// The root group. `end` is where the file ends.
pub(crate) fn parsed(
    tokens: &[Lexeme],
    end: Position,
    is_json: bool,
) -> Result<Value, ConfigError> {
    let mut parser = Parser { tokens, next: 0, end, is_json, depth: 0 };
    let value = if is_json {
        parser.value()?
    } else {
        let entries = parser.settings(false)?;
        // Not from the first token on: it may stand in a file that this one includes.
        let source = parser.end.source();
        let at = Position::new(source, 0..source.text.len());
        Value { kind: Kind::Group(entries), at }
    };
    match parser.peek() {
        Some(more) => Err(unexpected(more, "the end of the file")),
        None => Ok(value),
    }
}

struct Parser<'a> {
    tokens: &'a [Lexeme],
    next: usize,
    end: Position,
    is_json: bool,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Lexeme> {
        self.tokens.get(self.next)
    }

    /// Takes the symbol if it is the next token.
    fn take(&mut self, symbol: char) -> Option<&'a Lexeme> {
        let lexeme = self.peek().filter(|l| l.token == Token::Symbol(symbol))?;
        self.next += 1;
        Some(lexeme)
    }

    fn expected(&self, what: &str) -> ConfigError {
        match self.peek() {
            Some(found) => unexpected(found, what),
            None => ConfigError::new(&self.end, format!("the file ends here, without {what}")),
        }
    }

    /// The settings of a group, up to its brace or to the end of the file.
    fn settings(&mut self, is_braced: bool) -> Result<Vec<Entry>, ConfigError> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let is_over = match self.peek() {
                None => true,
                Some(lexeme) => lexeme.token == Token::Symbol('}'),
            };
            if is_over {
                return Ok(entries);
            }
            let (key, key_at) = self.key(is_braced)?;
            if let Some(first) = entries.iter().find(|e| e.key == key) {
                let what = format!("key {key:?} stands twice in this group");
                let right = format!("the first one is in line {}", first.key_at.line());
                return Err(ConfigError::new(&key_at, what).right(right));
            }
            if self.take('=').is_none() {
                return Err(self.expected(&format!("'=' after {key:?}")));
            }
            let value = self.value()?;
            entries.push(Entry { key, key_at, value });
            if self.take(';').is_none() {
                self.take(',');
            }
        }
    }

    fn key(&mut self, is_braced: bool) -> Result<(String, Position), ConfigError> {
        let lexeme = self.peek().filter(|l| match l.token {
            Token::Name(_) => !self.is_json,
            Token::Text(_) => self.is_json,
            _ => false,
        });
        match lexeme.map(|l| (&l.token, &l.at)) {
            Some((Token::Name(key) | Token::Text(key), at)) => {
                self.next += 1;
                Ok((key.clone(), at.clone()))
            }
            _ => Err(self.expected(if is_braced { "a key or '}'" } else { "a key" })),
        }
    }

    fn value(&mut self) -> Result<Value, ConfigError> {
        let Some(first) = self.peek() else { return Err(self.expected("a value")) };
        let scalar = match &first.token {
            Token::Text(text) => return Ok(self.strings(text, &first.at)),
            Token::Int(number) => Kind::Int(*number),
            Token::Float(number) => Kind::Float(*number),
            Token::Bool(is) => Kind::Bool(*is),
            Token::Name(name) if self.is_json && name == "null" => Kind::Null,
            Token::Symbol(open @ ('{' | '(' | '[')) => return self.nested(*open, &first.at),
            Token::Name(name) => {
                let error = unexpected(first, "a value");
                return Err(error.right(format!("a string needs quotation marks: \"{name}\"")));
            }
            _ => return Err(unexpected(first, "a value")),
        };
        self.next += 1;
        Ok(Value { kind: scalar, at: first.at.clone() })
    }

    /// Strings side by side are one.
    fn strings(&mut self, first: &str, at: &Position) -> Value {
        let mut text = first.to_owned();
        let mut at = at.clone();
        self.next += 1;
        while let Some((Token::Text(more), more_at)) = self.peek().map(|l| (&l.token, &l.at)) {
            text.push_str(more);
            at = at.until(more_at);
            self.next += 1;
        }
        Value { kind: Kind::Text(text), at }
    }

    fn nested(&mut self, open: char, at: &Position) -> Result<Value, ConfigError> {
        if self.depth == NESTING_MAX {
            let what = format!("groups and lists stand more than {NESTING_MAX} deep in each other");
            return Err(ConfigError::new(at, what));
        }
        self.next += 1;
        self.depth += 1;
        let (kind, close) = match open {
            '{' => (Kind::Group(self.settings(true)?), '}'),
            '(' => (Kind::List(self.elements(')')?), ')'),
            _ if self.is_json => (Kind::List(self.elements(']')?), ']'),
            _ => (Kind::Array(self.array()?), ']'),
        };
        self.depth -= 1;
        let Some(last) = self.take(close) else {
            return Err(self.expected(&format!("',' or {close:?}")));
        };
        Ok(Value { kind, at: at.until(&last.at) })
    }

    /// Elements up to the closing bracket; a comma may stand behind the last one.
    fn elements(&mut self, close: char) -> Result<Vec<Value>, ConfigError> {
        let mut all = Vec::new();
        while !self.peek().is_none_or(|l| l.token == Token::Symbol(close)) {
            all.push(self.value()?);
            if self.take(',').is_none() {
                break;
            }
            while self.take(',').is_some() {}
        }
        Ok(all)
    }

    /// Scalars of one type, as libconfig demands of an array.
    fn array(&mut self) -> Result<Vec<Value>, ConfigError> {
        let all = self.elements(']')?;
        let kind = |v: &Value| std::mem::discriminant(&v.kind);
        for one in &all {
            let what = match &one.kind {
                Kind::Array(_) | Kind::List(_) | Kind::Group(_) => {
                    format!("{} in an array", one.what())
                }
                _ if kind(one) != kind(&all[0]) && !is_number_pair(one, &all[0]) => {
                    format!("{} in an array that begins with {}", one.what(), all[0].what())
                }
                _ => continue,
            };
            let right = "\"[...]\" holds values of one type, \"(...)\" holds any";
            return Err(ConfigError::new(&one.at, what).right(right));
        }
        Ok(all)
    }
}

/// VILLASnode has libconfig convert integers and floats into each other.
fn is_number_pair(a: &Value, b: &Value) -> bool {
    [a, b].iter().all(|v| matches!(v.kind, Kind::Int(_) | Kind::Float(_)))
}

fn unexpected(found: &Lexeme, expected: &str) -> ConfigError {
    let found_text = match &found.token {
        Token::Name(name) => name.clone(),
        Token::Text(_) => "a string".to_owned(),
        Token::Int(number) => number.to_string(),
        Token::Float(number) => number.to_string(),
        Token::Bool(is) => is.to_string(),
        Token::Symbol(_) => format!("'{}'", found.at.text()),
        Token::Include(_) => "@include".to_owned(),
    };
    ConfigError::new(&found.at, format!("expected {expected}, found {found_text}"))
}
