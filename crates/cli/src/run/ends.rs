//! The places of the ranks: on this machine, with a server, on hosts that ssh reaches, or wherever
//! mpirun or srun started them.

use std::path::PathBuf;

use rdmalab_experiments::Experiment;
use rdmalab_measure::limits::{available_cores, one_cpu};
use rdmalab_rank::process::{
    Claim, LaunchEnv, LaunchMethod, RANKS_MAX, RankSpec, RendezvousAddress, RendezvousListener,
    SshCommand, WorkerCommand, join, new_token, port,
};

use rdmalab_sim::name_of_device;

use super::args::HowArgs;
use super::{cores, job};
use crate::failure::{Outcome, run as failed, usage};
use crate::link::LinkArgs;
use crate::team::Team;

/// The name in `--hosts` that stands for this machine, without ssh.
const HERE: &str = "localhost";
/// Stands for the address from which ssh connects; the worker reads it from its environment.
pub const BY_SSH: &str = "ssh";
/// The default ssh command: it never prompts, and has a time-out.
const SSH: [&str; 6] = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];
/// Environment variables that workers on other hosts get if they are set here.
const PASSED: [&str; 7] = [
    "RDMALAB_PROFILE",
    "RDMALAB_INTERFACE",
    "RDMALAB_PORT",
    "RDMALAB_PERSONALITY",
    "RDMALAB_FAULTS",
    "RDMALAB_LANE",
    "RDMALAB_DEBUG",
];

/// The ranks and their CPUs.
#[derive(Clone, Debug)]
pub struct Ends {
    launch: Launch,
    /// The value of `--cores`.
    cores: Option<String>,
    /// The value of `--rendezvous`.
    rendezvous: Option<String>,
    /// The options of the link between them.
    link: LinkArgs,
    /// The processes that mpirun or srun started to simulate points.
    spread: Option<LaunchEnv>,
    /// The processes, if they are up already.
    team: Option<Team>,
}

/// Where the ranks are, and how they are started.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Launch {
    /// This many ranks on this machine.
    Here(usize),
    /// Rank 0 on this machine, rank 1 at the server with this address.
    Server(String),
    /// One rank on each of these hosts, started by this ssh command.
    Hosts { hosts: Vec<String>, ssh: Vec<String>, program: String },
    /// Ranks that mpirun or srun started together with this process.
    LaunchEnv(LaunchEnv),
}

impl Ends {
    /// Two ranks on this machine.
    pub fn pair(cores: Option<String>) -> Self {
        Self::at(Launch::Here(2), cores)
    }

    fn at(launch: Launch, cores: Option<String>) -> Self {
        let link = LinkArgs::default();
        Self { launch, cores, rendezvous: None, link, spread: None, team: None }
    }

    /// The same ranks with these options of the link.
    pub fn over(self, link: &LinkArgs) -> Self {
        Self { link: link.clone(), ..self }
    }

    /// The places that the options name; without options, those that the environment names.
    ///
    /// # Errors
    /// The experiment does not support this number of ranks, or options contradict each other.
    pub fn of(experiment: Experiment, how: &HowArgs) -> Outcome<Self> {
        let alone = how.host.is_some() || !how.hosts.is_empty();
        let discovered = if alone { None } else { LaunchEnv::discover().map_err(usage)? };
        let is_simulated = how.device.as_deref().is_some_and(|d| name_of_device(d).is_some());
        let (discovered, spread) = divided(discovered, is_simulated)?;
        let ends = Self {
            launch: launch(experiment, how, discovered)?,
            cores: how.cores.clone(),
            rendezvous: how.rendezvous.clone(),
            link: how.link.clone(),
            spread,
            team: how.team.clone(),
        };
        let count = ends.count();
        if count > RANKS_MAX && !is_simulated {
            return Err(usage(format!("at most {RANKS_MAX} ranks are possible, not {count}")));
        }
        if let (Some(address), Launch::Here(_), None) =
            (&ends.rendezvous, &ends.launch, &ends.spread)
        {
            return Err(usage(format!(
                "--rendezvous {address}: all ranks are on this machine; use it only with --hosts, \
                 mpirun or srun"
            )));
        }
        experiment.takes(count).map_err(|why| match (how.ranks, &ends.launch) {
            (Some(ranks), _) => usage(format!("--ranks {ranks}: {why}")),
            (None, Launch::LaunchEnv(launch)) => usage(format!("{}: {why}", launch.by)),
            (None, _) => usage(why),
        })?;
        Ok(ends)
    }

