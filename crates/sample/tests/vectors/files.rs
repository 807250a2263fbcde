//! Files: what is written, and what is read back.

use std::collections::BTreeMap;

use rdmalab_sample::{Form, Format, Signal};

use crate::differences::{Met, Ours};
use crate::parse::{self, Input};
use crate::play::{self, Samples};

const FILES: [&str; 8] = [
    "villas.human.txt",
    "villas.human-options.txt",
    "csv.txt",
    "csv-options.txt",
    "tsv.txt",
    "json.txt",
    "json-options.txt",
    "villas.binary.txt",
];

/// One command and what came of it.
struct Vector<'a> {
    file: &'a str,
    specification: &'a str,
    name: &'a str,
    exit: i64,
    /// What was written, as it stands in the file.
    output: Vec<&'a str>,
    bytes: usize,
    /// What was read back.
    readback: Option<Vec<&'a str>>,
}

impl<'a> Vector<'a> {
    fn parse(file: &'a str, specification: &'a str, block: &'a [String]) -> Self {
        let (name, command) = block[0][1..].split_once(']').expect("a name");
        let mut rest = block[1..].iter().map(String::as_str);
        let mut output: Vec<&str> = rest.clone().collect();
        let readback = rest.position(|line| line.starts_with("readback "));
        let readback = readback.map(|at| output.split_off(at).into_iter().skip(1));
        Self {
            file,
            specification,
            name,
            exit: parse::number_after(command, "exit=").expect("an exit code"),
            output,
            bytes: parse::number_after(command, "bytes=").expect("bytes") as usize,
            readback: readback.map(|lines| lines.map(|line| &line[2..]).collect()),
        }
    }

    fn at(&self) -> String {
        format!("{} [{}] as {}", self.file, self.name, self.specification)
    }

    /// The bytes that were written.
    fn written(&self) -> Vec<u8> {
        if self.specification == "villas.binary" {
            return parse::hex(self.output[0]);
        }
        let mut text = parse::with_largest(&self.output.join("\n"));
        if text.len() < self.bytes {
            text.push('\n');
        }
        assert_eq!(text.len(), self.bytes, "{}", self.at());
        text.into_bytes()
    }
}

#[test]
fn files_are_written_and_read_as_recorded() {
    let inputs = parse::inputs();
    let (met, mut played) = (Met::default(), 0);
    let humans = humans();
    for file in FILES {
        for section in parse::sections(file) {
            let specification = section.head.strip_prefix("FORMAT ").expect("a format");
            for block in &section.blocks {
                let vector = Vector::parse(file, specification, block);
                play(&vector, &inputs[vector.name], &humans, &met);
                played += 1;
            }
        }
    }
    met.check(&FILES);
    assert_eq!(played, 141, "vectors");
}

/// What `villas.human` writes for each vector, as lines without header and zeros.
fn humans() -> BTreeMap<String, Vec<String>> {
    let mut humans = BTreeMap::new();
    for section in parse::sections("villas.human.txt") {
        for block in &section.blocks {
            let name = block[0][1..].split_once(']').expect("a name").0;
            let lines = block[1..].iter().filter(|line| !line.starts_with("# "));
            let lines = lines.map(|line| parse::cut_zeros(line)).collect();
            humans.insert(name.to_owned(), lines);
        }
    }
    humans
}

fn play(vector: &Vector<'_>, input: &Input, humans: &BTreeMap<String, Vec<String>>, met: &Met) {
    let signals = Signal::list(&input.types).unwrap();
    let options = parse::options(vector.specification).expect("a format of ours");
    let ours = met.ours(vector.file, vector.specification, vector.name);
    let format = options.and_then(|options| options.build().map_err(|error| error.to_string()));
    if vector.exit == 255 {
        assert!(format.is_err(), "{}", vector.at());
        return;
    }
    let format = format.unwrap_or_else(|error| panic!("{}: {error}", vector.at()));
    let (samples, is_bad) = play::read_input(&input.text, &signals);
    let mut out = Vec::new();
    let encoded = format.encode(Form::FileStart, &signals, &samples.refs(), &mut out);
    match ours {
        Some(Ours::Refuses) => {
            assert!(is_bad || encoded.is_err(), "{}", vector.at());
            return;
        }
        Some(Ours::Reads(lines)) => {
            assert_eq!(play::lines(&samples, &signals), lines, "{}", vector.at());
            return;
        }
        Some(Ours::Start) => assert!(is_bad && vector.written().starts_with(&out)),
        other => {
            assert!(!is_bad, "{}: a line is refused", vector.at());
            let mut theirs = vector.written();
            if let Some(Ours::WritesZero(byte)) = other {
                theirs[byte] = 0;
            }
            let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(shown(&out), shown(&theirs), "{}", vector.at());
            assert_eq!(out, theirs, "{}", vector.at());
        }
    }
    if let Some(readback) = &vector.readback {
        read_back(vector, readback, &*format, &signals, humans, met);
    }
}

fn read_back(
    vector: &Vector<'_>,
    readback: &[&str],
    format: &dyn Format,
    signals: &[Signal],
    humans: &BTreeMap<String, Vec<String>>,
    met: &Met,
) {
    let (samples, error) = play::decode_file(format, &vector.written(), signals);
    let ours = read(&samples, signals);
    let mut expected: Vec<String> = match readback {
        // The offset `nan` is read back as a huge one, which is the undefined result of a
        // conversion.
        [line] if line.starts_with("= human") => humans[vector.name].clone(),
        ["(nothing)"] => Vec::new(),
        lines => lines
            .iter()
            .map(|line| parse::cut_zeros(&parse::with_largest(line)))
            .map(|line| line.replace("+9.223372e+18", ""))
            .collect(),
    };
    match met.ours(vector.file, vector.specification, &format!("{} read back", vector.name)) {
        Some(Ours::Refuses) => assert!(error.is_some() && ours.is_empty(), "{}", vector.at()),
        Some(Ours::Start) => assert!(expected.starts_with(&ours), "{}", vector.at()),
        Some(Ours::Reads(lines)) => assert_eq!(ours, lines, "{}", vector.at()),
        other => {
            if let Some(Ours::Except(lines)) = other {
                lines.iter().for_each(|(i, line)| (*line).clone_into(&mut expected[*i]));
            }
            assert_eq!(ours, expected, "{}", vector.at());
            assert!(error.is_none(), "{}: {error:?}", vector.at());
        }
    }
}

fn read(samples: &Samples, signals: &[Signal]) -> Vec<String> {
    play::lines(samples, signals)
}
