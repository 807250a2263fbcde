//! Simulated devices on the command line.

use rdmalab_experiments::Link;
use rdmalab_testing::{Ended, Process};

mod common;

use common::{rdmalab, said, signal};

fn run(arguments: &[&str]) -> Ended {
    said(rdmalab(arguments).arg("--no-record"))
}

const PING: [&str; 6] = ["run", "ping", "--device", "sim:connectx4", "--messages", "300"];

/// `run ping` on a simulated adapter, with more arguments.
fn ping(more: &[&str]) -> Ended {
    run(&[&PING[..], more].concat())
}

#[test]
fn results_are_a_models_and_the_same_each_time() {
    let sweep = ["--size", "8..4K*8", "--transport", "rc,uc"];
    let (once, again) = (ping(&sweep), ping(&sweep));
    assert_eq!((once.code, again.code), (Some(0), Some(0)), "{}", once.stderr);
    assert_eq!(once.stdout, again.stdout);
    assert!(once.stderr.contains("simulated ") && once.stderr.contains(" events, "));
    let shown = ping(&[]);
    assert!(shown.stdout.contains("numbers of a model, not of an adapter"), "{}", shown.stdout);
    assert!(shown.stdout.contains("model connectx4 "), "{}", shown.stdout);
}

#[test]
fn a_parameter_is_swept_and_one_that_changes_nothing_is_named() {
    let swept = ping(&["--inline", "off", "--sim", "bus_read_ns=0..400+200"]);
    for value in ["bus_read_ns=0 ", "bus_read_ns=200", "bus_read_ns=400"] {
        assert!(swept.stdout.contains(value), "{}", swept.stdout);
    }
    assert!(!swept.stderr.contains("no result changes"), "{}", swept.stderr);
    let inline = ping(&["--inline", "on", "--sim", "bus_read_ns=0,200"]);
    let said = "no result changes with --sim bus_read_ns=0, bus_read_ns=200";
    assert!(inline.stderr.contains(said), "{}", inline.stderr);
    let parts = ping(&["--sim", "ablate"]);
    assert!(parts.stdout.contains("profile ") && parts.stdout.contains("mmio_ns=0"));
}