    /// The processes that mpirun or srun started together with this one, for all parts of a study;
    /// `None` if this one was started alone.
    ///
    /// # Errors
    /// The environment contradicts itself.
    pub fn of_study(device: &str, link: &LinkArgs, cores: Option<String>) -> Outcome<Option<Self>> {
        let Some(launch) = LaunchEnv::discover().map_err(usage)? else { return Ok(None) };
        let (launch, spread) = divided(Some(launch), name_of_device(device).is_some())?;
        let launch = launch.map_or(Launch::Here(1), Launch::LaunchEnv);
        Ok(Some(Self { link: link.clone(), spread, ..Self::at(launch, cores) }))
    }

    /// How many ranks mpirun or srun started, and which of them; `None` if the ranks of this
    /// process do not depend on that.
    pub fn launched(&self) -> Option<(usize, &'static str)> {
        match &self.launch {
            Launch::LaunchEnv(launch) => Some((launch.size, launch.by)),
            _ => None,
        }
    }

    /// Whether processes that mpirun or srun started share the points.
    pub fn is_spread(&self) -> bool {
        self.spread.is_some()
    }

    /// The processes, if they are up already.
    pub fn team(&self) -> Option<Team> {
        self.team.clone()
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        match &self.launch {
            Launch::Here(count) => *count,
            Launch::Server(_) => 2,
            Launch::Hosts { hosts, .. } => hosts.len(),
            Launch::LaunchEnv(launch) => launch.size,
        }
    }

    /// Number of ranks, if they can be simulated: all of them are in this process.
    ///
    /// # Errors
    /// An option places them elsewhere.
    pub fn simulated(&self) -> Outcome<usize> {
        let refused = |what: &str| {
            usage(format!("{what}: simulated ranks are all in one process: leave it out"))
        };
        match &self.launch {
            Launch::Here(_) if self.cores.is_some() => Err(refused("--cores")),
            Launch::Here(count) => Ok(*count),
            Launch::Server(address) => Err(refused(address)),
            Launch::Hosts { .. } => Err(refused("--hosts")),
            Launch::LaunchEnv(launch) => Err(refused(launch.by)),
        }
    }

    /// The ranks that this command starts on this machine.
    fn started(&self) -> Vec<usize> {
        match &self.launch {
            Launch::Here(count) => (0..*count).collect(),
            Launch::Server(_) | Launch::LaunchEnv(_) => vec![0],
            Launch::Hosts { hosts, .. } => {
                (0..hosts.len()).filter(|rank| hosts[*rank] == HERE).collect()
            }
        }
    }

    /// Checks that the device exists and supports the options of the link; removes old captures.
    ///
    /// # Errors
    /// The problem, in one line.
    pub fn check(&self, device: &str) -> Outcome {
        self.link.take_device().map_err(usage)?;
        let found = crate::soft::find(device)?;
        self.link.check(&found).map_err(usage)?;
        self.link.make_room(&self.started()).map_err(usage)
    }

    /// The options of the link.
    pub fn link(&self) -> &LinkArgs {
        &self.link
    }

    /// Capture files of the processes that this command starts.
    pub fn captures(&self) -> Vec<PathBuf> {
        self.link.captures(&self.started())
    }

    /// The specification of each rank, and the listener for the ranks that start elsewhere.
    ///
    /// # Errors
    /// `--cores` is wrong, or remote ranks cannot connect to this process.
    pub fn specs(&self) -> Outcome<(Vec<RankSpec>, Option<RendezvousListener>)> {
        let cores = match &self.spread {
            None => self.cores()?,
            Some(launch) => vec![None; launch.size],
        };
        let worker = WorkerCommand::this_program(self.link.worker()).map_err(failed)?;
        let (places, listener) = self.gathered(worker)?;
        let spec = |(place, core): (LaunchMethod, Option<usize>)| RankSpec {
            place,
            cores: core.into_iter().collect(),
            yielding: None,
        };
        Ok((places.into_iter().zip(cores).map(spec).collect(), listener))
    }

