//! Random samples through each node-type that needs no device, and each format, arrive equal.

mod common;

use std::path::Path;

use common::{content, run, start};
use rdmalab_random::Random;
use rdmalab_sample::{Form, FormatOptions, Kind, Pool, Signal, Timestamp, Value};

/// Samples of a test.
const SAMPLES: u64 = 300;
/// As many small datagrams as a UDP socket holds (net.core.rmem_default, 212992 bytes), and a Unix
/// socket (net.unix.max_dgram_qlen, 10): a reader that does not run meanwhile loses none.
const UDP_DATAGRAMS: u64 = 64;
const UNIX_DATAGRAMS: u64 = 10;

/// A file with random samples, of values that every format keeps.
fn random_file(path: &Path, format: &str, seed: u64, values: usize, samples: u64) {
    let mut random = Random::new(seed);
    let signals = Signal::numbered(values, Kind::Float);
    let format = FormatOptions::named(format).unwrap().build().unwrap();
    let mut pool = Pool::new(1, values);
    let mut one = pool.take().unwrap();
    let (mut bytes, mut form) = (Vec::new(), Form::FileStart);
    for number in 0..samples {
        let mut sample = pool.get_mut(&mut one);
        sample.clear();
        sample.set_sequence(number);
        sample.set_origin(Timestamp::new(1_000_000 + number as i64, random.below(1 << 29) as i64));
        for _ in 0..values {
            let value = random.below(1 << 20) as f64 / 1024.0 - 512.0;
            assert!(sample.push(Value::from_float(value)));
        }
        format.encode(form, &signals, &[pool.get(&one)], &mut bytes).unwrap();
        form = Form::File;
    }
    std::fs::write(path, bytes).unwrap();
}

/// Without the time of arrival, so that a copy is equal.
fn plain(format: &str) -> String {
    match format {
        "csv" | "tsv" | "villas.human" => format!("{{ type = \"{format}\", offset = false }}"),
        _ => format!("\"{format}\""),
    }
}

/// Source, node and destination in one gateway: what is written to the node comes back from it.
fn through(node: &str, seed: u64, values: usize, samples: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in.human"), dir.path().join("out.human"));
    random_file(&from, "villas.human", seed, values, samples);
    let format = plain("villas.human");
    // The file of the test has offsets of arrival nowhere: rewrite it in the plain form.
    let plain_from = dir.path().join("plain.human");
    let signals = format!("signals = {{ count = {values}, type = \"float\" }}");
    let file = |uri: &Path, more: &str| {
        format!("type = \"file\", uri = \"{}\", format = {format}, {more}", uri.display())
    };
    run(&format!(
        "nodes = {{ from = {{ {} }}, to = {{ {} }} }}, \
         paths = ( {{ in = \"from\", out = \"to\" }} )",
        file(&from, &format!("in = {{ epoch_mode = \"original\", {signals} }}")),
        file(&plain_from, ""),
    ));
    let node = node
        .replace("SIGNALS", &signals)
        .replace("DIR", &dir.path().display().to_string())
        .replace("NAME", &format!("/through-{}-{seed}", std::process::id()));
    let text = format!(
        "nodes = {{ from = {{ {} }}, to = {{ {} }}, via = {{ {node} }} }}, \
         paths = ( {{ in = \"from\", out = \"via\", connect_wait = 60.0 }}, \
         {{ in = \"via\", out = \"to\" }} )",
        file(&from, &format!("in = {{ epoch_mode = \"original\", {signals} }}")),
        file(&to, "out = { flush = true }"),
    );
    let expected = content(&plain_from);
    assert!(expected.len() > 1000);
    let gateway = start(&text);
    gateway.until("all samples", || content(&to).len() >= expected.len());
    let summary = gateway.end();
    assert!(content(&to) == expected, "{node}: other samples; {summary:#?}");
    let path = &summary.paths[1];
    assert_eq!((path.samples, path.lost, path.duplicate, path.reordered), (samples, 0, 0, 0));
    assert_eq!((summary.paths[0].dropped, path.dropped), (0, 0));
    assert!(path.latency.is_some());
}

#[test]
fn loopback() {
    through("type = \"loopback\", in = { SIGNALS }", 1, 8, SAMPLES);
    through("type = \"loopback\", mode = \"polling\", in = { SIGNALS }", 2, 1, SAMPLES);
}

#[test]
fn shmem() {
    let node = |mode: &str| {
        format!(
            "type = \"shmem\", mode = \"{mode}\", in = {{ name = \"NAME\", SIGNALS }}, \
             out = {{ name = \"NAME\" }}"
        )
    };
    through(&node("pthread"), 3, 8, SAMPLES);
    through(&node("polling"), 4, 64, SAMPLES);
}

