//! A network that vanishes without notice, as when a host loses power.

use std::process::Command;
use std::sync::atomic::AtomicBool;

use rdmalab_rank::process::{Cause, RankSpec, TeamEvent, WorkerGroup};

use crate::remote::Serving;
use crate::{LONG, MARK, VANISH, command, is_alive, wait_until};

/// Runs the test below in its own network namespace, where it can remove the loopback device.
#[test]
fn a_host_that_vanishes_is_noticed_at_both_ends() {
    let this = command();
    let mut isolated = Command::new("unshare");
    isolated.args(["--net", "sh", "-c", r#"ip link set lo up && exec "$@""#, "sh"]);
    isolated.arg(&this.program).args(&this.args).env(VANISH, "1").env_remove(MARK);
    let probe = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !probe.is_ok_and(|o| o.status.success()) {
        let name = "a_host_that_vanishes_is_noticed_at_both_ends";
        return rdmalab_testing::skipped(name, "needs root, unshare and ip");
    }
    let output = isolated.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("noticed at both ends"), "{text}");
}

/// The test in its own network namespace.
pub fn isolated() -> ! {
    let serving = Serving::start(4);
    let mut workers = WorkerGroup::start(&[RankSpec::local(command()), serving.spec()]).unwrap();
    let pid = workers.infos().nth(1).unwrap().pid;
    let mut ticks = 0;
    let jobs = [b"partial".to_vec(), b"spin".to_vec()];
    let error = workers.run(&jobs, LONG, &AtomicBool::new(false), |event| {
        ticks += u64::from(event == TeamEvent::Tick);
        if ticks == 2 {
            ticks += 1;
            let down = Command::new("ip").args(["link", "set", "lo", "down"]).status();
            assert!(down.unwrap().success());
        }
    });
    let error = error.unwrap_err();
    assert_eq!((error.cause, error.rank), (Cause::Died, Some(1)), "{error}");
    assert!(error.what.contains("lost the connection") && error.partial[0].is_some(), "{error}");
    wait_until("the worker's end", || !is_alive(pid));
    println!("noticed at both ends");
    std::process::exit(0);
}
