//! Types that are declared once: what is read, what is wrong, the schema, and corrected files.

use rdmalab_config::{
    At, BySerde, Named, OneOrMany, Value, fixed, group, one_of, parse, read, schema, tagged,
};

one_of! {
    /// How to wait.
    pub enum Mode {
        /// Spins.
        Polling = "polling" | "spin";
        /// Sleeps.
        Pthread = "pthread";
    }
    refused { "eventfd" => "use pthread"; }
}

group! {
    /// What all nodes have.
    pub struct Common {
        /// Whether it takes part.
        enabled: bool = true;
    }
    ignored { uuid: "names say which node is meant"; }
}

group! {
    /// One end of a queue.
    pub struct End {
        /// Its name.
        name: String;
        /// Samples at once.
        vectorize: u32 = 1, in 1..=64;
    }
    refused { netem: "disturb the link of the device"; }
}

group! {
    /// A queue.
    pub struct Queue with (common: Common) {
        /// Its entries.
        queuelen: u16 = 512, in 1..=65_535;
        /// How its reader waits.
        mode: Mode = Mode::Pthread;
        /// Where samples come from.
        r#in: End;
        /// Where they go.
        out: Option<End>;
    }
    stale {
        polling => mode { "true" => "\"polling\"", "false" => "\"pthread\"" };
        queue_length => queuelen;
    }
}

group! {
    /// A generator.
    pub struct Signal with (common: Common) {
        /// Ticks a second.
        rate: f64 = 10.0, in 0.1..=1e6;
        /// Amplitudes.
        amplitude: OneOrMany<f64> = OneOrMany(vec![1.0]), in 0..=100;
    }
}

tagged! {
    /// A node.
    pub enum Node by "type" {
        /// Shared memory.
        Queue(Queue) = "queue";
        /// Values that we make.
        Signal(Signal) = "signal";
    }
    refused { "mqtt" => "use a queue"; }
}

group! {
    /// A file.
    pub struct File {
        /// Nodes by name.
        nodes: Named<Node>;
        /// Anything.
        extra: Option<At<Value>>;
    }
}

