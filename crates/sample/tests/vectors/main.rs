//! Plays what was recorded from VILLASnode against our formats: see `README.md`.

mod differences;
mod files;
mod messages;
mod nodes;
mod parse;
mod play;
mod tools;
