//! The drop-in `librdmacm.so.1`.
//!
//! This library stands beside our libibverbs, and connects the queue pairs of an unmodified program
//! as the kernel's connection manager would. The kernel's part runs inside the process:
//! `rdmalab_engine::cm` is the protocol, and one thread (`process`) drives it. Datagrams between
//! processes of this host go over sockets (`rdmalab_ring::mad_socket`), datagrams to other hosts
//! over QP 1 (`gsi`). `/dev/infiniband/rdma_cm` is not needed.
//!
//! Queue pairs change their states at the same moments as with rdma-core's librdmacm: inside the
//! program's own calls, above all `rdma_accept` and `rdma_get_cm_event`.
//!
//! The modules, from the lowest layer up: `mad_transport` sends and receives datagrams,
//! `mad_inbox` puts those that came into their order, and `mad_capture` adds those within the host
//! to captures. `state` holds ids, ports and connections;
//! `lookups` holds the address resolutions in progress. `process` has the lock and the thread,
//! `exit` disconnects at the end of the process. `events` makes the events that a program fetches.
//! `id`, `resolve`, `connect`, `qp`, `endpoint`, `multicast`, `addrinfo` and `info` are the
//! functions of `<rdma/rdma_cma.h>`, `rsocket` those of `<rdma/rsocket.h>`. No panic leaves this
//! library: see `guard`.

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
mod mad_inbox;
mod mad_transport;
mod multicast;
mod os;
mod process;
mod qp;
mod resolve;
mod rsocket;
mod state;
