//! What paths do with samples: counts, mapping, modes, several readers of a node, and how they end.

mod common;

use common::{content, plan, run, start};

fn signal(name: &str, more: &str) -> String {
    format!("{name} = {{ type = \"signal\", signal = \"counter\", rate = 1000.0, {more} }}, ")
}

fn file(name: &str, dir: &tempfile::TempDir) -> String {
    let uri = dir.path().join(name).display().to_string();
    format!(
        "{name} = {{ type = \"file\", uri = \"{uri}\", \
         format = {{ type = \"csv\", offset = false }} }}, "
    )
}

/// The columns of a CSV file from the sequence number on, without the header.
fn rows(name: &str, dir: &tempfile::TempDir) -> Vec<Vec<f64>> {
    let text = String::from_utf8(content(&dir.path().join(name))).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(',').skip(2).map(|n| n.parse().unwrap()).collect()).collect()
}

#[test]
fn ticks_are_numbers_and_missed_ones_are_counted() {
    for timer in ["timerfd", "tsc"] {
        let dir = tempfile::tempdir().unwrap();
        let summary = run(&format!(
            "nodes = {{ {} {} }}, paths = ( {{ in = \"s\", out = \"f\" }} ), timer = \"{timer}\"",
            signal("s", "values = 2, limit = 500"),
            file("f", &dir)
        ));
        let path = &summary.paths[0];
        let rows = rows("f", &dir);
        assert_eq!(path.samples + path.missed, 500, "{path:?}");
        assert_eq!((path.lost, path.duplicate, path.reordered), (0, 0, 0), "{path:?}");
        assert_eq!(rows.len() as u64, path.samples - path.dropped);
        let rising = rows.windows(2).all(|w| w[0][0] < w[1][0]);
        assert!(rising && rows.iter().all(|row| row.len() == 3 && row[0] == row[1]), "{rows:?}");
    }
}

#[test]
fn a_sample_is_put_together_from_parts() {
    let dir = tempfile::tempdir().unwrap();
    let summary = run(&format!(
        "nodes = {{ {} {} {} }}, paths = ( {{ in = [ \"a.data[1-2]\", \"b.data[0]\", \
         \"a.hdr.sequence\" ], out = \"f\", mode = \"all\" }} )",
        signal("a", "values = 3, limit = 50, realtime = false, amplitude = [ 1.0, 2.0, 3.0 ]"),
        signal("b", "values = 1, limit = 50, realtime = false, offset = 7.0"),
        file("f", &dir)
    ));
    let rows = rows("f", &dir);
    assert!(rows.len() >= 49, "{} rows: {summary:#?}", rows.len());
    for row in &rows[1..] {
        let [_, twice, thrice, of_b, number] = row[..] else { panic!("{row:?}") };
        assert_eq!((twice, thrice), (2.0 * number, 3.0 * number));
        assert!((of_b - 7.0 - number).abs() <= 1.0, "{row:?}");
    }
}

#[test]
fn a_node_feeds_several_paths() {
    let dir = tempfile::tempdir().unwrap();
    let summary = run(&format!(
        "nodes = {{ {} {} {} }}, paths = ( {{ in = \"s\", out = \"f\" }}, \
         {{ in = \"s.data[1]\", out = \"g\", original_sequence_no = false, queuelen = 4096 }} )",
        signal("s", "values = 2, limit = 300"),
        file("f", &dir),
        file("g", &dir)
    ));
    let (first, second) = (rows("f", &dir), rows("g", &dir));
    assert_eq!(first.len(), second.len(), "{summary:#?}");
    let [to, copy] = [&summary.paths[0], &summary.paths[1]].map(|path| &path.sources[0]);
    assert_eq!(to.dropped, 0, "a full copy is a matter of the path that reads it");
    assert_eq!(to.sequence.samples, copy.sequence.samples + copy.dropped);
    assert_eq!((to.missed, copy.missed, copy.sequence.lost), (copy.missed, to.missed, 0));
    for (number, (a, b)) in first.iter().zip(&second).enumerate() {
        assert_eq!((b.len(), b[0], b[1]), (2, number as f64, a[2]));
    }
}

