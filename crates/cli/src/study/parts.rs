//! The parts of a study: the sweeps of its figures, parsed into experiments of this program.

use rdmalab_experiments::{Limits, Point, check, sweep};
use rdmalab_study::{Plan, Sweep, SweepCommand};

use super::application;
use super::conditions::Conditions;
use super::dir::Request;
use super::host_cost::HostTime;
use super::program::{self, Case};
use crate::foreign::installed;
use crate::run::args::{HowArgs, RunArgs};
use crate::team::Team;

/// Approximate time to start the ends of a sweep, in seconds.
const START_S: f64 = 0.4;

/// A sweep of a figure.
#[derive(Clone, Debug)]
pub struct Part {
    /// The figure's key.
    pub figure: String,
    /// The name of the sweep; may be empty.
    pub sweep: String,
    /// Its options, after changes by `--quick` or shortening.
    pub words: SweepCommand,
    /// How often each point is measured.
    pub repeat: u32,
    /// How this program can measure it.
    pub what: What,
    /// The additional time per message compared with a device that answers in a microsecond, in
    /// nanoseconds, if a trial measured it; see [`super::probe`].
    pub more_ns: Option<f64>,
    /// What the simulation of its points takes on this machine, if the device is simulated.
    pub host: Option<HostTime>,
    /// The processes that measure it, if mpirun or srun started them.
    pub team: Option<Team>,
    /// How it is simulated where the plan chooses.
    pub conditions: Conditions,
}

/// How this program can measure a sweep.
#[derive(Clone, Debug)]
pub enum What {
    /// An experiment, with its points.
    Experiment(Box<RunArgs>, Vec<Point>),
    /// An installed program, with its calls.
    Program(Vec<Case>),
    /// A program of the user, with its trials.
    Application(application::Trials),
    /// Not at all, for this reason.
    Missing(String),
    /// Left out by `--figure`.
    NotAsked,
}

impl What {
    /// Whether there is something to measure.
    pub fn is_measured(&self) -> bool {
        matches!(self, Self::Experiment(..) | Self::Program(_) | Self::Application(_))
    }
}

/// All parts of a plan, in its order.
pub fn of(plan: &Plan, figures: &[String], is_quick: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    for figure in &plan.figures {
        let is_it = |asked: &String| asked.eq_ignore_ascii_case(&figure.key);
        let is_asked = figures.is_empty() || figures.iter().any(is_it);
        for sweep in &figure.sweeps {
            let repeat = if is_quick { plan.quick_repeat } else { plan.repeat };
            let repeat = if is_quick { repeat } else { sweep.repeat.unwrap_or(repeat) };
            let mut part = Part {
                figure: figure.key.clone(),
                sweep: sweep.name.clone(),
                words: words(sweep, is_quick),
                repeat,
                what: What::NotAsked,
                more_ns: None,
                host: None,
                team: None,
                conditions: Conditions::of(plan, figure, sweep),
            };
            if is_asked {
                part.look_up();
            }
            parts.push(part);
        }
    }
    parts
}

/// All parts of a request, with what it decides about them.
pub fn of_request(plan: &Plan, request: &Request) -> Vec<Part> {
    let mut parts = of(plan, &request.figures, request.quick);
    for part in &mut parts {
        part.take_conditions(request);
        part.leave_programs(request);
        part.leave_application(request);
        part.leave_unheld(request);
    }
    parts
}

/// The options of a sweep. They are valid, since the plan was checked when it was read.
fn words(sweep: &Sweep, is_quick: bool) -> SweepCommand {
    let none = SweepCommand { experiment: sweep.run.clone(), options: Vec::new() };
    sweep.command(is_quick).unwrap_or(none)
}

/// Options of a part's command that do not belong to the sweep, in the order of [`Part::command`].
const OF_COMMAND: [&str; 7] = [
    "--device",
    "--repeat",
    "--profile",
    "--cores",
    "--hosts",
    "--condition",
    "--hold-dma-latency",
];

