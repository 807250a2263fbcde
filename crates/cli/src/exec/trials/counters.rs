//! What the processes of a trial counted: the files that they left in its runtime directory.

use std::io::Read as _;
use std::path::Path;

use rdmalab_engine::odp;
use rdmalab_measure::outcome::Count;

/// Most files that are read.
const MAX_FILES: usize = 4096;
/// A file of a process is shorter: so many intervals with four numbers each, and the sums.
const MAX_BYTES: u64 = (odp::INTERVALS_MAX as u64 + 40) * 100;
/// The state of a process in its file that ended without writing it again.
const RUNNING: &str = "open";

/// The sum over all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Processes that opened a device.
    pub processes: u64,
    /// Processes of which the numbers at the end are missing.
    pub unfinished: u64,
    /// The sums, in the order of the first file.
    pub sums: Vec<Count>,
    /// When pages of on-demand regions were missing, taken away and prefetched, by
    /// `CLOCK_MONOTONIC`.
    pub pages: odp::Timeline,
    /// Files that were not read: too many, or not as a process writes them.
    pub unread: u64,
}

impl Counters {
    /// Reads the files of a directory.
    pub fn of(directory: &Path) -> Counters {
        let mut found = Counters::default();
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        // A process that was killed while it wrote leaves this beside its file.
        paths.retain(|path| path.extension().is_none());
        paths.sort();
        for path in paths {
            let is_one_more = found.processes < MAX_FILES as u64;
            found.processes += 1;
            if !is_one_more || read(&path).and_then(|text| found.add(&text)).is_none() {
                found.unread += 1;
            }
        }
        found
    }

    /// Adds the numbers of a process; `None` if the text is not what a process writes.
    fn add(&mut self, text: &str) -> Option<()> {
        let mut lines = text.lines();
        let state = lines.next()?;
        let (mut numbers, mut pages) = (Vec::new(), odp::Timeline::default());
        for line in lines {
            let (name, value) = line.split_once(' ')?;
            match name {
                "page_interval_ns" => pages = odp::Timeline::with_intervals(value.parse().ok()?)?,
                "pages" => {
                    let (start_ns, counters) = interval(value)?;
                    pages.add(start_ns, &counters);
                }
                _ => numbers.push((name.to_owned(), value.parse::<u64>().ok()?)),
            }
        }
        self.pages.add_all(&pages);
        self.unfinished += u64::from(state == RUNNING);
        for (name, value) in numbers {
            match self.sums.iter_mut().find(|sum| sum.name == name) {
                Some(sum) => sum.value = sum.value.saturating_add(value),
                None => self.sums.push(Count { name, value }),
            }
        }
        Some(())
    }

    /// The reasons why the sums are too small.
    pub fn doubts(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.unfinished > 0 {
            found.push(format!(
                "{} of {} processes ended without leaving their last counters (killed, ended by \
                 _exit, or replaced by exec): what they did since they last opened or closed a \
                 device is missing from the sums",
                self.unfinished, self.processes
            ));
        }
        if self.unread > 0 {
            found.push(format!("the counters of {} processes could not be read", self.unread));
        }
        let uncounted = self.sums.iter().find(|sum| sum.name == "uncounted_queue_pairs");
        if let Some(sum) = uncounted.filter(|sum| sum.value > 0) {
            found.push(format!(
                "{} queue pairs were in use when their process ended, and are not in the sums",
                sum.value
            ));
        }
        found
    }
}

/// The begin of an interval, and what happened to pages in it.
fn interval(text: &str) -> Option<(u64, odp::Counters)> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|word| word.parse().ok()).collect();
    let [start_ns, page_faults, page_invalidations, page_prefetches] = numbers?[..] else {
        return None;
    };
    Some((start_ns, odp::Counters { page_faults, page_invalidations, page_prefetches }))
}

/// The text of a file that is no longer than a process writes it.
fn read(path: &Path) -> Option<String> {
    let file =
        std::fs::File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let mut text = String::new();
    let bytes = file.take(MAX_BYTES + 1).read_to_string(&mut text).ok()?;
    (bytes as u64 <= MAX_BYTES).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_added_up_and_what_is_missing_is_named() {
        let home = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
        put("1-5", "exited\nqueue_pairs 2\nbytes 10\n");
        put("2-5", "closed\nqueue_pairs 1\nbytes 5\nmore 1\n");
        put("2-5.new", "exi");
        let found = Counters::of(home.path());
        assert_eq!((found.processes, found.unfinished, found.unread), (2, 0, 0));
        let sums: Vec<(&str, u64)> = found.sums.iter().map(|c| (&*c.name, c.value)).collect();
        assert_eq!(sums, [("queue_pairs", 3), ("bytes", 15), ("more", 1)]);
        assert!(found.doubts().is_empty());

        put("3-5", "open\nqueue_pairs 0\nuncounted_queue_pairs 4\n");
        put("4-5", "exited\nqueue_pairs many\n");
        put("5-5", &format!("exited\n{}", "x 1\n".repeat(8000)));
        put("6-5", "");
        let found = Counters::of(home.path());
        assert_eq!((found.processes, found.unfinished, found.unread), (6, 1, 3));
        let doubts = found.doubts();
        assert!(doubts[0].starts_with("1 of 6 processes ended without"), "{doubts:?}");
        assert!(doubts[1].contains("of 3 processes") && doubts[2].starts_with("4 queue pairs"));
        assert_eq!(Counters::of(&home.path().join("none")), Counters::default());
    }

    #[test]
    fn processes_say_when_something_happened_to_pages() {
        let mut found = Counters::default();
        let fine = "closed\npage_faults 3\npage_interval_ns 1000000\n\
                    pages 7000000 1 0 0\npages 9000000 2 0 0\n";
        let coarse = "exited\npage_faults 4\npage_interval_ns 2000000\npages 8000000 4 5 6\n";
        assert_eq!(found.add(fine), Some(()));
        assert_eq!(found.add(coarse), Some(()));
        let sums: Vec<_> = found.sums.iter().map(|c| (&*c.name, c.value)).collect();
        assert_eq!(sums, [("page_faults", 7)]);
        let (interval_ns, all) = found.pages.clone().from(0);
        let all: Vec<_> = all.iter().map(|one| one.named().map(|(_, count)| count)).collect();
        assert_eq!(interval_ns, 2_000_000);
        assert_eq!(all, [[0; 3], [0; 3], [0; 3], [1, 0, 0], [6, 5, 6]]);
        let (most, ms) = (u64::MAX, 1_000_000);
        let lines = (0..odp::INTERVALS_MAX as u64)
            .map(|n| format!("pages {} {most} {most} {most}\n", most - n * ms));
        let sums = (0..40).map(|n| format!("a_counter_with_a_rather_long_name_{n} {most}\n"));
        let text: String = sums.chain(lines).collect();
        assert!((text.len() as u64) < MAX_BYTES, "{} bytes", text.len());
        let before = found.clone();
        for wrong in ["pages 1 2 3", "pages 1 2 3 4 5", "pages 1 2 x 4", "page_interval_ns 3"] {
            assert_eq!(found.add(&format!("exited\npage_faults 1\n{wrong}\n")), None, "{wrong}");
        }
        assert_eq!(found, before, "of a file that is not understood nothing counts");
    }
}
