//! Pairs of workers, one pair for each testbed, started when the first row needs it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rdmalab_rank::process::WorkerCommand;
use rdmalab_verbs::Kind;
use tempfile::TempDir;

use super::programs::{HOSTS, INTERFACE};
use super::rows::Testbed;
use crate::failure::{Outcome, run as failed};
use crate::interrupt::Interrupt;
use crate::run::ends::Ends;
use crate::run::session::{Session, worker};

/// If a capture file does not grow for this long, it is completely written.
const QUIET: Duration = Duration::from_millis(20);
/// The longest wait for a capture file.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

/// The pairs of workers.
pub struct Sessions {
    interrupt: Interrupt,
    device: String,
    kind: Kind,
    ends: Ends,
    host: Session,
    /// The pair of the two hosts, or why there is none.
    network: Option<Result<Session, String>>,
    captured: Option<Captured>,
}

/// Workers that capture into files.
struct Captured {
    session: Session,
    directory: TempDir,
}

impl Sessions {
    /// Starts the pair on this host.
    ///
    /// # Errors
    /// What cannot be started, and what to do.
    pub fn open(interrupt: &Interrupt, device: &str, ends: Ends) -> Outcome<Self> {
        let kind = crate::soft::find(device)?.kind();
        let host = Session::open(interrupt, device, &ends)?;
        let (interrupt, device) = (interrupt.clone(), device.to_owned());
        Ok(Self { interrupt, device, kind, ends, host, network: None, captured: None })
    }

    /// The pair for a testbed, started if necessary.
    ///
    /// # Errors
    /// Why there cannot be a pair here.
    pub fn at(&mut self, testbed: Testbed) -> Outcome<&mut Session> {
        match testbed {
            Testbed::OneHost => Ok(&mut self.host),
            Testbed::TwoHosts => {
                if self.network.is_none() {
                    self.network = Some(self.join_two_hosts().map_err(|e| e.to_string()));
                }
                match &mut self.network {
                    Some(Ok(session)) => Ok(session),
                    Some(Err(why)) => Err(failed(why.clone())),
                    None => Err(failed("no network")),
                }
            }
            Testbed::Captured => {
                if self.captured.is_none() {
                    self.captured = Some(self.capture()?);
                }
                let captured = self.captured.as_mut().ok_or_else(|| failed("no capture"))?;
                Ok(&mut captured.session)
            }
        }
    }

    /// Waits until the work at a testbed has ended, before the next row starts: captures are
    /// written later than packets are sent. Then empties the files, because nobody reads them.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn settle(&self, testbed: Testbed) -> Outcome<()> {
        match &self.captured {
            Some(captured) if testbed == Testbed::Captured => captured.settle(),
            _ => Ok(()),
        }
    }

    /// Whether the user interrupted the measurement.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    fn needs_ours(&self, what: &str) -> Outcome<()> {
        match self.kind {
            Kind::Soft => Ok(()),
            _ => Err(failed(format!("{}: only the soft device {what}", self.device))),
        }
    }

    fn start(&self, workers: [WorkerCommand; 2]) -> Outcome<Session> {
        Session::open_with(&self.interrupt, &self.device, &self.ends, workers)
    }

    /// Starts two hosts: each worker is in its own network namespace, which ends with it, and a
    /// pair of virtual interfaces connects them.
    fn join_two_hosts(&self) -> Outcome<Session> {
        self.needs_ours("goes over UDP")?;
        if !rustix::process::geteuid().is_root() {
            return Err(failed(
                "it needs two network namespaces, which only root can make: use sudo",
            ));
        }
        let plain = worker()?;
        let mut args: Vec<OsString> = vec!["-n".into(), plain.program.into()];
        args.extend(plain.args);
        let envs = vec![
            ("RDMALAB_INTERFACE".into(), INTERFACE.into()),
            ("RDMALAB_CAPTURE".into(), OsString::new()),
            ("RDMALAB_FAULTS".into(), OsString::new()),
            ("RDMALAB_PROFILE".into(), OsString::new()),
        ];
        let worker = WorkerCommand { program: PathBuf::from("unshare"), args, envs };
        let session = self.start([worker.clone(), worker]).map_err(|error| {
            failed(format!(
                "cannot start a worker in its own network namespace (`unshare -n`): {error}"
            ))
        })?;
        let pids: Vec<String> = session.pids().iter().map(u32::to_string).collect();
        let [one, two] = pids.as_slice() else { return Err(failed("it needs two workers")) };
        let pair = ["type", "veth", "peer", "name", INTERFACE, "netns", two.as_str()];
        let add = ["ip", "link", "add", INTERFACE, "netns", one.as_str()];
        call(&[&add[..], &pair].concat())?;
        for (pid, host) in [one, two].into_iter().zip(HOSTS) {
            let address = format!("{host}/24");
            let inside = ["nsenter", "-t", pid.as_str(), "-n", "ip"];
            for words in [
                &["address", "add", &address, "dev", INTERFACE][..],
                &["link", "set", "lo", "up"],
                &["link", "set", INTERFACE, "up"],
            ] {
                call(&[&inside[..], words].concat())?;
            }
        }
        Ok(session)
    }

    fn capture(&self) -> Outcome<Captured> {
        self.needs_ours("captures")?;
        let directory = tempfile::Builder::new().prefix("rdmalab-bench-").tempdir();
        let directory = directory.map_err(|e| failed(format!("no directory: {e}")))?;
        let plain = worker()?;
        let workers = [0, 1].map(|rank| {
            let file = file(directory.path(), rank).into_os_string();
            let envs = vec![("RDMALAB_CAPTURE".into(), file)];
            WorkerCommand { envs, ..plain.clone() }
        });
        Ok(Captured { session: self.start(workers)?, directory })
    }
}

impl Captured {
    /// Waits until the files stop growing, and empties them, so that they do not fill the disk.
    fn settle(&self) -> Outcome<()> {
        let until = Instant::now() + WRITTEN_WITHIN;
        let mut before = None;
        while Instant::now() < until {
            let now = self.bytes()?;
            if before == Some(now) {
                break;
            }
            before = Some(now);
            std::thread::sleep(QUIET);
        }
        for path in self.files() {
            let file = std::fs::File::options().write(true).open(path).map_err(failed)?;
            file.set_len(0).map_err(failed)?;
        }
        Ok(())
    }

    fn files(&self) -> [PathBuf; 2] {
        [0, 1].map(|rank| file(self.directory.path(), rank))
    }

    /// The sum of the lengths of both files.
    fn bytes(&self) -> Outcome<u64> {
        let bytes = self.files().map(|path| std::fs::metadata(path).map(|it| it.len()));
        bytes.into_iter().sum::<std::io::Result<u64>>().map_err(failed)
    }
}

fn file(directory: &Path, rank: usize) -> PathBuf {
    directory.join(format!("{rank}.pcapng"))
}

/// Runs a program to its end.
fn call(words: &[&str]) -> Outcome<()> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|e| {
        failed(format!("{} (of iproute2 or util-linux) cannot be run: {e}", words[0]))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("`{}` failed: {}", words.join(" "), said.trim())))
}