    fn gathered(
        &self,
        worker: WorkerCommand,
    ) -> Outcome<(Vec<LaunchMethod>, Option<RendezvousListener>)> {
        let here = |rank| {
            LaunchMethod::Local(WorkerCommand { envs: self.link.variables(rank), ..worker.clone() })
        };
        if let Some(launch) = &self.spread {
            return self.joined(launch, here(0));
        }
        Ok(match &self.launch {
            Launch::Here(count) => ((0..*count).map(here).collect(), None),
            Launch::Server(address) => (vec![here(0), LaunchMethod::Remote(address.clone())], None),
            Launch::LaunchEnv(launch) => return self.joined(launch, here(0)),
            Launch::Hosts { hosts, ssh, program } => {
                let token = new_token().map_err(failed)?;
                let port = self.rendezvous.as_deref().and_then(port_of).unwrap_or(0);
                let listener = RendezvousListener::tcp(port, &token).map_err(failed)?;
                let addresses = self.addresses(listener.port().unwrap_or(port));
                let place = |(rank, host): (usize, &String)| match host.as_str() {
                    HERE => here(rank),
                    _ => LaunchMethod::Ssh(SshCommand {
                        ssh: ssh.iter().map(Into::into).collect(),
                        host: host.clone(),
                        variables: self.passed(rank),
                        program: program.clone(),
                        args: self.remote_words(rank, &addresses),
                        token: token.clone(),
                    }),
                };
                (hosts.iter().enumerate().map(place).collect(), Some(listener))
            }
        })
    }

    /// The processes that mpirun or srun started; the first of them starts its own worker.
    fn joined(
        &self,
        launch: &LaunchEnv,
        first: LaunchMethod,
    ) -> Outcome<(Vec<LaunchMethod>, Option<RendezvousListener>)> {
        if launch.rank > 0 {
            let by = launch.by;
            return Err(usage(format!("{by} can start only `rdmalab run`, `study` and `advise`")));
        }
        let mut places = vec![first];
        places.resize(launch.size, LaunchMethod::Joining);
        Ok((places, Some(self.gate_of(launch)?)))
    }

    /// Addresses of this machine for workers that ssh starts.
    fn addresses(&self, port: u16) -> Vec<String> {
        match &self.rendezvous {
            Some(address) if port_of(address).is_some() => vec![address.clone()],
            Some(host) => vec![with_port(host, port)],
            None => {
                let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
                vec![with_port(BY_SSH, port), with_port(&name, port)]
            }
        }
    }

    fn gate_of(&self, launch: &LaunchEnv) -> Outcome<RendezvousListener> {
        let (rendezvous, token) = launch.rendezvous(self.rendezvous.as_deref()).map_err(usage)?;
        let listener = match &rendezvous {
            RendezvousAddress::Here(name) => RendezvousListener::here(name),
            RendezvousAddress::Tcp(addresses) => {
                let port = addresses.first().and_then(|address| port_of(address)).unwrap_or(0);
                RendezvousListener::tcp(port, &token)
            }
        };
        listener.map_err(failed)
    }

    /// If mpirun or srun started this process as a rank other than 0, performs the jobs of rank 0
    /// and returns the result.
    pub fn follow(&self) -> Option<Outcome> {
        self.led().map(|launch| self.be_led(launch))
    }

    /// What started this process, if it is another one than rank 0.
    fn led(&self) -> Option<&LaunchEnv> {
        let launch = match &self.launch {
            Launch::LaunchEnv(launch) => Some(launch),
            _ => self.spread.as_ref(),
        };
        launch.filter(|launch| launch.rank > 0)
    }

