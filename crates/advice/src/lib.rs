//! Advice: which way of sending is best here, for which goal, and how sure that is.
//!
//! * [`QUESTIONS`]: what can be asked, as data: the parameters that a question is about, and the
//!   sweeps that answer it.
//! * [`Goal`]: what "best" means, and the number of a run that measures it.
//! * [`decide`]: makes a decision from numbers of repeated, interleaved runs. A pure function.
//! * [`answers`]: the answers of records, question by question, and the missing ones.
//! * [`text`], [`json`]: the answers for people and for programs.
//!
//! This crate runs nothing and knows no experiment: a question names its sweeps as options of
//! `rdmalab run`, and the kind of measurement that they need. The caller says which experiments
//! measure so. Records that were made for advice and other records are treated alike.
#![forbid(unsafe_code)]

mod answer;
mod decide;
mod goal;
mod groups;
mod json;
mod question;
mod text;

pub use answer::{Advice, Answer, Missing, Way, answers};
pub use decide::{
    CONFIDENCE, Candidate, Decision, Effect, Outcome, Relation, Rules, ZONE, decide, runs_needed,
};
pub use goal::Goal;
pub use json::json;
pub use question::{
    Experiments, MESSAGES_OF_P99, Pick, QUESTIONS, Question, Sweep, fewer_of_large, question,
};
pub use text::text;
