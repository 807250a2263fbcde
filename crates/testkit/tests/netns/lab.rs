//! Hosts for tests: network namespaces on a switch, each with an interface `eth0`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended, Process, Turn, WaitLimit};

/// A program that takes longer counts as hung.
pub const LIMIT: Duration = Duration::from_secs(100);
/// How long a server may take to notice that its client failed.
pub const GRACE: Duration = Duration::from_secs(3);
/// The interface by which each host reaches the others.
pub const INTERFACE: &str = "eth0";

/// A switch and its hosts. Dropping this removes them.
pub struct Lab {
    ip: PathBuf,
    switch: String,
    hosts: Vec<String>,
    /// The turn to run programs; dropped after the hosts.
    _turn: Option<Turn>,
}

impl Lab {
    /// Two hosts, and the turn to run programs while they exist. `None`, with a message, if one of
    /// `names` is not installed or [`Lab::with`] gives `None`.
    pub fn of_programs(test: &str, mtu: u32, names: &[&str]) -> Option<Lab> {
        Self::in_turn(programs::turn, test, mtu, names)
    }

    /// The same for programs that mostly wait: other tests of such programs run meanwhile.
    pub fn of_waiting(test: &str, mtu: u32, names: &[&str]) -> Option<Lab> {
        Self::in_turn(programs::shared_turn, test, mtu, names)
    }

    fn in_turn(turn: fn() -> Turn, test: &str, mtu: u32, names: &[&str]) -> Option<Lab> {
        if let Some(name) = names.iter().find(|name| programs::find(name).is_none()) {
            programs::skipped(test, format!("{name} is not installed"));
            return None;
        }
        let turn = turn();
        // Build the libraries before the hosts are made: some tests need new hosts.
        programs::library_dir();
        let mut lab = Lab::with(test, 2, mtu)?;
        lab._turn = Some(turn);
        Some(lab)
    }