#[test]
fn a_request_to_end_loses_nothing_that_was_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = start(&format!(
        "nodes = {{ {} {} loop = {{ type = \"loopback\", in = {{ signals = \"1f\" }} }} }}, \
         paths = ( {{ in = \"s\", out = \"loop\" }}, {{ in = \"loop\", out = \"f\" }} )",
        signal("s", "values = 1"),
        file("f", &dir)
    ));
    gateway.until("a row", || content(&dir.path().join("f")).len() > 100_000);
    let summary = gateway.end();
    let [to, from] = &summary.paths[..] else { panic!("{summary:?}") };
    assert_eq!(to.samples - to.dropped, from.samples, "{summary:#?}");
    assert_eq!(rows("f", &dir).len() as u64, from.samples);
}

#[test]
fn the_last_sample_is_sent_again() {
    let dir = tempfile::tempdir().unwrap();
    // The only sample, of a source that does not end.
    let from = dir.path().join("from");
    std::fs::write(&from, "1.000000000(7)\t2.5\n").unwrap();
    let gateway = start(&format!(
        "nodes = {{ s = {{ type = \"file\", uri = \"{}\", in = {{ eof = \"wait\", \
         epoch_mode = \"original\", signals = \"1f\" }} }}, {} }}, paths = ( {{ in = \"s\", \
         out = \"f\", rate = 5000.0, original_sequence_no = false }} )",
        from.display(),
        file("f", &dir).replace("uri", "out = { flush = true }, uri")
    ));
    gateway.until("rows", || content(&dir.path().join("f")).len() > 10_000);
    gateway.end();
    for (number, row) in rows("f", &dir).iter().enumerate() {
        assert_eq!(row[..], [number as f64, 2.5], "the same sample, renumbered");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let nodes =
        "nodes = { aa = { type = \"signal\" }, bb = { type = \"file\", uri = \"/dev/null\" } }";
    let path = "{ in = \"aa\", out = \"bb\" }";
    let socket = |half: &str, path: &str| {
        format!(
            "nodes = {{ aa = {{ type = \"socket\", {half} = {{ address = \"127.0.0.1:1\" }} }}, \
             bb = {{ type = \"signal\" }} }}\npaths = ( {{ {path} }} )"
        )
    };
    let infiniband = |name: &str, half: &str| {
        format!("{name} = {{ type = \"infiniband\", {half} = {{ address = \"127.0.0.1:1\" }} }}")
    };
    for (text, what) in [
        ("nodes = { aa = { type = \"signal\", rat = 3 } }\npaths = ()", "a.conf:1:35: "),
        ("nodes = { aa = { type = \"mqtt\" } }\npaths = ()", "mqtt"),
        (&format!("{nodes}\npaths = ( {{ in = \"aa\", out = \"cc\" }} )"), "a.conf:2:30: "),
        (&format!("{nodes}\npaths = ( {{ in = \"aa.data[1]\" }} )"), "signals of aa are 0 to 0"),
        (&format!("{nodes}\npaths = ( {path}, {path} )"), "destination of two paths"),
        (
            &format!("{nodes}\npaths = ( {{ in = \"bb\", out = \"aa\" }} )"),
            "a.conf:2:30: aa is no destination",
        ),
        (&socket("out", "in = \"aa\""), "a.conf:2:18: aa is no source"),
        (&socket("in", "in = \"bb\", out = \"aa\""), "a.conf:2:30: aa is no destination"),
        (
            &format!("nodes = {{ {} }}\npaths = ( {{ in = \"aa\" }} )", infiniband("aa", "out")),
            "a.conf:2:18: aa is no source",
        ),
        (
            &format!(
                "nodes = {{ {}, {} }}\npaths = ( {{ in = [ \"aa\", \"bb\" ] }} )",
                infiniband("aa", "in"),
                infiniband("bb", "in")
            ),
            "a.conf:2:26: bb and aa cannot be sources of one path",
        ),
        (&format!("{nodes}\npaths = ()"), "there is no path"),
        (&format!("{nodes}\npaths = ( {{ in = [], out = \"bb\" }} )"), "a.conf:2:11: the path has"),
        (
            &format!(
                "{}\npaths = ( {path} )",
                nodes.replace("null\"", "null\", out = { enabled = false }")
            ),
            "bb is no destination: its out is not enabled",
        ),
        (
            "nodes = { aa = { type = \"signal.v2\", vectorize = 2, \
             in = { enabled = false, builtin = false, signals = {} } } }\n\
             paths = ( { in = \"aa\" } )",
            "a.conf:2:18: aa is no source: its in is not enabled",
        ),
        (
            "nodes = { aa = { type = \"signal\", pulse_width = () } }\npaths = ()",
            "pulse_width of aa has 0 elements; 1 or 1",
        ),
        (
            "nodes = { aa = { type = \"signal\", values = 3, pulse_high = ( 1.0, 2.0 ) } }\n\
             paths = ()",
            "pulse_high of aa has 2 elements; 1 or 3",
        ),
    ] {
        assert_refused(text, what);
    }
}

fn assert_refused(text: &str, what: &str) {
    let Err(errors) = plan(text) else { panic!("accepted: {text}") };
    assert!(errors.iter().any(|error| error.contains(what)), "{what}: {errors:#?}");
}

#[test]
fn keys_that_are_wrong_are_told_with_the_right_ones() {
    for (text, what) in [
        (
            "nodes = { ib = { type = \"infiniband\", rdma_port_space = \"RDMA_PS_TCP\" } }\n\
             paths = ()",
            "write rdma_transport_mode = \"RC\"",
        ),
        (
            "nodes = { sh = { type = \"shmem\", polling = true, in = { name = \"/a\" }, \
             out = { name = \"/b\" } } }\npaths = ()",
            "write mode = \"polling\"",
        ),
        (
            "nodes = { sh = { type = \"shmem\", in = { name = \"/a\" }, \
             out = { name = \"\" } } }\npaths = ()",
            "a.conf:1:71: ",
        ),
        (
            "nodes = { aa = { type = \"signal\" } }\n\
             paths = ( { in = \"aa\", hooks = ( { type = \"decimate\", ratoi = 2 } ) } )",
            "a.conf:2:55: hooks: unknown field `ratoi`",
        ),
        (
            // An option whose name the error of another one contains.
            "nodes = { aa = { type = \"signal\" } }\n\
             paths = ( { in = \"aa\", hooks = ( { type = \"decimate\", ratio = 2, \
             renumber = 7 } ) } )",
            "a.conf:2:66: hooks: invalid type",
        ),
        (
            "nodes = { aa = { type = \"signal\" } }\n\
             paths = ( { in = \"aa\", hooks = ( { type = \"decimate\" } ) } )",
            "a.conf:2:34: `ratio` must be given",
        ),
        (
            "nodes = { aa = { type = \"signal\" } }\n\
             paths = ( { in = \"aa\", hooks = ( { type = \"ts\", priority = \"x\" } ) } )",
            "a.conf:2:60: priority is \"x\"",
        ),
        (
            "nodes = { zz = { type = \"zeromq\", curve = { public_key = \"x\" } } }\npaths = ()",
            "a.conf:1:35: curve is not built; use a tunnel",
        ),
        (
            "nodes = { zz = { type = \"zeromq\", pattern = \"radiodish\" } }\npaths = ()",
            "a.conf:1:45: pattern \"radiodish\" is not built; use pubsub",
        ),
        (
            "nodes = { zz = { type = \"zeromq\", in = { subscribe = [ \"tcp://*:12\" ] } } }\n\
             paths = ()",
            "a.conf:1:56: \"tcp://*:12\": * is no address to connect to; it must be like",
        ),
        (
            "nodes = { nn = { type = \"nanomsg\", out = { endpoints = \"inproc://a\" } } }\n\
             paths = ( { in = \"nn\" } )",
            "a.conf:1:56: \"inproc://a\": the transport inproc is not built",
        ),
        (
            "nodes = { nn = { type = \"nanomsg\", out = { endpoints = \"ipc://a\" } } }\n\
             paths = ( { in = \"nn\" } )",
            "a.conf:2:18: nn is no source: it has no in.endpoints",
        ),
    ] {
        assert_refused(text, what);
    }
}

#[test]
fn keys_without_effect_are_told() {
    let plan = plan(
        "seed = 3, priority = 0, affinity = 0, nodes = { aa = { type = \"signal\", \
         monitor_missed = true, vectorize = 2, in = { signals = \"1f\" } }, bb = { \
         type = \"file\", uri = \"/dev/null\", initial_sequenceno = 1, \
         in = { buffer_size = 3 }, out = { builtin = false, \
         signals = \"1f\", vectorize = 3 } } }, \
         paths = ( { in = \"aa\", out = \"bb\", poll = true } )",
    );
    let plan = plan.unwrap_or_else(|errors| panic!("{errors:#?}"));
    let mut keys: Vec<&str> = plan.notices.iter().map(|notice| notice.key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "buffer_size",
            "builtin",
            "initial_sequenceno",
            "monitor_missed",
            "poll",
            "seed",
            "signals",
            "signals",
            "vectorize",
            "vectorize"
        ]
    );
}

