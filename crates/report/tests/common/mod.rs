//! Made-up records, which a seed makes the same each time.

#![allow(dead_code)] // Each test uses a part.

use std::time::{Duration, SystemTime};

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_random::Random;
use rdmalab_record::{
    ClockFacts, Device, DeviceKind, Environment, Header, Object, PointId, Record, Skipped, Writer,
};
use serde_json::json;
use tempfile::TempDir;

/// A latency: a minimum, a small random part, and sometimes an interrupt.
pub fn latency(random: &mut Random, floor_ns: f64) -> f64 {
    let mut ln = || random.unit_above_0().ln();
    let near = floor_ns * (1.0 - 0.08 * ln());
    if ln() < 0.002f64.ln() { near + 4000.0 * (1.0 - ln()) } else { near }
}

pub fn environment(kernel: &str) -> Environment {
    Environment {
        kernel: Some(kernel.to_owned()),
        cpu_model: Some("Example Processor 9000 @ 2.70GHz".to_owned()),
        is_hypervisor_guest: Some(true),
        cpus_online: Some("0-1".to_owned()),
        memory_bytes: Some(67_383_132_160),
        transparent_huge_pages: Some("always [madvise] never".to_owned()),
        kernel_arguments: [("isolcpus".to_owned(), "1".to_owned())].into(),
        numa_nodes: [("0".to_owned(), "0-1".to_owned())].into(),
        clock: Some(ClockFacts {
            source: "fenced TSC".to_owned(),
            fallback_reason: None,
            stamp_cost_ns: 14.25,
            relative_error: 1.3e-6,
        }),
        ..Environment::default()
    }
}

pub fn header(experiment: &str, kind: DeviceKind, command: &[&str]) -> Header {
    let name = match kind {
        DeviceKind::System => "mlx5_0",
        DeviceKind::Soft => "soft0",
        DeviceKind::Sim => "sim:connectx4",
    };
    let device = Device { name: name.to_owned(), kind, profile: None };
    let command = command.iter().map(|a| (*a).to_owned()).collect();
    Header {
        program_version: "0.1.0".to_owned(),
        started_utc: "2026-01-31T12:00:00.000Z".to_owned(),
        seed: 7,
        ..Header::new(experiment, command, device)
    }
}

pub fn id(parameters: Object, order_index: u64, repetition: u32) -> PointId {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_860_800 + order_index);
    PointId { parameters, repetition, order_index, started, elapsed: Duration::from_millis(250) }
}

pub fn object(value: serde_json::Value) -> Object {
    value.as_object().unwrap().clone()
}

/// Round trips over sizes and operations, two runs each, in no order.
pub fn ping(n: usize, sizes: &[u64]) -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let mut header = header(
        "ping",
        DeviceKind::Soft,
        &["rdmalab", "run", "ping", "--size", "8..32K*4", "--op", "send,write", "--runs", "2"],
    );
    header.planned_points = sizes.len() as u64 * 4 + 1;
    let mut writer =
        Writer::create_at(&dir.path().join("r"), header, &environment("6.1.0")).unwrap();
    let mut random = Random::new(1);
    let mut order = 0;
    for repetition in 0..2 {
        for size in sizes.iter().rev() {
            for (op, base) in [("write", 420.0), ("send", 510.0)] {
                let parameters = object(json!({
                    "transport": "rc", "op": op, "size_bytes": size, "messages": n,
                    "poll_send": "busy", "poll_recv": "busy",
                }));
                let floor = base + *size as f64 * 0.09;
                let samples = (0..n + 100).map(|_| latency(&mut random, floor)).collect();
                let mut outcome = Outcome::default();
                outcome.push_series(Quantity::HalfRoundTrip, "", 100, samples);
                outcome.push_fact("placement", if op == "write" { "lane" } else { "ring" });
                outcome.push_fact("inline_bytes", size.min(&220));
                outcome.push_fact("device", "soft0");
                let cost = 14.0 + (order % 8) as f64 / 4.0;
                outcome.push_fact("stamp_cost_ns", format!("{cost:.1}"));
                if *size > 220 {
                    let text = "inline was not granted: 220 bytes is the most";
                    outcome.warnings.push(text.to_owned());
                }
                writer.append(&id(parameters, order, repetition), &outcome).unwrap();
                order += 1;
            }
        }
    }
    let parameters = object(json!({
        "transport": "ud", "op": "write", "size_bytes": 8, "messages": n,
        "poll_send": "busy", "poll_recv": "busy",
    }));
    let reason = "UD has no WRITE: choose rc or uc".to_owned();
    writer.skip(&Skipped { order_index: order, repetition: 0, parameters, reason }).unwrap();
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

