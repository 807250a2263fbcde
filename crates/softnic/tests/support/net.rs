//! Hosts for children: network namespaces on one switch.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rdmalab_engine::backend::Backend;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;
use rdmalab_wire::ids::Gid;

use super::node::*;
use super::{Link, Plan, Processes};
use rdmalab_testing::skipped;

/// Path MTU 1024, which fits an Ethernet interface.
pub const MTU_1024: u32 = 3;
/// The first digits of the hosts' link-layer addresses; the host number follows.
const LINK_ADDRESS: &str = "02:00:5e:92:00:0";
/// The variable that tells children the names of the hosts.
const NET: &str = "RDMALAB_TEST_NET";

/// A switch with hosts 1 ..= N, whose `eth0` have 10.92.0.N and fd92::N.
pub struct Net {
    pub base: String,
    hosts: usize,
}

/// Runs a program of iproute2; returns its output.
fn run(program: &str, arguments: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    run("ip", arguments).map(drop)
}

fn must(arguments: &str) {
    ip(arguments).unwrap_or_else(|why| panic!("ip {arguments}: {why}"));
}

impl Net {
    /// Hosts for a test; `None`, with a message, if this machine does not allow them.
    pub fn of(test: &str, hosts: usize) -> Option<Net> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let net = Net { base: format!("rdmalab-{}-{number}n", std::process::id()), hosts };
        let base = &net.base;
        let made = ip(&format!("netns add {base}0"))
            .and_then(|()| ip(&format!("-n {base}0 link add br0 type bridge mcast_snooping 0")));
        if let Err(why) = made {
            skipped(test, format!("no network namespaces here (root needed): {why}"));
            return None;
        }
        must(&format!("-n {base}0 link set br0 up"));
        for host in 1..=hosts {
            must(&format!("netns add {base}{host}"));
            must(&format!(
                "link add eth0 address {LINK_ADDRESS}{host} netns {base}{host} \
                 type veth peer name p{host} netns {base}0"
            ));
            must(&format!("-n {base}0 link set p{host} master br0 up"));
            must(&format!("-n {base}{host} link set lo up"));
            must(&format!("-n {base}{host} address add 10.92.0.{host}/24 dev eth0"));
            must(&format!("-n {base}{host} address add fd92::{host}/64 dev eth0 nodad"));
            must(&format!("-n {base}{host} link set eth0 up"));
        }
        Some(net)
    }

    /// Adds a queue discipline, in the words of `tc`, to what every host sends. `false`, with a
    /// message, if the kernel does not have it.
    pub fn queue(&self, test: &str, queue: &str) -> bool {
        self.introduce_all();
        let set = |host| {
            let host = format!("{}{host}", self.base);
            run("tc", &format!("-n {host} qdisc replace dev eth0 root {queue}")).map(drop)
        };
        let done = (1..=self.hosts).try_for_each(set);
        if let Err(why) = &done {
            skipped(test, format!("no `tc qdisc ... {queue}` here: {why}"));
        }
        done.is_ok()
    }

    /// Gives all hosts permanent neighbour entries, so that no ARP request can be lost.
    fn introduce_all(&self) {
        for (host, peer) in (1..=self.hosts).flat_map(|a| (1..=self.hosts).map(move |b| (a, b))) {
            if host != peer {
                self.introduce(host, peer);
            }
        }
    }

    /// Gives a host a permanent neighbour entry for a peer, so that it sends no ARP request.
    pub fn introduce(&self, host: usize, peer: usize) {
        for address in ["10.92.0.", "fd92::"] {
            must(&format!(
                "-n {}{host} neighbour replace {address}{peer} lladdr {LINK_ADDRESS}{peer} \
                 dev eth0 nud permanent",
                self.base
            ));
        }
    }

    /// How many packets a host's queue discipline dropped.
    pub fn dropped(&self, host: usize) -> u64 {
        let told = run("tc", &format!("-s -n {}{host} qdisc show dev eth0", self.base));
        let told = told.expect("tc shows queues");
        let count = told.split("(dropped ").nth(1).and_then(|rest| rest.split(',').next());
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{told}"))
    }

    /// Starts children on these hosts, with a link for each pair.
    pub fn start(&self, roles: &[(&str, &[u64])]) -> Processes {
        Processes::start_plan(&Plan { roles, links: 1, env: &self.env() })
    }

    /// The environment variables of children.
    fn env(&self) -> [(&str, &str); 2] {
        [(NET, &self.base), ("RDMALAB_INTERFACE", "eth0")]
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in 0..=self.hosts {
            let _ = ip(&format!("netns delete {}{host}", self.base));
        }
    }
}

/// Moves this thread, and threads that it starts later, to a host.
pub fn enter(host: u64) {
    let base = std::env::var(NET).expect("a net");
    let namespace = File::open(format!("/run/netns/{base}{host}")).expect("a namespace");
    // SAFETY: a descriptor of a namespace; moves this thread only.
    let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
}

/// An address vector with a GID.
pub fn ah_of(dgid: Gid, sgid_index: u8) -> AhAttr {
    AhAttr { dgid, sgid_index, is_global: true, port_num: 1, ..AhAttr::default() }
}

/// Connects over a link by the GIDs with this index.
pub fn connect(node: &Node, endpoint: &Endpoint, link: &Link, gid_index: u8) {
    use QpAttrMask as M;
    endpoint.to_init();
    let gid = SoftNic::query_gid(&node.ctx, 1, u32::from(gid_index)).expect("a GID").gid;
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| gid.0[at + i]));
    link.put(&[endpoint.qpn as u64, word(0), word(8)]);
    let words = link.get();
    let mut dgid = Gid::default();
    dgid.0[..8].copy_from_slice(&words[1].to_be_bytes());
    dgid.0[8..].copy_from_slice(&words[2].to_be_bytes());
    let setup = &endpoint.setup;
    let attr = QpAttr {
        qp_state: QpState::Rtr,
        path_mtu: setup.mtu,
        dest_qp_num: words[0] as u32,
        rq_psn: 0x00ff_fff0,
        max_dest_rd_atomic: setup.rd_atomic,
        min_rnr_timer: setup.min_rnr_timer,
        ah_attr: ah_of(dgid, gid_index),
        ..QpAttr::default()
    };
    let connected = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let mask = match setup.qp_type {
        QpType::Rc => connected | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
        _ => connected,
    };
    SoftNic::modify_qp(&endpoint.qp, &attr, mask).expect("a way there");
    endpoint.to_rts();
    link.sync();
}

/// The process that holds the lock of this host's socket, unless it is this process.
pub fn other_owner() -> Option<u64> {
    let name_of = |fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let fds = std::fs::read_dir("/proc/self/fd").expect("our descriptors").flatten();
    let mut fds = fds.filter_map(|fd| fd.file_name().to_str()?.parse::<RawFd>().ok());
    let is_it = |fd: &RawFd| name_of(*fd).to_string_lossy().contains("memfd:rdmalab-socket");
    let memory = fds.find(is_it).expect("the memory whose first byte's lock says who is the owner");
    // SAFETY: all-zero is a valid value of this plain C structure, which the kernel reads and
    // writes.
    let owner = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_len = 1;
        assert_eq!(libc::fcntl(memory, libc::F_GETLK, &raw mut lock), 0);
        (i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid)
    };
    owner.map(|pid| pid as u64)
}
