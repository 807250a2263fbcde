//! Runs gateways from the text of their configuration.
#![allow(dead_code)] // Each test uses a part.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdmalab_gateway::node::{Log, Stop, World};
use rdmalab_gateway::timer::TimerKind;
use rdmalab_gateway::{Live, PathReport, Plan, Summary};
use rdmalab_measure::Clock;
use rdmalab_testing::{LIMIT, WaitLimit};

/// A gateway that runs.
pub struct Running {
    thread: std::thread::JoinHandle<Result<Summary, String>>,
    stop: Stop,
    told: Arc<Mutex<Vec<String>>>,
    live: Live,
}

/// The plan of a configuration.
pub fn plan(text: &str) -> Result<Plan, Vec<String>> {
    let tree = rdmalab_config::parse("a.conf", text);
    let plan = tree.and_then(|tree| Plan::check(&tree));
    plan.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

/// Starts a gateway.
pub fn start(text: &str) -> Running {
    let plan = plan(text).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let (stop, told) = (Stop::default(), Arc::new(Mutex::new(Vec::new())));
    let lines = told.clone();
    let log = Log::new(move |line| lines.lock().unwrap().push(line.to_owned()));
    let (clock, live) = (Clock::new(), plan.live());
    let world = World { device: None, clock, timer: TimerKind::Timerfd, stop: stop.clone(), log };
    let thread = std::thread::spawn(move || plan.run(&world));
    Running { thread, stop, told, live }
}

/// Runs a gateway until it ends by itself.
pub fn run(text: &str) -> Summary {
    let running = start(text);
    let mut wait_limit = WaitLimit::of(LIMIT);
    while !running.thread.is_finished() {
        assert!(wait_limit.is_left(), "{:#?}", running.told());
        std::thread::sleep(Duration::from_millis(5));
    }
    running.join()
}

impl Running {
    /// Waits until there is something.
    pub fn until(&self, what: &str, mut look: impl FnMut() -> bool) {
        let mut wait_limit = WaitLimit::of(LIMIT);
        while !look() {
            assert!(wait_limit.is_left(), "no {what}: {:#?}", self.told());
            assert!(!self.thread.is_finished(), "it ended before {what}: {:#?}", self.told());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What its paths have done so far.
    pub fn so_far(&self) -> Vec<PathReport> {
        self.live.ask(LIMIT).into_iter().map(|(_, path)| path).collect()
    }

    /// Its messages so far.
    pub fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    /// Ends it.
    pub fn end(self) -> Summary {
        self.stop.set();
        self.join()
    }

    fn join(self) -> Summary {
        let told = self.told();
        self.thread.join().unwrap().unwrap_or_else(|why| panic!("{why}: {told:#?}"))
    }
}

/// The content of a file; empty while there is none.
pub fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}
