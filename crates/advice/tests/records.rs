//! Made-up records, and the advice from them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rdmalab_advice::{Advice, Goal, Outcome, QUESTIONS, answers, json, question, text};
use rdmalab_measure::{Method, Outcome as Measured, Quantity};
use rdmalab_record::{
    Device, DeviceKind, Environment, Header, Object, PointId, Record, Skipped, Writer,
};
use serde_json::{Value, json};

/// A record that is being written.
struct Book {
    writer: Writer,
    place: u64,
}

impl Book {
    fn new(dir: &Path, name: &str, condition: Option<&str>) -> Self {
        let device = Device { name: "soft0".to_owned(), kind: DeviceKind::Soft, profile: None };
        let command = ["x", "run", "ping", "--repeat", "2", "--faults", "drop 1%"];
        let mut header = Header::new("ping", command.map(str::to_owned).to_vec(), device);
        header.condition = condition.map(str::to_owned);
        let environment = Environment::here("soft0", None);
        let writer = Writer::create_at(&dir.join(name), header, &environment).unwrap();
        Self { writer, place: 0 }
    }

    /// Adds a run.
    fn add(&mut self, repetition: u32, parameters: &Value, measured: &Measured) {
        let id = PointId {
            parameters: parameters.as_object().unwrap().clone(),
            repetition,
            order_index: self.place,
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_secs(1),
        };
        self.place += 1;
        self.writer.append(&id, measured).unwrap();
    }

    fn skip(&mut self, parameters: &Value, reason: &str) {
        let parameters: Object = parameters.as_object().unwrap().clone();
        let reason = reason.to_owned();
        let skipped = Skipped { order_index: 0, repetition: 0, parameters, reason };
        self.writer.skip(&skipped).unwrap();
    }

    fn read(self) -> Record {
        Record::open(self.writer.dir()).unwrap()
    }
}

/// Round trips near a time, in steps of 10 ns, with one in fifty in the tail.
fn trips(middle_ns: f64, tail_ns: f64) -> Measured {
    let mut measured = Measured::default();
    let sample = |i: u32| {
        if i.is_multiple_of(50) { tail_ns } else { middle_ns + f64::from(i % 5) * 10.0 - 20.0 }
    };
    measured.push_series(Quantity::RoundTrip, "", 0, (0..2000).map(sample).collect());
    measured.push_count("sent", 2000);
    measured.push_count("lost", 0);
    measured
}

fn flood(per_s: f64, lost: u64) -> Measured {
    let mut measured = Measured::default();
    measured.push_figure(Quantity::Rate, "", per_s);
    measured.push_figure(Quantity::CpuShare, "rank 0", 1.0);
    measured.push_figure(Quantity::CpuShare, "rank 1", 0.5);
    measured.push_count("sent", 5000);
    measured.push_count("lost", lost);
    measured
}

fn ping(op: &str, transport: &str, size: u64) -> Value {
    json!({ "experiment": "ping", "op": op, "transport": transport, "size_bytes": size, "seed": 1 })
}

const EXPERIMENTS: [(&str, Method); 2] = [("ping", Method::RoundTrips), ("blast", Method::Flood)];

fn all(records: &[Record]) -> Advice {
    let questions: Vec<_> = QUESTIONS.iter().collect();
    answers(records, &EXPERIMENTS, &questions, &Goal::ALL, "32")
}

fn of(records: &[Record], key: &str, goal: Goal) -> Advice {
    answers(records, &EXPERIMENTS, &[question(key).unwrap()], &[goal], "32")
}

/// Twelve rounds: write is a third faster than send, with a tail half as long again.
fn opcodes(dir: &Path, name: &str) -> Record {
    let mut book = Book::new(dir, name, None);
    for round in 0..12u32 {
        let drift = 1.0 + f64::from(round) * 0.001;
        book.add(round, &ping("send", "rc", 32), &trips(1500.0 * drift, 2000.0 * drift));
        let other = 1.0 + f64::from(round * 5 % 12) * 0.001;
        book.add(round, &ping("write", "rc", 32), &trips(1000.0 * other, 2010.0 * other));
    }
    book.skip(&ping("read", "rc", 32), "--op read: there is no READ here");
    book.read()
}

