//! Fits whose answers are known.

use std::convert::Infallible;

use nalgebra::DMatrix;

use super::*;

const OPTIONS: Options =
    Options { max_steps: 60, least_gain: 1e-12, insignificant_gain: 0.0, prior_widths: 1e6 };

fn variable(start: f64) -> Variable {
    Variable { start, min: -1e6, max: 1e6, width: start.abs().max(1.0), usual: 1.0, step: 1e-4 }
}

fn fitted(variables: &[Variable], residuals: impl Fn(&[f64]) -> Vec<f64>) -> Fit {
    let mut all = |places: &[Vec<f64>]| -> Result<Vec<Vec<f64>>, Infallible> {
        Ok(places.iter().map(|at| residuals(at)).collect())
    };
    let Ok(found) = fit(variables, OPTIONS, &mut all);
    found
}

fn assert_near(found: f64, expected: f64, tolerance: f64) {
    let scale = expected.abs().max(1.0);
    assert!((found - expected).abs() <= tolerance * scale, "{found} is not {expected}");
}

#[test]
fn a_straight_line_has_the_values_and_covariance_of_its_normal_equations() {
    // y = a + b x, errors of 0.5: with x = 0 .. 4 the inverse of J^T J is known in closed form.
    let (measured, sigma) = ([1.1, 2.9, 5.2, 6.8, 9.1], 0.5);
    let line = |at: &[f64]| {
        let one = |(x, y): (usize, &f64)| (at[0] + at[1] * x as f64 - y) / sigma;
        measured.iter().enumerate().map(one).collect()
    };
    let found = fitted(&[variable(0.0), variable(1.0)], line);
    let (n, sx, sxx) = (5.0, 10.0, 30.0);
    let (sy, sxy) = (25.1, 70.1);
    let determinant = n * sxx - sx * sx;
    assert!(found.is_converged);
    assert_near(found.values[0], (sxx * sy - sx * sxy) / determinant, 1e-6);
    assert_near(found.values[1], (n * sxy - sx * sy) / determinant, 1e-6);
    let known = found.knowledge(&[10.0, 10.0]);
    let expected = DMatrix::from_row_slice(2, 2, &[sxx, -sx, -sx, n]) * (sigma * sigma);
    for (one, expected) in known.covariance.iter().zip((expected / determinant).iter()) {
        assert_near(*one, *expected, 1e-6);
    }
    assert_near(known.error(0), (sigma * sigma * sxx / determinant).sqrt(), 1e-6);
    // The error of the line at x = 2, the middle, is that of a mean.
    assert_near(known.error_of(&[0, 1], &[1.0, 2.0]), sigma / n.sqrt(), 1e-6);
    assert!(known.groups.is_empty() && known.idle.is_empty() && known.weak.is_empty());
    assert!(known.is_known(0) && known.is_known(1));
    let chi2: f64 = found.residuals.iter().map(|one| one * one).sum();
    assert_near(found.chi2(), chi2, 1e-12);
}

#[test]
fn a_nonlinear_problem_is_solved_from_afar() {
    // Rosenbrock's valley, whose least value 0 is at (1, 1).
    let valley = |at: &[f64]| vec![10.0 * (at[1] - at[0] * at[0]), 1.0 - at[0]];
    let found = fitted(&[variable(-1.2), variable(1.0)], valley);
    assert!(found.is_converged, "{found:?}");
    assert_near(found.values[0], 1.0, 1e-5);
    assert_near(found.values[1], 1.0, 1e-5);
    // J^T J at (1, 1) is [[401, -200], [-200, 100]], whose determinant is 100.
    let known = found.knowledge(&[100.0, 100.0]);
    assert_near(known.covariance[(0, 0)], 1.0, 1e-3);
    assert_near(known.covariance[(0, 1)], 2.0, 1e-3);
    assert_near(known.covariance[(1, 1)], 4.01, 1e-3);
}

#[test]
fn a_kink_and_a_bound_are_no_obstacles() {
    // max(a, b) + c is measured where a is the larger one; c would have to be negative.
    let kinked = |at: &[f64]| vec![at[0].max(3.0) + at[1] - 5.0, at[0].max(9.0) + at[1] - 8.0];
    let positive = |start| Variable { min: 0.0, step: 0.5, ..variable(start) };
    let found = fitted(&[positive(4.0), positive(2.0)], kinked);
    assert!(found.is_converged, "{found:?}");
    assert!(found.values.iter().all(|value| *value >= 0.0));
    // The least squares with c = 0: 5 in the first row; the second one stays at 1.
    assert_near(found.values[0], 5.0, 1e-4);
    assert_eq!(found.values[1], 0.0);
    assert_near(found.chi2(), 1.0, 1e-4);
}

