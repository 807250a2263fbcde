//! What simulations take of this machine's time.

use std::sync::Once;
use std::time::Instant;

use rdmalab_sim::Report;

/// Warns once if this is a debug build.
pub fn warn_of_debug_build() {
    static ONCE: Once = Once::new();
    if cfg!(debug_assertions) {
        ONCE.call_once(|| {
            errln!("this is a debug build: simulations take much longer than in a release build");
        });
    }
}

/// What simulations took since it was made.
pub struct Spent {
    began: Instant,
    events: u64,
    virtual_s: f64,
}

impl Spent {
    /// Nothing yet.
    pub fn begin() -> Spent {
        Spent { began: Instant::now(), events: 0, virtual_s: 0.0 }
    }

    /// Adds a simulation.
    pub fn add(&mut self, report: &Report) {
        self.events += report.events;
        self.virtual_s += report.time.ns() / 1e9;
    }

    /// For people, in a line.
    pub fn text(&self) -> String {
        let (events, virtual_s) = (self.events, self.virtual_s);
        let real_s = self.began.elapsed().as_secs_f64().max(1e-9);
        format!(
            "simulated {virtual_s:.6} s in {real_s:.2} s: {events} events, {:.2} million a second, \
             {:.3} virtual seconds a second",
            events as f64 / real_s / 1e6,
            virtual_s / real_s
        )
    }
}