#[test]
fn the_best_is_named_with_its_effect_and_what_is_not_there_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let records = [opcodes(dir.path(), "a")];
    let advice = of(&records, "opcode", Goal::Latency);
    let [answer] = advice.answers.as_slice() else { panic!("{advice:?}") };
    assert_eq!((answer.decision.outcome, answer.decision.runs), (Outcome::Best, 12));
    assert_eq!(answer.ways[answer.decision.leader].name, "write");
    let page = text(&advice, &records);
    for said in [
        "soft0 (soft: numbers of this host, not of an adapter)",
        "messages of 32 B",
        "For low latency: median round trip of a run",
        "write is best; send takes 50 % longer (95 % interval 49 to 51 %)",
        "write 1.01 us; send 1.51 us (+50 %, +49 to +51 %); 12 runs of each",
        "not offered here: read (--op read: there is no READ here)",
    ] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    // The tails are alike.
    let advice = of(&records, "opcode", Goal::Predictability);
    assert_eq!(advice.answers[0].decision.outcome, Outcome::Alike);
    let page = text(&advice, &records);
    assert!(page.contains("no difference: send and write are alike, within 3 %"), "{page}");
    assert!(page.contains("2.01 x its median"), "{page}");
}

#[test]
fn programs_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let records = [opcodes(dir.path(), "a")];
    let document: Value = serde_json::from_str(&json(&all(&records))).unwrap();
    let found = document["answers"].as_array().unwrap();
    let asked: Vec<_> = found.iter().map(|a| (&a["question"], &a["goal"], &a["outcome"])).collect();
    let (opcode, best, same) = (json!("opcode"), json!("best"), json!("no difference"));
    let (latency, tail) = (json!("latency"), json!("predictability"));
    assert_eq!(asked, [(&opcode, &latency, &best), (&opcode, &tail, &same)]);
    assert_eq!(found[0]["chosen"], json!(["write"]));
    let ways = found[0]["ways"].as_array().unwrap();
    assert_eq!(
        (ways[0]["name"].as_str(), ways[1]["relation"].as_str()),
        (Some("send"), Some("leader"))
    );
    assert_eq!(ways[0]["of_runs"].as_array().unwrap().len(), 12);
    let ratio = &ways[0]["over_leader"];
    let number = |name: &str| ratio[name].as_f64().unwrap();
    assert!(number("low") > 1.48 && number("low") < number("high") && number("high") < 1.52);
    assert!(document["missing"].as_array().unwrap().len() > 6);
}

#[test]
fn ways_that_did_not_take_turns_are_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let alone = |op: &str| {
        let mut book = Book::new(dir.path(), op, None);
        (0..12).for_each(|round| book.add(round, &ping(op, "rc", 32), &trips(1000.0, 2000.0)));
        book.read()
    };
    let records = [alone("send"), alone("write")];
    let advice = of(&records, "opcode", Goal::Latency);
    assert!(advice.answers.is_empty(), "{advice:?}");
    let [missing] = advice.missing.as_slice() else { panic!("{advice:?}") };
    assert!(missing.why.contains("only --op, in turns"), "{missing:?}");
    assert!(missing.command.starts_with("rdmalab run ping --size 32 --op send,"), "{missing:?}");
    assert!(missing.command.contains(" --device soft0 --faults 'drop 1%' --"), "{missing:?}");
    assert!(missing.command.ends_with(" --repeat 12"), "{missing:?}");
}

#[test]
fn what_is_missing_is_measured_as_the_records_were() {
    let dir = tempfile::tempdir().unwrap();
    let asked = |line: &str, profile: Option<&str>| {
        let mut record = opcodes(dir.path(), line);
        record.header.command = line.split(' ').map(str::to_owned).collect();
        record.header.device.profile = profile.map(str::to_owned);
        of(&[record], "transport", Goal::Latency).missing[0].command.clone()
    };
    let line = "rdmalab run ping far --profile p.toml --cores 0,1";
    let command = asked(line, Some("mine"));
    assert!(command.starts_with("rdmalab run ping "), "{command}");
    let ends = " far --device soft0 --cores 0,1 --profile p.toml --repeat 12";
    assert!(command.ends_with(ends), "{command}");
    // With the variable only the profile's name is known. Without a profile the command names none.
    let command = asked("rdmalab run ping", Some("late-ack"));
    assert!(command.ends_with(" --device soft0 --profile late-ack --repeat 12"), "{command}");
    assert!(!asked("rdmalab run ping --size 8", None).contains("--profile"));
}

#[test]
fn records_of_other_ways_are_not_joined() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::new(dir.path(), "b", None);
    for round in 0..8 {
        for (op, time) in [("read", 500.0), ("send", 1000.0), ("write", 1500.0)] {
            book.add(round, &ping(op, "rc", 32), &trips(time + f64::from(round), 9000.0));
        }
    }
    let records = [opcodes(dir.path(), "a"), book.read()];
    let advice = of(&records, "opcode", Goal::Latency);
    let names: Vec<Vec<&str>> = advice
        .answers
        .iter()
        .map(|answer| answer.ways.iter().map(|way| way.name.as_str()).collect())
        .collect();
    assert_eq!(names, [vec!["send", "write"], vec!["send", "write", "read"]]);
    let runs: Vec<usize> = advice.answers.iter().map(|answer| answer.decision.runs).collect();
    assert_eq!(runs, [12, 8]);
}

