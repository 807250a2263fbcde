//! Two programs on two hosts.

use rdmalab_testkit::programs::{self, WaitLimit};

use crate::lab::Lab;

/// The command line of each program, to be followed by a GID index for IPv4 or IPv6, and the least
/// number of packets: those of all iterations without acknowledgements.
const PINGPONGS: [(&str, u64); 6] = [
    ("ibv_rc_pingpong -c -n 200", 1600),
    ("ibv_rc_pingpong -c -e -n 100 -s 65536 -m 1024", 6400),
    ("ibv_rc_pingpong -c -s 1001 -m 256 -n 100", 400),
    ("ibv_uc_pingpong -n 100 -s 1000", 200),
    ("ibv_ud_pingpong -c -n 200", 400),
    ("ibv_srq_pingpong -c -n 200", 1600),
];

const PERFTEST: [(&str, u64); 12] = [
    ("ib_send_lat -n 300", 600),
    ("ib_send_lat -n 300 -c UC", 600),
    ("ib_send_lat -n 300 -c UD", 600),
    ("ib_send_lat -n 100 -e", 200),
    ("ib_write_lat -n 100", 200),
    ("ib_read_lat -n 300", 600),
    ("ib_read_lat -n 50 -s 65536", 50 * 64),
    ("ib_atomic_lat -n 300", 600),
    ("ib_send_bw -n 300 -s 8192", 300 * 8),
    ("ib_write_bw -n 300", 300 * 64),
    ("ib_read_bw -n 100", 100 * 64),
    ("ib_atomic_bw -n 300", 600),
];

/// Multicast, which perftest supports for datagrams with one queue pair. Its default group has an
/// interface-local GID (ff01::/16), and its GIDs must have the group's IP version.
const GROUPS: [(&str, u64); 5] = [
    ("ib_send_bw -c UD -g -n 200 -x 2", 200),
    ("ib_send_bw -c UD -g -n 200 -x 0", 200),
    ("ib_send_lat -c UD -g -n 200 -x 2", 400),
    ("ib_send_bw -c UD -g -n 200 -x 2 -M 0xff:2:0:0:0:0:0:0:0:0:0:0:0:0:0x1:0x5b", 200),
    ("ib_send_bw -c UD -g -n 200 -x 1 -M 0:0:0:0:0:0:0:0:0:0:0xff:0xff:239:9:9:9", 200),
];

