//! The InfiniBand transport as sans-IO state machines.
//!
//! The engine decides; it moves no byte, reads no clock, draws no random number and starts no
//! thread. The driver passes the time in, moves the payload, and reports the outcome: each step has
//! a `plan`/`accept` half and a `retire` half. See `ARCHITECTURE.md`.
//!
//! # Assertions
//! `debug_assert!` states invariants that hold whatever a peer or a program does: the order of
//! cursors and PSNs, windows, the bounds of trains and queues, which step may follow which. Its
//! text says what would be wrong. Tests, simulations and fuzzers run with these assertions; release
//! builds have none. Packets and arguments are never asserted: every build refuses wrong ones with
//! a drop, a NAK or an error.
#![forbid(unsafe_code)]

pub mod backend;
pub mod cm;
pub mod cq;
pub mod mr;
pub mod odp;
pub mod qp;
pub mod train;
pub mod vocab;
pub mod window;
