//! The search of Levenberg and Marquardt, within bounds.

use nalgebra::{DMatrix, DVector};

use crate::differences::{Local, local};
use crate::variable::{Function, Options, Variable};

/// How strongly the first steps are damped, relative to the curvature.
const FIRST_DAMPING: f64 = 1e-3;
/// Each step is tried with these multiples of the damping at the same time.
const TRIED: [f64; 4] = [0.1, 1.0, 10.0, 100.0];
/// With more damping, steps are so short that the search is stuck.
const MOST_DAMPING: f64 = 1e9;

/// If steps were in vain, the search has converged nevertheless if the derivatives promise no more
/// than this share of the sum of squares: finite differences of a rough function err by as much.
const NOISE: f64 = 0.02;

/// What the search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The variables, as they were given.
    pub variables: Vec<Variable>,
    /// Their values.
    pub values: Vec<f64>,
    /// The residuals there.
    pub residuals: Vec<f64>,
    /// The derivatives there: a row for each residual, a column for each variable.
    pub jacobian: DMatrix<f64>,
    /// Whether no step could lessen the sum of squares any more. If not, the values are the best
    /// ones that were reached.
    pub is_converged: bool,
    /// The steps that were taken.
    pub steps: usize,
    /// The standard error of the prior, in widths.
    pub prior_widths: f64,
}

impl Fit {
    /// The sum of the squares of the residuals, without the prior.
    #[must_use]
    pub fn chi2(&self) -> f64 {
        self.residuals.iter().map(|residual| residual * residual).sum()
    }
}

/// Searches for the least sum of squares. `function` gets several vectors of values at a time, so
/// that it can evaluate them in parallel, and returns a vector of residuals for each; all have the
/// same length.
///
/// # Errors
/// Those of the function.
pub fn fit<E>(
    variables: &[Variable],
    options: Options,
    function: &mut Function<'_, E>,
) -> Result<Fit, E> {
    let mut values: Vec<f64> =
        variables.iter().map(|of| of.start.max(of.min).min(of.max)).collect();
    let mut here = local(variables, &values, function)?;
    let (mut damping, mut steps, mut is_converged) = (FIRST_DAMPING, 0, false);
    while steps < options.max_steps && damping < MOST_DAMPING {
        let place = Iterate { variables, options, values: &values, local: &here };
        let places: Vec<Vec<f64>> = TRIED.iter().map(|by| place.step(damping * by)).collect();
        let hoped = places.iter().map(|to| place.hoped(to)).fold(0.0, f64::max);
        if hoped <= options.least_gain {
            // With much damping this only tells that steps were in vain.
            let before = place.cost(&values, here.residuals.as_slice());
            let more = place.hoped(&place.step(0.0));
            let insignificant = options.insignificant_gain.max(options.least_gain);
            is_converged = more <= insignificant.max(before * NOISE);
            break;
        }
        let found = function(&places)?;
        let costs = places.iter().zip(&found).map(|(to, residuals)| place.cost(to, residuals));
        let costs: Vec<f64> = costs.collect();
        let before = place.cost(&values, here.residuals.as_slice());
        let best = (0..costs.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0);
        if costs[best] < before {
            damping = (damping * TRIED[best] * 0.3).max(1e-12);
            let is_last = best == 0 && before - costs[best] <= options.least_gain;
            values.clone_from(&places[best]);
            here = local(variables, &values, function)?;
            steps += 1;
            if is_last {
                is_converged = true;
                break;
            }
        } else {
            // All of these were in vain.
            damping *= TRIED[TRIED.len() - 1] / TRIED[0] * 10.0;
        }
    }
    let Local { residuals, jacobian } = here;
    let residuals = residuals.as_slice().to_vec();
    let (variables, prior_widths) = (variables.to_vec(), options.prior_widths);
    Ok(Fit { variables, values, residuals, jacobian, is_converged, steps, prior_widths })
}

/// A place of the search, from which it steps.
struct Iterate<'a> {
    variables: &'a [Variable],
    options: Options,
    values: &'a [f64],
    local: &'a Local,
}

