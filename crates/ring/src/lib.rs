//! The shared state of the processes of one host: memory segments, message rings, doorbells, the
//! registry of live processes, and the tables by which one process may access another's memory.
//!
//! This crate has the project's lock-free code. Three rules hold in every file of it:
//!
//! * Shared memory is an array of 64-bit words that other processes write at any time. It is
//!   accessed through atomics only (module `sync`), never through references to plain data, and
//!   every value read from it is checked before it is used as a position or a length.
//! * A peer may die between any two instructions. No state that only a live peer can repair blocks
//!   a survivor: one store publishes a message, and the kernel releases a dead process's locks.
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
pub mod named;
pub mod seg;
mod sock_diag;
pub mod spsc;
mod sync;