#[test]
fn socket() {
    for (seed, layer, samples) in [(5, "udp", UDP_DATAGRAMS), (6, "tcp", SAMPLES)] {
        for format in ["villas.binary", "csv", "json", "rdmalab.binary", "villas.human"] {
            let port = rdmalab_testing::free_port();
            let node = format!(
                "type = \"socket\", layer = \"{layer}\", format = {}, \
                 in = {{ address = \"127.0.0.1:{port}\", SIGNALS }}, \
                 out = {{ address = \"127.0.0.1:{port}\" }}",
                plain(format)
            );
            through(&node, seed, 8, samples);
        }
    }
    let node = "type = \"socket\", layer = \"unix\", in = { address = \"DIR/socket\", SIGNALS }, \
                out = { address = \"DIR/socket\", vectorize = 4 }";
    through(node, 7, 8, 4 * UNIX_DATAGRAMS);
}

#[test]
fn zeromq_and_nanomsg() {
    let halves = |keys: [&str; 2], to: &str, from: &str, filters: [&str; 2]| {
        format!(
            "in = {{ {} = \"{from}\", SIGNALS{} }}, out = {{ {} = \"{to}\"{} }}",
            keys[0], filters[0], keys[1], filters[1]
        )
    };
    let filters = [", filter = \"pow\"", ", filter = \"power\""];
    // The samples of nanomsg are behind the filter of the reader.
    let prefix = [", filter = \"power\"", ", filter = \"power\""];
    let (zeromq, nanomsg) = (["subscribe", "publish"], ["endpoints"; 2]);
    for (seed, kind, keys, filters, format) in [
        (8, "zeromq", zeromq, ["", ""], "villas.binary"),
        (9, "zeromq", zeromq, filters, "json"),
        (10, "nanomsg", nanomsg, ["", ""], "json"),
        (11, "nanomsg", nanomsg, prefix, "rdmalab.binary"),
    ] {
        let port = rdmalab_testing::free_port();
        let (to, from) = (format!("tcp://*:{port}"), format!("tcp://127.0.0.1:{port}"));
        for (to, from) in [(&*to, &*from), ("ipc://DIR/pipe", "ipc://DIR/pipe")] {
            let halves = halves(keys, to, from, filters);
            let node = format!("type = \"{kind}\", format = \"{format}\", {halves}");
            through(&node, seed, 8, SAMPLES);
        }
    }
    // The other way round: the subscriber listens.
    let node = "type = \"zeromq\", in = { subscribe = \"ipc://DIR/pipe\", bind = true, SIGNALS }, \
                out = { publish = \"ipc://DIR/pipe\", bind = false }";
    through(node, 12, 8, SAMPLES);
}

#[test]
fn every_format_of_a_file_is_read_as_it_was_written() {
    for (seed, format) in FormatOptions::NAMES.into_iter().enumerate() {
        if ["raw", "gtnet"].contains(&format) {
            // They carry neither number nor time; crate sample has their tests.
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("in"), dir.path().join("out"));
        random_file(&from, format, seed as u64, 5, SAMPLES);
        let plain = plain(format);
        let copy = |from: &Path, to: &Path| {
            run(&format!(
                "nodes = {{ from = {{ type = \"file\", uri = \"{}\", format = {plain}, \
                 in = {{ epoch_mode = \"original\", signals = \"5f\" }} }}, \
                 to = {{ type = \"file\", uri = \"{}\", format = {plain} }} }}, \
                 paths = ( {{ in = \"from\", out = \"to\", builtin = false }} )",
                from.display(),
                to.display()
            ))
        };
        if format != "csv" && format != "tsv" && format != "villas.human" {
            let summary = copy(&from, &to);
            assert_eq!(summary.paths[0].samples, SAMPLES, "{format}");
            assert!(content(&from) == content(&to), "{format}");
        } else {
            // Files of these have a column for the time of arrival, which the copy lacks.
            let again = dir.path().join("again");
            run_with_offsets(&from, &to, format, &plain);
            copy(&to, &again);
            assert!(content(&again) == content(&to), "{format}");
        }
    }
}

/// Copies a file with offsets to one without.
fn run_with_offsets(from: &Path, to: &Path, format: &str, plain: &str) {
    let summary = run(&format!(
        "nodes = {{ from = {{ type = \"file\", uri = \"{}\", format = \"{format}\", \
         in = {{ epoch_mode = \"original\", signals = \"5f\" }} }}, \
         to = {{ type = \"file\", uri = \"{}\", format = {plain} }} }}, \
         paths = ( {{ in = \"from\", out = \"to\" }} )",
        from.display(),
        to.display()
    ));
    assert_eq!(summary.paths[0].samples, SAMPLES);
}
