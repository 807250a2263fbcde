//! `rdmalab`, the one binary.
fn main() {}
