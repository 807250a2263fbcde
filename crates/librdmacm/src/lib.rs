//! The drop-in `librdmacm.so.1`.
//!
//! Put beside our libibverbs, this library connects the queue pairs of an unmodified program as the
//! kernel's connection manager would. The kernel's part runs in the process: the protocol is
//! `rdmalab_engine::cm`, and one thread (`process`) drives it. Datagrams between processes of this
//! host go over sockets (`rdmalab_ring::mad_socket`), those to other hosts over QP 1 (`gsi`).
//! `/dev/infiniband/rdma_cm` is not needed.
//!
//! Queue pairs change their states at the same moments as with the original library: inside the
//! program's own calls, `rdma_accept` and `rdma_get_cm_event` above all.
//!
//! From below: `mad_transport` sends and receives datagrams, and `mad_capture` shows those within
//! the host to captures. `state` holds ids, ports and connections; `lookups` are its pending address
//! resolutions. `process` has the lock and the thread, `exit` disconnects at the end of the process.
//! `events` makes the events that a program fetches. `id`, `resolve`, `connect`, `qp`, `endpoint`,
//! `multicast`, `addrinfo` and `info` are the functions of `<rdma/rdma_cma.h>`, `rsocket` those of
//! `<rdma/rsocket.h>`. No panic leaves this library: see `guard`.

#[macro_use]
mod guard;

mod address;
mod addrinfo;
mod blocking;
mod channel;
mod cm_id;
mod conn_params;
mod connect;
mod device;
mod endpoint;
mod errno;
mod establish;
mod event_queue;
mod eventfd;
mod events;
mod exit;
mod exports;
mod exports_rsocket;
mod group;
mod gsi;
mod id;
mod info;
mod lookups;
mod mad_capture;
mod mad_transport;
mod multicast;
mod os;
mod process;
mod qp;
mod resolve;
mod rsocket;
mod state;
