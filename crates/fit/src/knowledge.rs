//! How well the values of a fit are known: errors, and variables that cannot be told apart.

use nalgebra::{DMatrix, DVector};

use crate::search::Fit;

/// A combination is unknown if its singular value is less than this, where the columns of all
/// variables have length 1. For two columns this is an angle of about 2 degrees.
const PARALLEL: f64 = 0.025;
/// A variable belongs to an unknown combination if it has so much of it (the square of a cosine).
const LEAST_PART: f64 = 0.02;
/// Two variables count alike if the lengths of their columns differ by less than this.
const ALIKE: f64 = 0.05;

/// What a fit tells of the variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Knowledge {
    /// The covariance of the values, from J^T J and the prior.
    pub covariance: DMatrix<f64>,
    /// Variables on which no residual depends.
    pub idle: Vec<usize>,
    /// Variables on which the residuals depend so little that even alone they would not be known.
    pub weak: Vec<usize>,
    /// Variables of which only combinations are known.
    pub groups: Vec<Group>,
}

/// Variables that the residuals do not tell apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Which.
    pub members: Vec<usize>,
    /// How many combinations of them are known.
    pub known: usize,
    /// How much each counts in the combination that is known, if it is one; the least has 1 or -1.
    pub weights: Vec<f64>,
}

impl Group {
    /// Whether what is known is the sum of all members.
    #[must_use]
    pub fn is_sum(&self) -> bool {
        self.known == 1 && self.weights.iter().all(|weight| (weight - 1.0).abs() < ALIKE)
    }
}

impl Knowledge {
    /// The standard error of a variable.
    #[must_use]
    pub fn error(&self, variable: usize) -> f64 {
        self.covariance[(variable, variable)].sqrt()
    }

    /// The standard error of a combination of variables.
    #[must_use]
    pub fn error_of(&self, members: &[usize], weights: &[f64]) -> f64 {
        let mut all = DVector::zeros(self.covariance.nrows());
        members.iter().zip(weights).for_each(|(i, weight)| all[*i] = *weight);
        (all.transpose() * &self.covariance * &all)[(0, 0)].max(0.0).sqrt()
    }

    /// Whether the value of a variable is known: something depends on it, and on no other one in
    /// the same way.
    #[must_use]
    pub fn is_known(&self, variable: usize) -> bool {
        let is_it = |other: &usize| *other == variable;
        !self.idle.iter().chain(&self.weak).any(is_it)
            && !self.groups.iter().any(|group| group.members.iter().any(is_it))
    }
}

impl Fit {
    /// What the fit tells of the variables. `worth` has, for each of them, the standard error from
    /// which on a value counts as unknown.
    #[must_use]
    pub fn knowledge(&self, worth: &[f64]) -> Knowledge {
        let lengths: Vec<f64> = self.jacobian.column_iter().map(|column| column.norm()).collect();
        let all = 0..lengths.len();
        let idle: Vec<usize> = all.clone().filter(|i| lengths[*i] == 0.0).collect();
        let is_weak = |i: &usize| lengths[*i] > 0.0 && lengths[*i] * worth[*i] < 1.0;
        let weak: Vec<usize> = all.clone().filter(is_weak).collect();
        let strong: Vec<usize> =
            all.filter(|i| lengths[*i] > 0.0 && lengths[*i] * worth[*i] >= 1.0).collect();
        let groups = self.groups(&strong, &lengths);
        Knowledge { covariance: self.covariance(), idle, weak, groups }
    }

    /// The inverse of J^T J with the prior, computed in widths of the variables.
    fn covariance(&self) -> DMatrix<f64> {
        let (rows, columns) = self.jacobian.shape();
        let widths = DVector::from_iterator(columns, self.variables.iter().map(|of| of.width));
        let mut matrix = DMatrix::zeros(rows + columns, columns);
        let scaled = &self.jacobian * DMatrix::from_diagonal(&widths);
        matrix.view_mut((0, 0), (rows, columns)).copy_from(&scaled);
        (0..columns).for_each(|i| matrix[(rows + i, i)] = 1.0 / self.prior_widths);
        let svd = matrix.svd(false, true);
        let mut right = svd.v_t.unwrap_or_else(|| DMatrix::identity(columns, columns));
        for (mut row, singular) in right.row_iter_mut().zip(svd.singular_values.iter()) {
            row /= *singular;
        }
        let scale = DMatrix::from_diagonal(&widths);
        &scale * right.transpose() * right * &scale
    }

    /// The variables that share unknown combinations: the blocks of the projection on all
    /// combinations whose singular values are small.
    fn groups(&self, strong: &[usize], lengths: &[f64]) -> Vec<Group> {
        let count = strong.len();
        if count == 0 {
            return Vec::new();
        }
        let rows = self.jacobian.nrows();
        // With fewer rows than columns, the last combinations have no singular values.
        let mut unit = DMatrix::zeros(rows.max(count), count);
        for (k, i) in strong.iter().enumerate() {
            let column = self.jacobian.column(*i) / lengths[*i];
            unit.view_mut((0, k), (rows, 1)).copy_from(&column);
        }
        let svd = unit.clone().svd(false, true);
        let Some(right) = svd.v_t else { return Vec::new() };
        let mut unknown = DMatrix::zeros(count, count);
        for (row, singular) in right.row_iter().zip(svd.singular_values.iter()) {
            if *singular < PARALLEL {
                unknown += row.transpose() * row;
            }
        }
        let group = |members: &Vec<usize>| {
            // The trace of a projection is the number of its dimensions.
            let trace: f64 = members.iter().map(|k| unknown[(*k, *k)]).sum();
            let first = unit.column(members[0]);
            let least = members.iter().map(|k| lengths[strong[*k]]).fold(f64::INFINITY, f64::min);
            let weight = |k: &usize| {
                let sign = if unit.column(*k).dot(&first) < 0.0 { -1.0 } else { 1.0 };
                sign * lengths[strong[*k]] / least
            };
            Group {
                members: members.iter().map(|k| strong[*k]).collect(),
                known: members.len().saturating_sub(trace.round() as usize),
                weights: members.iter().map(weight).collect(),
            }
        };
        blocks(&unknown).iter().map(group).collect()
    }
}

/// The sets of variables that a projection connects; those that it does not contain are in none.
fn blocks(projection: &DMatrix<f64>) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> =
        (0..projection.nrows()).filter(|k| projection[(*k, *k)] > LEAST_PART).collect();
    let mut found = Vec::new();
    while let Some(first) = left.first().copied() {
        let mut block = vec![first];
        left.remove(0);
        let mut next = 0;
        while next < block.len() {
            let of = block[next];
            let is_joined = |k: &usize| projection[(of, *k)].abs() > LEAST_PART;
            block.extend(left.iter().copied().filter(is_joined));
            left.retain(|k| !is_joined(k));
            next += 1;
        }
        block.sort_unstable();
        found.push(block);
    }
    found
}
