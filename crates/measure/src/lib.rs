//! Clocks, statistics and units, and the bare limits of the machine that they run on.
//!
//! * [`clock`]: a fenced stamp, what it costs and how fine it is.
//! * [`stats`]: medians, quantiles and differences, each with an interval that assumes no shape of
//!   the distribution. Pure functions.
//! * [`curve`]: what a curve of medians says: where it crosses another.
//! * [`quantity`]: the names of what is measured, so that no table shows a bare "latency".
//! * [`method`]: the kinds of measurement, for those who need one and know no experiment.
//! * [`pattern`]: whether a series repeats itself, where it stands out, and how sure that is.
//! * [`outcome`]: the results of a rank at one point of an experiment.
//! * [`summary`]: what a record and a report say of a series.
//! * [`sync`]: the offset and the drift of two clocks, and how wrong that may be.
//! * [`group`]: things that share a key.
//! * [`text`]: lists and numbers in sentences.
//! * [`mod@unit`]: the units that names end with, and numbers with their unit.
//! * [`limits`]: the speed of this machine without our code: a cache line handed over, a ring, a
//!   copy, a system call, a datagram.
//!
//! Samples are assumed independent and from one distribution. Successive samples of one run seldom
//! are: compare the medians of repeated runs, or look at [`stats::lag1_autocorrelation`] first.

pub mod clock;
pub mod curve;
pub mod group;
pub mod limits;
pub mod method;
pub mod outcome;
pub mod pattern;
pub mod quantity;
pub mod stats;
pub mod summary;
pub mod sync;
pub mod text;
pub mod two_groups;
pub mod unit;

pub use clock::{Clock, ClockSource, Stamp, StampCost};
pub use method::Method;
pub use outcome::{Outcome, Series, at_rank};
pub use quantity::{Better, Quantity};
pub use summary::Summary;
