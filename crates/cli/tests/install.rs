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
        let root = Self::empty(test)?;
        let mut programs = vec![PathBuf::from("/bin/sh")];
        programs.extend(PROGRAMS.map(|name| Path::new("/usr/bin").join(name)));
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

    /// The same without a single file, if [`PROGRAMS`] are here to be put into it.
    fn empty(test: &str) -> Option<Self> {
        if !PROGRAMS.iter().all(|name| Path::new("/usr/bin").join(name).is_file()) {
            skipped(test, "no ibverbs-utils or perftest (apt install)");
            return None;
        }
        let Some(enter) = way_in() else {
            skipped(test, "not root, and no user namespaces: nobody can change the root directory");
            return None;
        };
        Some(Self { directory: tempfile::tempdir().unwrap(), enter })
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
fn packaged(arguments: &[&str], out: &Path) -> PathBuf {
    let mut command = Command::new(repository().join("packaging/make"));
    command.arg("--binary").arg(assert_cmd::cargo::cargo_bin("rdmalab"));
    PathBuf::from(run(command.arg("--out").arg(out).args(arguments)).trim())
}

/// All files, links and directories below a directory.
fn content(directory: &Path) -> BTreeSet<String> {
    run(Command::new("find").arg(directory)).lines().map(str::to_owned).collect()
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
    let package = packaged(&["deb"], out.path());
    let fields = run(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Depends"));
    let (major, minor) = needed_glibc(&assert_cmd::cargo::cargo_bin("rdmalab"));
    assert_eq!(fields.trim(), format!("libc6 (>= {major}.{minor}), libgcc-s1"));
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
    let archive = packaged(&["tar"], out.path());
    let unpacked = root.path().join("somewhere");
    std::fs::create_dir(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    run(tar.arg("-xzf").arg(&archive).args(["--strip-components=1", "-C"]).arg(&unpacked));
    root.works("/somewhere/bin/rdmalab");
    // A directory that was there stays, although it is empty.
    let opt = root.path().join("opt");
    std::fs::create_dir_all(opt.join("lab/share")).unwrap();
    let before = content(&opt);
    let script = unpacked.join("install.sh");
    run(Command::new(&script).arg("lab").current_dir(&opt));
    root.works("/opt/lab/bin/rdmalab");
    run(Command::new(&script).arg(opt.join("lab"))); // Once more, as an update does.
    run(Command::new(&script).arg("--uninstall").arg(opt.join("lab")));
    assert_eq!(content(&opt), before);
    // Directories above the prefix are made, and removed, too.
    run(Command::new(&script).arg(opt.join("a/b")));
    std::fs::write(opt.join("a/b/share/mine"), "mine").unwrap();
    run(Command::new(&script).arg("--uninstall").arg(opt.join("a/b")));
    let left: Vec<String> = content(&opt).difference(&before).cloned().collect();
    let kept = ["a", "a/b", "a/b/share", "a/b/share/mine"];
    assert_eq!(left, kept.map(|name| opt.join(name).display().to_string()));
}

/// A `docker build` of the recipe does the same two steps: it unpacks the archive into an empty
/// root, and the image starts the entry point.
#[test]
fn the_image_that_the_containerfile_describes() {
    let test = "the_image_that_the_containerfile_describes";
    let Some(root) = Root::empty(test).filter(|_| is_embedded(test)) else { return };
    let out = tempfile::tempdir().unwrap();
    let with: Vec<&str> = PROGRAMS.iter().flat_map(|name| ["--with", name]).collect();
    let image = packaged(&[&with[..], &["image"]].concat(), out.path());
    let recipe = std::fs::read_to_string(image.join("Dockerfile")).unwrap();
    let steps: Vec<&str> = recipe.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = ["FROM scratch", "ADD root.tar /", r#"ENTRYPOINT ["/usr/bin/rdmalab"]"#];
    assert_eq!(steps, expected);
    run(Command::new("tar").arg("-xf").arg(image.join("root.tar")).arg("-C").arg(root.path()));
    root.works("/usr/bin/rdmalab");
    assert_eq!(run(&mut root.command(&["sh", "-c", "echo here"])), "here\n");
}

/// The newest version of glibc's symbols that an object needs.
fn needed_glibc(object: &Path) -> (u32, u32) {
    let symbols = run(Command::new("objdump").arg("-T").arg(object));
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let (major, rest) = rest.split_once('.')?;
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    versions.max().unwrap_or_default()
}

/// A Python that can make an environment, and has a pip that installs into another one (22.3).
fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--python", python, "--version"]);
        pip.output().is_ok_and(|output| output.status.success())
    })
}

/// Prints the rows of a record, once with and once without pandas.
const READ: &str = "\
import sys, rdmalab
table = rdmalab.read(sys.argv[1])
kind = type(table).__name__
sys.modules['pandas'] = None
rows = rdmalab.read(sys.argv[1])
if kind == 'DataFrame':
    assert len(table) == len(rows) and list(table.columns) == list(rows[0]), table
    assert table.n.tolist() == [row['n'] for row in rows], table
print(rows[0]['experiment'], rows[0]['size_bytes'], rows[0]['n'], rows[0]['median_ns'] > 0)
print(rdmalab.binary())
try: rdmalab.rows('/proc')
except ValueError as error: print(error)
";

#[test]
fn the_wheel_in_an_environment_of_python() {
    let test = "the_wheel_in_an_environment_of_python";
    let Some(python) = python() else {
        return skipped(test, "no python3 with pip (apt install python3-pip)");
    };
    if !is_embedded(test) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let [venv, out] = ["venv", "out"].map(|name| scratch.path().join(name));
    let wheel = packaged(&["wheel"], &out);
    let venv_options = ["-m", "venv", "--without-pip", "--system-site-packages"];
    run(Command::new(python).args(venv_options).arg(&venv));
    let before = content(&venv);
    let own_python = venv.join("bin/python");
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(python);
        command.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(&own_python);
        run(command.args(arguments).env("PIP_ROOT_USER_ACTION", "ignore"))
    };
    pip(&["install", "--no-index", "--no-cache-dir", wheel.to_str().unwrap()]);
    let temporary = scratch.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let rdmalab = venv.join("bin/rdmalab");
    let command = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env("TMPDIR", &temporary).env("XDG_RUNTIME_DIR", &temporary);
        command.env_remove("RDMALAB_LIBDIR").env_remove("PYTHONPATH").current_dir(scratch.path());
        command
    };
    let record = scratch.path().join("record");
    let record = record.to_str().unwrap();
    let points = ["--size", "64", "--messages", "100", "--out", record];
    run(&mut command(&rdmalab, &[&["run", "ping"][..], &points].concat()));
    run(&mut command(&rdmalab, &["exec", "--memory", "shared", "--", "true"]));
    let mut objects: Vec<String> =
        content(&temporary).into_iter().filter(|name| name.contains(".so")).collect();
    assert!(objects.len() >= 5, "the libraries that the binary has inside: {objects:?}");
    objects.push(rdmalab.to_str().unwrap().to_owned());
    let needed = objects.iter().map(|object| needed_glibc(Path::new(object))).max();
    let (major, minor) = needed.unwrap();
    let tag = format!("-py3-none-manylinux_{major}_{minor}_");
    assert!(wheel.to_str().unwrap().contains(&tag), "{wheel:?} needs {tag}");
    let docker = run(&mut command(&rdmalab, &["env", "--format", "docker"]));
    let said = [
        &docker,
        include_str!("../../../README.md"),
        include_str!("../../../docs/book/src/ci.md"),
        include_str!("../../../docs/book/src/own-program.md"),
    ];
    let glibc = format!("glibc {major}.{minor} or");
    assert!(said.iter().all(|text| text.contains(&glibc)), "{glibc}: {docker}");
    if Path::new("/usr/bin/ibv_devices").is_file() {
        let devices = run(&mut command(&rdmalab, &["exec", "--", "ibv_devices"]));
        assert!(devices.contains("soft0"), "{devices}");
    }
    let text = run(&mut command(&own_python, &["-c", READ, record]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "ping 64 100 True", "{text}");
    assert_eq!(Path::new(lines[1]), rdmalab.canonicalize().unwrap(), "{text}");
    assert!(lines[2].contains("/proc"), "{text}");

    // To uninstall: as README.md says.
    run(&mut command(&rdmalab, &["clean", "--all"]));
    pip(&["uninstall", "--yes", "rdmalab"]);
    let left: Vec<String> = content(&venv).difference(&before).cloned().collect();
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(content(&temporary).len(), 1, "only the directory itself is left");
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
