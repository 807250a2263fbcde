//! Packet damming: a request that was sent while an earlier one waited to be repeated after a page
//! fault is lost. A request is a victim if it was sent once, between the fault and the end of the
//! repeated request's service, if the repeated request was answered, and if only a time-out or a
//! later request made the requester send it again.

use std::collections::HashMap;

use rdmalab_trace::show::time;
use rdmalab_wire::ids::Psn;

use crate::event::{Ask, Event, SideId, Stamp, Step, Why};
use crate::finding::{Findings, Occurrence};
use crate::kind::Kind;
use crate::rule::Rule;
use crate::rules::client_fault::INTERVAL_NS;

/// How long after its repetition a request may still be served: published traces show 75 us to
/// 1.5 ms (Fukuoka, 2021).
const SERVICE_NS: u64 = 1_600_000;
/// An answer that comes so late, and so many times later than usual, came after a time-out.
const LATE_NS: u64 = 10_000_000;
const LATE_FACTOR: u64 = 100;

/// A request that waits to be repeated.
#[derive(Clone, Copy)]
struct Fault {
    ask: Ask,
    /// The RNR NAK, or the response that was dropped.
    begin: Stamp,
    is_rnr: bool,
    repeat: Option<Stamp>,
    answer: Option<Stamp>,
    last_answer: Option<Stamp>,
}

impl Fault {
    /// Whether a request sent then could be lost.
    fn covers(&self, ask: &Ask) -> bool {
        let served = self.repeat.map_or(u64::MAX, |at| at.at_ns.saturating_add(SERVICE_NS));
        let is_after = |at: &Stamp| self.repeat.is_none_or(|repeat| at.at_ns >= repeat.at_ns);
        let end = self.last_answer.filter(is_after).map_or(served, |at| at.at_ns);
        ask.psn.distance_from(self.ask.psn) > 0
            && ask.first.at_ns >= self.begin.at_ns
            && ask.first.at_ns <= end
    }
}

/// The rule.
#[derive(Default)]
pub struct Damming {
    faults: HashMap<SideId, Fault>,
    /// The usual time until an answer: the least that was seen.
    usual_ns: HashMap<SideId, u64>,
    /// The PSN of the packet that is judged.
    psn: Psn,
}

impl Rule for Damming {
    fn see(&mut self, step: &Step<'_>, found: &mut Findings) -> bool {
        match step.event {
            Event::Packet(packet) => self.psn = packet.headers.bth.psn,
            Event::Rnr(ask, _) => self.begin(step, ask, step.now, true),
            Event::Again { ask, why, is_start: true, .. } => {
                if self.is_victim(step, ask, why) {
                    let revealed = match why {
                        Why::Nak(nak) => Some(nak),
                        _ => None,
                    };
                    self.report(step, ask, revealed, found);
                    return true;
                }
                self.repeated(step, ask, why);
            }
            Event::Answered(ask) => return self.answered(step, ask, found),
            Event::AnsweredAgain(psn) => self.answered_again(step, psn),
            _ => {}
        }
        false
    }
}

impl Damming {
    fn begin(&mut self, step: &Step<'_>, ask: &Ask, begin: Stamp, is_rnr: bool) {
        let fault =
            Fault { ask: *ask, begin, is_rnr, repeat: None, answer: None, last_answer: None };
        match self.faults.get_mut(&step.side) {
            // Refused again: the wait began with the first NAK.
            Some(known) if known.ask.psn == ask.psn && known.answer.is_none() => {}
            _ => drop(self.faults.insert(step.side, fault)),
        }
    }

    fn repeated(&mut self, step: &Step<'_>, ask: &Ask, why: Why) {
        let is_soon = INTERVAL_NS.contains(&step.now.since(ask.last));
        if let (Why::Answered(answer), true) = (why, ask.returns_data() && is_soon) {
            self.begin(step, ask, answer, false);
        }
        if let Some(fault) = self.faults.get_mut(&step.side)
            && fault.ask.psn == ask.psn
        {
            fault.repeat = Some(step.now);
        }
    }

