//! Ranks that mpirun, srun and ssh start: with Debian's Open MPI and OpenSSH, and with the
//! environment that Slurm's manual describes.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, Process, processes, rdmalab, said, signal};
use rdmalab_record::Record;
use rdmalab_testing::{free_port, skipped};
use serde_json::Value;
use tempfile::TempDir;

/// A short run with JSON output.
const SHORT: [&str; 11] = [
    "run",
    "ping",
    "--messages",
    "60",
    "--warm-up",
    "0",
    "--no-record",
    "--format",
    "json",
    "--device",
    "soft0",
];
/// A run that lasts until the test ends it.
const ENDLESS: [&str; 11] = [
    "run",
    "ping",
    "--messages",
    "3M",
    "--warm-up",
    "0",
    "--pause",
    "200us",
    "--no-record",
    "--device",
    "soft0",
];

fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("rdmalab")
}

/// The path of a system program, including those in root's PATH only.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn mpirun(test: &str, ranks: usize) -> Option<Command> {
    let Some(file) = find("mpirun") else {
        skipped(test, "no mpirun (Debian: openmpi-bin)");
        return None;
    };
    let mut command = Command::new(file);
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np"]);
    command.arg(ranks.to_string()).arg(program());
    Some(command)
}

/// Asserts that there is one measured point, and nothing else on standard output.
fn assert_measured(found: &Ended) {
    assert_eq!(found.code, Some(0), "{found:?}");
    let value: Value = serde_json::from_str(&found.stdout).expect("one JSON document");
    assert_eq!(value["points"].as_array().expect("points").len(), 1, "{found:?}");
}

#[test]
fn mpirun_starts_both_ranks() {
    let Some(mut command) = mpirun("mpirun_starts_both_ranks", 2) else { return };
    assert_measured(&said(command.args(SHORT)));
}

#[test]
fn mpirun_starts_four_ranks() {
    let Some(mut command) = mpirun("mpirun_starts_four_ranks", 4) else { return };
    command.args(["run", "fan", "--messages", "20", "--warm-up", "0", "--no-record"]);
    assert_measured(&said(command.args(["--format", "json", "--device", "soft0"])));
}

#[test]
fn ranks_that_the_experiment_does_not_take_are_refused() {
    let Some(mut command) = mpirun("ranks_that_the_experiment_does_not_take", 3) else { return };
    let found = said(command.args(SHORT));
    assert!(found.code != Some(0) && found.stdout.is_empty(), "{found:?}");
    assert!(
        found.stderr.contains("rdmalab: mpirun: ping needs exactly 2 ranks, not 3"),
        "{found:?}"
    );
    let Some(mut command) = mpirun("ranks_that_the_experiment_does_not_take", 2) else { return };
    let found = said(command.args(SHORT).args(["--ranks", "3"]));
    assert!(found.stderr.contains("leave --ranks out"), "{found:?}");
}

