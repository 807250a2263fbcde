//! Tries each way to install in a bare root directory: the C library, a shell, two of Debian's RDMA
//! programs with their libraries, and the files of the installation. Nothing else of this machine
//! can be seen there.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{Process, said};
use rdmalab_testing::{PERFTEST_DISTURBED, again_while, free_port, skipped};

/// The programs of Debian to try.
const PROGRAMS: [&str; 2] = ["ibv_devinfo", "ib_send_lat"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a command that must succeed; returns its output.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Copies with another process. If this process held the copy open for writing, a child that one of
/// our threads starts meanwhile would inherit the descriptor, and running the copy would fail
/// (ETXTBSY).
fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("--dereference").args([from, to]));
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A bare root directory, and the command to enter it.
struct Root {
    directory: tempfile::TempDir,
    enter: Vec<String>,
}

impl Root {
    /// `None`, with the reason printed, if this machine does not allow it.
    fn new(test: &str) -> Option<Self> {
        let mut programs = vec![PathBuf::from("/bin/sh")];
        for name in PROGRAMS {
            let path = Path::new("/usr/bin").join(name);
            if !path.is_file() {
                skipped(test, format!("no {name} (apt install ibverbs-utils perftest)"));
                return None;
            }
            programs.push(path);
        }
        let Some(enter) = way_in() else {
            skipped(test, "not root, and no user namespaces: nobody can change the root directory");
            return None;
        };
        let root = Self { directory: tempfile::tempdir().unwrap(), enter };
        programs.push(assert_cmd::cargo::cargo_bin("rdmalab"));
        let libraries: BTreeSet<PathBuf> = programs.iter().flat_map(|p| linked_to(p)).collect();
        programs.pop();
        for file in programs.iter().chain(&libraries) {
            root.copy(file, file);
        }
        for directory in ["tmp", "proc"] {
            std::fs::create_dir(root.path().join(directory)).unwrap();
        }
        Some(root)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Copies a file of this machine to an absolute path in the root.
    fn copy(&self, from: &Path, to: &Path) {
        let to = self.path().join(to.strip_prefix("/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        copy(from, &to);
    }

    /// A command in the root, without our environment.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.enter[0]);
        command.args(&self.enter[1..]).arg(self.path()).args(arguments);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Checks that an installation works. `rdmalab` is its path in the root.
    fn works(&self, rdmalab: &str) {
        let devices = run(&mut self.command(&[rdmalab, "devices"]));
        assert!(devices.contains("soft0  (soft)"), "{devices}");
        let info = run(&mut self.command(&[rdmalab, "exec", "--", "ibv_devinfo"]));
        assert!(info.contains("soft0") && info.contains("PORT_ACTIVE"), "{info}");
        let why = "perftest could not tell its clock";
        let table = again_while(why, || self.latency(rdmalab), Option::is_none);
        let table = table.expect("perftest measures its processor's clock");
        assert!(table.contains("t_typical") && table.contains(" 200 "), "{table}");
    }

    /// The output of perftest's client; `None` if one of the ends was
    /// [disturbed](PERFTEST_DISTURBED).
    fn latency(&self, rdmalab: &str) -> Option<String> {
        let port = free_port();
        let of_port = port.to_string();
        let call =
            [rdmalab, "exec", "--", "ib_send_lat", "-d", "soft0", "-n", "200", "-p", &of_port];
        let mut server = Process::start(&mut self.command(&call));
        server.listens_on(port);
        let client = said(&mut self.command(&[&call[..], &["127.0.0.1"]].concat()));
        if client.stderr.contains(PERFTEST_DISTURBED) {
            return None;
        }
        assert_eq!(client.code, Some(0), "{client:?}");
        let server = server.end();
        if server.stderr.contains(PERFTEST_DISTURBED) {
            return None;
        }
        assert_eq!(server.code, Some(0), "{server:?}");
        Some(client.stdout)
    }
}

/// Changes the root directory. Without /proc, perftest would be ended by its libpci.
const ENTER: &str = "mount --rbind /proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";

/// How to change the root directory here.
fn way_in() -> Option<Vec<String>> {
    for way in [["unshare", "-m", "sh", "-c", ENTER], ["unshare", "-rm", "sh", "-c", ENTER]] {
        let tried = Command::new(way[0]).args(&way[1..]).args(["/", "/bin/sh", "-c", ":"]).output();
        if tried.is_ok_and(|output| output.status.success()) {
            return Some(way.iter().map(|word| (*word).to_owned()).collect());
        }
    }
    None
}

/// The shared objects of a program, with the dynamic linker.
fn linked_to(program: &Path) -> Vec<PathBuf> {
    let list = run(Command::new("ldd").arg(program));
    let paths = list.split_whitespace().filter(|word| word.starts_with('/'));
    paths.map(PathBuf::from).collect()
}

/// Whether the binary of these tests has the library inside.
fn is_embedded(test: &str) -> bool {
    let home = tempfile::tempdir().unwrap();
    let alone = home.path().join("rdmalab");
    copy(&assert_cmd::cargo::cargo_bin("rdmalab"), &alone);
    let mut command = Command::new(&alone);
    command.args(["exec", "--", "true"]).env_remove("RDMALAB_LIBDIR").env("TMPDIR", home.path());
    let is_embedded = command.output().unwrap().status.success();
    if !is_embedded {
        assert_eq!(std::env::var("RDMALAB_EMBED").as_deref(), Ok("0"), "the library is missing");
        skipped(test, "built with RDMALAB_EMBED=0");
    }
    is_embedded
}

/// Runs `packaging/make` on the binary of these tests; returns the package.
fn packaged(kind: &str, out: &Path) -> PathBuf {
    let mut command = Command::new(repository().join("packaging/make"));
    command.arg("--binary").arg(assert_cmd::cargo::cargo_bin("rdmalab"));
    PathBuf::from(run(command.arg("--out").arg(out).arg(kind)).trim())
}

#[test]
fn the_binary_alone_as_cargo_install_leaves_it() {
    let test = "the_binary_alone_as_cargo_install_leaves_it";
    let Some(root) = Root::new(test).filter(|_| is_embedded(test)) else { return };
    let prefix = tempfile::tempdir().unwrap();
    let mut install = Command::new(env!("CARGO"));
    install.args(["install", "--debug", "--locked", "--offline", "--path"]);
    install.arg(repository().join("crates/cli")).arg("--root").arg(prefix.path());
    install.args(["--no-track", "--quiet"]);
    run(&mut install);
    let installed: Vec<_> = std::fs::read_dir(prefix.path()).unwrap().flatten().collect();
    assert_eq!(installed.len(), 1, "{installed:?}");
    root.copy(&prefix.path().join("bin/rdmalab"), Path::new("/usr/local/bin/rdmalab"));
    root.works("/usr/local/bin/rdmalab");
    // To uninstall: remove the binary, and let `clean` remove the rest.
    let removed = run(&mut root.command(&["rdmalab", "clean", "--all"]));
    assert!(removed.contains("removed /tmp/rdmalab-"), "{removed}");
    assert_eq!(std::fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn the_debian_package() {
    let test = "the_debian_package";
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return skipped(test, "no dpkg-deb");
    }
    let Some(root) = Root::new(test).filter(|_| is_embedded(test)) else { return };
    let out = tempfile::tempdir().unwrap();
    let package = packaged("deb", out.path());
    let fields = run(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Depends"));
    assert_eq!(fields.trim(), "libc6 (>= 2.34), libgcc-s1");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(root.path()));
    for file in [
        "usr/lib/rdmalab/libibverbs.so.1",
        "usr/share/man/man1/rdmalab-exec.1.gz",
        "usr/share/man/man7/rdmalab-environment.7.gz",
        "usr/share/bash-completion/completions/rdmalab",
        "usr/share/doc/rdmalab/copyright",
        "usr/share/doc/rdmalab/changelog.gz",
    ] {
        assert!(root.path().join(file).is_file(), "no {file}");
    }
    root.works("/usr/bin/rdmalab");
}

#[test]
fn the_archive_where_it_is_unpacked_and_where_it_is_installed() {
    let test = "the_archive_where_it_is_unpacked_and_where_it_is_installed";
    let Some(root) = Root::new(test).filter(|_| is_embedded(test)) else { return };
    let out = tempfile::tempdir().unwrap();
    let archive = packaged("tar", out.path());
    let unpacked = root.path().join("somewhere");
    std::fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    run(tar.arg("-xzf").arg(&archive).args(["--strip-components=1", "-C"]).arg(&unpacked));
    root.works("/somewhere/bin/rdmalab");
    let prefix = root.path().join("opt/lab");
    let script = unpacked.join("install.sh");
    run(Command::new(&script).arg(&prefix));
    root.works("/opt/lab/bin/rdmalab");
    run(Command::new(&script).arg("--uninstall").arg(&prefix));
    let left = run(Command::new("find").arg(&prefix).args(["-type", "f"]));
    assert_eq!(left, "");
}

#[test]
fn what_env_prints_for_a_shell_works_in_a_shell() {
    let test = "what_env_prints_for_a_shell_works_in_a_shell";
    let Some(root) = Root::new(test).filter(|_| is_embedded(test)) else { return };
    let binary = assert_cmd::cargo::cargo_bin("rdmalab");
    root.copy(&binary, Path::new("/usr/bin/rdmalab"));
    let script = "export HOME=/tmp/h; eval \"$(rdmalab env)\" && ibv_devinfo && \
                  rdmalab clean --all && ! ibv_devinfo -d soft0 2>&1";
    let text = run(&mut root.command(&["sh", "-c", script]));
    assert!(text.contains("soft0") && text.contains("removed /tmp/h"), "{text}");
    // A Dockerfile line names a command; it must work as written.
    let docker = run(&mut root.command(&["rdmalab", "env", "--format", "docker"]));
    let line = docker.lines().find_map(|line| line.strip_prefix("RUN ")).expect("a RUN line");
    run(&mut root.command(&["sh", "-c", &line.replace(">/dev/null", ">/tmp/null")]));
    let directory = docker.lines().find_map(|l| l.strip_prefix("ENV LD_LIBRARY_PATH=")).unwrap();
    let variable = format!("LD_LIBRARY_PATH={directory} ibv_devinfo");
    let text = run(&mut root.command(&["sh", "-c", &variable]));
    assert!(text.contains("soft0"), "{text}");
}
