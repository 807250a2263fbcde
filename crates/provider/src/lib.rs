//! The C objects and tables of libibverbs for any [`Backend`](rdmalab_engine::backend::Backend).
//!
//! * [`exports`]: the device-related functions that libibverbs exports, generic over the backend.
//!   The shared library wraps them; [`table::table`] gives them to the safe crate directly.
//! * `ops` and `extended`: functions that the header calls through the tables of an open context.
//! * `cq_ex`, `qp_ex`: functions that programs call through pointers in extended objects.
//! * [`diag`]: the message of the last error.
//!
//! This crate catches no panic, and prints only if requested (see [`diag`]). All functions of the
//! tables are `extern "C-unwind"`, so that a suspended coroutine can be unwound through them.
//!
//! ```text
//! a program ── ibv_context.ops ──> ops ─┐
//!           ── exported symbol ─> exports ─> Backend (softnic, sim)
//!           ── ibv_cq_ex, ibv_qp_ex ────┘
//! ```

mod ah;
mod answer;
mod batch;
mod context;
mod convert;
mod cq;
mod cq_ex;
mod critical_section;
mod device;
pub mod diag;
pub mod exports;
mod extended;
mod live;
mod object;
mod open;
mod ops;
mod qp;
mod qp_ex;
mod registry;
mod srq;
mod stubs;
mod sync;
pub mod table;

pub use device::Devices;