fn errors(text: &str) -> Vec<String> {
    let tree = parse("a.conf", text).expect("the syntax is right");
    let errors = read::<File>(&tree).map(|_| ()).expect_err(text);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_right_file_is_read_with_its_defaults() {
    let text = "nodes = { a = { type = \"queue\", uuid = \"1\", in = { name = \"x\" } }
        b = \"signal\", c = { type = \"signal\", amplitude = [1, 2.5], rate = 5 } }";
    let (file, notices) = read::<File>(&parse("a.conf", text).unwrap()).unwrap();
    let names: Vec<&str> = file.nodes.0.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let nodes: Vec<&Node> = file.nodes.0.iter().map(|(_, node)| node).collect();
    let [Node::Queue(a), Node::Signal(b), Node::Signal(c)] = nodes.as_slice() else {
        panic!("{nodes:?}");
    };
    assert_eq!((a.queuelen, a.mode, a.common.enabled), (512, Mode::Pthread, true));
    assert_eq!((a.r#in.name.as_str(), a.r#in.vectorize, a.out.is_none()), ("x", 1, true));
    assert_eq!((b.rate, c.rate), (10.0, 5.0));
    assert_eq!(c.amplitude.0, [1.0, 2.5]);
    assert_eq!(nodes[0].name(), "queue");
    let said: Vec<String> = notices.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["a.conf:1:33: uuid has no effect: names say which node is meant"]);
}

#[test]
fn all_errors_are_told_in_the_order_of_the_file() {
    let text = "nodes = {
  a = { type = \"queue\", queuelen = 70000, mode = \"poling\", in = { vectorise = 2 }, out = 7 }
  b = { type = \"signal\", rate = \"fast\", amplitude = [1, 200], enabled = 1, zzz = 2 }
  c = { type = \"mqtt\", host = \"h\" }
  d = { type = \"signl\" }
  e = { }
}
extr = 1";
    assert_eq!(
        errors(text),
        [
            "a.conf:2:36: queuelen is 70000; it must be from 1 to 65535",
            "a.conf:2:50: mode is \"poling\"; did you mean \"polling\"?",
            "a.conf:2:65: name is missing; it must be a string",
            "a.conf:2:67: unknown key \"vectorise\"; did you mean vectorize?",
            "a.conf:2:90: out is 7; it must be a group",
            "a.conf:3:33: rate is \"fast\"; it must be a number",
            "a.conf:3:57: amplitude is 200; it must be from 0 to 100",
            "a.conf:3:73: enabled is 1; it must be true or false",
            "a.conf:3:76: unknown key \"zzz\"; the keys here are type, enabled, rate, amplitude",
            "a.conf:4:16: type \"mqtt\" is not built; use a queue",
            "a.conf:5:16: type is \"signl\"; did you mean \"signal\"?",
            "a.conf:6:7: type is missing; it must be a string",
            "a.conf:8:1: unknown key \"extr\"; did you mean extra?",
        ]
    );
    assert_eq!(errors("extra = 1"), ["a.conf:1:1: nodes is missing; it must be a group of names"]);
    let queue = |rest: &str| format!("nodes = {{ a = {{ type = \"queue\", {rest} }} }}");
    assert_eq!(
        errors(&queue("in = { name = \"x\", netem = { delay = 1 } }, mode = \"eventfd\"")),
        [
            "a.conf:1:52: netem is not built; disturb the link of the device",
            "a.conf:1:84: mode \"eventfd\" is not built; use pthread",
        ]
    );
    // What is switched off is not missed.
    let off = queue("in = { name = \"x\", netem = { enabled = false } }");
    let (_, notices) = read::<File>(&parse("a.conf", &off).unwrap()).unwrap();
    assert_eq!(notices[0].why, "it is not enabled");
}

#[test]
fn stale_keys_are_replaced_and_the_rest_of_the_file_is_kept() {
    let text = "# one\nnodes = { a = { type = \"queue\", polling = true, /* two */
  queue_length : 8192; in = { name = \"x\" } } // three\n}";
    let tree = parse("a.conf", text).unwrap();
    let wrong = read::<File>(&tree).unwrap_err();
    let said: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "a.conf:2:33: unknown key \"polling\"; write mode = \"polling\"",
            "a.conf:3:3: unknown key \"queue_length\"; write queuelen = 8192",
        ]
    );
    let right = fixed(tree.at.source(), &wrong);
    let by_hand = text
        .replace("polling = true", "mode = \"polling\"")
        .replace("queue_length : 8192", "queuelen = 8192");
    assert_eq!(right, by_hand);
    read::<File>(&parse("a.conf", &right).unwrap()).unwrap();

    let json =
        "{\"nodes\": {\"a\": {\"type\": \"queue\", \"polling\":false, \"in\": {\"name\": \"x\"}}}}";
    let tree = parse("a.json", json).unwrap();
    let right = fixed(tree.at.source(), &read::<File>(&tree).unwrap_err());
    assert_eq!(right, json.replace("\"polling\":false", "\"mode\": \"pthread\""));

    let loud = text.replace("true", "TRUE");
    let tree = parse("a.conf", &loud).unwrap();
    assert_eq!(fixed(tree.at.source(), &read::<File>(&tree).unwrap_err()), by_hand);

    // Two keys for one thing cannot be put right without a choice.
    let both = "nodes = { a = { type = \"queue\", polling = true, mode = \"pthread\",
        in = { name = \"x\" } } }";
    let tree = parse("a.conf", both).unwrap();
    let wrong = read::<File>(&tree).unwrap_err();
    assert!(wrong[0].to_string().ends_with("mode stands here too: delete this one"));
    assert_eq!(fixed(tree.at.source(), &wrong), both);
}

#[test]
fn the_schema_comes_from_the_same_declarations() {
    let schema = schema::<File>("a file");
    assert_eq!(schema["required"], serde_json::json!(["nodes"]));
    assert_eq!(schema["unevaluatedProperties"], false);
    let node = &schema["properties"]["nodes"]["additionalProperties"];
    assert_eq!(node["anyOf"][0]["enum"], serde_json::json!(["queue", "signal"]));
    let [queue, signal] = &node["anyOf"][1]["oneOf"].as_array().unwrap()[..] else {
        panic!("{node}");
    };
    assert_eq!(queue["properties"]["type"]["const"], "queue");
    assert_eq!(queue["required"], serde_json::json!(["type", "in"]));
    let queuelen = &queue["properties"]["queuelen"];
    assert_eq!(queuelen["default"], 512);
    assert_eq!(
        (queuelen["minimum"].as_f64(), queuelen["maximum"].as_f64()),
        (Some(1.0), Some(65535.0))
    );
    assert_eq!(queuelen["description"], "Its entries.");
    assert_eq!(queue["properties"]["mode"]["default"], "pthread");
    assert_eq!(queue["properties"]["uuid"]["deprecated"], true);
    assert_eq!(queue["properties"]["enabled"]["default"], true);
    let amplitude = &signal["properties"]["amplitude"]["anyOf"];
    assert_eq!(amplitude[0]["maximum"], 100.0);
    assert_eq!(amplitude[1]["items"]["maximum"], 100.0);
}

/// Options of a crate that knows no configuration.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    precision: u8,
    separator: Option<char>,
    header: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { precision: 17, separator: None, header: true }
    }
}

tagged! {
    /// A format.
    pub enum Format by "type" {
        /// Columns.
        Csv(BySerde<Options>) = "csv";
    }
}

group! {
    /// A file with a format.
    pub struct Formatted {
        /// The format.
        format: Format;
    }
}

#[test]
fn options_of_other_crates_are_keys_too() {
    let read = |text: &str| {
        let tree = parse("a.conf", text).expect(text);
        match read::<Formatted>(&tree) {
            Ok((Formatted { format: Format::Csv(BySerde(options)) }, _)) => Ok(options),
            Err(errors) => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>()),
        }
    };
    assert_eq!(read("format = \"csv\""), Ok(Options::default()));
    let text = "format = { type = \"csv\", precision = 3, separator = \";\" }";
    let right = Options { precision: 3, separator: Some(';'), header: true };
    assert_eq!(read(text), Ok(right));
    assert_eq!(
        read("format = { type = \"csv\", precision = 300, separator = \";;\", headr = false }"),
        Err(vec![
            "a.conf:1:38: precision is 300; invalid value: integer `300`, expected u8".to_owned(),
            "a.conf:1:55: separator is \";;\"; invalid value: string \";;\", expected a character"
                .to_owned(),
            "a.conf:1:61: unknown key \"headr\"; did you mean header?".to_owned(),
        ])
    );
    let schema = schema::<Formatted>("");
    let csv = &schema["properties"]["format"]["anyOf"][1]["oneOf"][0]["properties"];
    assert_eq!(csv["precision"], serde_json::json!({ "type": "integer", "default": 17 }));
}
