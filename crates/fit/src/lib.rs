//! Weighted least squares: finds the values of some variables for which a function's residuals are
//! least, how well each value is known, and which variables the residuals do not tell apart.
//!
//! The caller gives the function, from a vector of values to a vector of residuals. A residual is a
//! difference in units of its standard error. The search is that of Levenberg and Marquardt, with
//! derivatives from finite differences and with bounds: variables at a bound that push outwards are
//! left there. A weak prior holds each variable near its start, so that a combination of variables
//! on which nothing depends stays as it was.
//!
//! No input or output: the same function gives the same fit.
#![forbid(unsafe_code)]

mod differences;
mod knowledge;
mod search;
#[cfg(test)]
mod tests;
mod variable;

pub use knowledge::{Group, Knowledge};
pub use search::{Fit, fit};
pub use variable::{Function, Options, Variable};
