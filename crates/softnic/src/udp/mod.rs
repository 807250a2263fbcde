//! The network: RoCEv2 over UDP to other hosts, where `RDMALAB_INTERFACE` opens it.
//!
//! All processes of a host (boot, network namespace, user) share one socket, bound to UDP 4791 on
//! that interface (a peer that talks alone may have another, see `connected`); its descriptor
//! travels in control messages. All of them send on it. One of them, its *reader*, reads it, and
//! gives packets for other processes' queue pairs to them through the rings; it drops what finds a
//! full one. Nothing waits for anything: a packet that is dropped is a packet that was lost.
//!
//! A word in shared memory says whose turn it is to read (`ownership`). Who has a lock that its
//! holder gives up when it exits, and that the kernel passes on when it dies, makes itself the
//! reader (`handover`); so does who finds that the reader leaves packets lying, since it was
//! stopped (`watchdog`, `stall_detector`).
//!
//! A caller inside a verb reads the socket itself; the progress thread waits for it when nobody
//! polls.
//!
//! Lock order: the receiver's buffers (only ever tried) -> QP -> the send batch.

mod ack_sender;
pub(crate) mod adaptive_wakeup;
mod address;
pub(crate) mod backoff;
mod cm_reject;
mod connect_policy;
mod connected;
mod connected_socket;
pub(crate) mod delayed_ack;
mod forward;
mod handover;
pub(crate) mod interface;
pub(crate) mod mad_queue;
pub mod management;
pub mod management_c;
mod manager_presence;
mod membership;
mod neighbour;
pub(crate) mod network;
mod ownership;
mod receive;
mod receive_batch;
pub(crate) mod receiver;
mod record_lock;
pub(crate) mod seam;
mod send;
mod send_batch;
mod share;
pub(crate) mod socket;
mod stall_detector;
mod tentative;
mod watchdog;

pub(crate) use network::Network;
use network::WINDOW_PACKETS;
pub(crate) use receiver::SocketState;
use socket::Route;
