//! On-Demand Paging of an adapter, in virtual time. The engine decides what a missing page means
//! ([`rdmalab_engine::odp`]); here are the times: how long a page takes to come, when queue pairs
//! learn of it, how late the RNR NAK of a fault leaves, and how long a responder serves a READ that
//! was repeated.

use rdmalab_engine::odp::Page;
use rdmalab_engine::train::{Train, TrainKind};

use crate::adapter::SimQp;
use crate::component::Component;
use crate::event::Event;
use crate::hooks::arrived;
use crate::ids::QpId;
use crate::kernel::World;
use crate::noise::Stream;
use crate::packets::Packets;
use crate::time::Ps;

impl World {
    /// A step of a queue pair found a page missing.
    pub(crate) fn wait_for_page(&mut self, id: QpId) {
        self.note(id.node, Component::Page, || {
            "a page is missing: the queue pair waits for it".to_owned()
        });
        self.nodes[id.node].paging.waiting.insert(id);
        self.fetch_pages(id.node);
    }

    /// Fetches the pages that were asked for.
    pub(crate) fn fetch_pages(&mut self, node: usize) {
        let now = self.now;
        let paging = &mut self.nodes[node].paging;
        for page in paging.pages.take_raised() {
            let mean = self.parameters.odp_resolve_mean_ns;
            let resolve = &mut paging.resolve;
            let more = match mean {
                Ps::ZERO => mean,
                _ => resolve
                    .get_or_insert_with(|| Stream::new(self.seed, "odp_resolve", node))
                    .exponential(mean),
            };
            let at = now + self.parameters.odp_resolve_ns + more;
            self.queue.push(at, Event::PageArrives { node, page });
        }
    }

    /// A page that was missing is there. Queue pairs with a fault context learn of it one after
    /// the other.
    pub(crate) fn page_arrives(&mut self, node: usize, page: Page) {
        self.note(node, Component::Page, || "the page has come".to_owned());
        let paging = &mut self.nodes[node].paging;
        for context in paging.pages.resolve(page) {
            let at = paging.resume_free.max(self.now) + self.parameters.odp_resume_ns;
            paging.resume_free = at;
            self.queue.push(at, Event::PageResume { node, context });
        }
        self.wake_page_waiters(node);
    }

    /// The queue pair with the fault context of this number learns that its pages are there.
    pub(crate) fn page_resume(&mut self, node: usize, context: u64) {
        self.note(node, Component::Page, || "a queue pair learns of its page".to_owned());
        self.nodes[node].paging.pages.resume(context);
        self.wake_page_waiters(node);
    }

    fn wake_page_waiters(&mut self, node: usize) {
        for id in std::mem::take(&mut self.nodes[node].paging.waiting) {
            self.with_qp(id, |world, qp| {
                world.step(id, qp, |qp, env| qp.pages_arrived(env));
                world.wants_turn(id, qp);
            });
        }
    }

    /// How late the RNR NAK leaves that answers this request because of a page fault.
    pub(crate) fn fault_nak_delay(&self, train: &Train) -> Ps {
        match train.kind {
            TrainKind::ReadRequest => self.parameters.odp_read_nak_ns,
            _ => self.parameters.odp_nak_ns,
        }
    }

    /// Whether the responder loses a request because it serves a READ that was repeated (packet
    /// damming).
    pub(crate) fn is_dammed(&mut self, id: QpId, qp: &mut SimQp, packets: &Packets) -> bool {
        let least = self.parameters.damming_ns;
        if least == Ps::ZERO {
            return false;
        }
        let Some(packet) = arrived(qp, packets) else { return false };
        let is_lost = qp.damming.arrives(&packet, self.now, || {
            let mean = self.parameters.damming_mean_ns;
            let stream = &mut self.nodes[id.node].paging.damming;
            let more = match mean {
                Ps::ZERO => mean,
                _ => stream
                    .get_or_insert_with(|| Stream::new(self.seed, "damming", id.node))
                    .exponential(mean),
            };
            self.now + least + more
        });
        let departs = &mut qp.sending.responses.departs;
        *departs = (*departs).max(qp.damming.until);
        is_lost
    }
}
