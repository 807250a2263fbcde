//! Each rule where it must fire, and where it must not.

mod builder;
mod kernel;
mod more;
mod paging;
