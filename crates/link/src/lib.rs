//! The conversion between the engine's trains and the datagrams of a RoCEv2 network.
//!
//! Sending: [`expand::write_headers`] writes the headers of one packet of a train, the driver
//! copies the payload behind them, and [`expand::seal`] adds the invariant CRC. Receiving:
//! [`receive::parse`] reads a datagram, and the driver looks up the queue pair that it names.
//! [`receive::check`] and [`receive::Verifier`] compare the packet with what this queue pair
//! expects, and [`receive::train_of`] makes a train of one packet for the engine's `accept`. The
//! driver counts refused packets for each reason, a [`drops::Drop`].
//!
//! This crate uses no sockets: [`address::FourTuple`] holds the addresses of a datagram. A
//! [`hook::PacketHook`] sees each packet in both directions and decides whether an outgoing one
//! passes.
#![forbid(unsafe_code)]

pub mod address;
pub mod bounded;
pub mod deferred;
pub mod draws;
pub mod drops;
pub mod expand;
pub mod faults;
pub mod frame_headers;
pub mod hook;
pub mod packet;
pub mod pcapng;
pub mod quirk;
pub mod receive;
pub mod specification;
pub mod transmissions;
pub mod units;
