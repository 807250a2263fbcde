//! What happens to messages, step by step, and where the time between two posts goes.
//!
//! Each step has a cause: the step during which the event was scheduled that led to it, or, for a
//! poll, what it found. The way back from a post over the causes to the post before is the critical
//! path: what that post waited for. Each part of it belongs to the component of its later step, so
//! the parts add up to the time between the posts.

use rdmalab_engine::train::TrainKind;
use serde::{Deserialize, Serialize};

use crate::component::Component;
use crate::time::Ps;

/// Most steps that are kept for people.
const MAX_STEPS: usize = 200;
/// Most steps between two posts whose causes are known.
const MAX_LINKS: usize = 1 << 22;

/// The number of a step, from 1; 0 stands for what was before.
pub(crate) type StepId = u64;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When it happened.
    pub at: Ps,
    /// The rank on whose side it happened.
    pub rank: usize,
    /// The part of the model that took the time until it.
    pub component: Component,
    /// What happened.
    pub what: String,
    /// The time since its cause, if the next post waited for it.
    pub on_path: Option<Ps>,
}

/// Where the time of all messages of a rank went, from its first post to its last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakdown {
    /// Posts with a next one.
    pub messages: u64,
    /// The time from the first post to the last one.
    pub total: Ps,
    /// The components that took time, and how much. Their sum is `total`.
    pub by_component: Vec<(Component, Ps)>,
}

/// A step as a part of the way back to a post.
#[derive(Clone, Copy, Debug)]
struct Link {
    at: Ps,
    component: Component,
    cause: StepId,
}

/// The steps between a post of a rank and its next one.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// The rank whose posts count.
    pub(crate) rank: usize,
    /// Which of its posts the steps begin with that are wanted, from 0.
    wanted: u64,
    /// Its posts so far.
    posts: u64,
    /// When its last post began, and the number of that step.
    began: Ps,
    base: StepId,
    /// The steps since then, by number from `base` on.
    links: Vec<Link>,
    /// The last step at which bytes were in memory, by node.
    written: Vec<StepId>,
    steps: Vec<Step>,
    total: Ps,
    sums: Vec<Ps>,
}

impl Timeline {
    /// Of the post number `wanted` of a rank.
    pub(crate) fn of_message(rank: usize, wanted: u64) -> Timeline {
        Timeline {
            rank,
            wanted,
            posts: 0,
            began: Ps::ZERO,
            base: 1,
            links: Vec::new(),
            written: Vec::new(),
            steps: Vec::new(),
            total: Ps::ZERO,
            sums: vec![Ps::ZERO; Component::ALL.len()],
        }
    }

    /// Whether the wanted post has begun and the next one has not.
    fn is_open(&self) -> bool {
        self.posts.checked_sub(1) == Some(self.wanted)
    }

    fn link(&self, id: StepId) -> Option<Link> {
        self.links.get(usize::try_from(id.checked_sub(self.base)?).ok()?).copied()
    }

    /// When a step happened; `None` if it was before the last post.
    fn time_of(&self, id: StepId) -> Option<Ps> {
        self.link(id).map(|link| link.at)
    }

    /// The later one of two steps; the first one if both are as late.
    pub(crate) fn later(&self, one: StepId, other: StepId) -> StepId {
        if self.time_of(other) > self.time_of(one) { other } else { one }
    }

    /// The component of a step, and its cause.
    pub(crate) fn what_led_to(&self, id: StepId) -> Option<(Component, StepId)> {
        self.link(id).map(|link| (link.component, link.cause))
    }

    /// Adds a step; returns its number.
    pub(crate) fn add(
        &mut self,
        (at, rank, component): (Ps, usize, Component),
        cause: StepId,
        what: impl FnOnce() -> String,
    ) -> StepId {
        if self.posts == 0 || self.links.len() == MAX_LINKS {
            return cause;
        }
        if self.is_open() && self.steps.len() < MAX_STEPS {
            self.steps.push(Step { at, rank, component, what: what(), on_path: None });
        }
        self.links.push(Link { at, component, cause });
        self.base + self.links.len() as StepId - 1
    }

    /// A post of the rank begins because of `cause`; returns the number of that step.
    pub(crate) fn begin_post(&mut self, now: Ps, cause: StepId) -> StepId {
        let (rank, component) = (self.rank, Component::Program);
        if self.posts > 0 {
            self.total += now - self.began;
            let is_open = self.is_open();
            let since = self.attribute(cause, now);
            if is_open && self.steps.len() < MAX_STEPS {
                let what = "the next post begins".to_owned();
                self.steps.push(Step { at: now, rank, component, what, on_path: Some(since) });
            }
        }
        self.posts += 1;
        self.base += self.links.len() as StepId;
        self.links.clear();
        self.began = now;
        self.add((now, rank, component), 0, || "the post begins".to_owned())
    }

