//! The InfiniBand transport as sans-IO state machines.
//!
//! The engine decides; it moves no byte, reads no clock, draws no random number and starts no
//! thread. Whoever drives it passes the time in, moves the payload, and hands the outcome back:
//! each step has a `plan`/`accept` half and a `retire` half. See `ARCHITECTURE.md`.
#![forbid(unsafe_code)]

pub mod backend;
pub mod cm;
pub mod cq;
pub mod mr;
pub mod qp;
pub mod train;
pub mod vocab;
