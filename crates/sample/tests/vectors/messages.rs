//! Messages: what is written, what is read back, and what is made of good and bad ones.

use std::collections::BTreeMap;

use rdmalab_sample::{Form, Format, Signal};

use crate::differences::{Met, Ours};
use crate::parse::{self, Input};
use crate::play;

const FILES: [&str; 5] = [
    "villas.binary-messages.txt",
    "raw.txt",
    "gtnet.txt",
    "text-messages.txt",
    "json-messages.txt",
];

/// Where a block stands.
struct Place<'a> {
    file: &'a str,
    specification: &'a str,
    met: &'a Met,
}

impl Place<'_> {
    fn ours(&self, name: &str) -> Option<Ours> {
        self.met.ours(self.file, self.specification, name)
    }

    fn at(&self, name: &str) -> String {
        format!("{} [{name}] as {}", self.file, self.specification)
    }
}

#[test]
fn messages_are_written_and_read_as_recorded() {
    let inputs = parse::inputs();
    let met = Met::default();
    let (mut written, mut read, mut files, mut refused) = (0, 0, 0, 0);
    for file in FILES {
        for section in parse::sections(file) {
            let head = &section.head;
            let specification = head.split_once("FORMAT ").map_or("json", |(_, rest)| rest);
            let specification = specification.split(" -t ").next().unwrap();
            let place = Place { file, specification, met: &met };
            let Some(options) = parse::options(specification) else { continue };
            let format = options.and_then(|options| options.build().map_err(|e| e.to_string()));
            let Ok(format) = format else {
                assert!(matches!(place.ours("options"), Some(Ours::Refuses)), "{head}");
                refused += 1;
                continue;
            };
            for block in &section.blocks {
                if block[0].starts_with("villas convert") {
                    refused += command(&block[0]);
                } else if head.starts_with("FILE FORM") {
                    stream(&place, block, &*format);
                    files += 1;
                } else if head.starts_with("DECODE ONLY") {
                    single(&place, head, block, &*format);
                    read += 1;
                } else {
                    written += both(&place, block, &inputs, &*format);
                }
            }
        }
    }
    met.check(&FILES);
    assert_eq!((written, read, files, refused), (248, 92, 7, 11));
}

/// Options on a command line: those that the program refuses, or that make it write nothing.
fn command(line: &str) -> usize {
    let (_, rest) = line.split_once("-o ").unwrap_or(("", ""));
    let specification = rest.split_once(" < ").map_or("", |(word, _)| word).trim_matches('\'');
    let options = parse::options(specification);
    let built = options.map(|options| options.map(|options| options.build().is_ok()));
    assert!(!matches!(built, Some(Ok(true))), "{line}");
    usize::from(!rest.is_empty())
}

