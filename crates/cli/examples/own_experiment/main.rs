//! All of `rdmalab`, with one experiment more:
//!
//! ```sh
//! cargo run --release -p rdmalab --example own_experiment -- run create_qp --tx-depth 16,256,4K
//! ```
//!
//! The experiment is in `create_qp.rs`. This file only names it, as the list in
//! `crates/experiments/src/list.rs` does for those that rdmalab comes with.

mod create_qp;

use std::process::ExitCode;

use rdmalab_experiments::Runner;

fn main() -> ExitCode {
    rdmalab::main(vec![Runner::of::<create_qp::CreateQp>()])
}
