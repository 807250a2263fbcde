//! IBA and RoCEv2 packet formats, as plain values: no I/O, no allocation on the parse path.
#![no_std]
#![forbid(unsafe_code)]

pub mod aeth;
pub mod ids;
pub mod opcode;
