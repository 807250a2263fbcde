//! The state of On-Demand Paging of a node.

use std::collections::BTreeSet;

use rdmalab_engine::odp::Paging;

use crate::ids::QpId;
use crate::noise::Stream;
use crate::parameters::Parameters;
use crate::time::Ps;

/// The pages of an adapter's regions.
#[derive(Debug)]
pub(crate) struct NodePaging {
    pub(crate) pages: Paging,
    /// Queue pairs that wait for some page.
    pub(crate) waiting: BTreeSet<QpId>,
    /// When the adapter can tell the next queue pair that a page has come.
    pub(crate) resume_free: Ps,
    /// The random part of the time until a page comes.
    pub(crate) resolve: Option<Stream>,
    /// The random part of the time for which a responder serves a repeated READ.
    pub(crate) damming: Option<Stream>,
}

impl NodePaging {
    pub(crate) fn new(parameters: &Parameters) -> NodePaging {
        NodePaging {
            pages: Paging::new(parameters.odp_fault_contexts as usize),
            waiting: BTreeSet::new(),
            resume_free: Ps::ZERO,
            resolve: None,
            damming: None,
        }
    }
}