impl Part {
    /// Takes the plan's conditions if the plan chose the device. Otherwise a part that has an
    /// adapter of its own is missing.
    pub fn take_conditions(&mut self, request: &Request) {
        // No program runs in a simulation.
        if matches!(self.what, What::NotAsked | What::Application(_)) {
            return;
        }
        match self.conditions.take(&mut self.words, request) {
            Ok(()) => self.look_up(),
            Err(why) => self.what = What::Missing(why),
        }
    }

    /// The request with the part's device.
    pub fn request(&self, request: &Request) -> Request {
        self.conditions.own_request(request).unwrap_or_else(|| request.clone())
    }

    /// Its options as one line, with the device if that is its own.
    pub fn line(&self, request: &Request) -> String {
        let own = self.conditions.own_request(request);
        let device = own.map(|own| format!(" --device {}", own.device));
        self.words.line().join(" ") + &device.unwrap_or_default()
    }

    /// The name of its directory: the figure, and the sweep if it has a name.
    pub fn name(&self) -> String {
        match self.sweep.as_str() {
            "" => self.figure.clone(),
            sweep => format!("{}.{sweep}", self.figure),
        }
    }

    /// Parses the options. An experiment or an option that this version does not have is not an
    /// error: the part is missing, with the reason.
    pub fn look_up(&mut self) {
        self.what = if self.words.experiment == application::NAME {
            match application::Trials::of(&self.words) {
                Ok(trials) => {
                    // Another trial would add its packets to the same files.
                    self.repeat = if trials.is_captured { 1 } else { self.repeat };
                    What::Application(trials)
                }
                Err(why) => What::Missing(why),
            }
        } else if program::is_known(&self.words.experiment) {
            match program::cases(&self.words) {
                Ok(cases) => What::Program(cases),
                Err(why) => What::Missing(why),
            }
        } else {
            match parsed(&self.words) {
                Ok((args, points)) => What::Experiment(Box::new(args), points),
                Err(why) => What::Missing(why),
            }
        };
    }

    /// Marks the part as missing if no point is possible on this device. If some points are
    /// possible, the record lists the others.
    pub fn leave_impossible(&mut self, limits: &Limits) {
        if matches!(self.what, What::Application(_)) && limits.kind != "soft" {
            let why = "a program runs on soft devices, as under `rdmalab exec`: --device soft0";
            self.what = What::Missing(why.to_owned());
        }
        let What::Experiment(_, points) = &self.what else { return };
        let limits = self.conditions.limits(limits);
        let reasons: Vec<_> = points.iter().filter_map(|p| check(p, limits).err()).collect();
        if let Some(first) = reasons.first().filter(|_| reasons.len() == points.len()) {
            self.what = What::Missing(first.to_string());
        }
    }

    /// The points that can be measured; of a program, those of its calls.
    pub fn possible(&self, limits: Option<&Limits>) -> Vec<&Point> {
        let limits = limits.map(|limits| self.conditions.limits(limits));
        let is_possible = |p: &&Point| limits.is_none_or(|limits| check(p, limits).is_ok());
        match &self.what {
            What::Experiment(_, points) => points.iter().filter(is_possible).collect(),
            What::Program(cases) => cases.iter().map(|case| &case.point).collect(),
            What::Application(_) | What::Missing(_) | What::NotAsked => Vec::new(),
        }
    }

    /// The number of points of the part, and its approximate duration.
    pub fn size(&self, limits: Option<&Limits>) -> Size {
        if let What::Application(trials) = &self.what {
            let points = trials.conditions();
            let device_s = application::TRIAL_S * points as f64 * f64::from(self.repeat);
            return Size { points, impossible: 0, expected_s: device_s, device_s };
        }
        let possible = self.possible(limits);
        let (all, device_s) = match &self.what {
            What::Experiment(_, points) => {
                let more_ns = self.more_ns.unwrap_or(0.0);
                let one = |point: &&Point| point.expected_s(point.message_ns() + more_ns);
                let once: f64 = possible.iter().map(one).sum();
                (points.len(), START_S + once * f64::from(self.repeat))
            }
            What::Program(cases) => {
                let once: f64 = cases.iter().map(Case::expected_s).sum();
                (cases.len(), once * f64::from(self.repeat))
            }
            _ => return Size::default(),
        };
        let host_s = self.host.as_ref().map(|host| host.expected_s(&possible, self.repeat));
        Size {
            points: possible.len(),
            impossible: all - possible.len(),
            expected_s: host_s.unwrap_or(device_s),
            device_s,
        }
    }
}