#[test]
fn a_full_disk_ends_the_file_and_not_the_gateway() {
    if !std::path::Path::new("/dev/full").exists() {
        return rdmalab_testing::skipped("a_full_disk", "there is no /dev/full");
    }
    let dir = tempfile::tempdir().unwrap();
    let summary = run(&format!(
        "nodes = {{ {} {} full = {{ type = \"file\", uri = \"/dev/full\", \
         out = {{ flush = true }} }} }}, paths = ( {{ in = \"s\", out = [ \"full\", \"f\" ] }} )",
        signal("s", "values = 1, limit = 300"),
        file("f", &dir)
    ));
    let path = &summary.paths[0];
    assert!(path.destinations[0].has_failed && path.destinations[0].lost > 0, "{path:#?}");
    assert_eq!(rows("f", &dir).len() as u64, path.samples);
}

#[test]
fn samples_that_a_full_disk_did_not_take_are_lost() {
    if !std::path::Path::new("/dev/full").exists() {
        return rdmalab_testing::skipped("samples_that_a_full_disk", "there is no /dev/full");
    }
    // They all wait in memory until the end.
    let summary = run(&format!(
        "nodes = {{ {} full = {{ type = \"file\", uri = \"/dev/full\" }} }}, \
         paths = ( {{ in = \"s\", out = \"full\" }} )",
        signal("s", "values = 1, limit = 50, realtime = false")
    ));
    let full = &summary.paths[0].destinations[0];
    assert_eq!((full.written, full.dropped, full.lost, full.has_failed), (0, 0, 50, true));
    assert_eq!(summary.failed(), ["full"]);
}

