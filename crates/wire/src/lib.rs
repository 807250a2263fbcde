//! IBA and RoCEv2 packet formats, as plain values: no I/O, no allocation on the parse path.
//!
//! From the bottom: [`ids`] has the numbers, [`opcode`] and [`aeth`] their meaning, [`headers`] and
//! [`grh`] one struct per header, [`packet`] a whole transport packet, [`icrc`] its check, [`ip`],
//! [`lrh`] and [`frame`] the layers below it in a capture, [`cm`] the datagrams by which two hosts
//! connect their queue pairs.
//!
//! Parsing takes any bytes and never panics; a packet that it returns is valid in form. Emission
//! writes into the caller's buffer. Field layouts follow the InfiniBand Architecture Specification,
//! volume 1, release 1.4, and its annex A17 (RoCEv2).
#![no_std]
#![forbid(unsafe_code)]

pub mod aeth;
mod bytes;
pub mod cm;
pub mod error;
pub mod frame;
pub mod grh;
pub mod headers;
pub mod icrc;
pub mod ids;
pub mod ip;
pub mod lrh;
pub mod opcode;
pub mod packet;
