//! The tools `compare` and `signal`.

use rdmalab_sample::{CompareOptions, Form, FormatOptions, Generator, Signal, Waveform, compare};

use crate::parse;
use crate::play::{self, Samples};

/// The content of `base` in `compare.txt`.
const BASE: &str = "1.000000000(1)\t1\t2\n2.000000000(2)\t3\t4\n";

#[test]
fn streams_are_compared_as_recorded() {
    let text = parse::file("compare.txt");
    let mut played = 0;
    for block in text.split("\n\n") {
        let files: Vec<String> = block.lines().filter_map(content).collect();
        let command = block.lines().find(|line| line.starts_with("  villas compare "));
        let Some((command, result)) = command.and_then(|line| line.split_once(" -> ")) else {
            continue;
        };
        // Usage and unknown options and formats are the tool's.
        if result.contains("Usage:") || result.contains("stderr:") {
            continue;
        }
        let exit = parse::number_after(result, "exit=").expect("an exit code");
        let out = result.split_once("out=\"").expect("output").1.trim_end_matches('"');
        let (ours, said) = run(command, &files);
        assert_eq!(i64::from(ours), exit, "{block}");
        // A line that is no sample is an error of ours, with its own text.
        if !block.starts_with("a line which is no sample") {
            assert_eq!(said, out.trim_end_matches("\\n"), "{block}");
        }
        played += 1;
    }
    assert_eq!(played, 46);
}

fn content(line: &str) -> Option<String> {
    let (_, content) = line.strip_prefix("  file")?.split_once(' ')?;
    let content = match content {
        "base" => return Some(BASE.to_owned()),
        quoted => quoted.strip_prefix('"')?.strip_suffix('"')?,
    };
    Some(content.replace("\\t", "\t").replace("\\n", "\n").replace("\\\"", "\""))
}

fn run(command: &str, files: &[String]) -> (u8, String) {
    let mut options = CompareOptions::default();
    let has = |flag: &str| command.split(' ').any(|word| word == flag);
    options.sequence = !has("-s");
    options.timestamps = !has("-T");
    options.values = !has("-v");
    if let Some(epsilon) = parse::word_after(command, "-e ") {
        options.epsilon = epsilon.parse().expect("an epsilon");
    }
    let signals = Signal::list(parse::word_after(command, "-t ").unwrap_or("64f")).unwrap();
    let format = FormatOptions::named(parse::word_after(command, "-f ").unwrap_or("villas.human"));
    let format = format.unwrap().build().unwrap();
    let mut streams: Vec<Samples> = Vec::new();
    for file in files {
        let (samples, used) =
            play::decode(&*format, Form::FileStart, file.as_bytes(), &signals, 512);
        if let Err(error) = used {
            return (255, error.to_string());
        }
        streams.push(samples);
    }
    let streams: Vec<_> = streams.iter().map(Samples::refs).collect();
    let streams: Vec<_> = streams.iter().map(Vec::as_slice).collect();
    match compare(&signals, &streams, options) {
        Ok(()) => (0, String::new()),
        Err(difference) => (difference.exit_code(), difference.to_string()),
    }
}

#[test]
fn signals_are_made_as_recorded() {
    let text = parse::file("signal.txt");
    let mut played = 0;
    for block in
        text.split("\n\n").map(str::trim_start).filter(|b| b.starts_with("villas signal -n"))
    {
        let command = block.lines().next().expect("a command").split("   exit=").next().unwrap();
        let shape = command.rsplit(' ').next().expect("a shape");
        // The tool reads its options in single precision.
        let option = |key: &str, usual: f32| {
            let value = parse::word_after(command, key);
            f64::from(value.map_or(usual, |value| value.parse().unwrap()))
        };
        let Ok(signal) = serde_json::from_value(shape.into()) else { continue };
        let waveform = Waveform {
            signal,
            frequency: option(" -F ", 1.0),
            amplitude: option(" -a ", 1.0),
            offset: option(" -o ", 0.0),
            phase: option(" -p ", 0.0),
            ..Waveform::default()
        };
        let count = option(" -v ", 1.0) as usize;
        let mut generators: Vec<Generator> =
            (0..count).map(|i| Generator::new(waveform, i, 1)).collect();
        for line in block.lines().filter_map(|line| line.strip_prefix("T0+")) {
            played += values(line, &mut generators, option(" -r ", 10.0));
        }
    }
    assert_eq!(played, 106);
}

/// Compares the values of a line, and tells how many are not random.
fn values(line: &str, generators: &mut [Generator], rate: f64) -> usize {
    let (stamps, values) = line.split_once('\t').expect("values");
    let (time, tick) = stamps.split_once('(').expect("a sequence number");
    let (seconds, nanoseconds) = time.split_once('.').expect("seconds");
    let number = |text: &str| text.parse::<u64>().unwrap();
    let time_ns = number(seconds) * 1_000_000_000 + number(nanoseconds);
    let tick = number(tick.trim_end_matches(')'));
    let mut played = 0;
    for (value, generator) in values.split('\t').zip(generators) {
        let ours = generator.value(tick, time_ns, rate);
        if generator.shape() != rdmalab_sample::Shape::Random {
            assert_eq!(format!("{ours:.17}"), value, "{line}");
            played += 1;
        }
    }
    played
}
