//! Whether mpirun or srun started this process as one of several, and where rank 0 is: read from
//! the environment alone, so that no MPI library is needed.
//!
//! * Open MPI's `mpirun`, any version: `OMPI_COMM_WORLD_RANK`, `_SIZE` and `_LOCAL_SIZE`; the job
//!   is `PMIX_NAMESPACE`. Open MPI 4 also tells where mpirun is (`OMPI_MCA_orte_hnp_uri`), and a
//!   key.
//! * Slurm's `srun`: `SLURM_PROCID` and `SLURM_STEP_NUM_TASKS`; the job is `SLURM_JOB_ID` with
//!   `SLURM_STEP_ID`, its hosts are `SLURM_STEP_NUM_NODES` many: `SLURM_STEP_NODELIST`.
//! * MPICH's `mpirun` (Hydra): `PMI_RANK`, `PMI_SIZE` and `MPI_LOCALNRANKS`; the job is the parent
//!   process.
//!
//! A batch script of Slurm has `SLURM_PROCID` too, and `SLURM_NTASKS`; `SLURM_STEP_NUM_TASKS` is
//! there only under `srun`.

use std::hash::{Hash, Hasher};

use super::rendezvous::RendezvousAddress;

/// The variable that holds a secret which all ranks know.
pub const TOKEN_VARIABLE: &str = "RDMALAB_TOKEN";
/// Ports for launchers, one for each job: below the kernel's ephemeral ports.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The processes that were started together with this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchEnv {
    /// The index of this process.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// The program that started them.
    pub by: &'static str,
    /// Distinguishes this job from others of the same user.
    job: String,
    /// Whether all ranks are on one host, as far as is known.
    is_one_host: bool,
    /// Hosts on which rank 0 may be.
    first_hosts: Vec<String>,
    /// The secret of this job.
    secret: Option<String>,
}

impl LaunchEnv {
    /// The job of this process; `None` if it was started alone.
    ///
    /// # Errors
    /// A sentence, when the environment contradicts itself.
    pub fn discover() -> Result<Option<Self>, String> {
        Self::read(|name| std::env::var(name).ok(), std::os::unix::process::parent_id())
    }

    fn read(get: impl Fn(&str) -> Option<String>, parent: u32) -> Result<Option<Self>, String> {
        let starters = [open_mpi, slurm, hydra];
        let found = starters.iter().find_map(|starter| starter(&get, parent));
        let Some(found) = found else { return Ok(None) };
        let mut launch = found?;
        if launch.rank >= launch.size {
            let (by, rank, size) = (launch.by, launch.rank, launch.size);
            return Err(format!(
                "the environment of {by} gives rank {rank}, but there are only {size} ranks, \
                 counted from 0"
            ));
        }
        if let Some(token) = get(TOKEN_VARIABLE).filter(|token| !token.is_empty()) {
            launch.secret = Some(token);
        }
        // A single process is no job.
        Ok((launch.size > 1).then_some(launch))
    }

    /// Where the ranks meet: at the address of the user, else at the one from the environment. Also
    /// the token that all ranks have to show; empty for a socket of one host, where the kernel
    /// tells users apart.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn rendezvous(
        &self,
        rendezvous: Option<&str>,
    ) -> Result<(RendezvousAddress, String), String> {
        if rendezvous.is_none() && self.is_one_host {
            let user = rustix::process::geteuid().as_raw();
            let name = format!("rdmalab-{user}-{}-{}", self.by, self.job);
            return Ok((RendezvousAddress::Here(name), String::new()));
        }
        let token = self.secret.clone().ok_or_else(|| {
            format!(
                "ranks on several hosts authenticate by a secret, and {} does not provide one: \
                 set {TOKEN_VARIABLE} to the same text for all of them, as in export \
                 {TOKEN_VARIABLE}=$(openssl rand -hex 16)",
                self.by
            )
        })?;
        let addresses = match rendezvous {
            Some(address) => vec![self.with_port(address)],
            None => self.first_hosts.iter().map(|host| self.with_port(host)).collect(),
        };
        if addresses.is_empty() {
            return Err(format!(
                "the ranks are on several hosts, and {} does not say where rank 0 is: give its \
                 address with --rendezvous HOST:PORT",
                self.by
            ));
        }
        Ok((RendezvousAddress::Tcp(addresses), token))
    }

    /// The host with the job's port, unless it names one.
    fn with_port(&self, host: &str) -> String {
        let has_port = match host.rsplit_once(':') {
            Some((before, port)) => {
                port.parse::<u16>().is_ok() && (before.ends_with(']') || !before.contains(':'))
            }
            None => false,
        };
        match has_port {
            true => host.to_owned(),
            false if host.contains(':') && !host.starts_with('[') => {
                format!("[{host}]:{}", self.port())
            }
            false => format!("{host}:{}", self.port()),
        }
    }

    /// A port that each rank of the job computes alike, without communication.
    fn port(&self) -> u16 {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        (self.by, &self.job).hash(&mut hasher);
        PORTS.start + (hasher.finish() % PORTS.len() as u64) as u16
    }
}