#[test]
fn a_source_that_fails_shows_in_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    // A directory can be opened, but not read.
    let summary = run(&format!(
        "nodes = {{ d = {{ type = \"file\", uri = \"{}\" }}, {} }}, \
         paths = ( {{ in = \"d\", out = \"f\" }} )",
        dir.path().display(),
        file("f", &dir)
    ));
    assert!(summary.paths[0].sources[0].has_failed, "{summary:#?}");
    assert_eq!(summary.failed(), ["d"]);
}

#[test]
fn only_samples_with_an_origin_have_a_latency() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("from"), [0; 80]).unwrap();
    let raw = |name: &str, more: &str| {
        format!(
            "{name} = {{ type = \"file\", uri = \"{}\", format = \"raw\", {more} }}, ",
            dir.path().join(name).display()
        )
    };
    let summary = run(&format!(
        "nodes = {{ {} {} }}, paths = ( {{ in = \"from\", out = \"to\" }} )",
        raw("from", "in = { epoch_mode = \"original\", signals = \"1f\" }"),
        raw("to", "out = { hooks = ( { type = \"skip_first\", samples = 1000 } ) }")
    ));
    let path = &summary.paths[0];
    assert!(path.samples > 0 && path.latency.is_none(), "{path:#?}");
    let to = &path.destinations[0];
    assert_eq!((to.written, to.dropped, to.lost), (0, 0, 0), "a hook dropped them");
}

/// A file of so many samples.
fn samples(dir: &tempfile::TempDir, count: u64) -> String {
    let path = dir.path().join("from");
    let lines: String = (0..count).map(|n| format!("{n}.000000000({n})\t2.5\n")).collect();
    std::fs::write(&path, lines).unwrap();
    path.display().to_string()
}

