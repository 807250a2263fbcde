//! Configuration files that say where each value stands: libconfig's whole grammar and JSON, and
//! typed groups that are declared once for parser, defaults, ranges and JSON schema.
//!
//! ```text
//! position ── error ── value ── token ── parse ── load     a file as a tree
//!                        └───── reader ── convert, by_serde       the tree as types
//!                                 └────── macros                  types declared once
//! ```
//!
//! [`load`] reads a file, [`read`] makes a type of its tree. A type is declared with [`group!`],
//! [`one_of!`] or [`tagged!`]:
//!
//! ```
//! rdmalab_config::one_of! {
//!     /// How a reader waits.
//!     pub enum Mode {
//!         /// It spins.
//!         Polling = "polling";
//!         /// It sleeps until it is woken.
//!         Pthread = "pthread";
//!     }
//! }
//! rdmalab_config::group! {
//!     /// A queue in shared memory.
//!     pub struct Queue {
//!         /// Its name.
//!         name: String;
//!         /// Its entries.
//!         queuelen: usize = 512, in 1..=65536;
//!         /// How its reader waits.
//!         mode: Mode = Mode::Pthread;
//!         /// The processor of its reader.
//!         affinity: Option<u32>;
//!     }
//!     stale { polling => mode { "true" => "\"polling\"", "false" => "\"pthread\"" }; }
//! }
//! use rdmalab_config::{parse, read};
//!
//! let tree = parse("a.conf", "name = \"/q\"; queuelen = 8").unwrap();
//! let (queue, _notices) = read::<Queue>(&tree).unwrap();
//! assert_eq!((queue.queuelen, queue.mode), (8, Mode::Pthread));
//!
//! let tree = parse("a.conf", "polling = true\nname = \"/q\"\nqueuelen = 0\n").unwrap();
//! let errors = read::<Queue>(&tree).unwrap_err();
//! let lines: Vec<String> = errors.iter().map(|e| e.to_string()).collect();
//! assert_eq!(
//!     lines,
//!     [
//!         "a.conf:1:1: unknown key \"polling\"; write mode = \"polling\"",
//!         "a.conf:3:12: queuelen is 0; it must be from 1 to 65536",
//!     ]
//! );
//! ```
#![forbid(unsafe_code)]

mod by_serde;
mod convert;
mod error;
mod fix;
mod load;
mod macros;
mod parse;
mod position;
mod reader;
mod suggestion;
mod token;
mod value;

pub use by_serde::BySerde;
pub use convert::{At, Named, OneOrMany};
pub use error::{ConfigError, Findings, Fix, Notice};
pub use fix::fixed;
pub use load::{load, parse};
pub use position::{Position, Source};
pub use reader::{
    Bounds, Described, FromValue, Group, Ignored, Reader, Refused, Stale, choice, read, schema,
};
pub use value::{Entry, Kind, Value};

// What the macros name.
#[doc(hidden)]
pub use macros::{first, key_name};
#[doc(hidden)]
pub use reader::{absent, alternatives, choice_of, group as read_group, group_schema};
#[doc(hidden)]
pub use serde_json;
