//! The conditions that a study's plan gives for simulations: `--device sim` takes them. A sweep may
//! have an adapter of its own.

use rdmalab_experiments::Limits;
use rdmalab_study::{Figure, Plan, Simulated, Sweep, SweepCommand, Topology};

use super::dir::Request;

/// How a part is simulated where the plan chooses.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The plan's for this part.
    plan: Simulated,
    /// Its profile, if that is not the profile of the whole plan.
    own_profile: Option<String>,
    /// The limits of an adapter of its own.
    limits: Option<Box<Limits>>,
}

impl Conditions {
    /// Those of a sweep.
    pub fn of(plan: &Plan, figure: &Figure, sweep: &Sweep) -> Self {
        let of_plan = plan.simulated(figure, sweep);
        let own_profile = of_plan.profile.clone().filter(|_| of_plan.profile != plan.sim.profile);
        Self { plan: of_plan, own_profile, limits: None }
    }

    /// Takes them into the options of a sweep, if the plan chose the device.
    ///
    /// # Errors
    /// It did not, and this sweep has an adapter of its own.
    pub fn take(&self, words: &mut SweepCommand, request: &Request) -> Result<(), String> {
        match &self.own_profile {
            _ if request.is_of_plan => add(words, self.plan.options()),
            Some(profile) => {
                return Err(format!("it applies to sim:{profile} only: choose --device sim"));
            }
            None => {}
        }
        Ok(())
    }

    /// The request with the sweep's own device, if it has one.
    pub fn own_request(&self, request: &Request) -> Option<Request> {
        let profile = self.own_profile.as_ref().filter(|_| request.is_of_plan)?;
        Some(Request { device: format!("sim:{profile}"), ..request.clone() })
    }

    /// Sets the limits of its own device.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(Box::new(limits));
    }

    /// The limits of the sweep's device, where `of_study` are those of the study's.
    pub fn limits<'a>(&'a self, of_study: &'a Limits) -> &'a Limits {
        self.limits.as_deref().unwrap_or(of_study)
    }
}

/// Adds options in place of those of the same name.
fn add(words: &mut SweepCommand, options: Vec<(String, String)>) {
    for (name, value) in options {
        match words.options.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => words.options.push((name, value)),
        }
    }
}

/// The link, topology and processor of a whole plan in words: `link qdr, topology cable`.
pub fn described(plan: &Plan) -> String {
    let link = plan.sim.link.iter().map(|link| format!("link {link}"));
    let topology = plan.sim.topology.map(|topology| match topology {
        Topology::Cable => "topology cable".to_owned(),
        Topology::Switch => "topology switch".to_owned(),
        Topology::FatTree { leaf_ports, leaf_uplinks } => {
            format!(
                "topology fat tree, {leaf_ports} adapters at each leaf, {leaf_uplinks} links up"
            )
        }
    });
    let processor = plan.sim.processor.iter().map(|with| format!("processor with {with}"));
    link.chain(topology).chain(processor).collect::<Vec<_>>().join(", ")
}
