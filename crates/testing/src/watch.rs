//! Checks whether a test got enough processor time, by steal time and by time spent waiting for a
//! processor.

use std::fmt;
use std::time::{Duration, Instant};

/// Why times of messages cannot be measured now: so many programs compete for each processor that a
/// measurement would only show their load.
pub fn too_busy() -> Option<String> {
    const PER_PROCESSOR: f64 = 3.0;
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let processors = std::thread::available_parallelism().ok()?.get() as f64;
    let is_busy = load > PER_PROCESSOR * processors;
    is_busy.then(|| format!("a load of {load} on {processors} processors leaves it open"))
}

/// Observes the machine during an attempt, to tell whether the attempt got enough processor time.
pub struct Watch {
    began: Instant,
    at_first: Figures,
}

/// What the kernel has counted.
struct Figures {
    /// Of all processors together, in ticks: taken by other guests of the hypervisor, and all.
    stolen: u64,
    ticks: u64,
    /// Time in which some task waited for a processor; `None` if the kernel does not report it.
    waited: Option<Duration>,
}

impl Watch {
    /// From now on.
    pub fn begin() -> Self {
        Self { began: Instant::now(), at_first: Figures::now() }
    }

    /// Whether there is no time for another attempt.
    pub fn is_over(&self, budget: Duration) -> bool {
        self.began.elapsed() >= budget
    }

    /// Why times of messages could not be measured, if other programs took the processors
    /// meanwhile.
    pub fn too_busy(&self) -> Option<String> {
        self.was_disturbed().then(|| format!("{self}: that leaves it open")).or_else(too_busy)
    }

    /// Whether other programs, or other guests of the hypervisor, took the processors meanwhile.
    pub fn was_disturbed(&self) -> bool {
        /// Even at this share of stolen ticks, some messages are late by milliseconds.
        const STOLEN: f64 = 0.02;
        /// Two ends and the test itself stay below this share on two processors.
        const WAITED: f64 = 0.6;
        let (stolen, waited) = self.shares();
        stolen > STOLEN || waited > WAITED
    }

    /// Since it began, the share of all processors that the hypervisor took, and the share of the
    /// time in which somebody waited for one.
    fn shares(&self) -> (f64, f64) {
        let (first, now) = (&self.at_first, Figures::now());
        let ticks = now.ticks.saturating_sub(first.ticks).max(1) as f64;
        let stolen = now.stolen.saturating_sub(first.stolen) as f64 / ticks;
        let waited = now.waited.zip(first.waited).map(|(now, first)| now.saturating_sub(first));
        let waited = waited.unwrap_or_default().as_secs_f64() / self.began.elapsed().as_secs_f64();
        (stolen, waited)
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stolen, waited) = self.shares();
        let (stolen, waited) = (100.0 * stolen, 100.0 * waited);
        write!(
            f,
            "the hypervisor took {stolen:.0} % of the processors, and for {waited:.0} % of the \
             time somebody waited for one"
        )
    }
}

impl Figures {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
        let ticks: Vec<u64> = all.take(8).filter_map(|word| word.parse().ok()).collect();
        let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
        let some = pressure.lines().find(|line| line.starts_with("some "));
        let total = some.and_then(|line| line.split_once("total=")?.1.trim().parse().ok());
        Self {
            stolen: ticks.get(7).copied().unwrap_or_default(),
            ticks: ticks.iter().sum(),
            waited: total.map(Duration::from_micros),
        }
    }
}