/// Messages at the highest rate, over numbers of buffers, for a few sizes.
pub fn blast() -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let mut header = header(
        "blast",
        DeviceKind::System,
        &["rdmalab", "run", "blast", "--buffers", "1..256*2", "--size", "64,4096"],
    );
    header.planned_points = 18;
    let mut writer =
        Writer::create_at(&dir.path().join("r"), header, &environment("6.1.0")).unwrap();
    for (order, step) in (0..18u64).enumerate() {
        let (size, buffers) = (if step % 2 == 0 { 64 } else { 4096 }, 1u64 << (step / 2));
        let b = buffers as f64;
        let rate = 9.4e6 * b / (b + 6.0) / if size == 64 { 1.0 } else { 3.0 };
        let mut outcome = Outcome::default();
        outcome.push_figure(Quantity::Rate, "", rate);
        outcome.push_figure(Quantity::Bandwidth, "", rate * size as f64);
        outcome.push_figure(Quantity::CpuShare, "rank 0", 0.97);
        outcome.push_figure(Quantity::CpuShare, "rank 1", 0.35 + 0.5 * b / (b + 20.0));
        outcome.push_count("received", 1_000_000);
        outcome.push_fact("placement", "wire");
        let parameters = object(json!({
            "transport": "rc", "op": "send", "size_bytes": size, "buffers": buffers,
        }));
        writer.append(&id(parameters, order as u64, 0), &outcome).unwrap();
    }
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

/// One point with all defects: few samples, lost and negative ones, a slow clock.
pub fn poor() -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let mut header = header("oneway", DeviceKind::Sim, &["rdmalab", "run", "oneway", "-n", "40"]);
    header.planned_points = 3;
    let mut environment = environment("6.1.0 <&> \"odd\"");
    environment.clock.as_mut().unwrap().fallback_reason =
        Some("the processor has no invariant counter".to_owned());
    let mut writer = Writer::create_at(&dir.path().join("r"), header, &environment).unwrap();
    let mut outcome = Outcome::default();
    let mut samples: Vec<f64> = (0..40).map(|i| f64::from(i / 4 * 100) - 150.0).collect();
    samples[7] = f64::NAN;
    outcome.push_series(Quantity::OneWay, "t_recv <x>", 0, samples);
    outcome.push_series(Quantity::PostCost, "t_subm", 0, vec![f64::NAN; 3]);
    outcome.cut_short = Some("interrupted".to_owned());
    let parameters = object(json!({ "transport": "ud", "note": "a <b> & \"c\"" }));
    writer.append(&id(parameters, 0, 0), &outcome).unwrap();
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

/// The same with a capture, which `rdmalab run odp --device sim:connectx4 --fault server
/// --operations 2 --interval 2ms --timeout 1 --runs 1 --capture FILE` made.
pub fn captured() -> (TempDir, Record) {
    let (dir, record) = poor();
    let writer = Writer::resume(&record).unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/damming.pcapng");
    assert!(writer.keep_capture(file.as_ref()).unwrap());
    (dir, record)
}

