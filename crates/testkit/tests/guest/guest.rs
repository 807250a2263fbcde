//! A guest with Debian's kernel and its software RoCE device, and the link between it and the host.
//!
//! `tests/guest/build` makes the guest. It runs in software emulation and is connected to a tap
//! device in a network namespace of its own; our programs run there as the other host. Dropping the
//! [`Guest`] removes everything; the emulator also ends when this process does.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rdmalab_testkit::programs::{self, Process, WaitLimit};

/// The guest's address.
pub const GUEST: &str = "10.91.0.2";
/// The guest's IPv6 address.
const GUEST6: &str = "fd91::2";
/// Our address.
pub const HOST: &str = "10.91.0.1";
/// Our IPv6 address.
const HOST6: &str = "fd91::1";
/// The MTU of the guest's Ethernet device and ours.
const MTU: usize = 1500;
/// The name of the tap device.
const INTERFACE: &str = "rl0";
/// How long the guest may take to boot.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long a command in the guest may take. `timeout` stops it there after 100 s of guest time,
/// which may be several times as long here if the machine is busy.
const COMMAND_LIMIT: Duration = Duration::from_secs(400);

/// The result of a command in the guest.
#[derive(Debug)]
pub struct Done {
    /// The command.
    pub command: String,
    /// Its exit status; 124 if it was stopped by `timeout`.
    pub status: i32,
    /// Its standard output and standard error.
    pub output: String,
}

impl Done {
    /// The output of a command that must have succeeded.
    ///
    /// # Panics
    /// When it failed, with a report.
    pub fn expect(self) -> String {
        assert!(self.status == 0, "{}", self.report());
        self.output
    }

    /// The command, its exit status and its output.
    pub fn report(&self) -> String {
        format!("guest$ {}\n  exit status {}\n{}", self.command, self.status, self.output)
    }
}

/// A running guest.
pub struct Guest {
    emulator: Child,
    namespace: String,
    orders: UnixStream,
    answers: BufReader<UnixStream>,
    directory: PathBuf,
    /// Rules of `RDMALAB_FAULTS` for programs on our side.
    pub faults: &'static str,
}

/// The reason why no guest can run here.
pub struct Unable(pub String);

