//! What happened to a message in virtual time, and where the time of all messages went.

use rdmalab_measure::{Outcome as Measured, at_rank};
use rdmalab_sim::{Breakdown, Report, Step};
use serde::{Deserialize, Serialize};

use crate::failure::{Outcome, usage};
use crate::table::Rows;

/// The message whose steps are wanted: from this post of a rank, from 0, to its next one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Wanted {
    pub rank: usize,
    pub message: u64,
}

impl Wanted {
    /// Checks that there is such a rank.
    ///
    /// # Errors
    /// There is none.
    pub fn check(self, ranks: usize) -> Outcome {
        match self.rank < ranks {
            true => Ok(()),
            false => Err(usage(format!(
                "--timeline-rank {}: there are {ranks} ranks: choose 0 to {}",
                self.rank,
                ranks.saturating_sub(1)
            ))),
        }
    }

    /// Adds where the time of the rank's messages went to its results, for records.
    pub fn keep(self, measured: &mut Measured, breakdown: &Breakdown) {
        let mut push = |name: &str, value| measured.push_count(&at_rank(name, self.rank), value);
        push("timeline_posts", breakdown.messages);
        push("timeline_ps", breakdown.total.0);
        for (component, time) in &breakdown.by_component {
            let name = component.name().to_lowercase().replace([' ', '-'], "_");
            push(&format!("timeline_ps_{name}"), time.0);
        }
    }

    /// The steps and the means, as tables.
    ///
    /// # Errors
    /// The rank has not posted so many.
    pub fn text(self, report: &Report) -> Outcome<String> {
        let Wanted { rank, message } = self;
        if report.timeline.is_empty() {
            let why = format!("--timeline {message}: rank {rank} posted fewer messages");
            return Err(usage(why));
        }
        let head =
            format!("from post {message} of rank {rank} to its next one, in virtual time [ns]");
        let steps = steps(&report.timeline);
        Ok(format!("{head}\n{steps}\n{}", means(rank, &report.breakdown)))
    }
}

/// A row for each step. The last column has what the next post waited for.
fn steps(steps: &[Step]) -> String {
    let mut rows = Rows::new(&["rank", "component", "what", "at", "step", "waited"], 3);
    let first = steps.first().map(|step| step.at).unwrap_or_default();
    let mut before = first;
    for step in steps {
        rows.push(&[
            step.rank.to_string(),
            step.component.name().to_owned(),
            step.what.clone(),
            format!("{:.1}", (step.at - first).ns()),
            format!("{:.1}", (step.at - before).ns()),
            step.on_path.map_or(String::new(), |time| format!("{:.1}", time.ns())),
        ]);
        before = step.at;
    }
    rows.text()
}

/// The mean time of each component, and its share.
fn means(rank: usize, breakdown: &Breakdown) -> String {
    let Breakdown { messages, total, by_component } = breakdown;
    if *messages == 0 {
        return format!("rank {rank} has posted once only: there is no mean\n");
    }
    let mut rows = Rows::new(&["component", "mean [ns]", "share"], 1);
    let mut push = |name: &str, ps: u64| {
        let share = 100.0 * ps as f64 / total.0.max(1) as f64;
        let mean_ns = ps as f64 / 1e3 / *messages as f64;
        rows.push(&[name.to_owned(), format!("{mean_ns:.3}"), format!("{share:.1} %")]);
    };
    for (component, time) in by_component {
        push(component.name(), time.0);
    }
    push("from post to post", total.0);
    format!(
        "what the posts of rank {rank} waited for, the mean of all {messages} times from a post \
         to the next one, with warm-up:\n{}",
        rows.text()
    )
}
