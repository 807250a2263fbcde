//! What lies between the engine's trains and the datagrams of a RoCEv2 network.
//!
//! Sending: [`expand::write_headers`] writes the headers of one packet of a train, the driver puts
//! the payload behind them, [`expand::seal`] adds the invariant CRC. Receiving: [`receive::parse`]
//! reads a datagram, the driver finds the queue pair that it names, [`receive::check`] and
//! [`receive::Verifier`] hold it against what that queue pair expects, and [`receive::train_of`]
//! makes a train of one packet for the engine's `accept`. Everything that is refused is refused for
//! a [`drops::Drop`], which the driver counts.
//!
//! There are no sockets here: [`address::FourTuple`] says where a datagram comes from and goes to.
//! A [`hook::PacketHook`] sees each packet in both directions and decides whether it passes.
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
