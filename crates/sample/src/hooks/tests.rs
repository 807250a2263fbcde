use serde_json::json;

use super::*;
use crate::hook::Verdict;
use crate::pool::{Handle, Pool};
use crate::timestamp::Timestamp;
use crate::value::{Complex, Value};

/// A hook with the samples that go through it.
struct Bench {
    hook: Box<dyn Hook>,
    signals: Vec<Signal>,
    pool: Pool,
    sample: Handle,
    now: Timestamp,
}

impl Bench {
    fn new(options: serde_json::Value, types: &str) -> Self {
        let mut signals = Signal::list(types).unwrap();
        let options: HookOptions = serde_json::from_value(options).unwrap();
        let hook = options.build(&mut signals).unwrap();
        let mut pool = Pool::new(1, 4);
        let sample = pool.take().unwrap();
        Self { hook, signals, pool, sample, now: Timestamp::new(50, 0) }
    }

    /// Sends a sample and tells whether it passed.
    fn send(&mut self, sequence: u64, origin_ns: i128, values: &[Value]) -> bool {
        let mut sample = self.pool.get_mut(&mut self.sample);
        sample.clear();
        sample.set_sequence(sequence);
        sample.set_origin(Timestamp::from_ns(origin_ns));
        sample.set_received(Timestamp::from_ns(origin_ns + 100));
        values.iter().for_each(|value| assert!(sample.push(*value)));
        let now = self.now;
        self.hook.process(&mut sample, &|| now).unwrap() == Verdict::Pass
    }

    fn values(&self) -> Vec<Value> {
        self.pool.get(&self.sample).values().collect()
    }

    fn floats(&self) -> Vec<f64> {
        self.values().into_iter().map(Value::float).collect()
    }

    /// Which of these sequence numbers pass, a millisecond after each other.
    fn passing(&mut self, sequences: &[u64]) -> Vec<u64> {
        let mut passed = Vec::new();
        for (i, sequence) in sequences.iter().enumerate() {
            self.now = Timestamp::from_ns(i as i128 * 1_000_000);
            if self.send(*sequence, i as i128 * 1_000_000, &[]) {
                passed.push(*sequence);
            }
        }
        passed
    }
}