#[test]
fn records_of_the_same_ways_are_one_and_of_other_conditions_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let two = |name: &str, condition, times: [f64; 2]| {
        let mut book = Book::new(dir.path(), name, condition);
        for round in 0..3 {
            let more = f64::from(round);
            book.add(round, &ping("send", "rc", 32), &trips(times[0] + more, 9000.0));
            book.add(round, &ping("write", "rc", 32), &trips(times[1] + more, 9000.0));
        }
        book.read()
    };
    let records = [two("a", None, [1000.0, 1500.0]), two("b", None, [1010.0, 1510.0])];
    let advice = of(&records, "opcode", Goal::Latency);
    assert_eq!((advice.answers.len(), advice.answers[0].decision.runs), (1, 6));
    assert_eq!(advice.answers[0].decision.outcome, Outcome::Best);
    // Three runs alone are too few. The suggested command repeats that of the record.
    let page = text(&of(&records[..1], "opcode", Goal::Latency), &records[..1]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("cannot tell: 3 runs of each, and it takes 4 at least"), "{page}");
    assert!(page.contains("rdmalab run ping --faults 'drop 1%' --repeat 12"), "{page}");
    let records = [two("c", None, [1000.0, 1500.0]), two("d", Some("loaded"), [1000.0, 1500.0])];
    assert_eq!(of(&records, "opcode", Goal::Latency).answers.len(), 2);
}

#[test]
fn what_else_differs_is_another_answer_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::new(dir.path(), "a", None);
    for round in 0..8 {
        for (op, transport, size, time) in [
            ("send", "rc", 32, 1000.0),
            ("write", "rc", 32, 2000.0),
            ("send", "uc", 32, 2000.0),
            ("write", "uc", 32, 1000.0),
        ] {
            let disturbed = time + f64::from(round);
            book.add(round, &ping(op, transport, size), &trips(disturbed, 9000.0));
        }
    }
    let records = [book.read()];
    let page = text(&of(&records, "opcode", Goal::Latency), &records);
    assert!(page.contains("at transport rc: send is best"), "{page}");
    assert!(page.contains("at transport uc: write is best"), "{page}");
    assert!(page.contains("low latency    ..."), "{page}");
    // The same runs answer another question as well.
    assert_eq!(of(&records, "transport", Goal::Latency).answers.len(), 2);
}

#[test]
fn a_run_that_was_cut_short_does_not_count_nor_does_its_round() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::new(dir.path(), "a", None);
    for round in 0..7 {
        book.add(round, &ping("send", "rc", 32), &trips(1000.0 + f64::from(round), 9000.0));
        let mut measured = trips(2000.0 + f64::from(round), 9000.0);
        measured.cut_short = (round == 3).then(|| "interrupted".to_owned());
        book.add(round, &ping("write", "rc", 32), &measured);
    }
    let advice = of(&[book.read()], "opcode", Goal::Latency);
    let answer = &advice.answers[0];
    assert_eq!((answer.decision.runs, answer.decision.outcome), (6, Outcome::Best));
    assert!(answer.ways.iter().all(|way| way.values.len() == 6), "{answer:?}");
}

#[test]
fn numbers_of_which_more_gain_nothing_are_the_least_and_losses_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let blast =
        |buffers: u64| json!({ "experiment": "blast", "buffers": buffers, "size_bytes": 32 });
    let mut book = Book::new(dir.path(), "a", None);
    for round in 0..10 {
        let by = 1.0 + f64::from(round) * 1e-3;
        for (buffers, rate) in [(16, 4e6), (1, 1e6), (4, 3.99e6), (64, 4e6)] {
            book.add(round, &blast(buffers), &flood(rate * by, 0));
        }
    }
    let records = [book.read()];
    let page = text(&of(&records, "buffers", Goal::Rate), &records);
    assert!(
        page.contains("4 is enough: 16 and 64 are alike, within 3 %; 1 reaches 75 % less"),
        "{page}"
    );
    // 1.5 processors for a million messages a second are 1.5 us per message.
    let page = text(&of(&records, "buffers", Goal::Cpu), &records);
    assert!(page.contains("1 1.49 us (x 4.0"), "{page}");
    let mut book = Book::new(dir.path(), "b", None);
    for round in 0..10 {
        let by = 1.0 + f64::from(round) * 1e-3;
        let at = |transport: &str| json!({ "experiment": "blast", "transport": transport });
        book.add(round, &at("rc"), &flood(1e6 * by, 0));
        book.add(round, &at("ud"), &flood(2e6 * by, 7));
    }
    let records = [book.read()];
    let page = text(&of(&records, "transport", Goal::Rate), &records);
    assert!(page.contains("ud is best, though it lost 70 of 50000 messages"), "{page}");
}

