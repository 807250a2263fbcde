//! The network: RoCEv2 over UDP to other hosts, where `RDMALAB_INTERFACE` names an interface.
//!
//! All processes of a host (boot, network namespace, user) share one socket, bound to UDP 4791 on
//! that interface. Control messages carry its descriptor from process to process (`share`). Every
//! process sends on it. One process owns it: the owner alone reads it, and forwards packets for
//! queue pairs of other processes through the rings (`forward`). A packet that finds a full ring is
//! dropped, which is a lost packet like any other.
//!
//! A word in shared memory numbers the terms of ownership (`ownership`). A record lock, which the
//! kernel passes on when its holder dies, names the next owner (`handover`). A process that finds
//! the owner stopped takes ownership over (`watchdog`, `stall_detector`).
//!
//! A caller inside a verb reads the socket itself. The progress thread waits for it when no caller
//! polls (`adaptive_wakeup`). A peer with ping-pong traffic may get a connected socket of its own
//! (`connected`, `connect_policy`).
//!
//! Lock order: the receiver (only ever tried) -> QP -> the send batch.

pub(crate) mod adaptive_wakeup;
mod address;
pub(crate) mod backoff;
mod cm_reject;
pub(crate) mod congestion;
mod connect_policy;
mod connected;
mod connected_socket;
mod delay;
pub(crate) mod delayed_ack;
mod delayed_qps;
mod deliver;
mod forward;
mod handover;
pub(crate) mod hook;
pub(crate) mod interface;
mod io;
pub(crate) mod mad_queue;
pub mod management;
pub mod management_c;
mod manager_presence;
mod membership;
pub(crate) mod nagle;
mod neighbour;
pub(crate) mod network;
mod ownership;
mod packet_path;
mod path;
mod receive;
mod receive_batch;
pub(crate) mod receiver;
mod record_lock;
mod send_batch;
mod share;
pub(crate) mod socket;
mod stall_detector;
mod tentative;
mod watchdog;

pub(crate) use address::check_address;
pub(crate) use deliver::take_forwarded;
pub(crate) use io::UdpIo;
pub(crate) use network::Network;
pub(crate) use path::HookedNetworkPath;
pub(crate) use receiver::{Arrival, SocketState};
pub(crate) use send_batch::warn_of_narrow_path;
pub(crate) use share::open_network;
use socket::Route;
