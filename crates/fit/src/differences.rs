//! Derivatives from finite differences.

use nalgebra::{DMatrix, DVector};

use crate::variable::{Function, Variable};

/// The residuals at a place, and their derivatives by each variable.
pub struct Local {
    /// The residuals.
    pub residuals: DVector<f64>,
    /// A row for each residual, a column for each variable.
    pub jacobian: DMatrix<f64>,
}

/// The residuals and derivatives at `at`, from one call of the function.
///
/// # Errors
/// Those of the function.
pub fn local<E>(
    variables: &[Variable],
    at: &[f64],
    function: &mut Function<'_, E>,
) -> Result<Local, E> {
    let moved = |i: usize, value: f64| {
        let mut to = at.to_vec();
        to[i] = value;
        to
    };
    let ends: Vec<(f64, f64)> = variables
        .iter()
        .zip(at)
        .map(|(of, value)| ((value - of.step).max(of.min), (value + of.step).min(of.max)))
        .collect();
    let mut places = vec![at.to_vec()];
    for (i, (low, high)) in ends.iter().enumerate() {
        places.extend([moved(i, *low), moved(i, *high)]);
    }
    let found = function(&places)?;
    let residuals = DVector::from_column_slice(&found[0]);
    let mut jacobian = DMatrix::zeros(residuals.len(), variables.len());
    for (i, ((low, high), pair)) in ends.iter().zip(found[1..].chunks_exact(2)).enumerate() {
        for row in 0..residuals.len() {
            let slope = (pair[1][row] - pair[0][row]) / (high - low);
            // It is not finite if the bounds meet, or where the function has no value.
            jacobian[(row, i)] = if slope.is_finite() { slope } else { 0.0 };
        }
    }
    Ok(Local { residuals, jacobian })
}