/// Parameters with categories only, so there is no axis for a line.
pub fn words() -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let header = header("ping", DeviceKind::Soft, &["rdmalab", "run", "ping"]);
    let mut writer = Writer::create_at(&dir.path().join("r"), header, &Environment::default());
    let writer = writer.as_mut().unwrap();
    let mut random = Random::new(3);
    let cells = [("rc", "send", 500.0), ("rc", "write", 410.0), ("uc", "send", 480.0)];
    for (i, (transport, op, floor)) in cells.into_iter().enumerate() {
        let mut outcome = Outcome::default();
        let samples = (0..3000).map(|_| latency(&mut random, floor)).collect();
        outcome.push_series(Quantity::RoundTrip, "", 0, samples);
        outcome.push_figure(Quantity::CpuShare, "rank 0", 0.9 - 0.1 * i as f64);
        let parameters = object(json!({ "transport": transport, "op": op, "size_bytes": 64 }));
        writer.append(&id(parameters, i as u64, 0), &outcome).unwrap();
    }
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

/// Two numeric parameters that vary: a map.
pub fn grid() -> (TempDir, Record) {
    grid_that_missed(|_| None)
}

/// The same, with the share of ticks that each point missed, by its size.
pub fn grid_that_missed(missed: impl Fn(u64) -> Option<f64>) -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let header = header("blast", DeviceKind::Soft, &["rdmalab", "run", "blast"]);
    let mut writer = Writer::create_at(&dir.path().join("r"), header, &environment("6.1.0"));
    let writer = writer.as_mut().unwrap();
    let mut random = Random::new(5);
    let cells = [64u64, 512, 4096].into_iter();
    let cells = cells.flat_map(|size| [1u64, 2, 4, 8].map(|buffers| (size, buffers)));
    for (i, (size, buffers)) in cells.enumerate() {
        let floor = 300.0 + size as f64 / 4.0 / buffers as f64;
        let mut outcome = Outcome::default();
        let samples = (0..500).map(|_| latency(&mut random, floor)).collect();
        outcome.push_series(Quantity::MessageTime, "runs", 0, samples);
        outcome.push_figure(Quantity::Rate, "", 1e9 / floor);
        if let Some(share) = missed(size) {
            outcome.push_figure(Quantity::MissedShare, "", share);
        }
        let parameters = object(json!({ "op": "send", "size_bytes": size, "buffers": buffers }));
        writer.append(&id(parameters, i as u64, 0), &outcome).unwrap();
    }
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

/// The page of a study with three claims: confirmed, refuted, and undecidable.
pub fn study() -> String {
    study_beside(&[])
}

