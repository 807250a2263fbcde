//! The progress line on a terminal: how far a run is, and how long it will take.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rdmalab_experiments::Point;
use rdmalab_rank::process::TeamEvent;

use super::plan::{Plan, duration, expected_s};

/// The progress line; nothing is shown if standard error is no terminal.
pub struct Progress {
    bar: ProgressBar,
    began: Instant,
    /// Expected seconds of the finished points, of the running point, and of all points.
    done_s: f64,
    running_s: f64,
    all_s: f64,
}

impl Progress {
    /// The progress at the beginning of a plan.
    pub fn new(plan: &Plan) -> Self {
        let bar = ProgressBar::new(plan.turns.len() as u64);
        let style = ProgressStyle::with_template("[{pos}/{len}] {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, began: Instant::now(), done_s: 0.0, running_s: 0.0, all_s: plan.expected_s() }
    }

    /// Shows that the next point begins.
    pub fn begin(&mut self, point: &Point, turn: usize, what: &str) {
        self.running_s = expected_s(point);
        self.bar.set_position(turn as u64);
        // With `--until` the number of points is not known beforehand.
        self.bar.set_length(self.bar.length().unwrap_or(0).max(turn as u64 + 1));
        let left = match self.left() {
            Some(left) => format!(", {} left", duration(left.as_secs_f64())),
            None => format!(", about {} in all", duration(self.all_s)),
        };
        self.bar.set_message(format!("{what}{left}"));
    }

    /// Notes that the point is finished.
    pub fn end(&mut self) {
        self.done_s += self.running_s;
    }

    /// The remaining time, from the pace so far; `None` before the first point is finished.
    fn left(&self) -> Option<Duration> {
        if self.done_s <= 0.0 {
            return None;
        }
        let pace = self.began.elapsed().as_secs_f64() / self.done_s;
        Duration::try_from_secs_f64((self.all_s - self.done_s).max(0.0) * pace).ok()
    }

    /// Shows an event at a rank, or that time went by.
    pub fn event(&self, event: TeamEvent) {
        match event {
            TeamEvent::Tick => self.bar.tick(),
            TeamEvent::Log { rank, text } => self.print_line(&format!("rank {rank}: {text}")),
        }
    }

    /// Prints a permanent line above the progress line.
    pub fn print_line(&self, line: &str) {
        self.bar.suspend(|| {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "rdmalab: {line}");
        });
    }
}

impl Drop for Progress {
    /// Removes the progress line.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