/// Runs each line on two hosts, over both versions of IP.
#[track_caller]
fn check(test: &str, lines: &[(&str, u64)], gid_option: &str) {
    let programs: Vec<&str> = lines.iter().filter_map(|(line, _)| line.split(' ').next()).collect();
    let Some(lab) = Lab::of_programs(test, 1500, &programs) else { return };
    let mut failures = Vec::new();
    for (line, packets) in lines {
        for gid in [1, 2] {
            let call = format!("{line} {gid_option} {gid}");
            failures.extend(run(&lab, &call, *packets).err());
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs a pair; the error says what went wrong.
fn run(lab: &Lab, call: &str, packets: u64) -> Result<(), String> {
    let before = lab.packets(1);
    lab.pair(call, call).map_err(|wrong| format!("{call}\n{wrong}"))?;
    let crossed = lab.packets(1) - before;
    println!("{crossed:7} packets  {call}");
    // The counters of a veth count a run of segments as one packet, of at most 64 segments.
    match crossed < packets / 64 + 10 {
        true => Err(format!("{call}\nonly {crossed} packets crossed")),
        false => Ok(()),
    }
}

#[test]
fn pingpongs_between_hosts() {
    check("pingpongs_between_hosts", &PINGPONGS, "-g");
}

#[test]
fn perftest_between_hosts() {
    check("perftest_between_hosts", &PERFTEST, "-x");
}

#[test]
fn groups_between_hosts() {
    let test = "groups_between_hosts";
    let Some(lab) = Lab::of_programs(test, 1500, &["ib_send_bw", "ib_send_lat"]) else { return };
    let failures: Vec<String> =
        GROUPS.iter().filter_map(|(call, packets)| run(&lab, call, *packets).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// For a link-local destination, the kernel chooses a link-local source unless told otherwise.
#[test]
fn each_end_takes_a_gid_of_another_scope() {
    let test = "each_end_takes_a_gid_of_another_scope";
    let Some(lab) = Lab::of_programs(test, 1500, &["ibv_rc_pingpong"]) else { return };
    for [server, client] in [[0, 2], [2, 0]] {
        let call = |gid| format!("ibv_rc_pingpong -c -n 100 -g {gid}");
        lab.pair(&call(server), &call(client)).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// With jumbo frames the path MTU is 4096, and the device says so.
#[test]
fn jumbo_frames() {
    let test = "jumbo_frames";
    let names = ["ibv_rc_pingpong", "ibv_devinfo", "ib_write_bw"];
    let Some(lab) = Lab::of_programs(test, 4200, &names) else { return };
    let until = std::time::Instant::now() + crate::lab::LIMIT;
    let told = lab.start(1, "ibv_devinfo -v").end_by(until);
    for wanted in ["active_mtu:\t\t4096", "link_layer:\t\tEthernet", "::ffff:10.91.0.1", "fd91::1"]
    {
        assert!(told.stdout.contains(wanted), "{wanted}\n{}", told.report());
    }
    let call = "ibv_rc_pingpong -c -g 1 -m 4096 -s 100000 -n 50";
    lab.pair(call, call).unwrap_or_else(|wrong| panic!("{wrong}"));
    let call = "ib_write_bw -x 2 -m 4096 -s 1048576 -n 50";
    lab.pair(call, call).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Without a named interface the library opens no port to other hosts and sends no packets to them.
#[test]
fn without_an_interface_nothing_leaves_the_host() {
    let test = "without_an_interface_nothing_leaves_the_host";
    let Some(lab) = Lab::of_waiting(test, 1500, &["ibv_rc_pingpong"]) else { return };
    let call = "RDMALAB_INTERFACE= ibv_rc_pingpong -g 1 -n 10";
    let wrong = lab.pair(call, call);
    assert!(wrong.is_err_and(|wrong| !wrong.contains("never listened")), "it must not connect");
}

/// GID 0 is link-local. On a new host, duplicate address detection is still running, and nobody
/// answers for the address; a program that resolves it waits.
#[test]
fn an_address_that_is_not_in_use_yet_is_waited_for() {
    let test = "an_address_that_is_not_in_use_yet_is_waited_for";
    let Some(lab) = Lab::of_waiting(test, 1500, &["ibv_rc_pingpong"]) else { return };
    let call = "ibv_rc_pingpong -c -g 0 -n 100";
    if let Err(wrong) = lab.pair(call, call) {
        panic!("{wrong}");
    }
}

/// A packet too long for its path never arrives, however often it is sent. The program only gets a
/// time-out; the user is told the reason, if a router has reported it.
#[test]
fn a_path_that_is_too_narrow_is_told() {
    let test = "a_path_that_is_too_narrow_is_told";
    let Some(lab) = Lab::of_waiting(test, 1500, &["ibv_rc_pingpong"]) else { return };
    // The switch drops longer packets, and the kernel has the route that it has after a report.
    lab.must(&format!("-n {} link set p1 mtu 900", lab.switch()));
    lab.must(&format!("-n {} route add 10.91.0.1/32 dev eth0 mtu 900", lab.namespace(2)));
    // One packet a message: the switch lets those through that the kernel has yet to cut.
    let call = "ibv_rc_pingpong -g 1 -s 1000 -n 9";
    let wrong = lab.pair(call, call).expect_err("1000 bytes do not fit");
    let told = "rdmalab: no answer from 10.91.0.1 in time, and the network has reported a path MTU \
                of 900";
    assert_eq!(wrong.matches(told).count(), 1, "{wrong}");
    let call = "ibv_rc_pingpong -c -g 1 -m 512 -s 1000 -n 9";
    lab.pair(call, call).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Sends forged ICMP messages "fragmentation needed" and "packet too big", which quote a packet of
/// host 2 to host 1, until standard input ends.
const FORGER: &str = "
import select, socket, struct, sys
def checksum(data):
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
udp = struct.pack('!HHHH', 4791, 4791, 1056, 0)
ends = socket.inet_aton('10.91.0.2') + socket.inet_aton('10.91.0.1')
quoted = struct.pack('!BBHHHBBH', 0x45, 0, 1076, 1, 0x4000, 64, 17, 0) + ends + udp
icmp = struct.pack('!BBHHH', 3, 4, 0, 0, 600) + quoted
icmp = icmp[:2] + struct.pack('!H', checksum(icmp)) + icmp[4:]
four = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
six = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
ends = socket.inet_pton(socket.AF_INET6, 'fd91::2') + socket.inet_pton(socket.AF_INET6, 'fd91::1')
quoted = struct.pack('!IHBB', 6 << 28, 1056, 17, 64) + ends + udp
too_big = struct.pack('!BBHI', 2, 0, 0, 1280) + quoted
while True:
    four.sendto(icmp, ('10.91.0.2', 0))
    six.sendto(too_big, ('fd91::2', 0))
    if select.select([sys.stdin], [], [], 0.02)[0]:
        break
";

/// Anybody who can reach a host can send it an ICMP message that says that a path has a small MTU.
/// It must not stop a connection.
#[test]
fn forged_reports_of_a_small_path_mtu_change_nothing() {
    let test = "forged_reports_of_a_small_path_mtu_change_nothing";
    let Some(lab) = Lab::of_programs(test, 1500, &["ibv_rc_pingpong", "python3"]) else { return };
    let mut forger = lab.command(1, "python3");
    let mut forger = programs::Process::start_with_input(forger.args(["-c", FORGER]));
    let pair = |gid: u32| {
        let call = format!("ibv_rc_pingpong -c -g {gid} -m 1024 -s 65536 -n 300");
        lab.pair(&call, &call).unwrap_or_else(|wrong| panic!("{wrong}"));
    };
    let is_believed = || {
        let mut query = lab.command(2, "ip");
        let route = query.args(["route", "get", "10.91.0.1"]).output().expect("ip runs").stdout;
        String::from_utf8_lossy(&route).contains("mtu 600")
    };
    // The kernel believes a report that quotes a packet of an open socket.
    let mut wait_limit = WaitLimit::of(crate::lab::LIMIT);
    while !is_believed() {
        assert!(wait_limit.is_left(), "the kernel believes no report");
        pair(1);
    }
    (1..=2).for_each(pair);
    drop(forger.child.stdin.take());
    let ended = forger.end();
    assert!(ended.succeeded(), "the messages were not sent: {}", ended.report());
}
