//! The run record: one directory per run, which later versions, other programs and people can read.
//!
//! | file | what |
//! |---|---|
//! | `record.json` | schema, versions, experiment, command, device and its kind, seed, plan |
//! | `environment.json` | the machine: only the fields of a fixed list |
//! | `points.jsonl` | one line for each finished point: parameters, summaries, figures, counts |
//! | `skipped.jsonl` | one line for each point that was impossible, with the reason |
//! | `findings.jsonl` | what the points show together: the last line is the valid one |
//! | `capture.pcapng` | packets as the first rank that was captured saw them, if they are few |
//! | `samples/*.npy` | raw samples as NumPy arrays of `<f8`, 8 bytes each; no sample twice |
//!
//! Field names carry their units. A record only grows: a full disk or a killed run loses at most
//! the point that was running. Opening a damaged record never panics, and names the missing parts.
#![forbid(unsafe_code)]

mod environment;
mod error;
mod finding;
mod header;
mod npy;
mod parameter;
mod point;
mod point_json;
mod read;
mod settings;
mod shell;
mod write;

pub use environment::{ClockFacts, Environment};
pub use error::Error;
pub use finding::{Finding, Number};
pub use header::{Device, DeviceKind, Header, utc};
pub use npy::{read_npy, write_npy};
pub use parameter::{heading, named, shown, word};
pub use point::{Point, PointId, Samples, SeriesSummary, Skipped, SourceFile};
pub use read::Record;
pub use settings::Setting;
pub use shell::shell_word;
pub use write::Writer;

/// A JSON object, in the order in which its fields were added.
pub type Object = serde_json::Map<String, serde_json::Value>;

/// The name of the schema, in `record.json`.
pub const SCHEMA: &str = "rdmalab-record";

/// The schema that this version writes.
pub const SCHEMA_VERSION: u32 = 5;

/// The oldest schema that this version reads.
pub const OLDEST_VERSION: u32 = 1;

const HEADER_FILE: &str = "record.json";
const ENVIRONMENT_FILE: &str = "environment.json";
const POINTS_FILE: &str = "points.jsonl";
const SKIPPED_FILE: &str = "skipped.jsonl";
const FINDINGS_FILE: &str = "findings.jsonl";
const SAMPLES_DIR: &str = "samples";
const CAPTURE_FILE: &str = "capture.pcapng";

/// The longest capture that a record keeps.
pub const CAPTURE_MAX_BYTES: u64 = 256 << 10;

/// The suffix of a record's temporary name, until it is complete enough to be read.
const BEGUN: &str = ".begun";