/// The size of a part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Number of points that can be measured.
    pub points: usize,
    /// Number of points that cannot.
    pub impossible: usize,
    /// Approximate duration here.
    pub expected_s: f64,
    /// Approximate duration in the time of the device, which may be virtual.
    pub device_s: f64,
}

/// The words, parsed as by `rdmalab run`.
fn parsed(words: &SweepCommand) -> Result<(RunArgs, Vec<Point>), String> {
    let args = RunArgs::parse(words.line()).map_err(|e| first_line(&e.to_string()))?;
    if args.how.link.capture.is_some() {
        // After --resume the record would have the packets of some points, and no word of which.
        let instead = "measure one of its points with `rdmalab run` and --capture";
        return Err(format!("--capture: a sweep of a study may be continued later: {instead}"));
    }
    let points = sweep(args.experiment, &args.sweep).map_err(|e| e.to_string())?;
    Ok((args, points))
}

/// The first line of an error from clap.
fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let line = line.trim().trim_start_matches("error: ");
    match line.strip_prefix("unrecognized subcommand ") {
        Some(name) => format!("there is no experiment {} yet", name.trim_matches('\'')),
        None => line.to_owned(),
    }
}

impl Part {
    /// The options for running the part, including those of the study.
    pub fn how(&self, args: &RunArgs, request: &Request) -> HowArgs {
        let mut how = args.how.clone();
        how.device = Some(self.request(request).device);
        how.repeat = self.repeat;
        how.link.profile = request.profile.clone().or(how.link.profile);
        how.condition.clone_from(&request.condition);
        let held = how.latency.hold_dma_latency.or(request.hold_dma_latency);
        how.latency.hold_dma_latency = held;
        how.team.clone_from(&self.team);
        how.cores = request.cores.clone().or(how.cores);
        if !request.hosts.is_empty() {
            how.hosts = request.hosts.clone();
            how.ssh = request.ssh.clone();
            how.remote_program = request.remote_program.clone();
            // The least number of ranks of the experiment, however many hosts there are.
            how.ranks = how.ranks.or(Some(*args.experiment.ranks().start() as u32));
        }
        how
    }

    /// How many ranks it takes, if it is an experiment: the least number unless the plan says more.
    pub fn ranks(&self) -> Option<usize> {
        let What::Experiment(args, _) = &self.what else { return None };
        let least = *args.experiment.ranks().start();
        Some(args.how.ranks.map_or(least, |ranks| ranks as usize))
    }

    /// Marks the part as missing if it does not take the ranks that mpirun or srun started: all of
    /// them, and as they are.
    pub fn leave_unfit(&mut self, started: usize, by: &str) {
        let why = match &self.what {
            What::Program(_) | What::Application(_) => {
                let program = &self.words.experiment;
                format!("{program} starts its own processes: run the study without {by}")
            }
            What::Experiment(args, _) if args.how.link.first().is_some() => {
                format!(
                    "this sweep needs other device options, which must be set before {by} starts \
                     the ranks: run the study without {by}"
                )
            }
            What::Experiment(..) => match self.ranks() {
                Some(ranks) if ranks != started => {
                    format!("it needs {ranks} ranks, but {by} started {started}")
                }
                _ => return,
            },
            What::Missing(_) | What::NotAsked => return,
        };
        self.what = What::Missing(why);
    }

    /// Marks a program as missing if it cannot run: it has to be installed here. In virtual time
    /// our ping stands for it, but not with rdma_cm.
    pub fn leave_programs(&mut self, request: &Request) {
        let What::Program(cases) = &self.what else { return };
        let program = &self.words.experiment;
        let is_simulated = rdmalab_sim::name_of_device(&request.device).is_some();
        let has = |name: &&&str| self.words.options.iter().any(|(known, _)| known == **name);
        let model = program::OF_MODELS.iter().find(has).filter(|_| !is_simulated);
        let why = if !request.hosts.is_empty() {
            format!("{program} runs on this machine only: run the study without --hosts")
        } else if let Some(option) = model {
            format!("--{option} works on simulated devices only")
        } else if is_simulated && cases.iter().all(Case::is_by_cm) {
            format!("{program} with rdma_cm: simulated devices have no connection manager")
        } else if !is_simulated && installed(program).is_none() {
            format!("{program} is not installed: apt-get install perftest")
        } else {
            return;
        };
        self.what = What::Missing(why);
    }

