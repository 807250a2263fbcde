//! Processes of one host reach each other through memory, also where an interface is named.

use crate::lab::Lab;

/// Each of these has thousands of messages of one packet or more.
const PAIRS: [&str; 3] = [
    "ibv_rc_pingpong -c -g 1 -n 2000",
    "ibv_ud_pingpong -c -g 1 -n 2000",
    "ib_write_bw -x 1 -n 2000",
];
/// Datagrams by which neighbours are asked for, at most.
const FEW: u64 = 50;

#[test]
fn a_pair_on_one_host_sends_no_datagram() {
    let test = "a_pair_on_one_host_sends_no_datagram";
    let names = ["ibv_rc_pingpong", "ibv_ud_pingpong", "ib_write_bw"];
    let Some(lab) = Lab::of_programs(test, 1500, &names) else { return };
    for line in PAIRS {
        let before = lab.datagrams(1);
        let ends = lab.pair_on([1, 1], line, line);
        assert!(ends.is_ok(), "{line}: {}", ends.err().unwrap_or_default());
        let sent = lab.datagrams(1) - before;
        assert!(sent < FEW, "{line}: {sent} datagrams");
        // As a check of the counter: between hosts there are thousands.
        let before = lab.datagrams(1);
        let ends = lab.pair_on([1, 2], line, line);
        assert!(ends.is_ok(), "{line}: {}", ends.err().unwrap_or_default());
        let sent = lab.datagrams(1) - before;
        assert!(sent > FEW, "{line}: {sent} datagrams");
    }
}
