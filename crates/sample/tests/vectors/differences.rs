//! Where our formats differ from the recorded program on purpose.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// What ours does instead.
#[derive(Clone, Copy, Debug)]
pub enum Ours {
    /// Refuses, with an error.
    Refuses,
    /// Writes or reads only the start of what the program does.
    Start,
    /// Writes 0 in this byte.
    WritesZero(usize),
    /// Reads these samples.
    Reads(&'static [&'static str]),
    /// Reads other samples in these places, counted from 0.
    Except(&'static [(usize, &'static str)]),
}

const UNDEFINED: &str = "the program writes undefined memory when its encoder refuses a sample";
const ABORTS: &str = "the program aborts";
const STALE: &str =
    "the program makes a sample of the line `(7)`, with the values of the one before";
const OLD_SEQUENCE: &str =
    "the program sends the number of the sample before in a sample that has none";
const LOST: &str = "the program loses the end of its own line";
const COLUMNS: &str = "the program reads all columns, also those that it was told not to write";
const SWAPPED: &str = "the program swaps the parts: C++ leaves the order of evaluation open";
const GARBAGE: &str = "the program makes empty samples of what it cannot read";
/// A tenth and a fifth in single precision, and two powers of ten.
const TENTH: &str =
    "- n=2 | 0.0\t0.10000000149011612+0.20000000298023224i\t10000000000.0-0.0000000001i";

const SILENT: &str = "the program drops the sample without a word";

/// File, format, vector or title, what ours does, and why.
type Difference = (&'static str, &'static str, &'static str, Ours, &'static str);