fn refused(options: serde_json::Value, types: &str) -> String {
    let options: HookOptions = match serde_json::from_value(options) {
        Ok(options) => options,
        Err(error) => return error.to_string(),
    };
    match options.build(&mut Signal::list(types).unwrap()) {
        Ok(_) => panic!("an option should be refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_name_is_a_hook() {
    for name in HookOptions::NAMES {
        let options = serde_json::from_value::<HookOptions>(json!({ "type": name }));
        assert!(options.is_ok(), "{name}: {options:?}");
    }
    for (name, key) in [
        ("average", "offset"),
        ("decimate", "ratio"),
        ("limit_rate", "rate"),
        ("limit_value", "min"),
        ("shift_seq", "offset"),
        ("shift_ts", "offset"),
    ] {
        assert_eq!(refused(json!({ "type": name }), "f"), format!("`{key}` must be given"));
    }
    for name in ["decimate", "ts"] {
        let error = refused(json!({"type": name, "x": 1}), "f");
        assert!(error.contains("unknown field `x`"), "{error}");
    }
}

#[test]
fn ts_takes_the_time_of_arrival_or_now() {
    let mut bench = Bench::new(json!({"type": "ts"}), "f");
    assert!(bench.send(0, 1000, &[]));
    assert_eq!(bench.pool.get(&bench.sample).origin(), Some(Timestamp::from_ns(1100)));
    let mut sample = bench.pool.get_mut(&mut bench.sample);
    sample.clear();
    let now = bench.now;
    bench.hook.process(&mut sample, &|| now).unwrap();
    assert_eq!(sample.as_ref().origin(), Some(now));
}

#[test]
fn shift_ts_moves_one_time() {
    let mut bench = Bench::new(json!({"type": "shift_ts", "offset": -0.5}), "f");
    assert!(bench.send(0, 1_000_000_000, &[]));
    let sample = bench.pool.get(&bench.sample);
    assert_eq!(sample.origin(), Some(Timestamp::from_ns(500_000_000)));
    assert_eq!(sample.received(), Some(Timestamp::from_ns(1_000_000_100)));
    let options = json!({"type": "shift_ts", "mode": "received", "offset": 1e-9});
    let mut bench = Bench::new(options, "f");
    assert!(bench.send(0, 1_000_000_000, &[]));
    assert_eq!(bench.pool.get(&bench.sample).offset_ns(), Some(101));
}

#[test]
fn shift_seq_adds_and_wraps() {
    let mut bench = Bench::new(json!({"type": "shift_seq", "offset": -2}), "f");
    assert!(bench.send(1, 0, &[]));
    assert_eq!(bench.pool.get(&bench.sample).sequence(), Some(u64::MAX));
}

#[test]
fn scale_treats_each_kind() {
    let options =
        json!({"type": "scale", "signals": [0, 1, 2, "signal3"], "scale": 2.5, "offset": -1});
    let mut bench = Bench::new(options, "fibc");
    let complex = Complex { real: 2.0, imaginary: 4.0 };
    let values = [
        Value::from_float(2.0),
        Value::from_integer(3),
        Value::from_boolean(true),
        Value::from_complex(complex),
    ];
    assert!(bench.send(0, 0, &values));
    let out = bench.values();
    assert_eq!((out[0].float(), out[1].integer(), out[2].boolean()), (4.0, 6, true));
    assert_eq!(out[3].complex(), Complex { real: 4.0, imaginary: 10.0 });
    assert!(bench.send(0, 0, &values[..1]), "a sample may have fewer values");
    let error = refused(json!({"type": "scale", "signal": "x"}), "2f");
    assert!(error.contains("`x` is none of signal0, signal1"), "{error}");
    let error = refused(json!({"type": "scale", "signal": 2}), "2f");
    assert!(error.contains("2: there are 2 signals"), "{error}");
    assert!(refused(json!({"type": "scale"}), "2f").contains("must name a signal"));
}

#[test]
fn cast_changes_signals_and_values() {
    let options = json!({
        "type": "cast", "signal": "signal1",
        "new_type": "integer", "new_name": "n", "new_unit": "V",
    });
    let mut bench = Bench::new(options, "2f");
    let Signal { name, unit, kind, .. } = &bench.signals[1];
    assert_eq!((name.as_str(), unit.as_str(), kind.name()), ("n", "V", "integer"));
    assert!(bench.send(0, 0, &[Value::from_float(1.5), Value::from_float(-2.9)]));
    let out = bench.values();
    assert_eq!((out[0].float(), out[1].integer()), (1.5, -2));
}

#[test]
fn decimate_passes_the_first_of_each_group() {
    let mut bench = Bench::new(json!({"type": "decimate", "ratio": 3}), "f");
    assert_eq!(bench.passing(&[0, 1, 2, 3, 4, 5, 6]), [0, 3, 6]);
    bench.hook.restart();
    assert_eq!(bench.passing(&[7, 8]), [7]);
    let mut bench = Bench::new(json!({"type": "decimate", "ratio": 3, "renumber": true}), "f");
    assert!(bench.send(9, 0, &[]));
    assert_eq!(bench.pool.get(&bench.sample).sequence(), Some(3));
    assert!(refused(json!({"type": "decimate", "ratio": 0}), "f").contains("at least 1"));
}

#[test]
fn limit_rate_keeps_the_distance() {
    for mode in ["local", "origin", "received"] {
        let options = json!({"type": "limit_rate", "rate": 400, "mode": mode});
        assert_eq!(Bench::new(options, "f").passing(&[0, 1, 2, 3, 4, 5, 6]), [0, 3, 6], "{mode}");
    }
    let options = json!({"type": "limit_rate", "rate": 500});
    assert_eq!(Bench::new(options, "f").passing(&[0, 1, 2, 3, 4]), [0, 2, 4]);
    assert!(refused(json!({"type": "limit_rate", "rate": 0}), "f").contains("above 0"));
}

#[test]
fn skip_first_skips_by_number_or_time() {
    let mut bench = Bench::new(json!({"type": "skip_first", "samples": 3}), "f");
    assert_eq!(bench.passing(&[10, 11, 14, 15]), [14, 15]);
    let mut bench = Bench::new(json!({"type": "skip_first", "seconds": 0.0025}), "f");
    assert_eq!(bench.passing(&[0, 1, 2, 3, 4]), [3, 4]);
    bench.hook.restart();
    assert_eq!(bench.passing(&[0, 1, 2, 3]), [3]);
    assert!(refused(json!({"type": "skip_first"}), "f").contains("one only"));
    let both = json!({"type": "skip_first", "samples": 1, "seconds": 1.0});
    assert!(refused(both, "f").contains("one only"));
}

#[test]
fn average_is_inserted() {
    let options = json!({"type": "average", "offset": 1, "signals": ["signal0", "signal1"]});
    let mut bench = Bench::new(options.clone(), "3f");
    assert_eq!((bench.signals.len(), bench.signals[1].name.as_str()), (4, "average"));
    assert!(bench.send(0, 0, &[1.0, 4.0, 9.0].map(Value::from_float)));
    assert_eq!(bench.floats(), [1.0, 2.5, 4.0, 9.0]);
    let mut bench = Bench::new(options.clone(), "4f");
    let mut sample = bench.pool.get_mut(&mut bench.sample);
    (0..4).for_each(|_| assert!(sample.push(Value::default())));
    assert!(bench.hook.process(&mut sample, &Timestamp::default).is_err(), "no room");
    assert!(refused(options.clone(), "fb").contains("`signal1` is boolean"));
    let far = json!({"type": "average", "offset": 3, "signal": 0});
    assert!(refused(far, "2f").contains("at most the number of signals, 2"));
}

#[test]
fn drop_drops_what_is_not_newer() {
    let mut bench = Bench::new(json!({"type": "drop"}), "f");
    assert_eq!(bench.passing(&[5, 5, 4, 6, 9, 8, 10]), [5, 6, 9, 10]);
    bench.hook.restart();
    assert_eq!(bench.passing(&[u64::MAX, 0, u64::MAX, 1]), [u64::MAX, 0, 1]);
}

#[test]
fn limits_move_values_into_the_range() {
    let options = json!({"type": "limit_value", "signals": [0, 1], "min": -1.5, "max": 2.5});
    let mut bench = Bench::new(options, "fi");
    assert!(bench.send(0, 0, &[Value::from_float(7.0), Value::from_integer(-9)]));
    assert_eq!((bench.values()[0].float(), bench.values()[1].integer()), (2.5, -1));
    assert!(bench.send(0, 0, &[Value::from_float(f64::NAN), Value::from_integer(i64::MAX)]));
    assert!(bench.floats()[0].is_nan() && bench.values()[1].integer() == 2);
    let empty = json!({"type": "limit_value", "signal": 0, "min": 2, "max": 1});
    assert!(refused(empty, "f").contains("above `max`"));
    let no_number = json!({"type": "limit_value", "signal": 0, "min": 0, "max": 1});
    assert!(refused(no_number, "c").contains("is complex"));
}

#[test]
fn round_leaves_the_decimals_asked_for() {
    let options = json!({"type": "round", "signals": [0, 1, 2], "precision": 2});
    let mut bench = Bench::new(options, "fci");
    let complex = Complex { real: 0.126, imaginary: -0.126 };
    let values = [Value::from_float(1.005_1), Value::from_complex(complex), Value::from_integer(7)];
    assert!(bench.send(0, 0, &values));
    assert_eq!((bench.floats()[0], bench.values()[2].integer()), (1.01, 7));
    assert_eq!(bench.values()[1].complex(), Complex { real: 0.13, imaginary: -0.13 });
    assert!(bench.send(0, 0, &[Value::from_float(f64::MAX)]));
    assert_eq!(bench.floats(), [f64::MAX]);
}

#[test]
fn print_writes_text_with_a_prefix() {
    let options =
        json!({"type": "print", "prefix": "> ", "format": {"type": "csv", "offset": false}});
    let mut bench = Bench::new(options, "i");
    assert!(bench.send(1, 2, &[Value::from_integer(3)]));
    assert_eq!(bench.hook.take_text(false), b"> 0,000000002,1,3\n");
    assert_eq!(bench.hook.take_text(true), b"");
    let options = json!({"type": "print", "prefix": "> ", "format": "csv", "output": "file"});
    let mut bench = Bench::new(options, "i");
    assert!(bench.send(1, 2, &[]) && bench.send(2, 2, &[]));
    let text = bench.hook.take_text(false);
    let lines = "> 0,000000002,0.000000100,1\n> 0,000000002,0.000000100,2\n";
    let file = format!("# secs,nsecs,offset,sequence,signal0\n{lines}");
    assert_eq!(String::from_utf8(text).unwrap(), file);
    let error = refused(json!({"type": "print", "format": "xml"}), "i");
    assert!(error.contains("`xml` is none of villas.binary"), "{error}");
    let format = json!({"type": "csv", "separator": "ab"});
    let error = refused(json!({"type": "print", "format": format}), "i");
    assert!(error.contains("expected a character"), "{error}");
}

#[test]
fn stats_count_and_measure() {
    let mut bench = Bench::new(json!({"type": "stats", "format": "json", "warmup": 500}), "f");
    let passed = bench.passing(&[1, 2, 5, 4, 5, 6]);
    assert_eq!(passed.len(), 6);
    let text = bench.hook.take_text(true);
    let statistics: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for (name, count) in [("samples", 6), ("missing", 1), ("duplicate", 1), ("reordered", 1)] {
        assert_eq!(statistics[name], count, "{name}");
    }
    assert_eq!((&statistics["owd"]["total"], &statistics["owd"]["p99"]), (&json!(6), &json!(1e-7)));
    assert_eq!(statistics["gap_sent"]["mean"], json!(1e-3));
    assert_eq!(statistics["gap_sent"]["stddev"], json!(0.0));
    let mut bench = Bench::new(json!({"type": "stats"}), "f");
    bench.send(1, 0, &[]);
    let text = String::from_utf8(bench.hook.take_text(true)).unwrap();
    assert!(text.contains("owd: 1 values, last 0.100 us"), "{text}");
    assert!(text.ends_with("samples 1, missing 0, duplicate 0, reordered 0\n"), "{text}");
}
