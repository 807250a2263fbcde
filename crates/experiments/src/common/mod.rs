//! What experiments are made of: common options and their rules, connected queue pairs, memory and
//! its layout, receive queues and credits, pace, threads, and what the ends tell each other. No
//! file here knows an experiment.

pub(crate) mod arrivals;
pub(crate) mod completions;
pub(crate) mod connection;
pub(crate) mod credits;
pub(crate) mod effort;
pub(crate) mod endpoint;
pub(crate) mod gather;
pub(crate) mod gid;
pub(crate) mod handshake;
pub(crate) mod layout;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod local_end;
pub(crate) mod lockstep;
pub(crate) mod losses;
pub(crate) mod model;
pub(crate) mod number;
pub(crate) mod option;
pub mod options;
pub(crate) mod pace;
pub(crate) mod params;
pub(crate) mod pattern;
pub(crate) mod rdma_cm;
pub(crate) mod recv_queue;
pub(crate) mod rules;
pub(crate) mod samples;
pub(crate) mod send_queue;
pub(crate) mod sender;
pub(crate) mod thread_tag;
pub(crate) mod threads;
pub(crate) mod words;
