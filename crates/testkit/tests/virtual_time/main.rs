//! The simulator below the verbs and the experiments: virtual time, adapters, ranks.

mod calls;
mod closed_forms;
mod contention;
mod effects;
mod ends;
mod experiments;
mod fabric;
mod faults;
mod lab;
mod locks;
mod noise;
mod objects;
mod odp;
mod orderings;
mod paging;
mod random_programs;
mod raw_loops;
mod timeline;
mod traces;
