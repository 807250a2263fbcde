//! What rules have to remember: transmissions and counts of each flow, and what a rate has let
//! pass. No clock: the time is an argument.

use std::collections::{HashMap, VecDeque};

use super::{Action, Counts, Fate, Flow, Medium, Payload, Rules, Subject};
use crate::faults::Class;
use crate::hook::Transmissions;
use rdmalab_wire::ids::Psn;

/// Flows that are remembered; the oldest is forgotten, and begins anew.
pub const MAX_FLOWS: usize = 4096;

#[derive(Default)]
struct Known {
    sent: Transmissions,
    counts: Counts,
}

/// See the module's text.
#[derive(Default)]
pub struct State {
    flows: HashMap<Flow, Known>,
    /// In the order of their first packets.
    order: VecDeque<Flow>,
    /// When the line of each rule's rate is free again, ns.
    free_ns: Vec<u64>,
    /// Packets that each rule met.
    met: Vec<u64>,
}

/// What becomes of a packet, and what its capture says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// By the rules.
    pub fate: Fate,
    /// When it leaves, ns, if it has to wait.
    pub due_ns: Option<u64>,
}

/// A packet that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Its flow.
    pub flow: Flow,
    /// What carries it.
    pub medium: Medium,
    /// What it is.
    pub class: Class,
    /// Its number.
    pub psn: Psn,
    /// How often it was sent before, where the driver counts that; otherwise it is counted here.
    pub transmission: Option<u32>,
    /// Bytes on the wire.
    pub bytes: u32,
    /// Its payload.
    pub payload: Payload,
}

impl State {
    /// Decides about the next packet of a flow. `start_ns` is when the rules were armed.
    pub fn decide(
        &mut self,
        rules: &Rules,
        sending: &Sending,
        start_ns: u64,
        now_ns: u64,
    ) -> Decision {
        let known = self.flow(&sending.flow);
        let subject = Subject {
            flow: sending.flow,
            medium: sending.medium,
            class: sending.class,
            psn: sending.psn,
            transmission: sending.transmission.unwrap_or_else(|| known.sent.next(sending.psn)),
            bytes: sending.bytes,
            payload: sending.payload,
            since_ns: now_ns.saturating_sub(start_ns),
        };
        let fate = rules.judge(&subject, &mut known.counts);
        let mut due_ns = now_ns.saturating_add(fate.delay_ns);
        self.met.resize(rules.rules().len(), 0);
        self.free_ns.resize(rules.rules().len(), 0);
        for (index, rule) in rules.rules().iter().enumerate() {
            if fate.rules >> index & 1 == 0 {
                continue;
            }
            self.met[index] += 1;
            if let Action::Rate(bits) = rule.action
                && !fate.lost
            {
                let takes_ns = sending.bytes as u128 * 8_000_000_000 / bits as u128;
                let free_ns = self.free_ns[index].max(due_ns).saturating_add(takes_ns as u64);
                self.free_ns[index] = free_ns;
                due_ns = free_ns;
            }
        }
        Decision { fate, due_ns: (due_ns > now_ns).then_some(due_ns) }
    }

    /// Packets that each rule met so far.
    pub fn met(&self) -> &[u64] {
        &self.met
    }

    fn flow(&mut self, flow: &Flow) -> &mut Known {
        if !self.flows.contains_key(flow) {
            if self.order.len() >= MAX_FLOWS
                && let Some(oldest) = self.order.pop_front()
            {
                self.flows.remove(&oldest);
            }
            self.order.push_back(*flow);
        }
        self.flows.entry(*flow).or_default()
    }
}