    /// Marks an application as missing if it cannot run.
    pub fn leave_application(&mut self, request: &Request) {
        let What::Application(trials) = &self.what else { return };
        if let Err(why) = application::check(trials, request) {
            self.what = What::Missing(why);
        }
    }

    /// The command that measures the part alone.
    pub fn command(&self, request: &Request) -> Vec<String> {
        let mut line = vec!["rdmalab".to_owned(), "run".to_owned()];
        line.extend(self.words.line());
        let hosts = Some(request.hosts.join(",")).filter(|hosts| !hosts.is_empty());
        let repeat = (self.repeat > 1).then(|| self.repeat.to_string());
        let hold = request.hold_dma_latency.map(|us| us.to_string());
        let values = [
            Some(self.request(request).device),
            repeat,
            request.profile.clone(),
            request.cores.clone(),
            hosts,
            request.condition.clone(),
            hold,
        ];
        for (name, value) in OF_COMMAND.iter().zip(values) {
            line.extend(value.into_iter().flat_map(|value| [(*name).to_owned(), value]));
        }
        line
    }

    /// The command to print: for a program, that of the whole figure.
    pub fn shown_command(&self, request: &Request) -> Vec<String> {
        match &self.what {
            What::Program(_) | What::Application(_) => {
                let mut line = vec!["rdmalab", "study", &request.study, "--figure", &self.figure];
                let program = request.program.as_deref();
                line.extend(program.into_iter().flat_map(|program| ["--program", program]));
                line.into_iter().map(str::to_owned).collect()
            }
            _ => self.command(request),
        }
    }

    /// Marks the part as missing if its sweep limits the exit latency of idle states, and cannot be
    /// told apart from sweeps that do not, or this process may not.
    pub fn leave_unheld(&mut self, request: &Request) {
        let What::Experiment(args, _) = &self.what else { return };
        if !self.holds_latency() || rdmalab_sim::name_of_device(&request.device).is_some() {
            return;
        }
        let why = if request.hold_dma_latency.is_some() {
            "all sweeps have a limit: run the study without --hold-dma-latency".to_owned()
        } else if !request.hosts.is_empty() {
            "its limit is one of this machine: run the study without --hosts".to_owned()
        } else {
            match args.how.latency.check() {
                Ok(()) => return,
                Err(why) => why.to_string(),
            }
        };
        self.what = What::Missing(why);
    }

    /// Whether its sweep itself limits the exit latency of idle states.
    fn holds_latency(&self) -> bool {
        self.words.options.iter().any(|(name, _)| name == "hold-dma-latency")
    }

