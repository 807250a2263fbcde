//! The provider over a simple backend, called only through the C interface: exported functions, the
//! tables of a context, and the functions in extended objects.

mod c_program;
mod device;
mod events;
mod extended;
mod fixture;
mod instances;
mod memory;
mod mock;
mod post;