    /// Hosts with addresses 10.91.0.N and fd91::N from N = 1. `None`, with a message, if this
    /// machine does not allow namespaces.
    pub fn with(test: &str, hosts: usize, mtu: u32) -> Option<Lab> {
        let Some(ip) = programs::find("ip") else {
            programs::skipped(test, "no `ip` (Debian: iproute2)");
            return None;
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = format!("rdmalab-{}-{number}", std::process::id());
        let switch = format!("{base}-switch");
        let mut lab = Lab { ip, switch: switch.clone(), hosts: Vec::new(), _turn: None };
        // This machine may not allow namespaces, so the first errors must not fail the test.
        if let Err(why) = lab.ip(&format!("netns add {switch}")) {
            programs::skipped(test, format!("no network namespaces here (root needed): {why}"));
            return None;
        }
        if let Err(why) = lab.ip(&format!("-n {switch} link add br0 type bridge")) {
            programs::skipped(test, format!("no bridges here: {why}"));
            return None;
        }
        lab.must(&format!("-n {switch} link set br0 mtu {mtu} up"));
        for number in 1..=hosts {
            lab.add_host(&base, number, mtu);
        }
        lab.hosts.iter().for_each(|host| lab.wait_until_up(host));
        Some(lab)
    }

    fn add_host(&mut self, base: &str, number: usize, mtu: u32) {
        let (host, switch) = (format!("{base}-{number}"), self.switch.clone());
        self.must(&format!("netns add {host}"));
        self.hosts.push(host.clone());
        self.must(&format!(
            "link add eth0 netns {host} mtu {mtu} type veth peer name p{number} netns {switch}"
        ));
        self.must(&format!("-n {switch} link set p{number} mtu {mtu} master br0 up"));
        self.must(&format!("-n {host} link set lo up"));
        self.must(&format!("-n {host} address add 10.91.0.{number}/24 dev eth0"));
        self.must(&format!("-n {host} address add fd91::{number}/64 dev eth0 nodad"));
        self.must(&format!("-n {host} link set eth0 up"));
    }

    /// Waits for the carrier of a new interface. The kernel reports such changes once a second if
    /// there are many, and a device whose port is down refuses programs.
    fn wait_until_up(&self, host: &str) {
        let mut wait_limit = WaitLimit::of(LIMIT);
        let look = ["-n", host, "-o", "link", "show", INTERFACE];
        let is_up = || {
            let output = Command::new(&self.ip).args(look).output().expect("ip runs");
            String::from_utf8_lossy(&output.stdout).contains(" state UP ")
        };
        while !is_up() {
            assert!(wait_limit.is_left(), "{host}: {INTERFACE} has no carrier");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ip(&self, arguments: &str) -> Result<(), String> {
        let output = Command::new(&self.ip)
            .args(arguments.split(' '))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Runs `ip` with arguments and panics if it fails.
    #[track_caller]
    pub fn must(&self, arguments: &str) {
        if let Err(why) = self.ip(arguments) {
            panic!("ip {arguments}: {why}");
        }
    }

    /// The network namespace of a host; the first host is 1.
    pub fn namespace(&self, host: usize) -> &str {
        &self.hosts[host - 1]
    }

    /// The network namespace of the switch, whose port to host N is `pN`.
    pub fn switch(&self) -> &str {
        &self.switch
    }

    /// A program on a host, without our library.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new(&self.ip);
        command.args(["netns", "exec", self.namespace(host), program]);
        command
    }

    /// Starts a program on a host: a line of `[VARIABLE=VALUE ...] PROGRAM [OPTION ...]`.
    pub fn start(&self, host: usize, line: &str) -> Process {
        self.start_with(host, line, &[])
    }

    /// As [`Lab::start`], with variables whose values may contain blanks.
    pub fn start_with(&self, host: usize, line: &str, variables: &[(&str, &str)]) -> Process {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables: Vec<(String, String)> = variables.iter().map(owned).collect();
        let command =
            format!("netns exec {} env RDMALAB_INTERFACE={INTERFACE} {line}", self.namespace(host));
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        programs::start(&self.ip, &words, &variables)
    }

    /// Packets that a host's interface sent and received.
    pub fn packets(&self, host: usize) -> u64 {
        let script = format!("cat /sys/class/net/{INTERFACE}/statistics/[rt]x_packets");
        let output = Command::new(&self.ip)
            .args(["netns", "exec", self.namespace(host), "sh", "-c", &script])
            .output()
            .expect("ip runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let counts: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(counts.len(), 2, "{text}");
        counts.iter().sum()
    }

    /// UDP datagrams that a host sent, including those to itself.
    pub fn datagrams(&self, host: usize) -> u64 {
        let output = Command::new(&self.ip)
            .args(["netns", "exec", self.namespace(host), "cat", "/proc/net/snmp"])
            .output()
            .expect("ip runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut rows = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (rows.next().expect("names"), rows.next().expect("values"));
        let mut columns = names.split(' ').zip(values.split(' '));
        let sent = columns.find(|(name, _)| *name == "OutDatagrams").expect("it is counted").1;
        sent.parse().expect("a number")
    }

    /// The UDP counters of a host's kernel, as text.
    pub fn udp_counters(&self, host: usize) -> String {
        let output = Command::new(&self.ip)
            .args(["netns", "exec", self.namespace(host), "grep", "^Udp", "/proc/net/snmp"])
            .output()
            .expect("ip runs");
        format!("host {host}:\n{}", String::from_utf8_lossy(&output.stdout))
    }

    /// Runs a server on host 1 and its client on host 2, as [`Lab::pair_on`] does.
    pub fn pair(&self, server: &str, client: &str) -> Result<(Ended, Ended), String> {
        self.pair_on([1, 2], server, client)
    }

    /// Runs a server and its client on one host or two; `client` holds the options that only the
    /// client gets. Both must succeed. Runs again if other load disturbed perftest.
    pub fn pair_on(
        &self,
        hosts: [usize; 2],
        server: &str,
        client: &str,
    ) -> Result<(Ended, Ended), String> {
        let is_disturbed = |ends: &Result<_, String>| {
            ends.as_ref().is_err_and(|report| programs::are_disturbed(report))
        };
        programs::again_while(
            programs::SPOILED,
            || self.pair_once(hosts, server, client),
            is_disturbed,
        )
    }

    fn pair_once(
        &self,
        [here, there]: [usize; 2],
        server: &str,
        client: &str,
    ) -> Result<(Ended, Ended), String> {
        let port = programs::free_port();
        let mut listening = self.start(here, &format!("{server} -p {port}"));
        // Started only now, because building our libraries may have taken a while.
        let until = Instant::now() + LIMIT;
        if !listening.wait_until_it_listens(port) {
            return Err(format!("never listened\n{}", listening.end_by(Instant::now()).report()));
        }
        let client = format!("{client} -p {port} 10.91.0.{here}");
        let client = self.start(there, &client).end_by(until);
        let patience = if client.succeeded() { until } else { Instant::now() + GRACE };
        let server = listening.end_by(patience);
        match client.succeeded() && server.succeeded() {
            true => Ok((server, client)),
            false => Err(format!("{}{}", client.report(), server.report())),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.switch]) {
            // Deleting a namespace deletes its interfaces.
            let _ = self.ip(&format!("netns delete {name}"));
        }
    }
}