    /// Restores the options with which its record was started.
    pub fn restore(&mut self, command: &[String]) {
        let mut line: Vec<String> = command.iter().skip(2).cloned().collect();
        let holds_latency = self.holds_latency();
        let mut take = |name: &str| {
            let is_own = holds_latency && name == "--hold-dma-latency";
            let at = line.iter().position(|word| word == name && !is_own)?;
            let end = (at + 2).min(line.len());
            line.drain(at..end).nth(1)
        };
        let [_, repeat, ..] = OF_COMMAND.map(&mut take);
        let repeat = repeat.and_then(|n| n.parse().ok());
        if let Ok(words) = SweepCommand::of_line(&line) {
            self.words = words;
            self.repeat = repeat.unwrap_or(1);
            self.look_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use rdmalab_study::Study;

    use super::*;
    use crate::study::args::StudyArgs;

    fn part(run: &str) -> Part {
        let sweep = Sweep { run: run.to_owned(), ..Sweep::default() };
        let mut part = Part {
            figure: "f".to_owned(),
            sweep: "s".to_owned(),
            words: words(&sweep, false),
            repeat: 3,
            what: What::NotAsked,
            more_ns: None,
            host: None,
            team: None,
            conditions: Conditions::default(),
        };
        part.look_up();
        part
    }

    fn request(study: &str, words: &str, profiles: &[String]) -> Request {
        let command = StudyArgs::augment_args(clap::Command::new("s").no_binary_name(true));
        let given = command.try_get_matches_from(words.split(' ')).unwrap();
        Request::of(study, &StudyArgs::from_arg_matches(&given).unwrap(), profiles)
    }

    #[test]
    fn a_missing_experiment_is_named() {
        let why = |run: &str| match part(run).what {
            What::Missing(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why("teleport --size 8"), "there is no experiment teleport yet");
        assert!(why("ping --colour red").contains("--colour"), "{}", why("ping --colour red"));
        assert!(why("ping --transport xrc").contains("choose one of"));
        assert!(why("ping --stamps recv").contains("does not use it"));
        assert!(why("ping --capture a.pcapng").contains("may be continued later"));
        assert!(why("application --odp on,off --capture yes").contains("with 2 conditions"));
    }

    #[test]
    fn what_is_impossible_as_a_whole_is_not_started() {
        let limits = |device: &str| {
            let context = crate::soft::find(device).unwrap().open().unwrap();
            Limits::query(&context, 1).unwrap()
        };
        let soft = limits("soft0");
        let ethernet = Limits { needs_gid: true, ..soft.clone() };
        let mut one = part("timeout --absent lid --timeout 10,12");
        one.leave_impossible(&soft);
        assert!(matches!(one.what, What::Experiment(..)), "{:?}", one.what);
        one.leave_impossible(&ethernet);
        let What::Missing(why) = &one.what else { panic!("{:?}", one.what) };
        assert!(why.contains("choose queue_pair"), "{why}");
        // Of two points, the possible one is measured; the record says why the other one is not.
        let mut two = part("timeout --absent lid,queue_pair");
        two.leave_impossible(&ethernet);
        assert!(matches!(two.what, What::Experiment(..)), "{:?}", two.what);
    }

    #[test]
    fn a_command_leads_back_to_its_part() {
        let one = part("ping --size 8..64*2 --op send,write");
        assert_eq!((one.name().as_str(), one.size(None).points), ("f.s", 8));
        let more = "s --device soft0 --hosts a,b --condition quiet --cores 0,1 --profile late-ack";
        let own = "ping --hold-dma-latency 0 --size 8";
        let held = part(own);
        let mut again = part(own);
        again.restore(&held.command(&request("s", "s --device soft0", &[])));
        assert_eq!(again.words, held.words);
        let why = |words: &str| {
            let mut held = part(own);
            held.leave_unheld(&request("s", words, &[]));
            match held.what {
                What::Missing(why) => why,
                _ => String::new(),
            }
        };
        assert!(why("s --device soft0 --hold-dma-latency 5").contains("all sweeps have a limit"));
        assert!(why("s --device soft0 --hosts a,b").contains("one of this machine"));
        assert_eq!(why("s --device sim:ideal"), "");
        for words in ["s --device soft0", more] {
            let request = request("s", words, &[]);
            let mut other = part("ping");
            let command = one.command(&request);
            assert_eq!(command.contains(&"a,b".to_owned()), !request.hosts.is_empty());
            other.restore(&command);
            assert_eq!((&other.words, other.repeat), (&one.words, 3));
        }
    }

    #[test]
    fn shipped_plans_use_options_and_conditions_that_there_are() {
        crate::know_experiments();
        for study in Study::shipped().unwrap() {
            let profiles = study.plan.profiles();
            assert!(profiles.iter().all(|name| rdmalab_sim::find(name).is_ok()), "{profiles:?}");
            let simulated = request(&study.plan.key, "s --device sim:ideal", &profiles);
            for is_quick in [false, true] {
                let parts = of(&study.plan, &[], is_quick);
                let mut conditioned = parts.clone();
                conditioned.iter_mut().for_each(|part| part.take_conditions(&simulated));
                for part in parts.into_iter().chain(conditioned) {
                    if let What::Missing(why) = &part.what {
                        panic!("{} {}: {why}", study.plan.key, part.name());
                    }
                }
            }
        }
    }
}