#[test]
fn nobody_stays_when_a_rank_dies_or_mpirun_is_told_to_end() {
    let test = "nobody_stays_when_a_rank_dies_or_mpirun_is_told_to_end";
    for (round, how) in ["a rank dies", "an end"].into_iter().enumerate() {
        let Some(mut command) = mpirun(test, 2) else { return };
        let mark = format!("RDMALAB_TEST_MARK={}-{round}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut running = Process::start(command.args(ENDLESS).env(name, value));
        let rank = running.within("rank 1 at work", |_| {
            let found = processes("--pause", &[&mark, "OMPI_COMM_WORLD_RANK=1"]);
            found.into_iter().find(|pid| common::is_busy(*pid))
        });
        match how {
            "an end" => signal("-INT", running.id()),
            _ => signal("-KILL", rank),
        }
        let found = running.end();
        assert_ne!(found.code, Some(0), "{found:?}");
        let mut gone = Process::start(&mut Command::new("true"));
        gone.within("the end of all ranks", |_| processes("", &[&mark]).is_empty().then_some(()));
    }
}

/// Starts both ranks as srun would, with additional variables.
fn by_srun(job: &str, more: &[(&str, &str)]) -> Vec<Ended> {
    let start = |rank: &str| {
        let mut command = rdmalab(&SHORT);
        command.envs([
            ("SLURM_PROCID", rank),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_JOB_ID", job),
            ("SLURM_STEP_ID", "0"),
        ]);
        Process::start(command.envs(more.iter().copied()))
    };
    // First start the rank that waits.
    let (there, here) = (start("1"), start("0"));
    vec![here.end(), there.end()]
}

#[test]
fn srun_is_known_by_its_environment() {
    let job = std::process::id().to_string();
    let on_two = [
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_NODELIST", "localhost,other"),
        ("RDMALAB_TOKEN", "a secret"),
    ];
    for more in [&[][..], &on_two] {
        let ends = by_srun(&job, more);
        assert_measured(&ends[0]);
        assert_eq!((ends[1].code, ends[1].stdout.as_str()), (Some(0), ""), "{ends:?}");
    }
    // Across hosts without a secret neither rank starts, and both say what is missing.
    for end in by_srun(&job, &on_two[..2]) {
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(end.stderr.contains("RDMALAB_TOKEN"), "{end:?}");
    }
}

#[test]
fn a_study_says_how_many_ranks_mpirun_has_to_start() {
    // The environment that Hydra sets.
    for rank in ["0", "2"] {
        let mut command = rdmalab(&["study", "viertel2006", "--quick", "--device", "soft0"]);
        let found =
            said(command.envs([("PMI_RANK", rank), ("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "3")]));
        assert_eq!(found.code, Some(2), "{found:?}");
        assert!(found.stderr.contains("mpirun started 3 ranks"), "{found:?}");
        assert!(found.stderr.contains(": start 2 or 4"), "{found:?}");
    }
}

/// An ssh server for this test: an ordinary process on a high port, with its own keys.
struct Sshd {
    directory: TempDir,
    port: u16,
    _running: Process,
}

impl Sshd {
    /// `None`, with a message, if it is not installed.
    fn start(test: &str) -> Option<Self> {
        let names = ["sshd", "ssh", "ssh-keygen"];
        let Some(files) = names.map(find).into_iter().collect::<Option<Vec<_>>>() else {
            skipped(test, "no sshd, ssh or ssh-keygen (Debian: openssh-server)");
            return None;
        };
        // As root, sshd needs this directory, which otherwise its service creates.
        let separate = Path::new("/run/sshd");
        let is_root = rustix::process::geteuid().is_root();
        if is_root && std::fs::create_dir_all(separate).is_err() {
            skipped(test, "no /run/sshd, and it cannot be made");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for key in ["host", "user"] {
            let mut command = Command::new(&files[2]);
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key));
            assert_eq!(said(&mut command).code, Some(0));
        }
        std::fs::copy(at("user.pub"), at("authorized")).unwrap();
        let port = free_port();
        let host = std::fs::read_to_string(at("host.pub")).unwrap();
        std::fs::write(at("known"), format!("[127.0.0.1]:{port} {host}")).unwrap();
        let path = |name: &str| at(name).display().to_string();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
             PidFile none\n\
             UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n\
             MaxStartups 100\n",
            path("host"),
            path("authorized")
        );
        std::fs::write(at("config"), config).unwrap();
        let mut command = Command::new(&files[0]);
        command.args(["-D", "-e", "-f"]).arg(at("config"));
        let mut running = Process::start(&mut command);
        running.listens_on(port);
        let sshd = Self { directory, port, _running: running };
        let mut words = sshd.ssh().split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter();
        let mut command = Command::new(words.next().unwrap());
        let found = said(command.args(words).args(["127.0.0.1", "true"]));
        if found.code != Some(0) {
            skipped(test, format!("sshd lets nobody in here: {}", found.stderr.trim()));
            return None;
        }
        Some(sshd)
    }

    /// The value of `--ssh`.
    fn ssh(&self) -> String {
        let at = |name: &str| self.directory.path().join(name).display().to_string();
        format!(
            "ssh -T -F none -p {} -i {} -o BatchMode=yes -o IdentitiesOnly=yes -o \
             UserKnownHostsFile={} -o StrictHostKeyChecking=yes",
            self.port,
            at("user"),
            at("known")
        )
    }

    fn run(&self, words: &[&str], hosts: &str) -> Command {
        let mut command = rdmalab(words);
        command.args(["--hosts", hosts, "--ssh", &self.ssh(), "--remote-program"]);
        command.arg(program());
        command
    }
}

#[test]
fn ssh_starts_ranks_on_other_hosts() {
    let Some(sshd) = Sshd::start("ssh_starts_ranks_on_other_hosts") else { return };
    for hosts in ["localhost,127.0.0.1", "127.0.0.1,127.0.0.1", "127.0.0.1"] {
        assert_measured(&said(&mut sshd.run(&SHORT, hosts)));
    }
    let address = ["--rendezvous", "127.0.0.1"];
    assert_measured(&said(sshd.run(&SHORT, "127.0.0.1").args(address)));
    let address = ["--rendezvous", "no.such.host.invalid"];
    let found = said(sshd.run(&SHORT, "localhost,127.0.0.1").args(address));
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stderr.contains("rank 1 on 127.0.0.1: "), "{found:?}");
    assert!(found.stderr.contains("--rendezvous"), "{found:?}");
}

#[test]
fn a_study_runs_on_hosts() {
    let Some(sshd) = Sshd::start("a_study_runs_on_hosts") else { return };
    let out = tempfile::tempdir().unwrap();
    let study = ["study", "mordkovich2013", "--quick", "--figure", "clusterperf"];
    let mut command = sshd.run(&study, "localhost,127.0.0.1");
    let found =
        said(command.args(["--max-time", "4", "--device", "soft0", "--out"]).arg(out.path()));
    assert_eq!(found.code, Some(0), "{found:?}");
    let study = out.path().read_dir().unwrap().next().unwrap().unwrap().path();
    // A sweep of two ranks, and one of five ranks on two hosts.
    for (sweep, ranks) in [("read", 2), ("write-3", 5)] {
        let record = Record::open(&study.join(format!("clusterperf.{sweep}"))).unwrap();
        let replicas = record.points[0].facts.iter().find(|fact| fact.name == "replicas");
        assert_eq!(replicas.map(|f| f.value.clone()), Some((ranks - 2).to_string()), "{record:?}");
    }
}

#[test]
fn what_ssh_cannot_do_is_said_with_what_to_do() {
    let Some(sshd) = Sshd::start("what_ssh_cannot_do_is_said_with_what_to_do") else { return };
    let fails = |command: &mut Command, expected: &[&str]| {
        let found = said(command);
        assert_eq!((found.code, found.stdout.as_str()), (Some(1), ""), "{found:?}");
        for text in expected {
            assert!(found.stderr.contains(text), "{text} is not in {found:?}");
        }
        assert_eq!(found.stderr.lines().count(), 1, "{found:?}");
    };
    let hosts = "localhost,no.such.host.invalid";
    fails(&mut sshd.run(&SHORT, hosts), &["rank 1 on no.such.host", "does not know the host"]);
    let mut missing = rdmalab(&SHORT);
    missing.args(["--hosts", "localhost,127.0.0.1", "--ssh", &sshd.ssh()]);
    missing.args(["--remote-program", "/no/such/rdmalab"]);
    fails(&mut missing, &["there is no /no/such/rdmalab on 127.0.0.1", "--remote-program"]);
    let mut nothing = rdmalab(&SHORT);
    nothing.args(["--hosts", "b", "--ssh", "/no/such/ssh -x"]);
    fails(&mut nothing, &["`/no/such/ssh` was not found", "openssh-client"]);
    // Stands for another version, which does not know our option.
    let old = sshd.directory.path().join("old");
    std::fs::write(
        &old,
        "#!/bin/sh\necho \"error: unexpected argument '--join' found\" >&2\nexit 2\n",
    )
    .unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut other = rdmalab(&SHORT);
    other.args(["--hosts", "localhost,127.0.0.1", "--ssh", &sshd.ssh(), "--remote-program"]);
    fails(other.arg(&old), &["another version of rdmalab", env!("CARGO_PKG_VERSION")]);
    std::fs::remove_file(sshd.directory.path().join("authorized")).unwrap();
    fails(&mut sshd.run(&SHORT, "localhost,127.0.0.1"), &["without a password"]);
}

#[test]
fn remote_ranks_do_not_outlive_the_launcher() {
    let test = "remote_ranks_do_not_outlive_the_launcher";
    let Some(sshd) = Sshd::start(test) else { return };
    for how in ["-INT", "-KILL", "a rank"] {
        let port = free_port();
        let mark = format!("127.0.0.1:{port}\0--rank");
        let mut command = sshd.run(&ENDLESS, "localhost,127.0.0.1");
        command.args(["--rendezvous", &format!("127.0.0.1:{port}")]);
        let mut running = Process::start(&mut command);
        let worker = running.within("the rank at work", |child| {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            processes(&mark, &[]).into_iter().find(|pid| common::is_busy(*pid))
        });
        match how {
            "a rank" => signal("-KILL", worker),
            how => signal(how, running.id()),
        }
        let found = running.end();
        assert_ne!(found.code, Some(0), "{found:?}");
        match how {
            // The results so far are shown.
            "-INT" => assert!(found.stdout.contains("round trip"), "{found:?}"),
            "a rank" => assert!(found.stderr.contains("rank 1 on "), "{found:?}"),
            _ => {}
        }
        let mut gone = Process::start(&mut Command::new("true"));
        gone.within("the end of the remote rank", |_| {
            processes(&mark, &[]).is_empty().then_some(())
        });
    }
}
