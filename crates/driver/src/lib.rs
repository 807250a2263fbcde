//! The steps of the engine's contract, written once for every driver: decide, move the bytes,
//! retire.
//!
//! The engine decides and moves no byte. A driver owns the bytes: it knows where trains go
//! ([`Path`]), how memory is read and written ([`Memory`]), when timers are due ([`Timers`]), and
//! the other objects of the queue pair ([`Host`]). Each function here does one step, for any of
//! these, with static dispatch:
//!
//! - [`send_request`]: plan a request, put its payload on the path, retire it; a local operation
//!   (bind, invalidate) is executed instead;
//! - [`send_response`]: an acknowledgement, or data of a READ, read from memory as it is sent;
//! - a driver in which time passes while it sends takes the steps of these two one by one:
//!   [`plan_request`], [`Request::read`] and [`Request::retire`], or the engine's `next_response`,
//!   [`read_response`] and [`retire_response`];
//! - [`take`]: accept a train, then do the second half of the step at once. A driver that does it
//!   later calls the engine's `accept` and then [`finish`], or [`abandon`] when the step became
//!   void in between;
//! - [`lane::execute`]: an initiator executes a one-sided operation itself, in the memory of its
//!   peer ([`lane::Lane`]);
//! - [`timers::arm`]: a timer that the queue pair wants gets its deadline ([`Timers`]);
//!   [`timers::due`] says which one to handle.
//!
//! Each driver decides by itself which queue pair goes next, which locks are held, and when to
//! stop.
#![forbid(unsafe_code)]

pub mod lane;
mod memory;
mod path;
mod receive;
mod send;
pub mod timers;

pub use memory::{Host, Memory, gather, local_address, read_wqe, scatter};
pub use path::{Path, Unsent};
pub use receive::{Taken, abandon, finish, take};
pub use send::{
    Request, Step, plan_request, read_response, retire_response, send_request, send_response,
};
pub use timers::Timers;
