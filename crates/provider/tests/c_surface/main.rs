//! The provider over a simple backend, driven strictly through the C surface: exported functions,
//! the tables of a context, and the functions inside extended objects.

mod c_program;
mod device;
mod events;
mod extended;
mod fixture;
mod instances;
mod memory;
mod mock;
mod post;
