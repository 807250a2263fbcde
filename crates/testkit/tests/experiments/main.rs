//! Experiments on the soft device: each option once at least, and whether what they say is true.

mod calls;
mod fan;
mod loads;
mod options;
mod process;
mod recvq;
mod truth;
mod two;
