//! Advice: which way of sending is best here, for which goal, and how sure that is.
//!
//! * [`QUESTIONS`]: what can be asked, as data: the parameters that a question is about, and the
//!   sweeps that answer it.
//! * [`Goal`]: what "best" means, and the one number of a run that it looks at.
//! * [`decide`]: from numbers of repeated, interleaved runs to a decision. A pure function.
//! * [`answers`]: what records hold, question by question; and what they lack.
//! * [`text`], [`json`]: the answers for people and for programs.
//!
//! Runs nothing, and knows no experiment: a question names its sweeps in the words of `rdmalab
//! run`. What was measured for advice and what was measured for anything else are read alike.
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
pub use question::{MESSAGES_OF_P99, Pick, QUESTIONS, Question, Sweep, fewer_of_large, question};
pub use text::text;
