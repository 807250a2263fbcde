//! Any [`Backend`](rdmalab_engine::backend::Backend) seen as the C objects and tables of
//! libibverbs.
//!
//! * [`exports`]: the device-related functions that libibverbs exports, generic over the backend.
//!   The shared library wraps them; [`table::table`] hands them to the safe crate directly.
//! * `ops` and `extended`: what the header calls through the tables of an open context.
//! * `cq_ex`, `qp_ex`: what programs call through pointers inside extended objects.
//! * [`diag`]: the sentence behind the last error.
//!
//! Nothing here catches a panic or prints unless asked (see [`diag`]). All functions of the tables
//! are `extern "C-unwind"`, so that a suspended coroutine can be unwound through them.
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
mod device;
pub mod diag;
pub mod exports;
mod extended;
mod object;
mod open;
mod ops;
mod qp;
mod qp_ex;
mod registry;
mod spin_lock;
mod srq;
mod stubs;
mod sync;
pub mod table;

pub use device::Devices;
