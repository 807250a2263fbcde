//! The drop-in `librdmacm.so.1`.
//!
//! An unmodified program that finds this library beside ours of the verbs connects its queue pairs
//! as it would with the kernel's connection manager. What the kernel does there is done here, in
//! the process: the protocol is `rdmalab_engine::cm`, driven by one thread (`transport`), over letters
//! between the processes of the host (`rdmalab_ring::mad_socket`). `/dev/infiniband/rdma_cm` is not
//! needed.
//!
//! What the original library does is done here as well, and at the same moments: queue pairs change
//! their states inside the program's own calls, `rdma_accept` and `rdma_get_cm_event` above all.
//!
//! From below: `process` is everything of the process under one lock, `transport` moves letters,
//! `channel` queues events, `reach` lookups whether peers can be reached, `farewell` tells them that
//! the process ends, `notes` shows captures what stays within the host; `id`, `connect`, `qp`,
//! `endpoint`, `multicast`, `addrinfo` are the functions of `<rdma/rdma_cma.h>`, `rsocket` those of
//! `<rdma/rsocket.h>`. No panic leaves this library: see `guard`.

#[macro_use]
mod guard;

mod address;
mod addrinfo;
mod channel;
mod cm_id;
mod connect;
mod device;
mod endpoint;
mod errno;
mod events;
mod exit;
mod exports;
mod exports_rsocket;
mod gsi;
mod id;
mod info;
mod lookups;
mod mad_capture;
mod mad_transport;
mod multicast;
mod qp;
mod resolve;
mod rsocket;
mod state;
