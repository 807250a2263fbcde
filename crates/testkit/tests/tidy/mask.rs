//! Rust text with comments and the insides of literals blanked, so that a rule about code does not
//! trip over prose. Lines and columns stay where they were.

/// Returns `text` with every character inside a comment, string or character literal replaced by a
/// space. Line breaks and the quotes themselves stay.
pub fn mask(text: &str) -> String {
    let mut masker = Masker { chars: text.chars().collect(), at: 0, out: String::new() };
    while masker.at < masker.chars.len() {
        masker.step();
    }
    masker.out
}

struct Masker {
    chars: Vec<char>,
    at: usize,
    out: String,
}

impl Masker {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn keep(&mut self, count: usize) {
        for _ in 0..count {
            self.out.push(self.peek(0));
            self.at += 1;
        }
    }

    fn blank(&mut self, count: usize) {
        for _ in 0..count {
            if self.at >= self.chars.len() {
                return;
            }
            self.out.push(if self.peek(0) == '\n' { '\n' } else { ' ' });
            self.at += 1;
        }
    }

    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => {
                while self.at < self.chars.len() && self.peek(0) != '\n' {
                    self.blank(1);
                }
            }
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.quote(),
            ('r', '"' | '#') if !self.inside_word() => self.raw_string(),
            ('b' | 'c', 'r') if !self.inside_word() && matches!(self.peek(2), '"' | '#') => {
                self.keep(1);
                self.raw_string();
            }
            _ => self.keep(1),
        }
    }

    fn inside_word(&self) -> bool {
        self.out.chars().next_back().is_some_and(is_word)
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => {
                    depth += 1;
                    self.blank(2);
                }
                ('*', '/') => {
                    depth -= 1;
                    self.blank(2);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.blank(1),
            }
        }
    }

    fn string(&mut self) {
        self.keep(1);
        while self.at < self.chars.len() && self.peek(0) != '"' {
            self.blank(if self.peek(0) == '\\' { 2 } else { 1 });
        }
        self.keep_if_any();
    }

    fn raw_string(&mut self) {
        let mut hashes = 0;
        while self.peek(1 + hashes) == '#' {
            hashes += 1;
        }
        // `r#name` is an identifier.
        if self.peek(1 + hashes) != '"' {
            return self.keep(1);
        }
        self.keep(hashes + 2);
        while self.at < self.chars.len() {
            if self.peek(0) == '"' && (1..=hashes).all(|i| self.peek(i) == '#') {
                return self.keep(hashes + 1);
            }
            self.blank(1);
        }
    }

    /// A character literal or a lifetime: a literal closes after one character or an escape.
    fn quote(&mut self) {
        if self.peek(1) == '\\' {
            self.keep(1);
            self.blank(2);
            while self.at < self.chars.len() && self.peek(0) != '\'' {
                self.blank(1);
            }
            self.keep_if_any();
        } else if self.peek(2) == '\'' {
            self.keep(1);
            self.blank(1);
            self.keep(1);
        } else {
            self.keep(1);
        }
    }

    fn keep_if_any(&mut self) {
        if self.at < self.chars.len() {
            self.keep(1);
        }
    }
}

/// Whether `c` can be part of an identifier.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte offsets at which `word` stands on its own in `code`.
pub fn word_offsets<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back().is_some_and(is_word);
        let after = code[at + word.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// Whether `word` stands on its own in `code`.
pub fn has_word(code: &str, word: &str) -> bool {
    word_offsets(code, word).next().is_some()
}

#[test]
fn comments_and_literals_are_blanked_in_place() {
    let cases = [
        ("let a = \"x{\\\"\"; // y{", "let a = \"    \";      "),
        ("a /* { /* } */ \n */ b", "a              \n    b"),
        ("('{', '\\'', b\"}\")", "(' ', '  ', b\" \")"),
    ];
    for (text, masked) in cases {
        assert_eq!(mask(text), masked);
    }
}

#[test]
fn raw_strings_and_lifetimes_are_told_apart() {
    assert_eq!(mask("r#\"a\"b\"# c"), "r#\"   \"# c");
    assert_eq!(mask("br\"{\" r#fn"), "br\" \" r#fn");
    assert_eq!(mask("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
    assert_eq!(mask("for\" \""), "for\" \"");
}

#[test]
fn a_text_that_ends_inside_a_literal_is_survived() {
    for text in ["\"abc", "r#\"abc", "/* abc", "'\\", "\"\\", "b", "'"] {
        assert_eq!(mask(text).chars().count(), text.chars().count());
    }
}

#[test]
fn words_are_whole() {
    assert!(has_word("unsafe {", "unsafe"));
    assert!(!has_word("forbid(unsafe_code)", "unsafe"));
}