/// What a run does beside plain messages is simulated too.
#[test]
fn atomics_both_directions_and_a_time_are_simulated() {
    let atomics = ["--op", "fetch_add,cmp-swap", "--size", "8"];
    for options in [
        &["run", "ping", "--duration", "1ms"][..],
        &["run", "blast", "--messages", "300", "--outstanding-reads", "4"],
    ] {
        let ended = run(&[options, &["--device", "sim:connectx4"], &atomics].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.contains("cmp_swap"), "{}", ended.stdout);
    }
    let rates = |more: &[&str]| {
        let fixed = ["run", "blast", "--device", "sim:ideal", "--size", "64K", "--messages", "500"];
        let ended = run(&[&fixed[..], &["--format", "json"], more].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let record: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let figures = record["points"][0]["figures"].as_object().unwrap();
        let rates = figures.iter().filter(|(name, _)| name.starts_with("rate_per_s"));
        let mut rates: Vec<f64> = rates.map(|(_, value)| value.as_f64().unwrap()).collect();
        rates.sort_by(|a, b| b.total_cmp(a));
        rates
    };
    // A link carries as much in each direction as in one.
    let (one, both) = (rates(&[]), rates(&["--bidirectional", "yes"]));
    assert_eq!((one.len(), both.len()), (1, 3), "{one:?} {both:?}");
    assert!((both[0] / one[0] - 2.0).abs() < 0.1, "{one:?} {both:?}");
}

/// A packet that was damaged before its checksum was computed is taken, and only `--verify` sees
/// it: in virtual time and on the soft device, each tenth message of each direction.
#[test]
fn a_damaged_payload_is_found() {
    let damaged = |device: &str, options: &[&str]| {
        let fixed = ["--messages", "100", "--runs", "1", "--warm-up", "0", "--size", "64"];
        // No message is sent again, which would count as another one.
        let faults = ["--faults", "damage every 10 of send", "--timeout", "0", "--device", device];
        let ended = run(&[options, &fixed, &faults, &["--format", "json"]].concat());
        assert_eq!(ended.code, Some(0), "{device} {options:?}: {}", ended.stderr);
        let record: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        record["points"][0]["counts"]["damaged"].as_u64()
    };
    let datagrams = ["run", "ping", "--verify", "yes", "--transport", "ud", "--op", "send_imm"];
    for (device, options, count) in [
        ("sim:connectx4", &datagrams[..], Some(20)),
        ("sim:connectx4", &["run", "blast", "--verify", "yes"], Some(10)),
        ("soft0", &["run", "ping", "--verify", "yes"], Some(20)),
        ("soft0", &["run", "ping"], None),
        ("soft0", &["run", "blast", "--verify", "yes", "-b"], Some(20)),
    ] {
        assert_eq!(damaged(device, options), count, "{device} {options:?}");
    }
}

/// A point is checked against the limits as `--sim` changes them.
#[test]
fn a_limit_of_the_device_is_swept() {
    let options = ["--size", "2K", "--sim", "mtu_bytes=1024,mtu_bytes=4096", "--transport", "ud"];
    let swept = ping(&options);
    assert_eq!(swept.code, Some(0), "{}", swept.stderr);
    let skipped =
        "skipped sim mtu_bytes=1024: --size 2048: a datagram is one packet, of at most 1024";
    assert!(swept.stdout.contains(skipped), "{}", swept.stdout);
    assert!(!swept.stdout.contains("skipped sim mtu_bytes=4096"), "{}", swept.stdout);
    for (limit, options) in [
        ("max_inline_bytes=16", &["--inline", "on", "--size", "32"][..]),
        ("max_wr=8", &["--tx-depth", "16"]),
    ] {
        let none = ping(&[&["--sim", limit][..], options].concat());
        assert_eq!(none.code, Some(2), "{limit}: {}{}", none.stdout, none.stderr);
        let fits = ping(options);
        assert_eq!(fits.code, Some(0), "{limit}: {}", fits.stderr);
    }
    // A larger limit than that of the profile.
    let most = ["--sim", "max_inline_bytes=1024", "--inline", "on", "--size", "1000"];
    assert_eq!(ping(&most).code, Some(0), "{}", ping(&most).stderr);
    assert_eq!(ping(&most[2..]).code, Some(2));
}

/// A request that is lost to damming is noticed by the time-out, and earlier by a work-around.
#[test]
fn a_work_around_helps_against_damming() {
    let time_outs = |work_around: &str| {
        let fixed = ["run", "odp", "--device", "sim:connectx4", "--fault", "server", "--runs", "3"];
        let more = ["--interval", "1ms", "--timeout", "1", "--work-around-after", "2ms"];
        let ended = run(&[&fixed[..], &more, &["--work-around", work_around]].concat());
        assert_eq!(ended.code, Some(0), "{work_around}: {}", ended.stderr);
        // A row for each number, since there is one point.
        let mut rows = ended.stdout.lines().map(str::trim);
        let row = rows.find(|line| line.starts_with("share of trials")).expect("a row");
        row.rsplit("  ").next().unwrap_or_default().to_owned()
    };
    assert_eq!(time_outs("none"), "100 %");
    assert_eq!(time_outs("dummy"), "0 %");
}

#[test]
fn the_steps_of_a_message_are_shown() {
    let shown = ping(&["--inline", "off", "--timeline", "100"]);
    for step in ["the post begins", "(BlueFlame) reaches", "32 bytes of payload are read"] {
        assert!(shown.stdout.contains(step), "{}", shown.stdout);
    }
    for component in ["payload read", "receive engine", "from post to post", "100.0 %"] {
        assert!(shown.stdout.contains(component), "{}", shown.stdout);
    }
    let beyond = ping(&["--timeline", "1000000"]);
    assert!(beyond.stderr.contains("rank 0 posted fewer messages"), "{}", beyond.stderr);
    let other = ping(&["--timeline", "5", "--timeline-rank", "1"]);
    assert!(other.stdout.contains("from post 5 of rank 1 to its next one"), "{}", other.stdout);
    let none = ping(&["--timeline", "5", "--timeline-rank", "2"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(none.stderr.contains("--timeline-rank 2: there are 2 ranks"), "{}", none.stderr);
}

#[test]
fn the_time_of_all_messages_is_in_the_record_by_component() {
    let shown = ping(&["--timeline", "5", "--timeline-rank", "1", "--format", "json"]);
    let record: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let counts = record["points"][0]["counts"].as_object().unwrap();
    let count = |name: &str| counts[name].as_u64().unwrap();
    let is_part =
        |name: &&String| name.starts_with("timeline_ps_") && **name != "timeline_ps_at_rank_1";
    let parts: Vec<u64> = counts.keys().filter(is_part).map(|name| count(name)).collect();
    assert!(parts.len() > 8, "{counts:?}");
    assert_eq!(parts.iter().sum::<u64>(), count("timeline_ps_at_rank_1"));
    // The messages, those before them, and the last one, which has no next one.
    assert!(count("timeline_posts_at_rank_1") >= 299, "{counts:?}");
}

#[test]
fn what_is_between_processes_is_refused() {
    let between = "needs several processes";
    let calls: [(&[&str], &str); 7] = [
        (&["serve", "--device", "sim:ideal"], between),
        (&["bench", "self", "--device", "sim:ideal"], between),
        (&["exec", "--device", "sim:ideal", "--", "true"], "in virtual time only"),
        (&["exec", "-d", "sim:ideal", "true"], "use `rdmalab run EXPERIMENT --device sim:ideal`"),
        (&["exec", "--repeat", "2", "--device", "sim:ideal", "--", "true"], "virtual time only"),
        (&["exec", "--device", "soft0", "--", "true"], "every program can use soft0 and soft1"),
        (&["ib_send_lat", "-d", "sim:ideal", "host"], "leave host out"),
    ];
    for (arguments, why) in calls {
        let ended = said(&mut rdmalab(arguments));
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(why), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{arguments:?}: {}", ended.stdout);
    }
}

/// Both ends of perftest's names are simulated by one command.
#[test]
fn perftests_names_measure_simulated_devices() {
    let call = ["ib_send_lat", "-d", "sim:connectx4", "-n", "200", "-s", "32"];
    let ended = said(&mut rdmalab(&call));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("Send Latency Test"), "{}", ended.stdout);
    assert!(ended.stdout.contains("Numbers of a model, not of an adapter"), "{}", ended.stdout);
    let row = ended.stdout.lines().map(str::trim).find(|line| line.starts_with("32 "));
    assert!(row.is_some_and(|row| row.split_whitespace().count() >= 5), "{}", ended.stdout);
    assert_eq!(said(&mut rdmalab(&call)).stdout, ended.stdout, "the same each time");
    let bandwidth = ["ib_write_bw", "-d", "sim:ideal", "-n", "100", "-s", "4096"];
    assert_eq!(said(&mut rdmalab(&bandwidth)).code, Some(0));
}

#[test]
fn wrong_calls_say_what_there_is() {
    let wrong: [(&[&str], &str); 14] = [
        (
            &["run", "connect", "--device", "sim:ideal", "--by", "rdma_cm"],
            "has no connection manager",
        ),
        (&["run", "ping", "--device", "sim:foo"], "there are ideal, connectx2"),
        (&["run", "ping", "--device", "sim"], "simulated ones: sim:ideal"),
        (&["run", "ping", "--device", "sim:./none.toml"], "none.toml"),
        (&["run", "ping", "--device", "sim:ideal", "--cores", "0,1"], "--cores: simulated ranks"),
        (&["run", "ping", "--device", "sim:ideal", "--hosts", "a,b"], "--hosts: simulated ranks"),
        (&["run", "ping", "--device", "sim:ideal", "host"], "host: simulated ranks"),
        (
            &["run", "ping", "--device", "sim:ideal", "--sim", "bus_reed_ns=1"],
            "is bus_read_ns meant?",
        ),
        (&["run", "ping", "--device", "soft0", "--sim", "post_ns=1"], "soft0 is not simulated"),
        (&["run", "ping", "--device", "soft0", "--timeline", "1"], "soft0 is not simulated"),
        (&["run", "ping", "--device", "soft0", "--link", "sdr"], "soft0 is not simulated"),
        (&["run", "ping", "--device", "sim:ideal", "--link", "sdrr"], "sdr"),
        (
            &["run", "ping", "--device", "sim:ideal", "--interface", "lo"],
            "--interface does not work on",
        ),
        (&["run", "ping", "--device", "sim:ideal", "--faults", "dorp"], "is not an action"),
    ];
    for (arguments, expected) in wrong {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn parameters_are_listed_with_their_sources() {
    let shown = said(&mut rdmalab(&["devices", "--parameters", "sim:connectx4"]));
    assert!(shown.stdout.contains("calibrated") && shown.stdout.contains("bus_read_ns"));
    assert!(shown.stdout.contains("LogGP of SENDs over UC: L "), "{}", shown.stdout);
    let json = said(&mut rdmalab(&["devices", "--parameters", "sim:connectx2", "--json"]));
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let all = value["parameters"].as_array().unwrap();
    assert!(value["loggp"]["gap_ns"].as_f64().unwrap() > 100.0, "{}", value["loggp"]);
    let marked = all.iter().filter(|parameter| parameter["mark"].is_string());
    assert!(marked.clone().count() > 20 && marked.clone().all(|one| one["from"].is_string()));
    let all = said(&mut rdmalab(&["devices"]));
    assert!(all.stdout.contains("sim:infinihost: "), "{}", all.stdout);
}

#[test]
fn a_thousand_ranks_run_in_one_process() {
    let many = ["run", "fan", "--device", "sim:ideal", "--ranks", "1024", "--size", "1"];
    let ended = run(&[&many[..], &["--messages", "2", "--warm-up", "0"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_signal_ends_a_simulation_and_keeps_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let arguments = ["run", "ping", "--device", "sim:ideal", "--messages", "5M", "--out", out];
    let running = Process::start(&mut rdmalab(&arguments));
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal("-INT", running.id());
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("interrupted"), "{ended:?}");
}

#[test]
fn a_study_takes_the_adapter_that_its_plan_names() {
    let plan = said(&mut rdmalab(&["study", "macarthur2012", "--device", "sim", "--plan"]));
    assert!(plan.stdout.contains("here on sim:connectx2 (of kind sim"), "{}", plan.stdout);
    assert!(plan.stdout.contains("of virtual time in all"), "{}", plan.stdout);
    let link = "link 4000 MB/s (qdr); a cable between two adapters, one switch between more";
    assert!(plan.stdout.contains(link), "{}", plan.stdout);
    assert!(plan.stdout.contains("of this machine's time, an estimate"), "{}", plan.stdout);
    let plan = said(&mut rdmalab(&["study", "fukuoka2021", "--device", "sim", "--plan"]));
    assert!(plan.stdout.contains("here on sim:connectx4 (of kind sim"), "{}", plan.stdout);
    assert!(plan.stdout.contains("6.1: it needs your build of the application"), "{}", plan.stdout);
    // A study of one's own need not name one.
    let home = tempfile::tempdir().unwrap();
    let named = "[sim]\nprofile = \"connectx2\"";
    common::own_study("mordkovich2013", home.path(), &[(named, "")]);
    let mut own = rdmalab(&["study", "mordkovich2013", "--device", "sim", "--plan", "--studies"]);
    let none = said(own.arg(home.path()));
    assert_eq!(none.code, Some(2), "{}", none.stdout);
    assert!(
        none.stderr.contains("there is no simulated adapter for the hardware"),
        "{}",
        none.stderr
    );
}

/// Pauses of a second take no time here, so a plan of many virtual hours is not shortened.
#[test]
fn a_time_limit_of_a_study_is_time_of_this_machine() {
    let study = ["study", "potter2018", "--device", "sim", "--plan"];
    let whole = said(&mut rdmalab(&study)).stdout;
    assert!(whole.contains(" h of virtual time in all"), "{whole}");
    let planned = |time| said(rdmalab(&study).args(["--max-time", time])).stdout;
    let line = |plan: &str| {
        let is_it = |line: &&str| line.contains("--pause 1s");
        let line = plan.lines().find(is_it).unwrap_or_else(|| panic!("no pauses: {plan}"));
        line.split(" --messages ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    };
    assert_eq!(line(&planned("1h")), line(&whole));
    assert_ne!(line(&planned("1s")), line(&whole));
}

#[test]
fn each_link_changes_what_a_long_message_takes() {
    let words = Link::WORDS.join(",");
    let ended = ping(&["--link", &words, "--size", "64K", "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let record: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let of = |link: &str| {
        let points = record["points"].as_array().unwrap();
        let it = points.iter().find(|point| point["parameters"]["link"] == link).unwrap();
        it["series"][0]["median_ns"].as_f64().unwrap()
    };
    let order = ["sdr", "roce10", "ddr", "qdr", "fdr", "edr"];
    for (slow, fast) in order.iter().zip(&order[1..]) {
        assert!(of(slow) > of(fast), "{slow}: {} ns, {fast}: {} ns", of(slow), of(fast));
    }
    // The bus is the slowest part then, and the profile has this link.
    assert_eq!((of("hdr") <= of("edr"), of("profile")), (true, of("edr")));
    for link in Link::WORDS.iter().filter(|word| **word != "profile") {
        assert!(rdmalab_sim::link_values(link).is_some(), "{link}");
    }
}

/// The sweep of the book over both versions of on-demand paging: with the second one no queue pair
/// waits until it is told that the page is there.
#[test]
fn the_sweep_over_both_versions_of_paging_is_as_the_book_says() {
    let book = include_str!("../../../docs/book/src/simulate.md");
    let sweep = book.split("```").find(|text| text.contains("--sim profile,odp_fault_contexts=0"));
    let sweep = sweep.expect("the book has the sweep").trim_start_matches("sh\n");
    let words: Vec<&str> = sweep.split_whitespace().filter(|word| *word != "\\").collect();
    assert_eq!(words[0], "rdmalab", "{words:?}");
    let ended = run(&[&words[1..], &["--format", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let record: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let of = |sim: &str| {
        let points = record["points"].as_array().unwrap();
        let point = points.iter().find(|point| point["parameters"]["sim"] == sim).unwrap();
        point["figures"]["execution_time_ns"].as_f64().unwrap_or_else(|| panic!("{point}"))
    };
    let (v1, v2) = (of("profile"), of("odp_fault_contexts=0"));
    assert!((5e6..6e6).contains(&v1) && (0.6e6..0.8e6).contains(&v2), "{v1} ns, {v2} ns");
}
