//! The binary `rdmalab`; see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    rdmalab::main(Vec::new())
}