    /// Goes back from a post that began at `end` to the one before, and adds each part of the way
    /// to its component; returns the last part.
    fn attribute(&mut self, cause: StepId, end: Ps) -> Ps {
        let (mut id, mut end, mut component) = (cause, end, Component::Program);
        let mut later: Option<usize> = None;
        let mut last = None;
        loop {
            let link = self.link(id).filter(|_| id != self.base);
            let begin = link.map_or(self.began, |link| link.at.clamp(self.began, end));
            let time = end - begin;
            self.sums[component as usize] += time;
            last.get_or_insert(time);
            if let Some(step) = later.and_then(|index| self.shown(index)) {
                step.on_path = Some(time);
            }
            let Some(link) = link else { return last.unwrap_or_default() };
            later = Some((id - self.base) as usize);
            (id, end, component) = (link.cause, begin, link.component);
        }
    }

    /// The step for people that has this place since the last post.
    fn shown(&mut self, index: usize) -> Option<&mut Step> {
        if self.is_open() { self.steps.get_mut(index) } else { None }
    }

    /// Bytes are in the memory of a node since this step.
    pub(crate) fn note_written(&mut self, node: usize, id: StepId) {
        if self.written.len() <= node {
            self.written.resize(node + 1, 0);
        }
        self.written[node] = id;
    }

    /// The last step at which bytes were in the memory of a node.
    pub(crate) fn written(&self, node: usize) -> StepId {
        self.written.get(node).copied().unwrap_or(0)
    }

    /// The steps that were wanted, and where the time of all messages went.
    pub(crate) fn close(mut self) -> (Vec<Step>, Breakdown) {
        let is_cut = self.steps.len() == MAX_STEPS;
        if let Some(last) = self.steps.last_mut().filter(|_| is_cut) {
            last.what = format!("the first {MAX_STEPS} steps end here");
        }
        // Some steps were noted before their time.
        self.steps.sort_by_key(|step| step.at);
        let sum = |component: &Component| (*component, self.sums[*component as usize]);
        let parts = Component::ALL.iter().map(sum).filter(|(_, time)| *time > Ps::ZERO);
        let breakdown = Breakdown {
            messages: self.posts.saturating_sub(1),
            total: self.total,
            by_component: parts.collect(),
        };
        (self.steps, breakdown)
    }
}

/// The name of packets, for people.
pub(crate) fn kind_name(kind: TrainKind) -> &'static str {
    match kind {
        TrainKind::Send => "SEND",
        TrainKind::Write => "WRITE",
        TrainKind::ReadRequest => "READ request",
        TrainKind::ReadResponse => "READ response",
        TrainKind::CmpSwap | TrainKind::FetchAdd => "atomic request",
        TrainKind::AtomicResponse => "atomic response",
        TrainKind::Ack => "acknowledgement",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A post, what it leads to, and something else meanwhile.
    #[test]
    fn the_time_between_posts_belongs_to_what_the_next_one_waited_for() {
        let mut timeline = Timeline::of_message(0, 1);
        let none = || String::new();
        let first = timeline.begin_post(Ps(100), 0);
        let early = timeline.add((Ps(150), 0, Component::Post), first, none);
        let post = timeline.begin_post(Ps(200), early);
        let link = timeline.add((Ps(230), 1, Component::Link), post, none);
        let other = timeline.add((Ps(240), 1, Component::Timer), post, none);
        let poll = timeline.add((Ps(260), 0, Component::Poll), link, none);
        assert_eq!((timeline.later(link, other), timeline.later(poll, other)), (other, poll));
        // What was before the last post counts from that post on only.
        let third = timeline.begin_post(Ps(270), poll);
        let stale = timeline.add((Ps(300), 0, Component::Completion), other, none);
        timeline.begin_post(Ps(310), stale);
        assert!(third > post && timeline.later(stale, poll) == stale);
        let (steps, found) = timeline.close();
        let parts = [
            (Component::Program, Ps(50 + 10 + 10)),
            (Component::Post, Ps(50)),
            (Component::Link, Ps(30)),
            (Component::Completion, Ps(30)),
            (Component::Poll, Ps(30)),
        ];
        assert_eq!((found.messages, found.total), (3, Ps(210)));
        assert_eq!(found.by_component, parts);
        let paths: Vec<Option<u64>> = steps.iter().map(|step| step.on_path.map(|t| t.0)).collect();
        assert_eq!(paths, [None, Some(30), None, Some(30), Some(10)]);
    }
}