#[test]
fn inline_pays_up_to_a_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::new(dir.path(), "a", None);
    for round in 0..8 {
        for (size, on, off) in [(16, 900.0, 1000.0), (1024, 1000.0, 900.0), (128, 900.0, 1000.0)] {
            for (word, time) in [("on", on), ("off", off)] {
                let at = json!({ "experiment": "ping", "inline_bytes": word, "size_bytes": size });
                book.add(round, &at, &trips(time + f64::from(round), 9000.0));
            }
        }
    }
    let records = [book.read()];
    let page = text(&of(&records, "inline", Goal::Latency), &records);
    assert!(page.contains("over sizes: on pays up to 128 B; off is better at 1024 B"), "{page}");
    assert!(page.contains("low latency    on to 128 B"), "{page}");
    let order: Vec<usize> =
        ["at size 16", "at size 128", "at size 1 KiB"].map(|s| page.find(s).unwrap()).to_vec();
    assert!(order.is_sorted(), "{page}");
}

#[test]
fn runs_at_a_rate_tell_of_processor_time_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::new(dir.path(), "a", None);
    for round in 0..8 {
        for (word, share) in [("busy", 1.0), ("event", 0.1)] {
            let at = json!({
                "experiment": "ping", "poll_send": word, "poll_recv": word, "rate_per_s": 2000,
            });
            let mut measured = trips(1000.0, 9000.0);
            measured.push_figure(Quantity::Rate, "offered", 2100.0);
            measured.push_figure(Quantity::Rate, "achieved", 2000.0);
            measured.push_figure(Quantity::CpuShare, "rank 0", share);
            measured.push_figure(Quantity::CpuShare, "rank 1", share + f64::from(round) * 1e-4);
            book.add(round, &at, &measured);
        }
    }
    let records = [book.read()];
    let advice = all(&records);
    let [answer] = advice.answers.as_slice() else { panic!("{advice:?}") };
    assert_eq!((answer.question.key, answer.goal), ("polling", Goal::Cpu));
    let page = text(&advice, &records);
    assert!(page.contains("event is best; busy takes 10 times as much"), "{page}");
    assert!(page.contains("event 100 us; busy 1.00 ms"), "{page}");
}

/// Few samples give no p99. That does not make the other way the only one offered.
#[test]
fn a_way_whose_runs_have_no_such_number_is_not_one_that_is_not_offered() {
    let dir = tempfile::tempdir().unwrap();
    let mut book = Book::new(dir.path(), "a", None);
    for round in 0..12 {
        book.add(round, &ping("send", "rc", 32), &trips(1000.0, 3000.0));
        let mut few = Measured::default();
        few.push_series(Quantity::RoundTrip, "", 0, vec![1000.0; 20]);
        book.add(round, &ping("send", "ud", 32), &few);
    }
    let records = [book.read()];
    let found = of(&records, "transport", Goal::Predictability);
    let answer = &found.answers[0];
    assert_eq!(answer.without_number, ["ud"]);
    let said = text(&found, &records).replace('\n', " ").replace("  ", " ");
    assert!(said.contains("cannot tell: the runs of ud have no "), "{said}");
    assert!(!said.contains("only one that is offered"), "{said}");
}

/// Advice from fewer messages than usual, as a slow device needs, says so.
#[test]
fn runs_of_fewer_messages_than_usual_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let of_runs = |messages: u64, samples: usize| {
        let mut book = Book::new(dir.path(), &messages.to_string(), None);
        for round in 0..8 {
            for (op, time) in [("send", 1000.0), ("write", 1500.0)] {
                let mut parameters = ping(op, "rc", 32);
                parameters["messages"] = messages.into();
                let mut measured = trips(time + f64::from(round), 9000.0);
                measured.series[0].samples.truncate(samples);
                book.add(round, &parameters, &measured);
            }
        }
        [book.read()]
    };
    let short = of_runs(24, 24);
    let advice = of(&short, "opcode", Goal::Latency);
    assert_eq!(advice.answers[0].usual_messages, Some(2000));
    let page = text(&advice, &short).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("send is best"), "{page}");
    assert!(page.contains("8 runs of each; 24 messages a run instead of 2000"), "{page}");
    let document: Value = serde_json::from_str(&json(&advice)).unwrap();
    assert_eq!(document["answers"][0]["fewer_messages_than"], 2000);
    // With too few messages there is no p99; the advice says so, not that nothing was measured.
    let advice = of(&short, "opcode", Goal::Predictability);
    let [missing] = advice.missing.as_slice() else { panic!("{advice:?}") };
    assert!(missing.why.contains("have no p99 of the round trips"), "{missing:?}");
    assert!(missing.why.contains("raise --messages"), "{missing:?}");
    let whole = of_runs(2000, 2000);
    assert_eq!(of(&whole, "opcode", Goal::Latency).answers[0].usual_messages, None);
}
