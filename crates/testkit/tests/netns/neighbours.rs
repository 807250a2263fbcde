//! A host leaves the link during a connection and comes back with another link-layer address.

use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended};

use crate::lab::Lab;

/// How long the pair may take. While other namespaces are made and deleted, `ip` was seen to wait
/// half a minute for the kernel's lock, at any of the commands below.
const LIMIT: Duration = Duration::from_secs(200);
/// A connection is under way after this many packets.
const UNDER_WAY: u64 = 200;

/// How often to run the pair. A pair that ended before the link went down proves nothing.
const ATTEMPTS: u32 = 3;

/// Lost packets are retransmitted to the new address.
#[test]
fn a_connection_outlives_the_link_address_of_its_peer() {
    let test = "a_connection_outlives_the_link_address_of_its_peer";
    let Some(lab) = Lab::of_waiting(test, 1500, &["ib_send_lat", "sysctl"]) else { return };
    // Without an announcement of the new address, the peer takes up to a minute to find it.
    let tells = "sysctl -q -w net.ipv4.conf.eth0.arp_notify=1";
    lab.must(&format!("netns exec {} {tells}", lab.namespace(1)));
    let mut links = 0x70..;
    for _ in 0..ATTEMPTS {
        let once = || run(&lab, links.next().expect("a link address"));
        let attempt = programs::again_while(programs::SPOILED, once, |attempt| {
            attempt.ends.iter().any(programs::is_disturbed)
        });
        for ended in &attempt.ends {
            assert!(ended.succeeded(), "{}", ended.report());
        }
        if attempt.in_time {
            return;
        }
    }
    programs::skipped(test, "taking a link down took longer than the pair");
}

/// A pair whose server got another link-layer address.
struct Attempt {
    /// Whether the client was still running when the link went down.
    in_time: bool,
    ends: [Ended; 2],
}

/// Runs the pair. Meanwhile the server's link-layer address changes to one with this last byte.
fn run(lab: &Lab, link: u8) -> Attempt {
    let host = lab.namespace(1);
    let (port, until) = (programs::free_port(), Instant::now() + LIMIT);
    // With a T_tr of 4.3 s it retransmits for 100 s. The delay makes it last 8 s on any machine.
    let call = format!("ib_send_lat -x 1 -n 4000 -u 20 -p {port}");
    let slowly = [("RDMALAB_FAULTS", "delay 2ms of send")];
    let mut server = lab.start(1, &call);
    assert!(server.wait_until_it_listens(port), "{}", server.end_by(Instant::now()).report());
    let before = lab.packets(1);
    let mut client = lab.start_with(2, &format!("{call} 10.91.0.1"), &slowly);
    while lab.packets(1) < before + UNDER_WAY && !client.has_ended() {
        std::thread::sleep(Duration::from_millis(20));
    }
    lab.must(&format!("-n {host} link set eth0 down"));
    let in_time = !client.has_ended();
    lab.must(&format!("-n {host} link set eth0 up"));
    // The switch may drop the announcement of the new address if it comes earlier.
    std::thread::sleep(Duration::from_millis(1500));
    lab.must(&format!("-n {host} link set eth0 address 02:91:00:00:00:{link:02x}"));
    Attempt { in_time, ends: [client.end_by(until), server.end_by(until)] }
}