#[test]
fn a_source_without_a_clock_waits_for_its_destinations() {
    let dir = tempfile::tempdir().unwrap();
    let uri = samples(&dir, 3000);
    // In the mode original, the rate means nothing: by it, the file would take an hour.
    let summary = run(&format!(
        "nodes = {{ s = {{ type = \"file\", uri = \"{uri}\", in = {{ signals = \"1f\", \
         epoch_mode = \"original\", rate = 1.0 }} }}, \
         loop = {{ type = \"loopback\", queuelen = 2, in = {{ signals = \"1f\" }} }}, {} }}, \
         paths = ( {{ in = \"s\", out = \"loop\" }}, {{ in = \"loop\", out = \"f\" }} )",
        file("f", &dir)
    ));
    assert_eq!(rows("f", &dir).len(), 3000, "{summary:#?}");
    assert_eq!((summary.paths[0].dropped, summary.paths[1].lost), (0, 0));
}

#[test]
fn a_file_keeps_the_samples_of_earlier_runs() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "nodes = {{ {} {} }}, paths = ( {{ in = \"s\", out = \"f\" }} )",
        signal("s", "values = 1, limit = 20, realtime = false"),
        file("f", &dir)
    );
    run(&text);
    run(&text);
    let numbers: Vec<f64> = rows("f", &dir).iter().map(|row| row[0]).collect();
    let once: Vec<f64> = (0..20).map(f64::from).collect();
    assert_eq!(numbers, [&once[..], &once[..]].concat());
}

#[test]
fn a_file_that_begins_anew_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let uri = samples(&dir, 5);
    let gateway = start(&format!(
        "nodes = {{ s = {{ type = \"file\", uri = \"{uri}\", in = {{ eof = \"rewind\", \
         epoch_mode = \"original\", signals = \"1f\" }} }}, {} }}, \
         paths = ( {{ in = \"s\", out = \"f\" }} )",
        file("f", &dir).replace("uri", "out = { flush = true }, uri")
    ));
    gateway.until("rows", || content(&dir.path().join("f")).len() > 1000);
    let summary = gateway.end();
    let found = summary.paths[0].sources[0].sequence;
    assert!(found.restarts > 1 && found.duplicate + found.lost + found.reordered == 0, "{found:?}");
}

#[test]
fn samples_at_a_rate_have_the_time_of_their_tick() {
    let dir = tempfile::tempdir().unwrap();
    let (uri, now) = (samples(&dir, 20), rdmalab_gateway::node::wall_time().seconds);
    run(&format!(
        "nodes = {{ s = {{ type = \"file\", uri = \"{uri}\", in = {{ rate = 1000.0, \
         epoch_mode = \"relative\", signals = \"1f\" }} }}, {} }}, \
         paths = ( {{ in = \"s\", out = \"f\" }} )",
        file("f", &dir)
    ));
    let text = String::from_utf8(content(&dir.path().join("f"))).unwrap();
    let seconds = |line: &str| line.split(',').next().unwrap().parse::<i64>().unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(lines.len() == 20 && lines.iter().all(|line| seconds(line) >= now), "{text}");
}

#[test]
fn hooks_change_samples_of_nodes_and_of_paths() {
    let dir = tempfile::tempdir().unwrap();
    let source = "s = { type = \"signal.v2\", realtime = false, limit = 20, in = { \
        signals = ( { name = \"n\", signal = \"counter\" } ), \
        hooks = ( { type = \"skip_first\", samples = 3 } ) } }, ";
    let summary = run(&format!(
        "nodes = {{ {source} {} }}, paths = ( {{ in = \"s\", out = \"f\", \
         hooks = ( {{ type = \"scale\", signal = \"n\", scale = 2.0, offset = 1.0 }} ) }} )",
        file("f", &dir)
    ));
    let rows = rows("f", &dir);
    assert!(rows.len() < 20, "some are skipped: {summary:#?}");
    assert!(rows.iter().all(|row| row[1] == 2.0 * row[0] + 1.0), "{rows:?}");
}

