//! A real-time RNIC in user space: the engine of `rdmalab-engine`, driven over shared memory
//! between the processes of a host.
//!
//! [`SoftNic`] implements the engine's `Backend`. A host is (boot, network namespace, user). Each
//! process has one [control_socket](rdmalab_ring::control_socket), one shared segment with its QP
//! words, key table and lane, and one ring from each peer. There are no files.
//!
//! If `RDMALAB_INTERFACE` names an interface, other hosts are reached by RoCEv2 over UDP (`udp`).
//!
//! There are two ways to a peer. The *ring* carries trains to the peer's responder, which needs a
//! thread there that makes progress: a thread inside a verb, or the progress thread. Through the
//! *lane* an initiator executes WRITE, READ and atomics itself in the target's memory.
//!
//! Lock order: ring consumer (always by `try_lock`) -> QP -> SRQ -> ring producer -> CQ producer.
//! No lock is held while code of the program runs. No lock that a poller holds is needed to
//! complete a work request.

mod backend;
mod blocked;
mod buffer;
mod caller_wait;
mod cancel;
mod clock;
mod codec;
mod context;
mod control;
mod copiers;
mod copy;
mod counters;
mod counters_file;
mod cq;
mod datagram;
mod device;
mod error;
mod fd;
mod groups;
mod handles;
mod handshake;
mod hello_rounds;
mod hooks;
mod host;
mod idle_yield;