/// A block that shows messages being written and read back: how many there are.
fn both(
    place: &Place<'_>,
    block: &[String],
    inputs: &BTreeMap<String, Input>,
    format: &dyn Format,
) -> usize {
    let (name, rest) = block[0][1..].split_once(']').expect("a name");
    let types = parse::word_after(rest, "-t ").expect("types");
    let signals = Signal::list(types).unwrap();
    let count = parse::number_after(rest, ", ").expect("samples of a message") as usize;
    let end =
        block.iter().position(|line| line.starts_with("decode, room for ")).unwrap_or(block.len());
    let theirs = &block[1..end];
    let (samples, is_bad) = play::read_input(&inputs[name].text, &signals);
    let ours = place.ours(name);
    assert_eq!(is_bad, matches!(ours, Some(Ours::Start)), "{}: a line is refused", place.at(name));
    let mut messages = Vec::new();
    let samples = samples.refs();
    let mut chunks = samples.chunks(count);
    for theirs in theirs {
        let mut out = Vec::new();
        let samples = chunks.next().unwrap_or_default();
        let encoded = format.encode(Form::Message, &signals, samples, &mut out);
        let Some((_, bytes)) = theirs.split_once(" B:") else {
            assert!(theirs.starts_with("ret=-1") && encoded.is_err() && out.is_empty(), "{theirs}");
            continue;
        };
        let bytes = parse::bytes(bytes.trim_start());
        if !matches!(ours, Some(Ours::Start)) {
            assert_eq!(text(&out), text(&bytes), "{}", place.at(name));
            assert_eq!(out, bytes, "{}", place.at(name));
        }
        messages.push(bytes);
    }
    assert!(chunks.next().is_none(), "{}: more messages", place.at(name));
    if end < block.len() {
        let room = parse::number_after(&block[end], "room for ").unwrap() as usize;
        read_back(place, name, &signals, room, &messages, &block[end + 1..], format);
    }
    theirs.len()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compares what was read back from `messages` with the lines that show it.
fn read_back(
    place: &Place<'_>,
    name: &str,
    signals: &[Signal],
    room: usize,
    messages: &[Vec<u8>],
    lines: &[String],
    format: &dyn Format,
) {
    let is_refused = lines.iter().any(|line| line.starts_with("ret=-"));
    let (mut ours, mut has_failed) = (Vec::new(), false);
    for message in messages {
        let (samples, used) = play::decode(format, Form::Message, message, signals, room);
        assert!(used.as_ref().is_err() || used == Ok(message.len()), "{}", place.at(name));
        has_failed |= used.is_err();
        ours.extend(play::flagged_lines(&samples, signals));
    }
    assert_eq!(has_failed, is_refused, "{}", place.at(name));
    let mut expected: Vec<String> = lines.iter().filter_map(|line| sample(line)).collect();
    if let Some(Ours::Except(lines)) = place.ours(&format!("{name} read back")) {
        lines.iter().for_each(|(i, line)| (*line).clone_into(&mut expected[*i]));
    }
    assert_eq!(ours, expected, "{}", place.at(name));
}

/// A sample as it is shown: behind the number of bytes, or indented. The offset that comes of `nan`
/// is undefined, and we have no flag for the offset.
fn sample(line: &str) -> Option<String> {
    let line = line.split_once(" B: ").map_or(line.trim_start(), |(_, sample)| sample);
    let (flags, rest) = line.split_once(" n=")?;
    let is_undefined = rest.contains("+9.223372e+18");
    let flags = flags.replace('O', "");
    let flags = if is_undefined { flags.replace('r', "") } else { flags };
    let rest = parse::with_largest(rest).replace("+9.223372e+18", "");
    Some(format!("{flags} n={}", parse::cut_zeros(&rest)))
}

/// A message that is only read.
fn single(place: &Place<'_>, head: &str, block: &[String], format: &dyn Format) {
    let title = &block[0];
    let signals = Signal::list(parse::word_after(head, "-t ").expect("types")).unwrap();
    let room = parse::number_after(head, "room for ").expect("room") as usize;
    let message = parse::bytes(block[1].strip_prefix("  in:").expect("a message").trim_start());
    let out: Vec<&str> =
        block[2..].iter().filter_map(|line| line.strip_prefix("  out: ")).collect();
    let (samples, used) = play::decode(format, Form::Message, &message, &signals, room);
    let ours = play::flagged_lines(&samples, &signals);
    let is_refused = out[0].starts_with("ret=-") || out[0].starts_with("exception");
    match place.ours(title) {
        Some(Ours::Refuses) => assert!(used.is_err() && !is_refused, "{}", place.at(title)),
        Some(Ours::Reads(lines)) => assert_eq!(ours, lines, "{}", place.at(title)),
        other => {
            assert!(other.is_none(), "{}: {other:?}", place.at(title));
            assert_eq!(used.is_err(), is_refused, "{}: {used:?}", place.at(title));
            let expected: Vec<String> = out.iter().filter_map(|line| sample(line)).collect();
            assert_eq!(ours, expected, "{}", place.at(title));
            if let (Ok(used), Some(bytes)) = (used, parse::number_after(out[0], "rbytes=")) {
                assert_eq!(used as i64, bytes, "{}", place.at(title));
            }
        }
    }
}

/// A file of JSON that is only read.
fn stream(place: &Place<'_>, block: &[String], format: &dyn Format) {
    let title = &block[0];
    let signals = Signal::list("2f").unwrap();
    let file = parse::bytes(block[1].strip_prefix("  in: ").expect("a file"));
    let (samples, error) = play::decode_file(format, &file, &signals);
    let out = block.iter().filter_map(|line| line.strip_prefix("  out: ").map(str::to_owned));
    let expected: Vec<String> = out.collect();
    let ours = play::lines(&samples, &signals);
    if block[2].contains("exit=255") {
        // The program ends at the error; whoever reads with ours decides that.
        assert!(error.is_some() && ours.len() == 1, "{}", place.at(title));
        return;
    }
    assert_eq!(ours, expected, "{}", place.at(title));
}