/// FNV-1a: the same on every host, which the standard hasher does not promise.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        // The low bits of short texts are much alike.
        self.0 ^ (self.0 >> 32)
    }
}

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;
type DetectedLaunch = Option<Result<LaunchEnv, String>>;

fn number(get: Get<'_>, name: &str) -> Option<Result<usize, String>> {
    let text = get(name)?;
    Some(text.parse().map_err(|_| format!("{name}={text:?} is not a valid rank number")))
}

/// A launch with this rank and size, where both are there.
fn launch(get: Get<'_>, by: &'static str, rank: &str, size: &str) -> DetectedLaunch {
    let (rank, size) = (number(get, rank)?, number(get, size)?);
    let launch = |rank, size| LaunchEnv {
        rank,
        size,
        by,
        job: String::new(),
        is_one_host: false,
        first_hosts: Vec::new(),
        secret: None,
    };
    Some(rank.and_then(|rank| size.map(|size| launch(rank, size))))
}

fn open_mpi(get: &dyn Fn(&str) -> Option<String>, parent: u32) -> DetectedLaunch {
    let mut found = launch(get, "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?;
    if let Ok(launch) = &mut found {
        let job = get("PMIX_NAMESPACE").or_else(|| get("OMPI_MCA_ess_base_jobid"));
        launch.job = job.unwrap_or_else(|| format!("parent-{parent}"));
        let local = number(get, "OMPI_COMM_WORLD_LOCAL_SIZE");
        launch.is_one_host = local == Some(Ok(launch.size));
        // `JOB.VPID;tcp://A,B:PORT;tcp6://[C]:PORT`, of the mpirun itself.
        let uri = get("OMPI_MCA_orte_hnp_uri").unwrap_or_default();
        launch.first_hosts = uri.split(';').flat_map(hosts_of_uri).collect();
        // A key that mpirun draws for each job, for networks that need one.
        launch.secret = get("OMPI_MCA_orte_precondition_transports");
    }
    Some(found)
}

fn hosts_of_uri(part: &str) -> Vec<String> {
    let rest = part.strip_prefix("tcp://").or_else(|| part.strip_prefix("tcp6://"));
    let hosts = rest.and_then(|rest| rest.rsplit_once(':')).map_or("", |(hosts, _)| hosts);
    let bare = hosts.trim_matches(['[', ']']);
    bare.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

fn slurm(get: &dyn Fn(&str) -> Option<String>, _parent: u32) -> DetectedLaunch {
    let mut found = launch(get, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")?;
    if let Ok(launch) = &mut found {
        let job = |name: &str| get(name).unwrap_or_default();
        launch.job = format!("{}.{}", job("SLURM_JOB_ID"), job("SLURM_STEP_ID"));
        launch.is_one_host = number(get, "SLURM_STEP_NUM_NODES") == Some(Ok(1));
        let nodes = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_NODELIST"));
        launch.first_hosts = nodes.as_deref().and_then(first_node).into_iter().collect();
    }
    Some(found)
}

fn hydra(get: &dyn Fn(&str) -> Option<String>, parent: u32) -> DetectedLaunch {
    let mut found = launch(get, "mpirun", "PMI_RANK", "PMI_SIZE")?;
    if let Ok(launch) = &mut found {
        launch.job = format!("parent-{parent}");
        launch.is_one_host = number(get, "MPI_LOCALNRANKS") == Some(Ok(launch.size));
    }
    Some(found)
}

/// The first of a list of Slurm's: `a[03-05,9],b` begins with `a03`.
fn first_node(list: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = list;
    while let Some(at) = rest.find(['[', ',']) {
        name.push_str(&rest[..at]);
        if rest.as_bytes()[at] == b',' {
            rest = "";
            break;
        }
        let (inside, after) = rest[at + 1..].split_once(']')?;
        name.push_str(inside.split([',', '-']).next()?);
        rest = after;
    }
    name.push_str(rest);
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<LaunchEnv>, String> {
        let find = |name: &str| {
            let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
            pairs.filter(|(n, _)| *n == name).map(|(_, value)| value.to_owned()).next()
        };
        LaunchEnv::read(find, 77)
    }

    /// As Open MPI 4.1.4 has it.
    const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=1
        OMPI_COMM_WORLD_SIZE=4
        OMPI_COMM_WORLD_LOCAL_SIZE=4
        PMIX_NAMESPACE=1487929345
        OMPI_MCA_orte_precondition_transports=872843c0dbc43b8c-f9814582406cdbfc
        OMPI_MCA_orte_hnp_uri=1487929344.0;tcp://192.0.2.2,10.1.0.2:41015;tcp6://[fd00::2]:60051";
    /// As Slurm's manual of srun describes it.
    const SRUN: &str = "SLURM_PROCID=3
        SLURM_STEP_NUM_TASKS=8
        SLURM_STEP_NUM_NODES=2
        SLURM_JOB_ID=42
        SLURM_STEP_ID=1
        SLURM_STEP_NODELIST=node[007-009,12],x";

    #[test]
    fn open_mpi_on_one_host_meets_there() {
        let launch = read(OPEN_MPI).unwrap().unwrap();
        assert_eq!((launch.rank, launch.size, launch.by), (1, 4, "mpirun"));
        let (rendezvous, token) = launch.rendezvous(None).unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(
            rendezvous,
            RendezvousAddress::Here(format!("rdmalab-{user}-mpirun-1487929345"))
        );
        assert_eq!(token, "");
        let (rendezvous, token) = launch.rendezvous(Some("[fd00::9]:7")).unwrap();
        assert_eq!(rendezvous, RendezvousAddress::Tcp(vec!["[fd00::9]:7".into()]));
        assert_eq!(token, "872843c0dbc43b8c-f9814582406cdbfc");
    }

    #[test]
    fn open_mpi_on_several_hosts_meets_where_mpirun_is() {
        let text = OPEN_MPI.replace("LOCAL_SIZE=4", "LOCAL_SIZE=2");
        let launch = read(&text).unwrap().unwrap();
        let port = launch.port();
        assert!(PORTS.contains(&port));
        let all = ["192.0.2.2", "10.1.0.2", "[fd00::2]"].map(|host| format!("{host}:{port}"));
        assert_eq!(launch.rendezvous(None).unwrap().0, RendezvousAddress::Tcp(all.to_vec()));
        let other = read(&text.replace("1487929345", "1487929346")).unwrap().unwrap();
        assert_ne!(other.port(), port);
        // Another rank of the same job comes to the same port.
        let peer = read(&text.replace("_RANK=1", "_RANK=0")).unwrap().unwrap();
        assert_eq!(peer.port(), port);
    }

    #[test]
    fn srun_meets_on_the_first_node_and_wants_a_token() {
        let launch = read(SRUN).unwrap().unwrap();
        assert_eq!((launch.rank, launch.size, launch.by), (3, 8, "srun"));
        assert!(launch.rendezvous(None).unwrap_err().contains("RDMALAB_TOKEN"));
        let launch = read(&format!("{SRUN}\nRDMALAB_TOKEN=abc")).unwrap().unwrap();
        let port = launch.port();
        let expected = RendezvousAddress::Tcp(vec![format!("node007:{port}")]);
        assert_eq!(launch.rendezvous(None).unwrap(), (expected, "abc".to_owned()));
        let expected = RendezvousAddress::Tcp(vec![format!("there:{port}")]);
        assert_eq!(launch.rendezvous(Some("there")).unwrap().0, expected);
        let one = read(&SRUN.replace("NODES=2", "NODES=1")).unwrap().unwrap();
        assert!(matches!(one.rendezvous(None), Ok((RendezvousAddress::Here(_), _))));
    }

    #[test]
    fn a_batch_script_and_a_lone_process_are_no_team() {
        assert_eq!(read("SLURM_PROCID=0\nSLURM_NTASKS=8\nSLURM_JOB_ID=42"), Ok(None));
        assert_eq!(read(&SRUN.replace("TASKS=8", "TASKS=1").replace("ID=3", "ID=0")), Ok(None));
        assert_eq!(read(""), Ok(None));
    }

    #[test]
    fn mpich_is_known_by_its_process_manager() {
        let launch = read("PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALNRANKS=2").unwrap().unwrap();
        assert!(matches!(launch.rendezvous(None), Ok((RendezvousAddress::Here(name), _))
            if name.ends_with("mpirun-parent-77")));
        let launch = read("PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALNRANKS=1\nRDMALAB_TOKEN=t");
        assert!(launch.unwrap().unwrap().rendezvous(None).unwrap_err().contains("--rendezvous"));
    }

    #[test]
    fn an_environment_that_contradicts_itself_is_refused() {
        assert!(read(&OPEN_MPI.replace("_RANK=1", "_RANK=4")).unwrap_err().contains("rank 4, but"));
        assert!(read(&OPEN_MPI.replace("_RANK=1", "_RANK=x")).unwrap_err().contains("\"x\""));
    }

    #[test]
    fn lists_of_nodes_begin_with_a_name() {
        for (list, first) in [
            ("a", "a"),
            ("a,b", "a"),
            ("n[1-4]", "n1"),
            ("n[04,7]", "n04"),
            ("r[1-2]n[5-6].x,z", "r1n5.x"),
        ] {
            assert_eq!(first_node(list).as_deref(), Some(first), "{list}");
        }
        assert_eq!((first_node(""), first_node("n[1-")), (None, None));
    }
}
