//! The InfiniBand transport as sans-IO state machines.
//!
//! The engine decides; it moves no byte, reads no clock, draws no random number and starts no
//! thread. Whoever drives it passes the time in, moves the payload, and hands the outcome back:
//! each step has a `plan`/`accept` half and a `retire` half. See `ARCHITECTURE.md`.
//!
//! # Assertions
//! `debug_assert!` states what must hold whatever a peer or a program does: the order of cursors
//! and PSNs, windows, the bounds of trains and queues, which step may follow which. Its text says
//! what would be wrong. Tests, simulations and fuzzers run with these assertions; release builds
//! have none of them. Packets and arguments are never asserted but refused: with a drop, a NAK or
//! an error, in every build.
#![forbid(unsafe_code)]

pub mod backend;
pub mod cm;
pub mod cq;
pub mod mr;
pub mod qp;
pub mod train;
pub mod vocab;