/// As [`study`], with runs under other conditions: the name and the number of messages of each.
pub fn study_beside(others: &[(&str, usize)]) -> String {
    use rdmalab_study::{Study, SweepResult, SweepState, evaluate};
    let plan = "key='s'\ntitle='A study'\nsource='Somebody, 1999'\nhardware='An adapter'\n\
                [[figure]]\nkey='1'\ntitle='Sizes'\nnote='A note.'\n[[figure.sweep]]\nrun='ping'\n\
                [[figure]]\nkey='2'\ntitle='Odd'\n[[figure.sweep]]\nname='odd'\nrun='odd'\n";
    let rows = "metric,value,unit,tolerance,kind,place,what\na,500,ns,5%,calibration,p. 1,SEND\n\
                b,~9,us,,contested,p. 2,something else\n\
                c,~400,ns,,contested,p. 3,WRITE\nd,3.5,us,,context,p. 3,the tail\n";
    let side = "left = { figure = '1', quantity = 'half_round_trip_ns', where = { op='write' } }\n\
                right = { where = { op = 'send' } }\nsource = 'p. 1'\n";
    let claims = format!(
        "[[claim]]\nkey='a'\nsays='A WRITE is faster.'\nrelation='<'\n{side}\
         [[claim]]\nkey='b'\nsays='A WRITE is slower.'\nrelation='>'\n{side}\
         [[claim]]\nkey='c'\nsays='Odd.'\nrelation='<'\nright={{ value = 1 }}\nsource='p. 3'\n\
         left={{ figure='2', quantity='rate_per_s' }}\n\
         [[value]]\nmetric='a'\nours={{ figure='1', quantity='half_round_trip_ns',\
         where={{ op='send', size_bytes=512 }} }}\n\
         [[value]]\nmetric='c'\nours={{ figure='1', quantity='half_round_trip_ns',\
         where={{ op='write', size_bytes=8 }} }}\n\
         [[value]]\nmetric='d'\nours={{ figure='1', quantity='half_round_trip_ns',\
         stat='p99', where={{ op='write' }} }}\n"
    );
    let study = Study::parse("s", plan, rows, &claims).unwrap();
    let (_dir, record) = ping(2000, &[8, 512, 32768]);
    let part = |figure: &str, sweep: &str, state| SweepResult {
        figure: figure.to_owned(),
        sweep: sweep.to_owned(),
        line: ["rdmalab", "run", "ping", "--size", "8..32K*2"].map(str::to_owned).to_vec(),
        state,
    };
    let parts = [
        part("1", "", SweepState::Measured(Box::new(record))),
        part("2", "odd", SweepState::Missing("there is no experiment odd yet".to_owned())),
    ];
    let evaluation = evaluate(&study, &parts);
    let beside = others.iter().map(|(name, n)| {
        let (_dir, record) = ping(*n, &[8, 512, 32768]);
        let parts = vec![part("1", "", SweepState::Measured(Box::new(record)))];
        let evaluation = evaluate(&study, &parts);
        rdmalab_report::OtherCondition { name: (*name).to_owned(), parts, evaluation }
    });
    let beside: Vec<_> = beside.collect();
    rdmalab_report::study_page(&study, &parts, &evaluation, &beside)
}

/// The page of a study with one figure, drawn as `figure` says from this record.
pub fn study_of(record: Record, figure: &str) -> String {
    let (study, parts) = one_figure(record, figure, "", "");
    let evaluation = rdmalab_study::evaluate(&study, &parts);
    rdmalab_report::study_page(&study, &parts, &evaluation, &[])
}

/// A study with one figure and this record, published values (`rows`), and the numbers of ours to
/// compare with them (`values`).
pub fn one_figure(
    record: Record,
    figure: &str,
    rows: &str,
    values: &str,
) -> (rdmalab_study::Study, Vec<rdmalab_study::SweepResult>) {
    use rdmalab_study::{Study, SweepResult, SweepState};
    let plan = format!(
        "key='s'\ntitle='T'\nsource='S'\nhardware='H'\n[[figure]]\nkey='f'\ntitle='F'\n\
         {figure}\n[[figure.sweep]]\nrun='ping'\n"
    );
    let head = "metric,value,unit,tolerance,kind,place,what\n";
    let study = Study::parse("s", &plan, &format!("{head}{rows}"), values).unwrap();
    let state = SweepState::Measured(Box::new(record));
    let line = vec!["rdmalab".to_owned()];
    let part = SweepResult { figure: "f".to_owned(), sweep: String::new(), line, state };
    (study, vec![part])
}

/// An entry that names our number for a published value.
pub fn value(metric: &str, more: &str) -> String {
    format!("[[value]]\nmetric='{metric}'\nours.figure='f'\n{more}\n")
}

/// The page of a study of one figure with published values.
pub fn page_with(record: Record, rows: &str, values: &str) -> String {
    let (study, parts) = one_figure(record, "", rows, values);
    rdmalab_report::study_page(&study, &parts, &rdmalab_study::evaluate(&study, &parts), &[])
}

/// Published values of round trips.
pub const PRINTED: &str = "a,0.45,us,5%,calibration,p. 1,the usual\n\
                    b,0.6,us,5%,context,p. 2,ninety of a hundred\n\
                    c,0.9,us,,contested,p. 3,the worst\n\
                    d,44,us,,context,p. 4,another machine\n\
                    e,2,%,,calibration,p. 5,above 600 ns\n\
                    f,28,%,,calibration,p. 6,what it saves\n";

