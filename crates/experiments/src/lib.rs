//! The workloads of the studies: each a small file, its parameters as data. An experiment touches
//! the world through `verbs` and [`rdmalab_rank::Rank`] only, so that it runs unchanged on
//! adapters, on the soft device and, later, in virtual time.

#![forbid(unsafe_code)]
