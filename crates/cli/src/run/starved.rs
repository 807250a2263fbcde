//! Adds to an error message how long threads waited for a processor: on a busy machine, that is the
//! likely cause of the failure.

use std::path::Path;
use std::time::{Duration, Instant};

/// A shorter total wait is not reported.
const WORTH_TELLING: Duration = Duration::from_millis(500);
/// A wait of a smaller share of the elapsed time is not reported either.
const WORTH_TELLING_SHARE: f64 = 0.1;

/// The time and the total wait of this process's threads when something began.
pub struct Before {
    at: Instant,
    waited: Option<Duration>,
}

impl Before {
    /// The state now.
    pub fn now() -> Self {
        Self { at: Instant::now(), waited: waited(Path::new("/proc/self/task")) }
    }

    /// The reason, followed by the time for which threads were ready to run but had no processor,
    /// if that is long.
    pub fn explain(&self, why: String) -> String {
        let now = waited(Path::new("/proc/self/task"));
        let (Some(before), Some(now)) = (self.waited, now) else { return why };
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        match told(now.saturating_sub(before), self.at.elapsed(), &load, cpus) {
            Some(more) => format!("{why}; {more}"),
            None => why,
        }
    }
}

fn told(waited: Duration, of: Duration, load: &str, cpus: usize) -> Option<String> {
    if waited < WORTH_TELLING || waited < of.mul_f64(WORTH_TELLING_SHARE) {
        return None;
    }
    let (waited, of) = (waited.as_secs_f64(), of.as_secs_f64());
    let load = load.split(' ').next().filter(|load| !load.is_empty());
    let load = load.map(|load| format!(" (load {load} on {cpus} processors)")).unwrap_or_default();
    Some(format!(
        "the machine is busy: this rank's threads waited {waited:.1} s for a processor within \
         {of:.1} s{load}"
    ))
}

/// How long the threads of a process were ready to run but had no processor (`schedstat`, proc(5));
/// `None` if the kernel does not report it.
fn waited(tasks: &Path) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir(tasks).ok()? {
        // A thread that has ended meanwhile is skipped.
        let Ok(text) = std::fs::read_to_string(task.ok()?.path().join("schedstat")) else {
            continue;
        };
        sum += Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_told_and_a_short_one_is_not() {
        let seconds = Duration::from_secs_f64;
        let of = |waited, of| told(seconds(waited), seconds(of), "17.20 12.00 8.00 3/200 7\n", 2);
        assert_eq!(
            of(3.0, 12.5).as_deref(),
            Some(
                "the machine is busy: this rank's threads waited 3.0 s for a processor within 12.5 \
                 s (load 17.20 on 2 processors)"
            )
        );
        assert_eq!(of(0.4, 1.0), None);
        assert_eq!(of(3.0, 100.0), None);
        assert!(
            told(seconds(3.0), seconds(4.0), "", 2).is_some_and(|text| text.ends_with("4.0 s"))
        );
    }

    #[test]
    fn the_kernels_figures_are_read() {
        let directory = tempfile::tempdir().unwrap();
        for (task, text) in [("7", "5 1500000000 9\n"), ("8", "5 500000000 9\n")] {
            std::fs::create_dir(directory.path().join(task)).unwrap();
            std::fs::write(directory.path().join(task).join("schedstat"), text).unwrap();
        }
        std::fs::create_dir(directory.path().join("9")).unwrap();
        assert_eq!(waited(directory.path()), Some(Duration::from_secs(2)));
        assert_eq!(waited(Path::new("/nowhere")), None);
        assert!(waited(Path::new("/proc/self/task")).is_some());
    }
}
