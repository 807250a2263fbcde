//! What experiments are made of: queue pairs that are connected, receives that are posted again,
//! memory, pace, threads, and what the ends tell each other. No file here knows an experiment.

pub(crate) mod arrivals;
pub(crate) mod completions;
pub(crate) mod endpoint;
pub(crate) mod failure;
pub(crate) mod gid;
pub(crate) mod granted;
pub(crate) mod layout;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod lockstep;
pub(crate) mod number;
pub(crate) mod option;
pub(crate) mod options;
pub(crate) mod pace;
pub(crate) mod params;
pub(crate) mod rdma_cm;
pub(crate) mod receives;
pub(crate) mod rules;
pub(crate) mod samples;
pub(crate) mod send_queue;
pub(crate) mod sender;
pub(crate) mod thread_tag;
pub(crate) mod threads;
pub(crate) mod words;