#[test]
fn statistics_of_a_node_are_samples() {
    let dir = tempfile::tempdir().unwrap();
    let summary = run(&format!(
        "nodes = {{ {} {} stats = {{ type = \"stats\", rate = 50.0, in = {{ signals = ( \
         {{ stats = \"s.samples.total\" }}, {{ stats = \"s.skipped.total\" }}, \
         {{ stats = \"s.owd.lowest\" }}, {{ stats = \"s.owd.highest\" }} ) }} }} }}, \
         paths = ( {{ in = \"s\" }}, {{ in = \"stats\", out = \"f\" }} )",
        signal("s", "limit = 300"),
        file("f", &dir)
    ));
    let of = &summary.paths[0];
    let all = rows("f", &dir);
    let [number, samples, skipped, lowest, highest] = all.last().unwrap()[..] else {
        panic!("{all:?}")
    };
    let missed_before_the_first = of.sources[0].sequence.first.unwrap();
    assert_eq!(samples, of.samples as f64, "the last one comes when the path has ended");
    assert_eq!(skipped, (of.missed - missed_before_the_first) as f64 - missed_last(of));
    assert!(0.0 < lowest && lowest <= highest, "{lowest} {highest}");
    assert_eq!(number as u64 + 1, summary.paths[1].samples + summary.paths[1].missed);
    assert!(all.windows(2).all(|pair| pair[0][1] <= pair[1][1]), "{all:?}");
}

/// Ticks that were missed after the last sample of a signal with 300 ticks.
fn missed_last(path: &rdmalab_gateway::PathReport) -> f64 {
    299.0 - path.sources[0].sequence.last.unwrap() as f64
}

#[test]
fn statistics_of_nodes_that_are_not_read_are_refused() {
    let stats = |shown: &str| {
        format!(
            "nodes = {{ aa = {{ type = \"signal\" }}, bb = {{ type = \"signal\" }}, \
             st = {{ type = \"stats\", rate = 1.0, in = {{ signals = (\n\
             {{ stats = \"{shown}\" }} ) }} }} }}\npaths = ( {{ in = [ \"aa\", \"st\" ] }} )"
        )
    };
    assert!(plan(&stats("aa.owd.mean")).is_ok());
    for (shown, what) in [
        ("bb.owd.mean", "a.conf:2:11: bb has no statistics: no path reads it"),
        ("cc.owd.mean", "a.conf:2:11: there is no node \"cc\""),
        ("aa.age.mean", "a.conf:2:11: stats is \"aa.age.mean\"; \"age\" is none of owd"),
    ] {
        assert_refused(&stats(shown), what);
    }
}

#[test]
fn round_trips_are_measured_case_after_case() {
    let dir = tempfile::tempdir().unwrap();
    let summary = run(&format!(
        "nodes = {{ rtt = {{ type = \"test_rtt\", output = \"{}\", prefix = \"t\", \
         format = \"csv\", cases = ( {{ rates = [ 500.0, 1000.0 ], values = [ 1, 3 ], \
         limit = 50, warmup = 0.01 }} ) }}, back = {{ type = \"loopback\" }} }}, \
         paths = ( {{ in = \"rtt\", out = \"back\" }}, {{ in = \"back\", out = \"rtt\" }} )",
        dir.path().display()
    ));
    let [there, back] = &summary.paths[..] else { panic!("{summary:#?}") };
    let warmup = 2 * (5 + 10);
    assert_eq!(there.samples + there.missed, 4 * 50 + warmup, "{summary:#?}");
    assert_eq!((there.samples, there.dropped, back.dropped), (back.samples, 0, 0));
    let repeated = (there.duplicate, back.duplicate, back.sources[0].sequence.restarts);
    assert_eq!(repeated, (0, 0, 0), "numbers go on from case to case: {summary:#?}");
    let mut written = 0;
    for (values, rate) in [(1, 500), (3, 500), (1, 1000), (3, 1000)] {
        let rows = rows(&format!("t_values{values}_rate{rate}.log"), &dir);
        // A stall can be as long as a case.
        let least = usize::from(there.missed == 0);
        assert!((least..=50).contains(&rows.len()), "{values} {rate}: {}", rows.len());
        // The round trip and the number; no values.
        assert!(rows.iter().all(|row| row.len() == 2 && row[0] > 0.0), "{rows:?}");
        written += rows.len() as u64;
    }
    let strays = there.sources[0].garbage;
    assert!((written + strays..=written + strays + warmup).contains(&back.samples));
}
