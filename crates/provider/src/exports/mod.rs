//! The device-related functions that libibverbs exports, generic over the backend.
//!
//! Each has the name and exactly the C signature of the exported function. The shared library
//! wraps each in a versioned symbol with a guard against panics; here they are `"C-unwind"`.
//!
//! # Safety
//!
//! For all of them: pointers to objects came from functions of this module, or of the tables of a
//! context that did, with the same backend `B`, and the object has not been freed; pointers to
//! attributes are valid for the structure that the C prototype names. The manual pages demand this
//! of every caller.
#![allow(clippy::missing_safety_doc, reason = "the safety section of the module holds for each")]
#![allow(
    clippy::extra_unused_type_parameters,
    reason = "all take the backend, and are called alike"
)]

mod ah;
mod cq;
pub(crate) mod device;
mod event;
mod memory;
mod missing;
mod open;
pub(crate) mod port;
mod qp;
mod srq;

pub use ah::*;
pub use cq::*;
pub use device::*;
pub use event::*;
pub use memory::*;
pub use missing::*;
pub use open::*;
pub use port::*;
pub use qp::*;
pub use srq::*;