    fn is_victim(&self, step: &Step<'_>, ask: &Ask, why: Why) -> bool {
        let is_revealed = matches!(why, Why::Silence | Why::Nak(_));
        let fault = self.faults.get(&step.side).filter(|fault| fault.answer.is_some());
        is_revealed && ask.sends == 1 && fault.is_some_and(|fault| fault.covers(ask))
    }

    fn answered(&mut self, step: &Step<'_>, ask: &Ask, found: &mut Findings) -> bool {
        let waited_ns = step.now.since(ask.last);
        let usual_ns = self.usual_ns.entry(step.side).or_insert(u64::MAX);
        let is_late = waited_ns >= LATE_NS.max(usual_ns.saturating_mul(LATE_FACTOR));
        *usual_ns = waited_ns.min(*usual_ns);
        // A later answer may only stand for one that came in time and was not captured.
        let is_own = ask.has(self.psn);
        if is_late && is_own && self.is_victim(step, ask, Why::Silence) {
            self.report(step, ask, None, found);
            let doubt = "the repetition of the lost request is not in the capture: its answer only \
                         came as late as one";
            found.doubt(Kind::Damming, Some(step.side), doubt);
            return true;
        }
        if let Some(fault) = self.faults.get_mut(&step.side)
            && fault.ask.psn == ask.psn
        {
            (fault.answer, fault.last_answer) = (Some(step.now), Some(step.now));
        }
        false
    }

    fn answered_again(&mut self, step: &Step<'_>, psn: Psn) {
        if let Some(fault) = self.faults.get_mut(&step.side)
            && fault.ask.has(psn)
        {
            fault.answer.get_or_insert(step.now);
            fault.last_answer = Some(step.now);
        }
    }

    fn report(&self, step: &Step<'_>, ask: &Ask, nak: Option<Stamp>, found: &mut Findings) {
        let Some(fault) = self.faults.get(&step.side) else { return };
        let cost_ns = step.now.since(ask.last);
        let (began, where_) = match fault.is_rnr {
            true => ("RNR NAK", "at the responder"),
            false => ("response that was dropped", "at the requester"),
        };
        let what = format!(
            "{} was sent {} after the page fault of {} {where_} began, and was lost; {} revealed \
             it {} later",
            ask.name(),
            time(ask.first.since(fault.begin)),
            fault.ask.name(),
            if nak.is_some() { "a later request" } else { "only the time-out" },
            time(cost_ns)
        );
        let mut occurrence = Occurrence::new(what, cost_ns)
            .shown(fault.ask.first, fault.ask.name())
            .shown(fault.begin, began);
        let mut more = vec![(ask.last, format!("{}, the lost one", ask.name()))];
        more.extend(fault.repeat.map(|at| (at, format!("{} repeated", fault.ask.name()))));
        more.extend(fault.answer.map(|at| (at, "its answer".to_owned())));
        let again = fault.last_answer.filter(|at| Some(*at) != fault.answer);
        more.extend(again.map(|at| (at, "its answer once more".to_owned())));
        more.extend(nak.map(|at| (at, "NAK for the gap".to_owned())));
        more.sort_by_key(|(at, _)| at.at_ns);
        for (at, what) in more {
            occurrence = occurrence.shown(at, what);
        }
        found.add(Kind::Damming, Some(step.side), occurrence.shown(step.now, "what ends the wait"));
        let finding = found.finding(Kind::Damming, Some(step.side));
        if finding.count == 1 {
            finding.doubts.insert("one loss: a plain one at this very moment looks alike".into());
        } else {
            finding.doubts.remove("one loss: a plain one at this very moment looks alike");
        }
        if fault.is_rnr && fault.ask.needs_receive() {
            finding.doubts.insert("the RNR NAK may also mean a missing receive".into());
        }
    }
}