    /// As [`Ends::follow`]; if rank 0 only shows its plan, there is nothing to do.
    pub fn follow_unless(&self, is_plan: bool) -> Option<Outcome> {
        if is_plan { self.led().map(|_| Ok(())) } else { self.follow() }
    }

    fn be_led(&self, launch: &LaunchEnv) -> Outcome {
        let of_rank = |why: String| failed(format!("rank {}: {why}", launch.rank));
        self.link.take_all(launch.rank).map_err(usage)?;
        let (rendezvous, token) = launch.rendezvous(self.rendezvous.as_deref()).map_err(usage)?;
        // mpirun sends Ctrl-C to all ranks; rank 0 ends the run.
        crate::interrupt::leave_to_others();
        let stream = join(&rendezvous, job::PATIENCE).map_err(of_rank)?;
        let claim = Claim { rank: launch.rank, token };
        job::work_as(Some(claim), stream, None, self.link.first())
            .map_err(|e| of_rank(e.to_string()))
    }

    /// Environment variables for a worker on another host, including those of the link.
    fn passed(&self, rank: usize) -> Vec<String> {
        let mut told = passed();
        // If a name occurs twice, the later value counts.
        told.extend(self.link.variables(rank).iter().map(|(name, value)| {
            format!("{}={}", name.to_string_lossy(), value.to_string_lossy())
        }));
        told
    }

    fn remote_words(&self, rank: usize, addresses: &[String]) -> Vec<String> {
        let mut words = remote_words(rank, addresses);
        words.extend(self.link.worker().into_iter().skip(1));
        words
    }

    /// Whether the rank is known to run on this machine. A server on this machine needs a core of
    /// it; cores of processes that mpirun started are left to mpirun.
    fn is_here(&self, rank: usize) -> bool {
        match &self.launch {
            Launch::Here(_) => true,
            Launch::Server(address) => rank == 0 || is_here(address),
            Launch::Hosts { hosts, .. } => hosts[rank] == HERE,
            Launch::LaunchEnv(_) => false,
        }
    }

    /// The CPU of each rank.
    ///
    /// # Errors
    /// `--cores` is not a list of existing CPUs.
    fn cores(&self) -> Outcome<Vec<Option<usize>>> {
        let Some(text) = &self.cores else { return Ok(self.default_cores()) };
        if text == "none" {
            return Ok(vec![None; self.count()]);
        }
        let wrong = |why: String| usage(format!("--cores {text}: {why}"));
        let numbers = cores::numbers(text, self.count()).map_err(wrong)?;
        let allowed = available_cores().map_err(failed)?;
        let is_refused = |rank: &usize| self.is_here(*rank) && !allowed.contains(&numbers[*rank]);
        match (0..self.count()).find(is_refused) {
            None => Ok(numbers.into_iter().map(Some).collect()),
            Some(rank) => Err(wrong(format!(
                "this process may not run on core {}: choose among {allowed:?}",
                numbers[rank]
            ))),
        }
    }

    /// A sentence about ranks of this machine that `--cores` puts on one core.
    pub fn shared_core(&self) -> Option<String> {
        cores::shared(self.cores.as_deref()?, |rank| self.is_here(rank))
    }

    /// A core for each rank of this machine. If there are not enough, no rank gets one, since the
    /// scheduler shares cores better. The cores of other machines are not known here.
    fn default_cores(&self) -> Vec<Option<usize>> {
        let none = vec![None; self.count()];
        let here = (0..self.count()).filter(|rank| self.is_here(*rank));
        let cores = available_cores().unwrap_or_default();
        if one_cpu() || here.clone().count() > cores.len() {
            return none;
        }
        let mut given = none;
        here.zip(cores).for_each(|(rank, core)| given[rank] = Some(core));
        given
    }
}

/// What mpirun or srun started: ranks, or processes that share the points if the ranks of each
/// point are simulated in one process.
fn divided(
    launch: Option<LaunchEnv>,
    is_simulated: bool,
) -> Outcome<(Option<LaunchEnv>, Option<LaunchEnv>)> {
    match launch {
        Some(launch) if is_simulated && launch.size > RANKS_MAX => Err(usage(format!(
            "{} started {} processes, but at most {RANKS_MAX} can share the points: start one \
             process per host, which uses all its processors",
            launch.by, launch.size
        ))),
        launch if is_simulated => Ok((None, launch)),
        launch => Ok((launch, None)),
    }
}

