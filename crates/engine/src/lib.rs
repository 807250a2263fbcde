//! The InfiniBand transport as sans-IO state machines.
#![forbid(unsafe_code)]
