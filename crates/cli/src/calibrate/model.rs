//! The simulator as the function of a search: from values of parameters to residuals.

use std::cell::RefCell;
use std::sync::Arc;

use rdmalab_experiments::Point;
use rdmalab_fit::{Fit, Options, Variable, fit};
use rdmalab_sim::{Parameter, Profile};

use super::data::{Data, value_of};
use super::scale;
use crate::failure::{Outcome, usage};
use crate::interrupt::Interrupt;
use crate::simulated::{Spent, Task, simulate};

/// A processor looks for a completion every few nanoseconds, so that times of a model jump by as
/// much. An adapter's times vary, which takes the mean over all moments of a look. So each point is
/// simulated with these multiples of the time between looks, and the mean counts.
const LOOKS: [f64; 4] = [0.955, 0.985, 1.015, 1.045];
/// The parameters which say how long looks take.
const LOOK: [&str; 2] = ["poll_empty_ns", "memory_look_ns"];

/// The search: a gain of a hundredth in chi^2 is none; the prior is a hundred times as wide as a
/// usual change.
const OPTIONS: Options =
    Options { max_steps: 20, least_gain: 0.01, insignificant_gain: 1.0, prior_widths: 100.0 };

/// The simulator, and what it is fitted to.
pub struct Model<'a> {
    /// The profile that the search begins with.
    pub base: &'a Profile,
    /// What is wanted.
    pub data: Data,
    /// Ends it.
    pub interrupt: &'a Interrupt,
    /// What its simulations took so far.
    pub spent: RefCell<Spent>,
}

impl Model<'_> {
    /// Leaves out points that cannot be simulated, with the reason.
    ///
    /// # Errors
    /// None is left, or the user wants to stop.
    pub fn check(&mut self) -> Outcome {
        let profile = Arc::new(self.base.clone());
        let task = |place: &super::data::MeasuredPoint| {
            (profile.clone(), place.ranks, place.point.clone())
        };
        let tasks = self.data.places.iter().map(task).collect();
        let found = simulate(tasks, self.interrupt, self.spent.get_mut())?;
        let Data { places, wanted, left_out, .. } = &mut self.data;
        wanted.retain(|one| {
            let why = match &found[one.point] {
                Err(why) => format!("it cannot be simulated: {why}"),
                Ok(measured) if value_of(measured, one).is_none() => {
                    format!("a simulation has no {} {}", one.quantity, one.label)
                }
                Ok(_) => return true,
            };
            let line = format!("{}: {why}", places[one.point].name);
            if !left_out.contains(&line) {
                left_out.push(line);
            }
            false
        });
        match left_out.first() {
            Some(first) if wanted.is_empty() => {
                Err(usage(format!("none of the points can be simulated; {first}")))
            }
            _ => Ok(()),
        }
    }

    /// The base profile with other values.
    pub fn profile(&self, parameters: &[&Parameter], values: &[f64]) -> Profile {
        let mut profile = self.base.clone();
        for (parameter, value) in parameters.iter().zip(values) {
            // `from` keeps within the range, so nothing is refused.
            let _ = profile.set(parameter.name, scale::from(parameter, *value));
        }
        profile
    }

    /// What the model gives for each wanted value; NaN where it has none.
    ///
    /// # Errors
    /// The user wants to stop.
    pub fn values(&self, profiles: &[Profile]) -> Outcome<Vec<Vec<f64>>> {
        let used: Vec<usize> = (0..self.data.places.len())
            .filter(|at| self.data.wanted.iter().any(|one| one.point == *at))
            .collect();
        let tasks = profiles.iter().flat_map(|profile| self.tasks(profile, &used)).collect();
        let found = simulate(tasks, self.interrupt, &mut self.spent.borrow_mut())?;
        let of_profile = |found: &[Result<rdmalab_measure::Outcome, String>]| {
            let value = |one: &super::data::Wanted| {
                let at = used.iter().position(|point| *point == one.point).unwrap_or_default();
                let looks = &found[at * LOOKS.len()..][..LOOKS.len()];
                let each = |done: &Result<_, String>| value_of(done.as_ref().ok()?, one);
                looks.iter().map(|done| each(done).unwrap_or(f64::NAN)).sum::<f64>()
                    / LOOKS.len() as f64
            };
            self.data.wanted.iter().map(value).collect()
        };
        Ok(found.chunks(used.len() * LOOKS.len()).map(of_profile).collect())
    }

    /// Each point with each time between looks, on a profile.
    fn tasks(&self, profile: &Profile, used: &[usize]) -> Vec<Task> {
        let looked = LOOKS.map(|by| {
            let mut profile = profile.clone();
            for name in LOOK {
                let value = profile.parameters.get(name).unwrap_or_default();
                // A value at the end of the range stays there.
                let _ = profile.set(name, value * by);
            }
            Arc::new(profile)
        });
        let task = |at: &usize| {
            let place = &self.data.places[*at];
            let of =
                |profile: &Arc<Profile>| (profile.clone(), place.ranks, Point::clone(&place.point));
            looked.iter().map(of).collect::<Vec<Task>>()
        };
        used.iter().flat_map(task).collect()
    }

    /// Fits these parameters.
    ///
    /// # Errors
    /// The user wants to stop.
    pub fn fit(&self, parameters: &[&Parameter], max_steps: usize) -> Outcome<Fit> {
        let variables: Vec<Variable> =
            parameters.iter().map(|parameter| scale::variable(parameter, self.base)).collect();
        let mut residuals = |places: &[Vec<f64>]| {
            let profiles: Vec<Profile> =
                places.iter().map(|values| self.profile(parameters, values)).collect();
            let all = self.values(&profiles)?;
            Ok(all.iter().map(|values| self.residuals(values)).collect())
        };
        fit(&variables, Options { max_steps, ..OPTIONS }, &mut residuals)
    }

    /// The differences of values from those that are wanted, in standard errors.
    pub fn residuals(&self, values: &[f64]) -> Vec<f64> {
        let wanted = self.data.wanted.iter().zip(values);
        wanted.map(|(one, value)| (value - one.value) / one.error).collect()
    }
}

/// Most steps of a search.
pub const MAX_STEPS: usize = OPTIONS.max_steps;