impl Guest {
    /// Boots a guest.
    ///
    /// # Errors
    /// When this machine lacks something that the guest needs.
    ///
    /// # Panics
    /// When the guest does not boot.
    pub fn boot() -> Result<Self, Unable> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let image = image()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("guest-{}-{count}", std::process::id());
        let namespace = format!("rdmalab-{name}");
        wire(&namespace)?;
        let directory = image.join(format!("run-{name}"));
        std::fs::create_dir_all(directory.join("share")).expect("cargo's directory is writable");
        let control = directory.join("control");
        let _ = std::fs::remove_file(&control);
        let emulator = emulator(&image, &namespace, &directory);
        let mut guest = Self::connect(emulator, namespace, directory, &control);
        let ready = guest.line(BOOT_LIMIT);
        assert!(ready.starts_with("@ready"), "the guest said {ready:?}\n{}", guest.console());
        let trouble = guest.console();
        assert!(!trouble.contains("NO "), "the guest lacks something:\n{trouble}");
        Ok(guest)
    }

    fn connect(mut emulator: Child, namespace: String, directory: PathBuf, control: &Path) -> Self {
        let mut wait_limit = WaitLimit::of(BOOT_LIMIT);
        let orders = loop {
            if let Ok(stream) = UnixStream::connect(control) {
                break stream;
            }
            let gone = emulator.try_wait().expect("the emulator can be asked");
            let log = std::fs::read_to_string(directory.join("emulator.log")).unwrap_or_default();
            assert!(gone.is_none() && wait_limit.is_left(), "no emulator: {log}");
            std::thread::sleep(Duration::from_millis(20));
        };
        let answers = BufReader::new(orders.try_clone().expect("a second descriptor"));
        Self { emulator, namespace, orders, answers, directory, faults: "" }
    }

    /// The output of the guest's kernel and of its first process.
    fn console(&self) -> String {
        std::fs::read_to_string(self.directory.join("console.log")).unwrap_or_default()
    }

    fn line(&mut self, limit: Duration) -> String {
        self.orders.set_read_timeout(Some(limit)).expect("a limit");
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(n) if n > 0 => line.trim_end_matches(['\r', '\n']).to_owned(),
            other => panic!("the guest is silent ({other:?}):\n{}", self.console()),
        }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the guest listens");
    }

    fn answer(&mut self, command: &str) -> Done {
        let begin = self.line(COMMAND_LIMIT);
        assert_eq!(begin, "@begin", "after `{command}`");
        let mut output = String::new();
        loop {
            let line = self.line(COMMAND_LIMIT);
            if let Some(status) = line.strip_prefix("@end ") {
                let status = status.parse().expect("a number");
                return Done { command: command.to_owned(), status, output };
            }
            output.push_str(&line);
            output.push('\n');
        }
    }

    /// Runs a shell command in the guest.
    pub fn run(&mut self, command: &str) -> Done {
        self.order(&format!("run timeout 100 {command}"));
        self.answer(command)
    }

    /// Starts a command in the guest; [`Guest::wait`] waits for its end.
    pub fn start(&mut self, name: &str, command: &str) {
        self.order(&format!("start {name} timeout 100 {command}"));
        assert_eq!(self.line(COMMAND_LIMIT), "@started");
    }

    /// Waits for the end of a command that [`Guest::start`] started.
    pub fn wait(&mut self, name: &str) -> Done {
        self.order(&format!("wait {name}"));
        self.answer(name)
    }

    /// Waits until a program in the guest listens on a TCP port.
    pub fn await_port(&mut self, port: u16) {
        let hex = format!("{port:04X}");
        let seen = self.run(&format!(
            "sh -c 'until grep -qE \":{hex} .* 0A \" /proc/net/tcp /proc/net/tcp6; do usleep \
             20000; done'"
        ));
        seen.expect();
    }

    /// Waits until a program in the guest listens for connections by rdma_cm.
    pub fn await_listener(&mut self) {
        let listens = "rdma resource show cm_id | grep -q LISTEN";
        self.run(&format!("sh -c 'until {listens}; do usleep 20000; done'")).expect();
    }

    /// The guest without the loss that a test added.
    pub fn undisturbed(mut self) -> Self {
        self.faults = "";
        // There may be none.
        self.run("/usr/bin/tc qdisc del dev eth0 root");
        self
    }

    /// A directory that the guest sees as `/host`.
    pub fn share(&self) -> PathBuf {
        self.directory.join("share")
    }

    /// Starts a program of this machine in the namespace with our end of the link, on our library.
    pub fn start_here(&self, program: &Path, arguments: &[String]) -> Process {
        let mut all: Vec<String> = ["netns", "exec", &self.namespace].map(str::to_owned).to_vec();
        all.push(program.display().to_string());
        all.extend_from_slice(arguments);
        let ip = programs::find("ip").or_else(|| Some(PathBuf::from("/sbin/ip")));
        let interface = ("RDMALAB_INTERFACE".to_owned(), INTERFACE.to_owned());
        let faults = ("RDMALAB_FAULTS".to_owned(), self.faults.to_owned());
        programs::start(&ip.expect("found before"), &all, &[interface, faults])
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        let _ = tell("ip", &["netns", "del", &self.namespace]);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Builds the image unless it exists.
fn image() -> Result<PathBuf, Unable> {
    for tool in ["qemu-system-x86_64", "setpriv"] {
        if programs::find(tool).is_none() {
            return Err(Unable(format!("{tool} is not installed")));
        }
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guest/build");
    let output = Command::new(build).arg(&directory).output().expect("the script runs");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(directory),
        Some(3) => Err(Unable(said)),
        _ => panic!("tests/guest/build: {}: {said}", output.status),
    }
}

/// Makes the namespace with the tap device.
fn wire(namespace: &str) -> Result<(), Unable> {
    let mtu = MTU.to_string();
    tell("ip", &["netns", "add", namespace])?;
    let inside = |arguments: &[&str]| tell("ip", &[&["-n", namespace], arguments].concat());
    let made = (|| {
        inside(&["tuntap", "add", "dev", INTERFACE, "mode", "tap"])?;
        inside(&["link", "set", INTERFACE, "mtu", &mtu])?;
        inside(&["addr", "add", &format!("{HOST}/24"), "dev", INTERFACE])?;
        inside(&["addr", "add", &format!("{HOST6}/64"), "dev", INTERFACE, "nodad"])?;
        inside(&["link", "set", INTERFACE, "up"])?;
        inside(&["link", "set", "lo", "up"])
    })();
    if made.is_err() {
        let _ = tell("ip", &["netns", "del", namespace]);
    }
    made
}

fn tell(tool: &str, arguments: &[&str]) -> Result<(), Unable> {
    let Some(path) = programs::find(tool) else {
        return Err(Unable(format!("{tool} (iproute2) is not installed")));
    };
    let output = Command::new(path).args(arguments).output().expect("iproute2 runs");
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Unable(format!("{tool} {}: {said} (no rights?)", arguments.join(" "))))
        }
    }
}

fn emulator(image: &Path, namespace: &str, directory: &Path) -> Child {
    let at = |name: &str| directory.join(name).display().to_string();
    let log = std::fs::File::create(directory.join("emulator.log")).expect("a log");
    let append = format!(
        "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr no_timer_check \
         random.trust_cpu=on net.ifnames=0 rl.ip={GUEST}/24 rl.ip6={GUEST6}/64 rl.mtu={MTU}"
    );
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", namespace, "setpriv", "--pdeathsig", "KILL"])
        .args(["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max"])
        .args(["-smp", "2", "-m", "512", "-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-monitor", "none"])
        .args(["-serial", &format!("file:{}", at("console.log"))])
        .args(["-chardev", &format!("socket,id=ctl,path={},server=on,wait=off", at("control"))])
        .args(["-serial", "chardev:ctl"])
        .arg("-kernel")
        .arg(image.join("vmlinuz"))
        .arg("-initrd")
        .arg(image.join("initrd"))
        .args(["-netdev", &format!("tap,id=n0,ifname={INTERFACE},script=no,downscript=no")])
        .args(["-device", &format!("virtio-net-pci,netdev=n0,romfile=,host_mtu={MTU}")])
        .args(["-fsdev", &format!("local,id=h,path={},security_model=none", at("share"))])
        .args(["-device", "virtio-9p-pci,fsdev=h,mount_tag=host"])
        .args(["-append", &append])
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second descriptor"))
        .stderr(log);
    // The kernel kills it with the thread that started it, which must outlive the test.
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = tell.send(command.spawn());
        loop {
            std::thread::park();
        }
    });
    told.recv().expect("the thread goes on").expect("the emulator starts")
}
