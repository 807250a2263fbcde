//! What the processes of one host share: memory segments, message rings, doorbells, the registry of
//! live processes, and the tables with which one process may serve itself in another's memory.
//!
//! This is the lock-free island of the house. Three rules hold in every file of it:
//!
//! * Shared memory is an array of 64-bit words that somebody else writes at any time. It is touched
//!   through atomics only (module `sync`), never through references to plain data, and every value
//!   read from it is checked before it is used as a position or a length.
//! * A peer may die between any two instructions. No state that only a live peer can repair blocks
//!   a survivor: a message is published by one store, a lock is one that the kernel drops.
//! * Each protocol is modelled with loom (`RUSTFLAGS="--cfg loom" cargo test -p rdmalab-ring --lib
//!   --release loom`), over the same code: under `cfg(loom)` the words are loom's.

#[cfg(not(target_os = "linux"))]
compile_error!("rdmalab-ring needs Linux: memfd, sealing, membarrier and eventfd");
#[cfg(not(target_pointer_width = "64"))]
compile_error!("rdmalab-ring needs 64-bit addresses: positions in a ring are 64-bit words");

pub mod biased;
pub mod control_socket;
pub mod doorbell;
pub mod epoch;
pub mod fence;
pub mod keytable;
pub mod mad_socket;
pub mod seg;
mod sock_diag;
pub mod spsc;
mod sync;
