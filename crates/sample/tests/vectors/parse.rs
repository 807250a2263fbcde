//! Reads the files of recorded outputs.

use std::collections::BTreeMap;

use rdmalab_sample::FormatOptions;

/// The text of a file of this directory.
pub fn file(name: &str) -> String {
    let path = format!("{}/tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Samples in villas.human, and their types.
#[derive(Clone)]
pub struct Input {
    pub types: String,
    pub text: String,
}

/// The vectors of `inputs.txt` by name.
pub fn inputs() -> BTreeMap<String, Input> {
    let text = file("inputs.txt");
    let blocks = text.split("\n\n[").skip(1);
    let mut inputs: BTreeMap<_, _> = blocks.map(input).collect();
    let blanks = &mut inputs.get_mut("l5").expect("the vector l5").text;
    blanks.insert_str(blanks.len() - 1, "  ");
    inputs
}

fn input(block: &str) -> (String, Input) {
    let (head, lines) = block.split_once('\n').expect("lines below the head");
    let (name, rest) = head.split_once("] -t ").expect("a name and types");
    let types = rest.split(' ').next().unwrap_or_default().to_owned();
    let text = lines.trim_end_matches('\n').replace("\\t", "\t").replace("\\r", "\r");
    let text = match text.strip_suffix(" (no newline)") {
        Some(text) => text.to_owned(),
        None => text + "\n",
    };
    (name.to_owned(), Input { types, text })
}

/// A part of a file between two rules of `=`.
pub struct Section {
    /// The first line.
    pub head: String,
    /// The blocks below it, which blank lines part.
    pub blocks: Vec<Vec<String>>,
}

/// The sections of a file.
pub fn sections(name: &str) -> Vec<Section> {
    let text = file(name);
    let rule = "\n============================================================\n";
    text.split(rule)
        .skip(1)
        .map(|section| {
            let (head, rest) = section.split_once('\n').expect("a head");
            let blocks = rest.split("\n\n").map(|block| block.lines().map(str::to_owned).collect());
            let blocks = blocks.filter(|block: &Vec<String>| !block.is_empty()).collect();
            Section { head: head.to_owned(), blocks: without_blank_lines(blocks) }
        })
        .collect()
}

fn without_blank_lines(blocks: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let full = blocks.into_iter().map(|block| block.into_iter().filter(|line| !line.is_empty()));
    full.map(Iterator::collect).filter(|block: &Vec<String>| !block.is_empty()).collect()
}

/// The options that a format is given in a head or command: a name or an object. `None` if ours
/// has no such format.
pub fn options(specification: &str) -> Option<Result<FormatOptions, String>> {
    if !specification.starts_with('{') {
        return FormatOptions::named(specification).map(Ok);
    }
    let object: serde_json::Value = serde_json::from_str(specification).expect("JSON");
    FormatOptions::named(object["type"].as_str().expect("a type"))?;
    Some(serde_json::from_value(object).map_err(|error| error.to_string()))
}

/// Bytes that are written as hex.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Bytes as hex, or as text between single quotes with `\t` and `\n` in it.
pub fn bytes(text: &str) -> Vec<u8> {
    match text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
        Some(text) => text.replace("\\t", "\t").replace("\\n", "\n").into_bytes(),
        None => hex(text),
    }
}

/// What follows `key` in `text`, up to a blank.
pub fn word_after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(key)?;
    rest.split([' ', ',']).next()
}

/// The number that follows `key` in `text`.
pub fn number_after(text: &str, key: &str) -> Option<i64> {
    word_after(text, key)?.parse().ok()
}

/// The largest float, which the files of outputs do not repeat.
pub fn with_largest(text: &str) -> String {
    text.replace("<DBL_MAX as in fx(9) of villas.human.txt>", &format!("{:.17}", f64::MAX))
}

/// The same line without the zeros at the end of numbers with 17 decimals, of which one stays.
pub fn cut_zeros(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(point) = rest.find('.') {
        let (before, after) = rest.split_at(point + 1);
        out += before;
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (decimals, tail) = after.split_at(digits);
        let cut = if digits == 17 { decimals.trim_end_matches('0') } else { decimals };
        out += if cut.is_empty() { "0" } else { cut };
        rest = tail;
    }
    out + rest
}