impl Iterate<'_> {
    /// What the prior adds to the residuals.
    fn prior(&self, values: &[f64]) -> Vec<f64> {
        let off = |(of, value): (&Variable, &f64)| {
            (value - of.start) / (of.width * self.options.prior_widths)
        };
        self.variables.iter().zip(values).map(off).collect()
    }

    /// The sum of squares, with the prior; infinite if the function has no value there.
    fn cost(&self, values: &[f64], residuals: &[f64]) -> f64 {
        let prior = self.prior(values);
        let sum: f64 = residuals.iter().chain(&prior).map(|one| one * one).sum();
        if sum.is_finite() { sum } else { f64::INFINITY }
    }

    /// By how much a step would lessen the sum of squares, if the function were linear.
    fn hoped(&self, to: &[f64]) -> f64 {
        let step = DVector::from_iterator(to.len(), to.iter().zip(self.values).map(|(a, b)| a - b));
        let there = &self.local.residuals + &self.local.jacobian * step;
        let before = self.cost(self.values, self.local.residuals.as_slice());
        before - self.cost(to, there.as_slice())
    }

    /// Where a step with this damping leads. The variable whose bound is the first on the way stays
    /// there, and the step of the others is computed again without it.
    fn step(&self, damping: f64) -> Vec<f64> {
        let mut to = self.values.to_vec();
        let mut free: Vec<usize> = (0..to.len()).collect();
        while !free.is_empty() {
            let step = self.free_step(&free, &to, damping);
            let stopped = |k: usize| {
                let (i, wanted) = (free[k], self.values[free[k]] + step[k]);
                let of = &self.variables[i];
                let bound = wanted.clamp(of.min, of.max);
                let share = (bound - self.values[i]) / step[k];
                (wanted < of.min || wanted > of.max).then_some((i, bound, share))
            };
            let stopped = (0..free.len()).filter_map(stopped);
            let Some((first, bound, _)) = stopped.min_by(|a, b| a.2.total_cmp(&b.2)) else {
                free.iter().zip(&step).for_each(|(i, step)| to[*i] = self.values[*i] + step);
                break;
            };
            to[first] = bound;
            free.retain(|i| *i != first);
        }
        to
    }

    /// The step of some variables, while the others go to their place in `to`. In widths of the
    /// variables, so that nanoseconds and rates have a common scale.
    fn free_step(&self, free: &[usize], to: &[f64], damping: f64) -> Vec<f64> {
        let (rows, columns) = (self.local.residuals.len(), free.len());
        let gone = |i: usize| if free.contains(&i) { 0.0 } else { to[i] - self.values[i] };
        let gone = (0..to.len()).map(gone);
        let fixed =
            &self.local.residuals + &self.local.jacobian * DVector::from_iterator(to.len(), gone);
        let prior = self.prior(self.values);
        let one = 1.0 / self.options.prior_widths;
        // In usual changes, not in widths: variables that the residuals do not tell apart, whose
        // derivatives are the same, are damped alike, and then move by the squares of their widths.
        let damp = |i: usize| {
            let change = self.local.jacobian.column(i).norm() * self.variables[i].usual;
            damping.sqrt() * change.max(one)
        };
        let mut matrix = DMatrix::zeros(rows + 2 * columns, columns);
        let mut target = DVector::zeros(rows + 2 * columns);
        target.rows_mut(0, rows).copy_from(&-fixed);
        for (k, i) in free.iter().enumerate() {
            let column = self.local.jacobian.column(*i) * self.variables[*i].width;
            matrix[(rows + k, k)] = one;
            matrix[(rows + columns + k, k)] = damp(*i);
            target[rows + k] = -prior[*i];
            matrix.view_mut((0, k), (rows, 1)).copy_from(&column);
        }
        let solved = matrix.svd(true, true).solve(&target, 0.0);
        // Without a solution (no such case is known) it stays where it is.
        let widths = free.iter().map(|i| self.variables[*i].width);
        match solved {
            Ok(step) => step.iter().zip(widths).map(|(step, width)| step * width).collect(),
            Err(_) => vec![0.0; columns],
        }
    }
}
