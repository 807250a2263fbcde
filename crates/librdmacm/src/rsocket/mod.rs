//! Sockets over queue pairs (`<rdma/rsocket.h>`): streams only.
//!
//! The protocol is that of rdma-core, so a peer may use rdma-core's library. Each end has a receive
//! buffer in two halves. It announces a free half by writing the address into the target SGL at the
//! peer (`SGL_ENTRIES`). The peer fills the half with WRITEs whose immediate data carry the length.
//!
//! The number of a socket is the descriptor of its id's event channel. Datagram sockets are refused.

mod calls;
mod connection;
mod iomap;
mod iomaps;
mod memory;
mod options;
mod poll;
mod protocol;
mod settings;
mod socket;
mod stream;
mod transfer;
mod wakeup;

pub use calls::{raccept, rbind, rclose, rconnect, rlisten, rshutdown, rsocket};
pub use iomap::{riomap, riounmap, riowrite};
pub use options::{rfcntl, rgetpeername, rgetsockname, rgetsockopt, rsetsockopt};
pub use poll::{rpoll, rselect};
pub use transfer::{
    rread, rreadv, rrecv, rrecvfrom, rrecvmsg, rsend, rsendmsg, rsendto, rwrite, rwritev,
};
