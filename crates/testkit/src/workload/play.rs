//! Plays a scenario.

use super::flow::{Flow, Transcript};
use super::scenario::Scenario;
use crate::sim::{Faults, LEFT, Pair, RIGHT};
use rdmalab_engine::qp::Timer;
use rdmalab_engine::vocab::{QpState, QpType};
use rdmalab_random::Random;

/// Virtual time in which every queue pair must drain or fail once the faults are over: twice the
/// longest time-out (4.096 us x 2^17) for each of eight attempts (the first and seven retries).
const BOUND_NS: u64 = 16 * (4096 << 17);

/// How often pages are taken away. More often, a READ of many pages might never find all of them.
const INVALIDATIONS: u32 = 20;

/// A scenario that is being played. After a panic its trace shows the last events.
#[derive(Debug)]
pub struct Player {
    /// The two ends.
    pub pair: Pair,
    flows: Vec<Flow>,
    scenario: Scenario,
    random: Random,
    wake_ns: u64,
    invalidations: u32,
}

/// Plays `scenario` to its end; panics where the engine breaks its contract.
pub fn run(scenario: &Scenario) -> Vec<Transcript> {
    Player::new(scenario).play()
}

impl Player {
    /// The two ends, connected; nothing is posted yet.
    pub fn new(scenario: &Scenario) -> Self {
        let mut pair = Pair::new(scenario.config);
        pair.world.knobs = scenario.knobs;
        pair.world.link.faults = scenario.faults;
        if let Some(rules) = &scenario.rules {
            pair.disturb(rules);
        }
        let flows = [LEFT, RIGHT].map(|at| Flow::new(&mut pair, at, scenario)).into();
        let random = Random::new(scenario.seed ^ 0xac7);
        Player { pair, flows, scenario: scenario.clone(), random, wake_ns: 0, invalidations: 0 }
    }

    /// Plays to the end.
    pub fn play(&mut self) -> Vec<Transcript> {
        for flow in &mut self.flows {
            flow.post_receives(&mut self.pair, self.scenario.receives_first);
        }
        while self.step() {}
        self.settle();
        for flow in &self.flows {
            flow.judge_end(&self.pair);
        }
        self.judge_rest();
        self.flows.iter().map(|flow| flow.transcript(&self.pair)).collect()
    }

    /// One step of virtual time. Returns whether another one follows.
    fn step(&mut self) -> bool {
        self.set_faults();
        self.work();
        if self.pair.world.now_ns >= self.wake_ns {
            self.act();
            self.work();
        }
        let over = self.flows.iter().all(|flow| flow.is_over() && flow.is_posted());
        if over {
            return false;
        }
        let acting = self.flows.iter().any(|flow| !flow.is_posted());
        let wake_ns = acting.then_some(self.wake_ns);
        let next_ns = [self.pair.world.next_ns(), wake_ns, self.next_change_ns()];
        let next_ns = next_ns.into_iter().flatten().min();
        let Some(next_ns) = next_ns else {
            panic!("nothing will ever happen again, but requests wait");
        };
        self.pair.world.now_ns = next_ns.max(self.pair.world.now_ns);
        let bound_ns = self.scenario.heal_ns + BOUND_NS;
        assert!(self.pair.world.now_ns < bound_ns, "neither drained nor in ERR in time");
        true
    }

    fn work(&mut self) {
        self.pair.world.work_to_rest();
        for flow in &mut self.flows {
            flow.judge_received(&mut self.pair);
        }
        for flow in &mut self.flows {
            flow.judge_sent(&mut self.pair);
        }
    }

    fn act(&mut self) {
        for flow in &mut self.flows {
            if self.random.chance(700) {
                flow.post_receives(&mut self.pair, self.random.below(5) as u32);
            }
            if self.random.chance(700) {
                flow.post_sends(&mut self.pair, self.random.below(9) as u32);
            }
        }
        for device in &mut self.pair.world.devices {
            let base = device.memory.base();
            if let Some(paged) = &mut device.paged
                && self.random.chance(100)
                && self.invalidations < INVALIDATIONS
            {
                self.invalidations += 1;
                paged.invalidate_some(base, 1 << 18);
            }
        }
        let pause_ns = self.random.between(1, self.scenario.pause_ns);
        self.wake_ns = self.pair.world.now_ns + pause_ns;
    }

    fn set_faults(&mut self) {
        let now_ns = self.pair.world.now_ns;
        let healed = now_ns >= self.scenario.heal_ns;
        let split = self.scenario.faults.split;
        let mut faults = self.scenario.faults;
        if healed {
            faults = Faults { split, ..Faults::default() };
        }
        if let Some((from_ns, to_ns)) = self.scenario.partition_ns {
            faults.partitioned = (from_ns..to_ns).contains(&now_ns);
        }
        self.pair.world.link.faults = faults;
    }

    fn next_change_ns(&self) -> Option<u64> {
        let now_ns = self.pair.world.now_ns;
        let (from_ns, to_ns) = self.scenario.partition_ns.unwrap_or_default();
        let changes = [self.scenario.heal_ns, from_ns, to_ns];
        changes.into_iter().filter(|at_ns| *at_ns > now_ns).min()
    }

    /// Lets all packets arrive that are under way.
    fn settle(&mut self) {
        let until_ns = self.pair.world.now_ns + BOUND_NS;
        assert!(self.pair.world.run(until_ns), "something goes on for ever");
        self.work();
    }

    /// When nothing is under way, no timer may be armed and no packet may wait to be sent.
    fn judge_rest(&self) {
        for at in [LEFT, RIGHT] {
            let qp = &self.pair.world.qp(at).qp;
            assert_eq!(qp.timer(), Timer::Idle);
            assert!(!qp.has_response());
            let well = matches!(qp.state, QpState::Rts);
            let explained = self.flows.iter().any(|flow| flow.failed)
                || self.scenario.config.qp_type != QpType::Rc;
            assert!(well || explained, "{at:?} is in {:?}", qp.state);
        }
    }
}
