//! Each rule where it must fire, and where it must not.

mod builder;
mod hard;
mod kernel;
mod more;
mod paging;