#[test]
fn variables_that_cannot_be_told_apart_are_named_and_keep_their_shares() {
    // a + b = 60, 2 c = 8; nothing depends on d, and hardly anything on e.
    let sums = |at: &[f64]| {
        let sum = at[0] + at[1] - 60.0;
        vec![sum, 2.0 * at[2] - 8.0, sum / 2.0 + at[2] - 4.0, (at[4] - 1.0) * 1e-6]
    };
    // Widths are square roots, so changes are in proportion to the starts.
    let root = |start: f64| Variable { width: start.sqrt(), ..variable(start) };
    let found = fitted(&[root(10.0), root(20.0), root(5.0), root(7.0), root(1.0)], sums);
    assert!(found.is_converged);
    let expected = [20.0, 40.0, 4.0, 7.0, 1.0];
    found.values.iter().zip(expected).for_each(|(one, of)| assert_near(*one, of, 1e-6));
    let known = found.knowledge(&[10.0, 20.0, 5.0, 7.0, 1.0]);
    assert_eq!((&*known.idle, &*known.weak), (&[3][..], &[4][..]));
    let [group] = &known.groups[..] else { panic!("{:?}", known.groups) };
    assert_eq!((&*group.members, group.known), (&[0, 1][..], 1));
    assert!(group.is_sum(), "{group:?}");
    // Alone they are as uncertain as the prior is wide; of the sum the error is that of the rows.
    assert!(known.error(0) > 1e5, "{}", known.error(0));
    let expected = (1.0_f64 / 1.25).sqrt();
    assert_near(known.error_of(&group.members, &group.weights), expected, 0.2);
    assert_eq!([0, 1, 2, 3, 4].map(|i| known.is_known(i)), [false, false, true, false, false]);
}

#[test]
fn a_weighted_sum_and_two_sums_are_no_plain_sum() {
    let weighted = |at: &[f64]| vec![at[0] + 3.0 * at[1] - 10.0, 2.0 * at[0] + 6.0 * at[1] - 20.0];
    let known = fitted(&[variable(1.0), variable(1.0)], weighted).knowledge(&[10.0; 2]);
    assert_eq!(known.groups.len(), 1);
    assert!(!known.groups[0].is_sum());
    assert_near(known.groups[0].weights[1], 3.0, 1e-6);
    let two = |at: &[f64]| vec![at[0] + at[1] - 3.0, at[2] + at[3] - 5.0];
    let known = fitted(&[variable(1.0); 4], two).knowledge(&[10.0; 4]);
    let members: Vec<&[usize]> = known.groups.iter().map(|group| &*group.members).collect();
    assert_eq!(members, [&[0, 1][..], &[2, 3]], "{known:?}");
}

#[test]
fn a_prior_as_sure_as_the_data_meets_them_halfway() {
    let mut line = |places: &[Vec<f64>]| -> Result<Vec<Vec<f64>>, Infallible> {
        Ok(places.iter().map(|at| vec![at[0] - 10.0]).collect())
    };
    let options = Options { prior_widths: 2.0, ..OPTIONS };
    // The start is 0, and the standard error of the prior is twice the width, that of the data 1.
    let Ok(found) = fit(&[Variable { width: 0.5, ..variable(0.0) }], options, &mut line);
    assert!(found.is_converged);
    assert_near(found.values[0], 5.0, 1e-6);
    assert_near(found.knowledge(&[1.0]).covariance[(0, 0)], 0.5, 1e-9);
}

#[test]
fn a_search_that_is_cut_short_keeps_what_it_reached() {
    let valley = |at: &[f64]| vec![10.0 * (at[1] - at[0] * at[0]), 1.0 - at[0]];
    let variables = [variable(-1.2), variable(1.0)];
    let mut calls = |places: &[Vec<f64>]| -> Result<Vec<Vec<f64>>, Infallible> {
        Ok(places.iter().map(|at| valley(at)).collect())
    };
    let Ok(found) = fit(&variables, Options { max_steps: 2, ..OPTIONS }, &mut calls);
    assert!(!found.is_converged);
    assert_eq!(found.steps, 2);
    assert!(found.chi2() < 24.2, "{}", found.chi2());
    let mut broken = |_: &[Vec<f64>]| Err("no value");
    assert_eq!(fit(&variables, OPTIONS, &mut broken), Err("no value"));
}
