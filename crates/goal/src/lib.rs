//! Schedules of sends, receives and calculations with dependencies, in the text form of GOAL (Group
//! Operation Assembly Language; Hoefler, Siebert, Lumsdaine, 2009) that LogGOPSim reads, replayed
//! with verbs calls.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! l1: calc 100
//! l2: send 8b to 1 tag 7
//! l2 requires l1
//! }
//! rank 1 {
//! l1: recv 8b from 0 tag 7
//! }
//! ```

mod check;
mod critical_path;
mod links;
mod parse;
mod replay;
mod schedule;

pub use check::{Pairs, check};
pub use critical_path::critical_path;
pub use replay::{Done, Options, Plan, replay};
pub use schedule::{Kind, Message, Op, Schedule, ScheduleError};
