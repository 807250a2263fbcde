//! What the tests of the command share does what it says.

mod common;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use common::{Running, free_port};

/// Of so many, the kernel draws some twice.
#[test]
fn a_port_is_given_once() {
    const PORTS: usize = 3000;
    let given: BTreeSet<u16> = (0..PORTS).map(|_| free_port()).collect();
    assert_eq!(given.len(), PORTS);
}

#[test]
fn a_server_that_ends_is_not_waited_for() {
    let mut command = Command::new("sh");
    let mut server = Running::start(command.args(["-c", "echo the port is taken >&2; exit 3"]));
    let waited = catch_unwind(AssertUnwindSafe(|| server.listens_on(free_port())));
    let said = waited.expect_err("nobody listens");
    let said = said.downcast_ref::<String>().expect("a sentence");
    assert!(said.contains("exit status: 3") && said.contains("the port is taken"), "{said}");
}
