//! `signal` and `signal.v2`: samples that are computed, one each period of a rate. Their sequence
//! numbers are the numbers of ticks, so a tick that was missed leaves a gap.

mod computed;
pub mod legacy;
pub mod v2;
