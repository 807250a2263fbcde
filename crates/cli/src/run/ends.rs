//! Where the ranks of a run are: on this machine, or with a server.

use rdmalab_experiments::Experiment;
use rdmalab_measure::limits::{available_cores, one_cpu};
use rdmalab_rank::process::{Place, RANKS_MAX, WorkerCommand};

use super::args::HowArgs;
use crate::failure::{Outcome, run as failed, usage};

/// The ranks, and the CPUs that they were given.
#[derive(Clone, Debug)]
pub struct Ends {
    places: Places,
    /// What `--cores` said.
    cores: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Places {
    /// So many on this machine.
    Here(usize),
    /// Rank 0 here, rank 1 with the server of this address.
    Server(String),
}

impl Ends {
    /// Two of this machine.
    pub fn pair(cores: Option<String>) -> Self {
        Self { places: Places::Here(2), cores }
    }

    /// What the options say.
    ///
    /// # Errors
    /// When the experiment does not take so many ranks.
    pub fn of(experiment: Experiment, how: &HowArgs) -> Outcome<Self> {
        let least = *experiment.ranks().start();
        let places = match (&how.host, how.ranks) {
            (Some(host), _) => Places::Server(host.clone()),
            (None, ranks) => Places::Here(ranks.map_or(least, |ranks| ranks as usize)),
        };
        let ends = Self { places, cores: how.cores.clone() };
        let count = ends.count();
        if count > RANKS_MAX {
            return Err(usage(format!("--ranks {count}: there may be {RANKS_MAX} ranks")));
        }
        experiment.takes(count).map_err(|why| match how.ranks {
            Some(ranks) => usage(format!("--ranks {ranks}: {why}")),
            None => usage(why),
        })?;
        Ok(ends)
    }

    /// How many ranks there are.
    pub fn count(&self) -> usize {
        match self.places {
            Places::Here(count) => count,
            Places::Server(_) => 2,
        }
    }

    /// Where each rank runs.
    pub fn places(&self, worker: &WorkerCommand) -> Vec<Place> {
        let here = Place::Local(worker.clone());
        match &self.places {
            Places::Here(count) => vec![here; *count],
            Places::Server(address) => vec![here, Place::Remote(address.clone())],
        }
    }

    /// Which ranks run on this machine, as far as it can be told. A server on this machine takes
    /// a core of this machine.
    fn is_here(&self, rank: usize) -> bool {
        match &self.places {
            Places::Here(_) => true,
            Places::Server(address) => rank == 0 || is_here(address),
        }
    }

    /// The CPU of each rank.
    ///
    /// # Errors
    /// When `--cores` is no list of CPUs that there are.
    pub fn cores(&self) -> Outcome<Vec<Option<usize>>> {
        let ranks = 0..self.count();
        let Some(text) = &self.cores else { return Ok(self.default_cores()) };
        if text == "none" {
            return Ok(vec![None; self.count()]);
        }
        let wrong = |why: String| usage(format!("--cores {text}: {why}"));
        let numbers: Option<Vec<usize>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
        let numbers = numbers.filter(|numbers| numbers.len() == ranks.len());
        let numbers = numbers.ok_or_else(|| {
            let like: Vec<String> = ranks.clone().map(|rank| rank.to_string()).collect();
            let count = if like.len() == 2 { "two".to_owned() } else { like.len().to_string() };
            wrong(format!("it takes {count} numbers, as {}, or none", like.join(",")))
        })?;
        let allowed = available_cores().map_err(failed)?;
        let is_refused = |rank: &usize| self.is_here(*rank) && !allowed.contains(&numbers[*rank]);
        match ranks.clone().find(is_refused) {
            None => Ok(numbers.into_iter().map(Some).collect()),
            Some(rank) => Err(wrong(format!(
                "this process may not run on core {}; it may on {allowed:?}",
                numbers[rank]
            ))),
        }
    }

    /// A core for each rank of this machine where there are enough, else none for any: the
    /// scheduler shares better than we do. What another machine has is not known here.
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

/// Whether a host is this machine, by one of the names that say so themselves.
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

    fn cores(text: &str, places: Places) -> Result<Vec<Option<usize>>, String> {
        let ends = Ends { places, cores: Some(text.to_owned()) };
        ends.cores().map_err(|failure| failure.to_string())
    }

    #[test]
    fn cores_are_as_many_numbers_as_ranks_that_there_are() {
        let (two, server) = (Places::Here(2), Places::Server("h".into()));
        assert_eq!(cores("none", two.clone()), Ok(vec![None, None]));
        let first = available_cores().unwrap()[0];
        let both = Some(first);
        assert_eq!(cores(&format!("{first},{first}"), two.clone()), Ok(vec![both, both]));
        let three = cores(&format!("{first},{first},{first}"), Places::Here(3));
        assert_eq!(three, Ok(vec![both; 3]));
        // Whether the other machine has such a core is for that machine to say.
        assert_eq!(cores(&format!("{first},9999"), server), Ok(vec![both, Some(9999)]));
        for wrong in ["0", "0,1,2", "a,b", "", "0,-1"] {
            let said = cores(wrong, two.clone()).unwrap_err();
            assert!(said.contains("two numbers"), "{said}");
        }
        assert!(cores("9999,0", two).unwrap_err().contains("core 9999"));
        assert!(cores("0,1", Places::Here(3)).unwrap_err().contains("3 numbers, as 0,1,2"));
    }

    #[test]
    fn ranks_that_have_no_core_each_are_left_to_the_scheduler() {
        let available = available_cores().unwrap().len();
        let ends = |count| Ends { places: Places::Here(count), cores: None };
        assert_eq!(ends(available + 1).cores().unwrap(), vec![None; available + 1]);
        if available > 1 {
            assert!(ends(available).cores().unwrap().iter().all(Option::is_some));
        }
    }

    #[test]
    fn an_experiment_says_how_many_ranks_it_takes() {
        let how = |ranks| HowArgs { ranks: Some(ranks), ..HowArgs::default() };
        assert_eq!(Ends::of(Experiment::Ping, &HowArgs::default()).unwrap().count(), 2);
        assert_eq!(Ends::of(Experiment::Ping, &how(2)).unwrap().count(), 2);
        let said = Ends::of(Experiment::Ping, &how(3)).unwrap_err().to_string();
        assert!(said.contains("--ranks 3") && said.contains("2 ranks"), "{said}");
    }
}