/// The entries that name our numbers for [`PRINTED`], in the record of [`words`].
pub fn printed_of_round_trips() -> String {
    let side = "ours.quantity='round_trip_ns'\nours.where={ transport='rc', op='send' }\n";
    [
        value("a", side),
        value("b", &format!("{side}ours.stat='p90'")),
        value("c", &format!("{side}ours.stat='max'")),
        value("d", &format!("{side}ours.stat='p99'")),
        value("e", &format!("{side}ours.above=600")),
        value("f", &format!("{side}over={{ where={{ op='write' }} }}\nas='reduction'")),
    ]
    .concat()
}

/// The page of a study whose figure shows two sweeps side by side.
pub fn study_of_two(sweeps: [(&str, Record); 2]) -> String {
    use rdmalab_study::{Study, SweepResult, SweepState, evaluate};
    let [a, b] = [0, 1].map(|i| sweeps[i].0);
    let plan = format!(
        "key='s'\ntitle='T'\nsource='S'\nhardware='H'\n[[figure]]\nkey='f'\ntitle='F'\n\
         side_by_side=['{a}','{b}']\n[[figure.sweep]]\nname='{a}'\nrun='ping'\n\
         [[figure.sweep]]\nname='{b}'\nrun='ping'\n"
    );
    let head = "metric,value,unit,tolerance,kind,place,what\n";
    let study = Study::parse("s", &plan, head, "").unwrap();
    let parts = sweeps.map(|(name, record)| SweepResult {
        figure: "f".to_owned(),
        sweep: name.to_owned(),
        line: vec!["rdmalab".to_owned()],
        state: SweepState::Measured(Box::new(record)),
    });
    rdmalab_report::study_page(&study, &parts, &evaluate(&study, &parts), &[])
}

/// Round trips per peer, for increasing numbers of peers.
pub fn fan(peers: u64) -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let header = header("fan", DeviceKind::Soft, &["rdmalab", "run", "fan"]);
    let mut writer = Writer::create_at(&dir.path().join("r"), header, &environment("6.1.0"));
    let writer = writer.as_mut().unwrap();
    let mut random = Random::new(11);
    for (order, (n, transport)) in
        (1..=peers).flat_map(|n| ["rc", "ud"].map(|transport| (n, transport))).enumerate()
    {
        let mut outcome = Outcome::default();
        for peer in 1..=n {
            let floor = 500.0 + 20.0 * peer as f64;
            let samples = (0..60).map(|_| latency(&mut random, floor)).collect();
            outcome.push_series(Quantity::RoundTrip, &format!("peer {peer}"), 0, samples);
        }
        let parameters = object(json!({ "transport": transport, "peers": n }));
        writer.append(&id(parameters, order as u64, 0), &outcome).unwrap();
    }
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}

/// Round trips in which the 30th and 31st of every 32 take longer.
pub fn patterned() -> (TempDir, Record) {
    let dir = tempfile::tempdir().unwrap();
    let header = header("recvq", DeviceKind::Soft, &["rdmalab", "run", "recvq"]);
    let mut writer = Writer::create_at(&dir.path().join("r"), header, &environment("6.1.0"));
    let writer = writer.as_mut().unwrap();
    let mut random = Random::new(9);
    let sample = |i: usize| latency(&mut random, if i % 32 >= 30 { 4000.0 } else { 3000.0 });
    let mut outcome = Outcome::default();
    outcome.push_series(Quantity::RoundTrip, "rank 0", 100, (0..4100).map(sample).collect());
    outcome.push_fact("pattern_rank_0", "every 32");
    let parameters = object(json!({ "queue": "srq", "rx_depth": 32 }));
    writer.append(&id(parameters, 0, 0), &outcome).unwrap();
    let record = Record::open(writer.dir()).unwrap();
    (dir, record)
}