fn launch(experiment: Experiment, how: &HowArgs, launch: Option<LaunchEnv>) -> Outcome<Launch> {
    let least = *experiment.ranks().start();
    let ranks = how.ranks.map(|ranks| ranks as usize);
    if let Some(host) = &how.host {
        return match port(host).map_err(usage)? {
            Some(0) => Err(usage(format!("{host}: port 0 is not possible: choose 1 to 65535"))),
            _ => Ok(Launch::Server(host.clone())),
        };
    }
    if let Some(launch) = launch {
        let (by, size) = (launch.by, launch.size);
        return match ranks {
            Some(ranks) if ranks != size => Err(usage(format!(
                "--ranks {ranks}: {by} started {size} processes, each of which is a rank: leave \
                 --ranks out"
            ))),
            _ => Ok(Launch::LaunchEnv(launch)),
        };
    }
    if how.hosts.is_empty() {
        return Ok(Launch::Here(ranks.unwrap_or(least)));
    }
    if let Some(empty) = how.hosts.iter().find(|host| host.is_empty() || host.starts_with('-')) {
        return Err(usage(format!(
            "--hosts: {empty:?} is not a host name: write names, such as a,b,a"
        )));
    }
    // Each host gets one rank, then each host again, until there are enough ranks.
    let count = ranks.unwrap_or(how.hosts.len().max(least));
    let hosts = how.hosts.iter().cycle().take(count).cloned().collect();
    let ssh = match &how.ssh {
        None => SSH.map(str::to_owned).to_vec(),
        Some(words) => words.split_whitespace().map(str::to_owned).collect(),
    };
    Ok(Launch::Hosts { hosts, ssh, program: how.remote_program.clone() })
}

/// Environment variables for a worker on another host.
fn passed() -> Vec<String> {
    let variable = |name: &&str| Some(format!("{name}={}", std::env::var(name).ok()?));
    PASSED.iter().filter_map(variable).collect()
}

/// The arguments of a worker on another host.
fn remote_words(rank: usize, addresses: &[String]) -> Vec<String> {
    let rank = rank.to_string();
    ["worker", "--join", &addresses.join(","), "--rank", &rank].map(str::to_owned).to_vec()
}

fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The port in `HOST:PORT`; an IPv6 address with a port is in brackets.
fn port_of(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    (host.ends_with(']') || !host.contains(':')).then(|| port.parse().ok()).flatten()
}

