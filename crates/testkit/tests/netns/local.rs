//! Processes of one host communicate through memory, even if an interface is named.

use crate::lab::Lab;

/// Each of these programs sends thousands of messages of one packet or more.
const PAIRS: [&str; 3] = [
    "ibv_rc_pingpong -c -g 1 -n 2000",
    "ibv_ud_pingpong -c -g 1 -n 2000",
    "ib_write_bw -x 1 -n 2000",
];
/// Upper bound for the datagrams of neighbour resolution.
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
        // Check the counter as well: between two hosts it counts thousands.
        let before = lab.datagrams(1);
        let ends = lab.pair_on([1, 2], line, line);
        assert!(ends.is_ok(), "{line}: {}", ends.err().unwrap_or_default());
        let sent = lab.datagrams(1) - before;
        assert!(sent > FEW, "{line}: {sent} datagrams");
    }
}