const DIFFERENCES: &[Difference] = &[
    ("villas.human.txt", "villas.human", "ix1", Ours::Refuses, ABORTS),
    ("villas.human.txt", "villas.human", "ix2", Ours::Refuses, ABORTS),
    ("villas.human.txt", "villas.human", "ix3", Ours::Refuses, ABORTS),
    ("villas.human.txt", "villas.human", "nmore", Ours::Refuses, ABORTS),
    ("villas.human.txt", "villas.human", "l4", Ours::Refuses, ABORTS),
    ("villas.human.txt", "villas.human", "l5", Ours::Refuses, ABORTS),
    ("villas.human.txt", "villas.human", "nots", Ours::Start, STALE),
    ("csv.txt", "csv", "nots", Ours::Start, STALE),
    ("json.txt", "json", "nots", Ours::Start, STALE),
    ("villas.binary.txt", "villas.binary", "nots", Ours::Start, STALE),
    (
        "villas.human.txt",
        "villas.human",
        "l8",
        Ours::Reads(&["1.000000000(1)\t1.0\t2.0", "1.000000000(2)\t3.0\t4.0"]),
        "the program makes samples of lines that are none",
    ),
    ("villas.binary.txt", "villas.binary", "b3", Ours::Refuses, UNDEFINED),
    ("villas.binary.txt", "villas.binary", "c2", Ours::Refuses, UNDEFINED),
    ("villas.binary.txt", "villas.binary", "mix", Ours::Refuses, UNDEFINED),
    ("csv.txt", "csv", "fx read back", Ours::Except(&[(11, "1.000000000(11)")]), LOST),
    ("csv.txt", "csv", "b3 read back", Ours::Except(&[(2, "1.000000000(2)")]), LOST),
    ("csv.txt", "csv", "c2 read back", Ours::Except(&[(4, "1.000000000(4)")]), LOST),
    (
        "csv.txt",
        "csv",
        "n0 read back",
        Ours::Except(&[(0, "1.000000000(1)"), (1, "1.000000000(2)")]),
        LOST,
    ),
    (
        "csv.txt",
        "csv",
        "noseq read back",
        Ours::Except(&[
            (0, "10.000000005\t1.0\t2.0"),
            (1, "10.500000000\t1.0\t2.0"),
            (2, "11.000000000\t3.0\t4.0"),
        ]),
        LOST,
    ),
    (
        "tsv.txt",
        "tsv",
        "noseq read back",
        Ours::Except(&[
            (0, "10.000000005\t1.0\t2.0"),
            (1, "10.500000000\t1.0\t2.0"),
            (2, "11.000000000\t3.0\t4.0"),
        ]),
        LOST,
    ),
    (
        "csv.txt",
        "csv",
        "off read back",
        Ours::Except(&[(6, "100.000000000+1.000000e+00\t7.0")]),
        LOST,
    ),
    (
        "tsv.txt",
        "tsv",
        "off read back",
        Ours::Except(&[(6, "100.000000000+1.000000e+00\t7.0")]),
        LOST,
    ),
    ("csv.txt", "csv", "F read back", Ours::Except(&[(3, "1.000000000\t4.0")]), LOST),
    (
        "csv-options.txt",
        r#"{"type": "csv", "ts_origin": false}"#,
        "off2 read back",
        Ours::Except(&[
            (0, "0.0+1.500000e+00(1)\t0.10000000000000001\t0.0000001"),
            (1, "0.0(2)\t3.0\t-0.0"),
        ]),
        COLUMNS,
    ),
    (
        "csv-options.txt",
        r#"{"type": "csv", "sequence": false}"#,
        "off2 read back",
        Ours::Except(&[
            (0, "100.000000000+1.500000e+00\t0.10000000000000001\t0.0000001"),
            (1, "100.000000005\t3.0\t-0.0"),
        ]),
        COLUMNS,
    ),
    (
        "csv-options.txt",
        r#"{"type": "csv", "offset": false}"#,
        "off2 read back",
        Ours::Except(&[
            (0, "100.000000000(1)\t0.10000000000000001\t0.0000001"),
            (1, "100.000000005(2)\t3.0\t-0.0"),
        ]),
        COLUMNS,
    ),
    (
        "csv-options.txt",
        r#"{"type": "csv", "data": false}"#,
        "off2 read back",
        Ours::Except(&[(0, "100.000000000+1.500000e+00(1)"), (1, "100.000000005(2)")]),
        LOST,
    ),
    (
        "json-options.txt",
        r#"{"type": "json", "data": false}"#,
        "f1 read back",
        Ours::Refuses,
        SILENT,
    ),
    (
        "json-options.txt",
        r#"{"type": "json", "data": false}"#,
        "mix1 read back",
        Ours::Refuses,
        SILENT,
    ),
    ("villas.binary.txt", "villas.binary", "nots read back", Ours::Start, STALE),
    ("villas.binary.txt", "villas.binary", "off", Ours::WritesZero(127), OLD_SEQUENCE),
    ("villas.binary.txt", "villas.binary", "F", Ours::WritesZero(67), OLD_SEQUENCE),
    (
        "villas.binary-messages.txt",
        r#"{"type": "villas.binary", "source_index": 300}"#,
        "options",
        Ours::Refuses,
        "the program cuts the index to 8 bits",
    ),
    ("gtnet.txt", r#"{"type": "gtnet", "fake": true}"#, "nots", Ours::Start, STALE),
    ("json-messages.txt", "json", "nots", Ours::Start, STALE),
    (
        "raw.txt",
        r#"{"type": "raw", "bits": 32, "endianess": "little"}"#,
        "mix read back",
        Ours::Except(&[(0, "- n=6 | 0.0\t1.5\t-2.25\t10\t-20\t1\t0.5-0.25i")]),
        SWAPPED,
    ),
    (
        "raw.txt",
        r#"{"type": "raw", "bits": 32, "endianess": "big"}"#,
        "mix read back",
        Ours::Except(&[(0, "- n=6 | 0.0\t1.5\t-2.25\t10\t-20\t1\t0.5-0.25i")]),
        SWAPPED,
    ),
    (
        "raw.txt",
        r#"{"type": "raw", "bits": 32, "endianess": "little"}"#,
        "c2 read back",
        Ours::Except(&[
            (0, "- n=2 | 0.0\t1.0+2.0i\t-1.5-2.5i"),
            (1, "- n=2 | 0.0\t0.0+3.0i\t4.0+0.0i"),
            (2, TENTH),
            (3, "- n=2 | 0.0\tnan+infi\t0.0-0.0i"),
        ]),
        SWAPPED,
    ),
    (
        "raw.txt",
        r#"{"type": "raw", "bits": 64, "endianess": "little"}"#,
        "mix read back",
        Ours::Except(&[(0, "- n=6 | 0.0\t1.5\t-2.25\t10\t-20\t1\t0.5-0.25i")]),
        SWAPPED,
    ),
    (
        "raw.txt",
        r#"{"type": "raw", "bits": 64, "endianess": "big"}"#,
        "mix read back",
        Ours::Except(&[(0, "- n=6 | 0.0\t1.5\t-2.25\t10\t-20\t1\t0.5-0.25i")]),
        SWAPPED,
    ),
    (
        "raw.txt",
        r#"{"type": "raw", "bits": 64, "endianess": "little"}"#,
        "c2 read back",
        Ours::Except(&[
            (0, "- n=2 | 0.0\t1.0+2.0i\t-1.5-2.5i"),
            (1, "- n=2 | 0.0\t0.0+3.0i\t4.0+0.0i"),
            (2, TENTH),
            (3, "- n=2 | 0.0\tnan+infi\t0.0-0.0i"),
        ]),
        SWAPPED,
    ),
    (
        "gtnet.txt",
        "gtnet",
        "mix read back",
        Ours::Except(&[(0, "- n=6 | 0.0\t1.5\t-2.25\t10\t-20\t1\t0.5-0.25i")]),
        SWAPPED,
    ),
    (
        "gtnet.txt",
        r#"{"type": "gtnet", "fake": true}"#,
        "mix read back",
        Ours::Except(&[(0, "os n=6 | 1466498424.123456789(7)\t1.5\t-2.25\t10\t-20\t1\t0.5-0.25i")]),
        SWAPPED,
    ),
    (
        "gtnet.txt",
        r#"{"type": "raw", "fake": true, "bits": 64, "endianess": "little"}"#,
        "mix read back",
        Ours::Except(&[(0, "os n=6 | 1466498424.123456789(7)\t1.5\t-2.25\t10\t-20\t1\t0.5-0.25i")]),
        SWAPPED,
    ),
    (
        "raw.txt",
        "raw",
        "room for more than one sample",
        Ours::Reads(&["- n=1 | 0.0\t1.0"]),
        "the program reads no message if it has room for more than one sample",
    ),
    (
        "text-messages.txt",
        "csv",
        "off read back",
        Ours::Except(&[(6, "ord n=1 | 100.000000000+1.000000e+00\t7.0")]),
        LOST,
    ),
    (
        "text-messages.txt",
        "csv",
        "sequence nan",
        Ours::Reads(&["ord n=2 | 1.000000005+2.500000e-01\t1.0\t2.0"]),
        LOST,
    ),
    ("text-messages.txt", "csv", "empty offset", Ours::Refuses, GARBAGE),
    ("text-messages.txt", "csv", "no offset, no sequence", Ours::Refuses, GARBAGE),
    ("text-messages.txt", "csv", "quoted", Ours::Refuses, GARBAGE),
    ("text-messages.txt", "csv", "header not commented", Ours::Refuses, GARBAGE),
    ("text-messages.txt", "csv", "empty value", Ours::Refuses, GARBAGE),
    ("text-messages.txt", "villas.human", "not a sample", Ours::Refuses, GARBAGE),
    ("json-messages.txt", "json", "no data", Ours::Refuses, SILENT),
    ("json-messages.txt", "json", "origin as a number", Ours::Refuses, SILENT),
    ("json-messages.txt", "json", "origin of one number", Ours::Refuses, SILENT),
    ("json-messages.txt", "json", "origin of real numbers", Ours::Refuses, SILENT),
    (
        "json-messages.txt",
        "json",
        "flags both",
        Ours::Reads(&["dFS n=2 | 0.0F\t1.0\t2.0"]),
        "the program keeps the last flag only",
    ),
    (
        "json-messages.txt",
        "json",
        "flags both, other order",
        Ours::Reads(&["dFS n=2 | 0.0F\t1.0\t2.0"]),
        "the program keeps the last flag only",
    ),
];

/// Remembers which differences were met.
#[derive(Default)]
pub struct Met(RefCell<BTreeSet<usize>>);

impl Met {
    /// What ours does instead with `name` of this file and format, if it differs.
    pub fn ours(&self, file: &str, format: &str, name: &str) -> Option<Ours> {
        let is_it = |d: &Difference| (d.0, d.1, d.2) == (file, format, name);
        let i = DIFFERENCES.iter().position(is_it)?;
        self.0.borrow_mut().insert(i);
        Some(DIFFERENCES[i].3)
    }

    /// Fails if a difference that is listed for one of `files` was not met.
    pub fn check(&self, files: &[&str]) {
        let met = self.0.borrow();
        for (i, (file, format, name, _, why)) in DIFFERENCES.iter().enumerate() {
            let is_due = files.contains(file);
            assert!(!is_due || met.contains(&i), "no such vector: {file} {format} {name} ({why})");
        }
    }
}
