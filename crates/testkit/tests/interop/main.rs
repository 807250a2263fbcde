//! Debian's own RDMA programs, unmodified, and C programs of ours, on our `libibverbs.so.1`: pairs
//! of real processes on the soft devices.
//!
//! A plain run takes the short list of each table below: every program, transport and kind of
//! interface at least once. `RDMALAB_INTEROP=full` takes the long lists too (some minutes), and
//! `RDMALAB_INTEROP_ONLY=TEXT` only the cases whose command line holds TEXT:
//!
//! ```sh
//! cargo test -p rdmalab-testkit --test interop
//! RDMALAB_INTEROP=full cargo test -p rdmalab-testkit --test interop
//! RDMALAB_INTEROP_ONLY='ib_send_bw -c UD' cargo test -p rdmalab-testkit --test interop
//! ```
//!
//! A program that is not installed skips its cases and says so. The library comes from
//! [`rdmalab_testkit::programs::library_dir`]. Pairs run one after the other: each spins on two
//! processors. A program that spins without calling the library (`ib_write_lat`) needs a time
//! slice per message if processors are short, so its cases have few iterations.
//!
//! Not tested: XRC, DC and on-demand paging; `ib_send_bw -g` on InfiniBand ports, where it asks the
//! subnet manager for its group through umad devices. On Ethernet ports it does not.

mod applications;
mod case;
mod compiled;
mod conformance;
mod devices;
mod java;
mod memory;
mod perftest;
mod pingpong;
mod qperf;
mod rdmacm;
mod signals;
mod ucx;
