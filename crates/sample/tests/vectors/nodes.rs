//! What nodes write with our formats: a socket node in datagrams, a file node in files. What the
//! nodes themselves do is not played here.

use rdmalab_sample::{Form, Format, Kind, Signal};

use crate::parse;
use crate::play;

/// Where a file node only writes what it read.
const FILES: [&str; 5] =
    ["human to human", "without built-in hooks", "csv with named signals", "json", "binary out"];

/// The samples `T3` of `file-node.txt`.
const T3: &str = "1.000000000(5)\t0.1\t7\n1.100000000(6)\t0.2\t8\n1.200000000(9)\t0.3\t9\n";

/// A format as a group of libconfig or a string, if it is one of ours.
fn format(text: &str) -> Option<Box<dyn Format>> {
    let text = text.replace(" = ", ": ").replace("type:", "\"type\":");
    let keys = ["bits", "endianess", "fake", "offset"];
    let json = keys
        .iter()
        .fold(text, |json, key| json.replace(&format!("{key}:"), &format!("\"{key}\":")));
    let options = parse::options(json.trim_matches('"'))?;
    Some(options.unwrap().build().unwrap())
}

/// Bytes as hex, or as text between double quotes.
fn bytes(text: &str) -> Vec<u8> {
    if text.starts_with('"') {
        return serde_json::from_str::<String>(text).expect("a string").into_bytes();
    }
    parse::hex(text)
}

#[test]
fn a_socket_node_sends_messages_of_the_formats() {
    let signals = Signal::list("3f").unwrap();
    let (samples, _) = play::read_input(&parse::inputs()["f3"].text, &signals);
    let (text, mut played) = (parse::file("socket-node.txt"), 0);
    for block in text.split("\n\n").filter(|block| block.starts_with("[send]")) {
        let (head, datagrams) = block.split_once('\n').expect("datagrams");
        let (_, rest) = head.split_once("format=").expect("a format");
        let (specification, rest) = rest.split_once(" out.vectorize=").expect("a number");
        let vectorize = rest.split(' ').next().unwrap().parse().unwrap();
        // A socket node writes csv without the offset.
        let specification = match specification {
            "\"csv\"" => "{ type = \"csv\", offset = false }",
            other => other,
        };
        let Some(format) = format(specification) else { continue };
        let datagrams: Vec<Vec<u8>> = datagrams.lines().map(datagram).collect();
        let mut ours = Vec::new();
        for samples in samples.refs().chunks(vectorize) {
            let mut out = Vec::new();
            format.encode(Form::Message, &signals, samples, &mut out).unwrap();
            ours.push(out);
        }
        assert_eq!(ours, datagrams, "{head}");
        played += 1;
    }
    assert_eq!(played, 8);
}

fn datagram(line: &str) -> Vec<u8> {
    bytes(line.split_once(" B: ").expect("a datagram").1)
}

#[test]
fn a_file_node_writes_files_of_the_formats() {
    let mut signals = vec![Signal::new("u", Kind::Float), Signal::new("n", Kind::Integer)];
    signals[0].unit = "V".to_owned();
    let (samples, _) = play::read_input(T3, &signals);
    let (text, mut played) = (parse::file("file-node.txt"), 0);
    for block in text.split("\n\n") {
        let title = block.strip_prefix('[').and_then(|rest| rest.split(']').next());
        if !title.is_some_and(|title| FILES.contains(&title)) {
            continue;
        }
        let line = |start: &str| block.lines().find_map(|line| line.strip_prefix(start)).unwrap();
        let (_, rest) = line("  dst = ").split_once("format = ").expect("a format");
        let end = if rest.starts_with('{') {
            rest.find('}').unwrap() + 1
        } else {
            rest.find(',').unwrap()
        };
        let mut out = Vec::new();
        let format = format(&rest[..end]).expect("a format of ours");
        format.encode(Form::FileStart, &signals, &samples.refs(), &mut out).unwrap();
        assert_eq!(out, bytes(line("out: ")), "{block}");
        played += 1;
    }
    assert_eq!(played, FILES.len());
}
