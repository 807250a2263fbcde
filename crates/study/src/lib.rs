//! Published studies as data, and their comparison with measurements.
//!
//! A study is a directory of three files, so that adding a claim or a study needs no code:
//!
//! | file | what |
//! |---|---|
//! | `plan.toml` | the study's figures, each as sweeps in the words of `rdmalab run` |
//! | `published.csv` | values that the study printed, with unit, tolerance and reliability |
//! | `claims.toml` | the study's claims: left, relation, right, range, tolerance, source |
//!
//! Shipped studies are part of the program ([`Study::shipped`]); others are read from a directory
//! ([`Study::read_all`]). This crate runs no experiment: [`evaluate`] takes records.
#![forbid(unsafe_code)]

mod advice;
mod calibration;
mod claim;
mod claims_file;
mod crossing;
mod error;
mod evaluate;
mod evidence;
mod findings;
mod judge;
mod lookup;
mod measurement;
mod operand;
mod plan;
mod points;
mod published;
mod shipped;
mod simulated;
mod study;
mod undecided;
mod value;
mod value_verdict;

pub use advice::Advice;
pub use calibration::Calibration;
pub use claim::{Claim, Relation};
pub use error::Error;
pub use evaluate::{ComparedValue, Evaluation, JudgedClaim, Standing, evaluate, evaluate_model};
pub use evidence::{Decision, Evidence, Verdict};
pub use lookup::{SweepResult, SweepState};
pub use measurement::{Basis, Measurement, Unit};
pub use operand::{Operand, Range, Stat};
pub use plan::{Bars, Figure, Plan, Sweep, SweepCommand};
pub use published::{Published, Reliability};
pub use simulated::{Simulated, Topology};
pub use study::Study;
pub use value::{Because, RatioForm, Value};
pub use value_verdict::ValueVerdict;