/// Whether a host is this machine, judged by names that always mean the local host.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None if host.matches(':').count() > 1 => host,
        None => host.split(':').next().unwrap_or(host),
    };
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how() -> HowArgs {
        HowArgs::default()
    }

    #[test]
    fn names_of_this_machine_are_known() {
        for here in ["localhost", "localhost:99", "127.0.0.1:18515", "::1", "[::1]:7", "127.1.2.3"]
        {
            assert!(is_here(here), "{here}");
        }
        for there in ["host", "host:99", "10.0.0.1", "[fe80::1]:7", "localhost.example.org"] {
            assert!(!is_here(there), "{there}");
        }
    }

    fn cores(text: &str, launch: Launch) -> Result<Vec<Option<usize>>, String> {
        let ends = Ends { launch, ..Ends::pair(Some(text.to_owned())) };
        ends.cores().map_err(|failure| failure.to_string())
    }

    #[test]
    fn cores_are_as_many_numbers_as_ranks_that_there_are() {
        let (two, server) = (Launch::Here(2), Launch::Server("h".into()));
        assert_eq!(cores("none", two.clone()), Ok(vec![None, None]));
        let first = available_cores().unwrap()[0];
        let both = Some(first);
        assert_eq!(cores(&format!("{first},{first}"), two.clone()), Ok(vec![both, both]));
        let three = cores(&format!("{first},{first},{first}"), Launch::Here(3));
        assert_eq!(three, Ok(vec![both; 3]));
        // The other machine checks whether it has the core.
        assert_eq!(cores(&format!("{first},9999"), server), Ok(vec![both, Some(9999)]));
        for wrong in ["0", "0,1,2", "a,b", "", "0,-1"] {
            let said = cores(wrong, two.clone()).unwrap_err();
            assert!(said.contains("two numbers"), "{said}");
        }
        assert!(cores("9999,0", two).unwrap_err().contains("core 9999"));
        assert!(cores("0,1", Launch::Here(3)).unwrap_err().contains("3 numbers, such as 0,1,2"));
    }

    #[test]
    fn ranks_that_have_no_core_each_are_left_to_the_scheduler() {
        let available = available_cores().unwrap().len();
        let ends = |count| Ends { launch: Launch::Here(count), ..Ends::pair(None) };
        assert_eq!(ends(available + 1).cores().unwrap(), vec![None; available + 1]);
        if available > 1 {
            assert!(ends(available).cores().unwrap().iter().all(Option::is_some));
        }
    }

    #[test]
    fn an_experiment_says_how_many_ranks_it_takes() {
        let how = |ranks| HowArgs { ranks: Some(ranks), ..HowArgs::default() };
        assert_eq!(Ends::of(Experiment::PING, &HowArgs::default()).unwrap().count(), 2);
        assert_eq!(Ends::of(Experiment::PING, &how(2)).unwrap().count(), 2);
        let said = Ends::of(Experiment::PING, &how(3)).unwrap_err().to_string();
        assert!(said.contains("--ranks 3") && said.contains("2 ranks"), "{said}");
    }

    fn hosts(ranks: Option<u32>, hosts: &[&str]) -> Outcome<Ends> {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let how = HowArgs { ranks, hosts, remote_program: "/x/rdmalab".into(), ..how() };
        Ends::of(Experiment::PING, &how)
    }

    #[test]
    fn ranks_go_round_the_hosts() {
        let (specs, listener) = hosts(None, &["localhost", "b"]).unwrap().specs().unwrap();
        assert!(matches!(specs[0].place, LaunchMethod::Local(_)) && specs[0].cores.len() < 2);
        let LaunchMethod::Ssh(command) = &specs[1].place else { panic!("{:?}", specs[1]) };
        assert!(command.host == "b" && command.token.len() == 32 && specs[1].cores.is_empty());
        assert!(!command.args.join(" ").contains(&command.token), "{command:?}");
        let port = listener.unwrap().port().unwrap();
        assert_eq!((command.program.as_str(), &command.args[0]), ("/x/rdmalab", &"worker".into()));
        assert!(command.args[2].starts_with(&format!("ssh:{port},")), "{command:?}");
        assert_eq!(command.args[3..], ["--rank", "1"]);
        // One host for both ranks.
        assert_eq!(hosts(Some(2), &["b"]).unwrap().count(), 2);
        assert!(hosts(None, &["a", "b", "c"]).unwrap_err().to_string().contains("2 ranks, not 3"));
        assert!(
            hosts(None, &["a", "-oProxyCommand=x"]).unwrap_err().to_string().contains("a host")
        );
    }

    #[test]
    fn a_rendezvous_is_for_ranks_of_other_hosts() {
        let addresses = |rendezvous: &str| {
            let rendezvous = Some(rendezvous.to_owned());
            Ends { rendezvous, ..Ends::pair(None) }.addresses(7)
        };
        assert_eq!(addresses("h:9"), ["h:9"]);
        assert_eq!(addresses("h"), ["h:7"]);
        assert_eq!(addresses("fd00::1"), ["[fd00::1]:7"]);
        assert_eq!(
            (port_of("h:9"), port_of("[fd00::1]:9"), port_of("fd00::9")),
            (Some(9), Some(9), None)
        );
        let how = HowArgs { rendezvous: Some("h".into()), ..how() };
        let said = Ends::of(Experiment::PING, &how).unwrap_err().to_string();
        assert!(said.contains("--hosts"), "{said}");
    }
}
