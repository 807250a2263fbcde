//! What the search is told.

/// The function of a search: from vectors of values, of which several are asked for at a time, to a
/// vector of residuals for each.
pub type Function<'a, E> = dyn FnMut(&[Vec<f64>]) -> Result<Vec<Vec<f64>>, E> + 'a;

/// A number that is searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variable {
    /// Where the search begins, and what the prior holds it near.
    pub start: f64,
    /// The least value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// How readily it moves. A change of a sum is shared among variables that nothing tells apart
    /// in proportion to the squares of their widths.
    pub width: f64,
    /// A usual change, in which steps are damped: the same for all variables of a kind.
    pub usual: f64,
    /// The step of finite differences, in both directions as far as the bounds allow.
    pub step: f64,
}

/// How the search is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Most steps, each with new derivatives.
    pub max_steps: usize,
    /// A step that would lessen the sum of squares by less than this is not taken: the search has
    /// converged.
    pub least_gain: f64,
    /// If steps were in vain, the search has converged nevertheless if the derivatives promise no
    /// more than this. With residuals in standard errors, 1 is what a standard error of one
    /// variable is worth.
    pub insignificant_gain: f64,
    /// The standard error of the prior, in widths of each variable. The larger, the weaker.
    pub prior_widths: f64,
}
